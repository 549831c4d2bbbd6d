"""What llama.cpp makes of a GGUF file: peer_reads.py LIBS FILE IDS LOGITS [TEXT]

Loads FILE with the library in the folder LIBS, takes the ids of the file IDS in one step and writes every token's logits, little-endian f32, to LOGITS.
With TEXT it prints the ids that the library makes of it, special tokens added, as a JSON array."""
import ctypes as C, json, os, sys
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "bench"))
import peer_llama

folder, path, ids, logits = sys.argv[1:5]
lib, _ = peer_llama.open_library(folder, None)
lib.llama_backend_init()


class Options:
    file, prompt, generate, batch, threads, kv = path, 512, 0, 1, 2, 'f16'


run = peer_llama.Run(lib, Options)
with open(ids) as f:
    ids = [int(x) for x in f.read().split()]
run.step([(t, i, 0, True) for i, t in enumerate(ids)])
lib.llama_get_logits_ith.restype = C.POINTER(C.c_float)
with open(logits, "wb") as f:
    for i in range(len(ids)):
        f.write(bytes(C.cast(lib.llama_get_logits_ith(run.ctx, i), C.POINTER(C.c_float * run.n_vocab)).contents))
if len(sys.argv) > 5:
    text, out = sys.argv[5].encode(), (C.c_int32 * 4096)()
    n = lib.llama_tokenize(C.c_void_p(lib.llama_model_get_vocab(run.model)), text, len(text), out, 4096, True, True)
    print(json.dumps(out[:n] if n >= 0 else None))
sys.stdout.flush()
os._exit(0)
