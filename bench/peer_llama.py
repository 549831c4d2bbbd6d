#!/usr/bin/env python3
"""llama.cpp's speed on one GGUF file, as JSON on standard output: `tools/peers llama` fetches a prebuilt library, this drives it in process.

A prompt of random tokens is read, then tokens are generated one by one, for one sequence or for several in common steps; the first round
warms up and is not counted. `--build` picks one of the library's CPU builds by name; without it the one that scores best here is taken.
"""
import argparse, ctypes as C, glob, json, os, random, resource, sys, time


class Params(C.Structure):
    """A parameter struct of the library, passed by value. Its layout is checked below against the library's own defaults; bytes past what the
    library knows are not looked at, so this one may be longer."""
    _fields_ = [('raw', C.c_uint8 * 512)]

    def i32(self, at): return C.c_int32.from_buffer(self, at)


class Batch(C.Structure):
    _fields_ = [('n_tokens', C.c_int32), ('token', C.POINTER(C.c_int32)), ('embd', C.c_void_p), ('pos', C.POINTER(C.c_int32)),
                ('n_seq_id', C.POINTER(C.c_int32)), ('seq_id', C.POINTER(C.POINTER(C.c_int32))), ('logits', C.POINTER(C.c_int8))]


# Offsets of the 32-bit fields of the context's parameters that are set here, each with the default it must show first.
CONTEXT = {'n_ctx': (0, 512), 'n_batch': (4, 2048), 'n_ubatch': (8, 512), 'n_seq_max': (12, 1), 'n_threads': (28, 4), 'n_threads_batch': (32, 4),
           'type_k': (104, 1), 'type_v': (108, 1)}
KV = {'f32': 0, 'f16': 1, 'q4_0': 2, 'q8_0': 8}
QUIET = C.CFUNCTYPE(None, C.c_int, C.c_char_p, C.c_void_p)(lambda level, text, data: None)


def builds(folder):
    """{name: (score, path)} of the CPU builds; a score of 0 does not run here."""
    found = {}
    for path in sorted(glob.glob(os.path.join(folder, 'libggml-cpu-*.so'))):
        score = getattr(C.CDLL(path), 'ggml_backend_score', lambda: 1)
        found[os.path.basename(path)[len('libggml-cpu-'):-len('.so')]] = (score(), path)
    return found


def open_library(folder, build):
    one = lambda pattern: sorted(glob.glob(os.path.join(folder, pattern)))[0]
    C.CDLL(one('libggml-base.so*'), C.RTLD_GLOBAL)
    ggml, lib = C.CDLL(one('libggml.*so*'), C.RTLD_GLOBAL), C.CDLL(one('libllama.*so*'))
    found = builds(folder)
    name = build or max(found, key=lambda n: found[n][0])
    if name not in found or not found[name][0]: sys.exit(f'peer_llama: no build {name} that runs here, but ' + ', '.join(n for n in found if found[n][0]))
    lib.llama_log_set(QUIET, None)
    ggml.ggml_backend_load.restype = C.c_void_p
    if not ggml.ggml_backend_load(found[name][1].encode()): sys.exit(f'peer_llama: {found[name][1]} does not load')
    for f in ('llama_model_default_params', 'llama_context_default_params'): getattr(lib, f).restype = Params
    for f in ('llama_model_load_from_file', 'llama_init_from_model', 'llama_model_get_vocab', 'llama_get_memory', 'llama_get_logits_ith'):
        getattr(lib, f).restype = C.c_void_p
    lib.llama_batch_init.restype = Batch
    lib.llama_model_n_params.restype = lib.llama_model_size.restype = C.c_uint64
    return lib, name


class Run:
    def __init__(self, lib, o):
        self.lib, self.o = lib, o
        t = time.monotonic()
        self.model = lib.llama_model_load_from_file(o.file.encode(), lib.llama_model_default_params())
        if not self.model: sys.exit(f'peer_llama: {o.file} does not load')
        self.model = C.c_void_p(self.model)
        p, per_seq = lib.llama_context_default_params(), o.prompt + o.generate
        for field, (at, default) in CONTEXT.items():
            if p.i32(at).value != default: sys.exit(f'peer_llama: {field} at byte {at} is {p.i32(at).value}, expected {default}: another version of the library')
        per_seq = max(512, (per_seq + 255) // 256 * 256)
        for field, v in (('n_ctx', per_seq * o.batch), ('n_batch', max(512, o.batch)), ('n_ubatch', 512), ('n_seq_max', o.batch), ('n_threads', o.threads), ('n_threads_batch', o.threads),
                         ('type_k', KV[o.kv]), ('type_v', KV[o.kv])):
            p.i32(CONTEXT[field][0]).value = v
        self.ctx = lib.llama_init_from_model(self.model, p)
        if not self.ctx: sys.exit('peer_llama: no context')
        self.ctx = C.c_void_p(self.ctx)
        self.memory = C.c_void_p(lib.llama_get_memory(self.ctx))
        for getter, want in (('llama_n_threads', o.threads), ('llama_n_ubatch', 512), ('llama_n_seq_max', o.batch)):
            got = getattr(lib, getter)(self.ctx)
            if got != want: sys.exit(f'peer_llama: {getter} says {got}, expected {want}: another version of the library')
        self.load_s = time.monotonic() - t
        self.n_vocab = lib.llama_vocab_n_tokens(C.c_void_p(lib.llama_model_get_vocab(self.model)))
        self.batch = lib.llama_batch_init(max(512, o.batch), 0, 1)

    def step(self, rows):
        """rows: (token, position, sequence, wants logits)"""
        b = self.batch
        b.n_tokens = len(rows)
        for i, (token, pos, seq, want) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, pos, 1, want
            b.seq_id[i][0] = seq
        if self.lib.llama_decode(self.ctx, b): sys.exit('peer_llama: llama_decode failed')
        self.lib.llama_synchronize(self.ctx)

    def logits(self, ids, out):
        """logits of every token of one text, at most 512, as raw f32"""
        self.lib.llama_memory_clear(self.memory, True)
        self.step([(t, i, 0, True) for i, t in enumerate(ids)])
        with open(out, 'wb') as f:
            for i in range(len(ids)): f.write(C.string_at(self.lib.llama_get_logits_ith(self.ctx, i), 4 * self.n_vocab))

    def round(self):
        o, some = self.o, random.Random(1)
        self.lib.llama_memory_clear(self.memory, True)
        steps = []
        for s in range(o.batch):
            for at in range(0, o.prompt, 512):
                steps.append([(some.randrange(self.n_vocab), k, s, k == o.prompt - 1) for k in range(at, min(at + 512, o.prompt))])
        clock = time.process_time if o.cpu else time.monotonic
        t = clock()
        for rows in steps: self.step(rows)
        prefill = clock() - t
        ids = [[some.randrange(self.n_vocab) for _ in range(o.batch)] for _ in range(o.generate)]
        t = clock()
        for i in range(o.generate): self.step([(ids[i][s], o.prompt + i, s, True) for s in range(o.batch)])
        return o.batch * o.prompt / prefill, o.batch * o.generate / (clock() - t)


def main():
    a = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    a.add_argument('file', nargs='?')
    a.add_argument('--lib', required=True, help='folder of the library')
    a.add_argument('--build', help='one of its CPU builds, such as haswell')
    a.add_argument('--list', action='store_true', help='the builds and their scores, and nothing else')
    for name, default in (('prompt', 512), ('generate', 64), ('threads', 2), ('batch', 1), ('rounds', 1), ('warm', 1)): a.add_argument('--' + name, type=int, default=default)
    a.add_argument('--kv', choices=KV, default='f16', help='format of keys and values')
    a.add_argument('--ids', help='instead of measuring: a file of at most 512 token ids; their logits go to')
    a.add_argument('--logits', help='this file, as raw f32')
    a.add_argument('--cpu', action='store_true', help='processor time instead of the clock, for one thread')
    o = a.parse_args()
    if o.list: return print('\n'.join(f'{n} {s}' for n, (s, _) in builds(o.lib).items()))
    lib, build = open_library(o.lib, o.build)
    lib.llama_backend_init()
    run = Run(lib, o)
    if o.ids:
        run.logits(list(map(int, open(o.ids).read().split())), o.logits)
        os._exit(0)
    for _ in range(o.warm): run.round()
    done = [run.round() for _ in range(o.rounds)]
    middle = lambda k: sorted(r[k] for r in done)[len(done) // 2]
    print(json.dumps({'peer': 'llama.cpp', 'build': build, 'threads': o.threads, 'batch': o.batch, 'prompt': o.prompt, 'generate': o.generate,
                      'prefill_tokens_per_second': middle(0), 'decode_tokens_per_second': middle(1), 'load_seconds': run.load_s, 'rounds': done,
                      'parameters': lib.llama_model_n_params(run.model), 'weight_bytes': lib.llama_model_size(run.model),
                      'peak_rss_bytes': resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
    sys.stdout.flush()
    os._exit(0)  # nothing of the library's is worth tearing down


if __name__ == '__main__': main()
