/* model/export.h: a Hugging Face folder as what a GGUF file of the same model says: keys, tensors under their other names, the tokenizer. What
   each is called in either, the texts of std/models say; nothing here knows a family. */
#ifndef LUMEN_MODEL_EXPORT_H
#define LUMEN_MODEL_EXPORT_H
#include "file/file.h"

struct PartsReader;

typedef struct ExportTensor {
  FileTensor t;          /* named as in GGUF; the bytes are the folder's, or floats that the text made of them */
  const int32_t *row;    /* row r to write is row row[r] of the bytes; NULL: in their order */
  bool fixed;            /* the text wants floats: whatever the user asks, it stays f32 */
  const struct PartsReader *parts; /* several tensors of the folder hold it: read by model_export_rows, t.p is NULL, t.format names the layout; else NULL */
} ExportTensor;
typedef struct ModelExport {
  const Weights *from;
  FileKv *kv; int n_kvs;
  ExportTensor *tensor; int n_tensors;
  const char *const *left_out; int n_left_out; /* the folder's tensors that the model's text does not name, as those of a model that sees */
} ModelExport;

/* Reads the folder's metadata; bytes of weights are mapped, not touched. The numbers that the graph uses come back from the keys as they are, or it
   fails. Fails: as model_open; ERR_UNSUPPORTED where GGUF cannot say something, naming it. */
Err *model_export_open(const char *path, const char *std_dir, ModelExport **out);
/* Rows [first, first + n) of what is to be written, as floats, of a tensor that has parts. From any number of threads; tile: of so many bytes, theirs. */
size_t model_export_tile_bytes(const ExportTensor *t);
void model_export_rows(const ExportTensor *t, int64_t first, int64_t n, void *tile, float *out);
void model_export_drop_pages(const ExportTensor *t); /* of the folder's files, under its parts */
void model_export_close(ModelExport *x);  /* NULL is fine; ends what the pointers above point to */
#endif
