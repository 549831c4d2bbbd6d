/* What the readers of src/file share. */
#ifndef LUMEN_FILE_PRIV_H
#define LUMEN_FILE_PRIV_H
#include "file/file.h"

enum { FILE_TYPE_COUNT = 13 };
/* At most: tensors of a model, keys of a file, elements of all arrays of metadata. A file's size bounds nothing, as holes in it cost nobody anything. */
enum { FILE_TENSORS_MAX = 1 << 20, FILE_KVS_MAX = 1 << 20, FILE_ELEMS_MAX = 1 << 24 };
typedef struct FileTypeRow { const char *text; size_t size; char class; } FileTypeRow;
extern const FileTypeRow file_types[FILE_TYPE_COUNT];

Weights *file_weights_new(Arena *a, const char *path, const char *container);
Err *file_weights_map(Arena *a, Weights *w, const char *path);   /* one more file, last in w->file */
Err *file_weights_finish(Arena *a, Weights *w, Err *e, Weights **out); /* the end of opening: indexed, unless e or its files changed, which explains e: then closed */
Err *file_weights_index(Arena *a, Weights *w);                   /* sorts; refuses duplicates, naming both positions */
/* Why these bytes are no name of a key or tensor; NULL: they are one. Keeps names printable. */
const char *file_name_fault(const uint8_t *p, size_t n);
Err *file_tensors_fit(const Weights *w, uint64_t n_more);          /* Fails: ERR_LIMIT */
/* Elements and bytes of a tensor from its dims; f NULL or unknown: only the elements. Fails: ERR_FORMAT, naming the dim. */
Err *file_tensor_measure(FileTensor *t, const FileFormat *f);
Err *file_tensors_overlap(Arena *a, const Weights *w, int first); /* among the tensors from first on, all of one file */
const char *file_other_kind(const uint8_t *p, size_t n);         /* what a file is that begins so, where it is known and none of ours; NULL */
/* fetch.c: a folder of files that we made; what is below folders in it stays. */
void file_remove_flat_dir(const char *path);
#endif
