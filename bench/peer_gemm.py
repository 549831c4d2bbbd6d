#!/usr/bin/env python3
"""Seconds that OpenBLAS and oneDNN take for an FP32 matrix product on one core, as JSON. usage: peer_gemm.py N [ROUNDS]
Both through their plain C interface (cblas_sgemm, dnnl_sgemm); `tools/peers gemm` installs the libraries. A library that is missing gives null."""
import os
for name in ('OPENBLAS_NUM_THREADS', 'OMP_NUM_THREADS', 'DNNL_NUM_THREADS'): os.environ[name] = '1'
import array, ctypes as C, json, sys, time

ROW_MAJOR, NO_TRANS, TRANS = 101, 111, 112


def openblas(n, a, b, c):
    lib = C.CDLL('libopenblas.so.0')
    lib.openblas_get_config.restype = lib.openblas_get_corename.restype = C.c_char_p
    f = C.c_float
    return (lambda: lib.cblas_sgemm(ROW_MAJOR, NO_TRANS, TRANS, n, n, n, f(1), a, n, b, n, f(0), c, n)), lib.openblas_get_config().decode().split()[1] + ' ' + lib.openblas_get_corename().decode()


def onednn(n, a, b, c):
    lib = C.CDLL('libdnnl.so.2')
    f, i, ch = C.c_float, C.c_int64, C.c_char
    class Version(C.Structure): _fields_ = [('major', C.c_int), ('minor', C.c_int), ('patch', C.c_int)]
    lib.dnnl_version.restype = C.POINTER(Version)
    v = lib.dnnl_version().contents
    return (lambda: lib.dnnl_sgemm(ch(b'N'), ch(b'T'), i(n), i(n), i(n), f(1), a, i(n), b, i(n), f(0), c, i(n))), f'{v.major}.{v.minor}.{v.patch}'


def main():
    n, n_rounds = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 3
    keep = [array.array('f', [0.5]) * (n * n) for _ in range(3)]
    a, b, c = [C.c_void_p(x.buffer_info()[0]) for x in keep]
    out = {'n': n}
    for name, make in (('openblas', openblas), ('onednn', onednn)):
        try: run, version = make(n, a, b, c)
        except OSError: out[name] = None; continue
        keep[2][0] = 0
        run()
        if abs(keep[2][0] - 0.25 * n) > 1e-3 * n: sys.exit(f'peer_gemm: {name} computed {keep[2][0]}, expected {0.25 * n}')
        best = []
        for _ in range(n_rounds):
            t = time.monotonic()
            run()
            best.append(time.monotonic() - t)
        out[name] = {'version': version, 'seconds': min(best), 'rounds': best}
    print(json.dumps(out))


main()
