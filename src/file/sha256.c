/* SHA-256 of a file, by OpenSSL's libcrypto. Path in, 64 lower-case hex digits out. */
#include <openssl/evp.h>
#include <stdlib.h>
#include "file/priv.h"

enum { CHUNK = 1 << 20 };

Err *file_sha256(const char *path, FileProgress progress, char hex[65]) {
  FileMap m;
  TRY(os_map_file(path, &m));
  EVP_MD_CTX *ctx = EVP_MD_CTX_new();
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned n = 0;
  Err *e = NULL;
  bool fine = ctx && EVP_DigestInit_ex(ctx, EVP_sha256(), NULL);
  for (size_t at = 0; fine && !e && at < m.n_bytes; at += CHUNK) {
    if (progress.fn && !progress.fn(progress.ctx, "checking", at, m.n_bytes)) e = err_new(ERR_CANCELLED, "%s: cancelled", path);
    fine = EVP_DigestUpdate(ctx, m.p + at, MIN((size_t)CHUNK, m.n_bytes - at));
  }
  fine = fine && EVP_DigestFinal_ex(ctx, digest, &n) && n == 32;
  EVP_MD_CTX_free(ctx);
  if (!e) e = os_map_check(&m, path);
  os_unmap_file(&m);
  if (!e && !fine) e = err_new(ERR_UNSUPPORTED, "%s: libcrypto computes no SHA-256 here", path);
  if (e) return e;
  for (unsigned i = 0; i < n; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
  return NULL;
}
