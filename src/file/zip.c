/* One member out of a zip archive. A mapped archive in, a file out. Written from PKWARE's APPNOTE 6.3: the end record at the file's end
   points to the central directory, whose entries point to local headers, which precede the data. Stored and deflated members, no zip64, no
   encryption. Sizes and offsets are bounded before use; the output stops at the size the directory states, and its CRC-32 must match. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include "file/priv.h"

enum { END_BYTES = 22, ENTRY_BYTES = 46, LOCAL_BYTES = 30, COMMENT_MAX = 65535, CHUNK = 1 << 18, STORED = 0, DEFLATED = 8 };

static uint32_t u16_at(const uint8_t *p) { return p[0] | (uint32_t)p[1] << 8; }
static uint32_t u32_at(const uint8_t *p) { return u16_at(p) | u16_at(p + 2) << 16; }

typedef struct Member { const uint8_t *p; size_t n_packed, n_bytes; uint32_t crc, method; } Member;

static Err *find_end(const FileMap *m, const uint8_t **out) {
  if (m->n_bytes < END_BYTES) return err_new(ERR_FORMAT, "%zu bytes long, too short for a zip archive", m->n_bytes);
  size_t lowest = m->n_bytes - END_BYTES > COMMENT_MAX ? m->n_bytes - END_BYTES - COMMENT_MAX : 0;
  for (size_t at = m->n_bytes - END_BYTES;; at--) {
    if (u32_at(m->p + at) == 0x06054b50 && at + END_BYTES + u16_at(m->p + at + 20) == m->n_bytes) {
      *out = m->p + at;
      return NULL;
    }
    if (at == lowest) return err_new(ERR_FORMAT, "no end record of a zip archive: it is truncated or no zip");
  }
}

/* A directory entry's data, through its local header. */
static Err *locate(const FileMap *m, const uint8_t *entry, Member *out) {
  size_t at = u32_at(entry + 42), packed = u32_at(entry + 20), plain = u32_at(entry + 24);
  uint32_t method = u16_at(entry + 10);
  if (at == UINT32_MAX || packed == UINT32_MAX || plain == UINT32_MAX) return err_new(ERR_UNSUPPORTED, "zip64, expected sizes below 4 GiB");
  if (u16_at(entry + 8) & 1) return err_new(ERR_UNSUPPORTED, "encrypted");
  if (method != STORED && method != DEFLATED) return err_new(ERR_UNSUPPORTED, "compression method %u, expected stored (0) or deflated (8)", method);
  if (m->n_bytes < LOCAL_BYTES || at > m->n_bytes - LOCAL_BYTES || u32_at(m->p + at) != 0x04034b50) return err_new(ERR_FORMAT, "local header at byte %zu is missing", at);
  size_t data = at + LOCAL_BYTES + u16_at(m->p + at + 26) + u16_at(m->p + at + 28);
  if (data > m->n_bytes || packed > m->n_bytes - data) return err_new(ERR_FORMAT, "%zu bytes at byte %zu, expected within the archive's %zu", packed, data, m->n_bytes);
  if (method == STORED && packed != plain) return err_new(ERR_FORMAT, "stored with %zu bytes for %zu", packed, plain);
  *out = (Member){m->p + data, packed, plain, u32_at(entry + 16), method};
  return NULL;
}

static Err *find_member(const FileMap *m, const char *name, Member *out) {
  const uint8_t *end;
  TRY(find_end(m, &end));
  size_t n_before = (size_t)(end - m->p), size = u32_at(end + 12), at = u32_at(end + 16), n_name = strlen(name);
  if (at > n_before || size > n_before - at) return err_new(ERR_FORMAT, "central directory of %zu bytes at byte %zu, expected before byte %zu", size, at, n_before);
  for (size_t stop = at + size; stop - at >= ENTRY_BYTES && u32_at(m->p + at) == 0x02014b50;) {
    const uint8_t *e = m->p + at;
    size_t n = u16_at(e + 28), whole = ENTRY_BYTES + n + u16_at(e + 30) + u16_at(e + 32);
    if (whole > stop - at) break;
    if (n == n_name && !memcmp(e + ENTRY_BYTES, name, n)) return err_wrap(locate(m, e, out), "%s", name);
    at += whole;
  }
  return err_new(ERR_NOT_FOUND, "no member %s", name);
}

typedef struct Sink { FILE *f; const char *to; size_t n_done; const Member *member; uint32_t crc; FileProgress progress; } Sink;

static Err *put(Sink *s, const uint8_t *p, size_t n) {
  if (n > s->member->n_bytes - s->n_done) return err_new(ERR_FORMAT, "unpacks to more than the %zu bytes the directory states", s->member->n_bytes);
  if (n && fwrite(p, 1, n, s->f) != n) return err_new(ERR_IO, "%s: cannot be written: %s", s->to, strerror(errno));
  s->crc = (uint32_t)crc32(s->crc, p, (uInt)n);
  s->n_done += n;
  if (s->progress.fn && !s->progress.fn(s->progress.ctx, "unpacking", s->n_done, s->member->n_bytes)) return err_new(ERR_CANCELLED, "cancelled");
  return NULL;
}

static Err *put_stored(Sink *s) {
  for (size_t at = 0; at < s->member->n_packed; at += CHUNK) TRY(put(s, s->member->p + at, MIN((size_t)CHUNK, s->member->n_packed - at)));
  return NULL;
}

static Err *put_deflated(Sink *s) {
  uint8_t *chunk = malloc(CHUNK);
  CHECK(chunk, "out of memory for a chunk");
  z_stream z = {.next_in = (Bytef *)(uintptr_t)s->member->p, .avail_in = (uInt)s->member->n_packed};
  int rc = inflateInit2(&z, -MAX_WBITS);
  Err *e = rc == Z_OK ? NULL : err_new(ERR_MEMORY, "zlib cannot start");
  while (!e && rc == Z_OK) {
    z.next_out = chunk;
    z.avail_out = CHUNK;
    rc = inflate(&z, Z_NO_FLUSH);
    if (rc == Z_OK || rc == Z_STREAM_END) e = put(s, chunk, CHUNK - z.avail_out);
    else e = err_new(ERR_FORMAT, "damaged deflate data: %s", z.msg ? z.msg : "it ends too early");
  }
  inflateEnd(&z);
  free(chunk);
  return e;
}

Err *file_zip_extract(const char *zip, const char *member, const char *to, uint64_t max_bytes, FileProgress progress) {
  FileMap m;
  Member found = {0};
  TRY(os_map_file(zip, &m));
  Sink s = {.to = to, .member = &found, .progress = progress};
  Err *e = find_member(&m, member, &found);
  if (!e && found.n_bytes > max_bytes) e = err_new(ERR_LIMIT, "%s: %zu bytes, expected at most %llu", member, found.n_bytes, (unsigned long long)max_bytes);
  if (!e && !(s.f = fopen(to, "wbe"))) e = err_new(ERR_IO, "%s: cannot be written: %s", to, strerror(errno));
  if (!e) e = err_wrap(found.method == STORED ? put_stored(&s) : put_deflated(&s), "%s", member);
  if (s.f && fclose(s.f) && !e) e = err_new(ERR_IO, "%s: cannot be written: %s", to, strerror(errno));
  if (!e && (s.n_done != found.n_bytes || s.crc != found.crc))
    e = err_new(ERR_FORMAT, "%s: %zu bytes with CRC %08x, expected %zu with %08x", member, s.n_done, s.crc, found.n_bytes, found.crc);
  if (e && s.f) unlink(to);
  e = err_wrap(e, "%s", zip);
  if (os_map_failed(&m)) err_free(e), e = os_map_check(&m, zip);
  os_unmap_file(&m);
  return e;
}
