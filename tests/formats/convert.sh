# `lumen convert`: what it writes reads back, holds what `encode` makes of each tensor, runs; --keep; refusals; the gguf package's view, fetched for the purpose where a network is.
# runtests: machine code
. tests/lib.sh
model=tests/models/llama/model.gguf
cat > "$TEST_TMP/convert.py" <<'END'
import array, os, random, subprocess, sys
sys.path.insert(0, "tests")
import gguf as writer
from told import told, end
lumen, tmp = sys.argv[1:]


def run(*args, data=None):
    return subprocess.run([lumen, *args], input=data, capture_output=True)


def tensors(path):
    """A reader of its own, from the GGUF specification: {name: (dims innermost first, type number, offset in the data)} and the data."""
    import struct
    with open(path, "rb") as f:
        b = f.read()
    at = 24
    n_tensors, n_kv = struct.unpack_from("<QQ", b, 8)
    size = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}

    def string():
        nonlocal at
        n = struct.unpack_from("<Q", b, at)[0]
        at += 8 + n
        return b[at - n:at].decode()

    def skip(kind):
        nonlocal at
        if kind == 8:
            string()
        elif kind == 9:
            k, n = struct.unpack_from("<IQ", b, at)
            at += 12
            for _ in range(n):
                skip(k)
        else:
            at += size[kind]
    keys = []
    for _ in range(n_kv):
        keys.append(string())
        kind = struct.unpack_from("<I", b, at)[0]
        at += 4
        skip(kind)
    out = {}
    for _ in range(n_tensors):
        name = string()
        n = struct.unpack_from("<I", b, at)[0]
        dims = struct.unpack_from(f"<{n}Q", b, at + 4)
        kind, off = struct.unpack_from("<IQ", b, at + 4 + 8 * n)
        at += 4 + 8 * n + 12
        out[name] = (dims, kind, off)
    return keys, out, b[(at + 31) // 32 * 32:]


random.seed(1)
wide, small, odd = ([random.gauss(0, 1) for _ in range(n)] for n in (512 * 259, 512, 96 * 3))
raw = {"w.weight": wide, "n.weight": small, "o.weight": odd}
raw = {k: array.array("f", v).tobytes() for k, v in raw.items()}
dims = {"w.weight": (512, 259), "n.weight": (512,), "o.weight": (96, 3)}
writer.write(f"{tmp}/in.gguf", {"general.architecture": "none", "general.file_type": 0, "general.alignment": 32, "a.text": "ä", "a.list": [1, -2, 3], "a.words": ["x", ""], "a.flag": True, "a.pi": 3.25},
             [(k, dims[k], 0, raw[k]) for k in raw])
for fmt, kind, block, size in (("q8_0", 8, 32, 34), ("q4_k", 12, 256, 144), ("f16", 1, 1, 2), ("iq4_nl", 20, 32, 18), ("tq1_0", 34, 256, 54)):
    for threads in ("1", "3"):
        r = run("convert", f"{tmp}/in.gguf", f"{tmp}/out.gguf", "--quant", fmt, "--threads", threads)
        if r.returncode:
            told(f"{fmt}, {threads} threads", r.stderr.decode()[:300])
            continue
        keys, t, data = tensors(f"{tmp}/out.gguf")
        why = None
        for name in raw:
            n = len(raw[name]) // 4
            whole = len(dims[name]) > 1 and dims[name][0] % block == 0
            want = run("encode", "--format", fmt, data=raw[name]).stdout if whole else raw[name]
            if t[name][0] != dims[name] or t[name][1] != (kind if whole else 0):
                why = why or f"{name}: dimensions {t[name][0]}, type {t[name][1]}"
            if data[t[name][2]:t[name][2] + len(want)] != want:
                why = why or f"{name}: other bytes than encode's"
        if set(keys) != {"general.architecture", "a.text", "a.list", "a.words", "a.flag", "a.pi", "general.quantization_version"}:
            why = why or f"keys {keys}"
        told(f"{fmt}, {threads} threads: tensors as encode makes them, keys kept", why)
r = run("convert", f"{tmp}/in.gguf", f"{tmp}/keep.gguf", "--quant", "q8_0", "--keep", "w.*=q4_0", "--keep", "o.*=")
_, t, _ = tensors(f"{tmp}/keep.gguf")
told("--keep names formats, and none", None if [t[k][1] for k in raw] == [2, 0, 0] else str(t) + r.stderr.decode())
r = run("convert", f"{tmp}/in.gguf", f"{tmp}/not.gguf", "--quant", "q8_0", "--keep", "zz*=q4_00")
told("--keep of an unknown format is refused, though no tensor has the name", None if r.returncode == 2 and b"--keep zz*=q4_00: format 'q4_00': no such format" in r.stderr else str(r))
r = run("convert", f"{tmp}/in.gguf", f"{tmp}/not.gguf", "--quant", "q8_0", "--keep", "zz*=q4_0", "--keep", "w*=")
told("--keep of no tensor is told of", None if r.returncode == 0 and b"--keep zz*=q4_0: decides for no tensor" in r.stderr and b"--keep w*" not in r.stderr else str(r))
r = run("convert", f"{tmp}/in.gguf", f"{tmp}/not.gguf", "--keep", "*=f16", "--keep", "n.*=bf16")
_, t, data = tensors(f"{tmp}/not.gguf")
why = None if [t[k][1] for k in raw] == [1, 0, 1] and data[t["n.weight"][2]:][:2048] == raw["n.weight"] else str(t)
told("--keep leaves tensors of one dimension", why or (None if b"--keep n.*=bf16: decides for no tensor" in r.stderr else r.stderr.decode()))
# Weights that are no numbers, and numbers that the format cannot hold: (name, value, place, formats that cannot, formats that can). 70000 is past f16, 3e38 past bf16's scale of none.
nan, inf = float("nan"), float("inf")
for what, value, cannot, can in (("a large weight", 3e38, ("f16", "q4_0", "q8_0", "q4_k"), ("bf16",)), ("a weight past f16", 70000.0, ("f16",), ("q8_0", "q4_0", "bf16")), ("a negative one", -65520.0, ("f16",), ()), ("f16's largest", 65519.0, (), ("f16",)), ("past bf16", 3.4e38, ("bf16",), ())):
    for threads, place in (("1", 5), ("3", 512 * 258 + 7)):
        x = array.array("f", wide)
        x[place] = value
        writer.write(f"{tmp}/odd.gguf", {"general.architecture": "none"}, [("v.weight", (512, 259), 0, raw["w.weight"]), ("w.weight", (512, 259), 0, x.tobytes())])
        for fmt in cannot + can:
            r = run("convert", f"{tmp}/odd.gguf", f"{tmp}/odd-{fmt}.gguf", "--quant", fmt, "-t", threads)
            said = r.stderr.decode()
            left = os.path.exists(f"{tmp}/odd-{fmt}.gguf")
            if left:
                os.remove(f"{tmp}/odd-{fmt}.gguf")
            good = (r.returncode == 1 and not left and "tensor w.weight: " in said and f"of row {place // 512}," in said and f"in {fmt};" in said) if fmt in cannot else (r.returncode == 0 and left and "finite" not in said)
            told(f"{what} at {place}, {fmt}: {'refused, and no file is left' if fmt in cannot else 'goes'}", None if good else f"{r.returncode} {left} {said}")
for fmt in ("f16", "bf16"):
    x = array.array("f", wide)
    x[0], x[700], x[-1] = nan, -inf, inf
    writer.write(f"{tmp}/odd.gguf", {"general.architecture": "none"}, [("u.weight", (512, 259), 0, raw["w.weight"]), ("v.weight", (512, 259), 0, x.tobytes()), ("w.weight", (512, 259), 0, x.tobytes())])
    r = run("convert", f"{tmp}/odd.gguf", f"{tmp}/odd.{fmt}", "--quant", fmt, "--quiet")
    told(f"weights that were no numbers, {fmt}: a warning", None if r.returncode == 0 and b"6 weights of 2 tensors, first of v.weight, are not finite" in r.stderr else str(r))
run("convert", f"{tmp}/keep.gguf", f"{tmp}/same.gguf", "--quant", "q8_0", "--keep", "*=")
same = run("convert", f"{tmp}/same.gguf", f"{tmp}/again.gguf", "--quant", "q8_0", "--keep", "*=")
told("converting to what it is changes nothing", None if open(f"{tmp}/same.gguf", "rb").read() == open(f"{tmp}/again.gguf", "rb").read() else "bytes differ " + same.stderr.decode())
end()
END
python3 "$TEST_TMP/convert.py" "$LUMEN" "$TEST_TMP" || n_bad=1
cat > "$TEST_TMP/package.py" <<'END'
import sys
try:
    from gguf import GGUFReader
    import numpy as np
except ImportError:
    print("skip - the gguf package's view: it is not installed and could not be fetched")
    sys.exit()
r = GGUFReader(sys.argv[1])
kinds = {t.name: (int(t.tensor_type), [int(d) for d in t.shape], t.data.nbytes) for t in r.tensors}
want = {"w.weight": (2, [512, 259], 512 * 259 // 32 * 18), "n.weight": (0, [512], 2048), "o.weight": (0, [96, 3], 96 * 12)}
print("ok - the gguf package reads it" if kinds == want else f"not ok - the gguf package reads it: {kinds}")
sys.exit(kinds != want)
END
python3 -c 'import gguf, numpy' 2> /dev/null || timeout 120 python3 -m pip install --quiet --target "$TEST_TMP/py" gguf > /dev/null 2>&1 || true
PYTHONPATH="$TEST_TMP/py${PYTHONPATH:+:$PYTHONPATH}" python3 "$TEST_TMP/package.py" "$TEST_TMP/keep.gguf" || n_bad=1
for f in q8_0 q5_1 mxfp4 q4_0; do
  expect "convert a model to $f" 0 "$LUMEN" convert "$model" "$TEST_TMP/$f.gguf" --quant "$f"
  expect "the $f model runs" 0 "$LUMEN" run "$TEST_TMP/$f.gguf" hello --raw --max-tokens 4
done
expect "no --quant" 2 "$LUMEN" convert "$model" "$TEST_TMP/x.gguf"
expect "one operand" 2 "$LUMEN" convert "$model" --quant q8_0
expect "an unknown format" 2 "$LUMEN" convert "$model" "$TEST_TMP/x.gguf" --quant q8_9
expect "a --keep that is none" 2 "$LUMEN" convert "$model" "$TEST_TMP/x.gguf" --quant q8_0 --keep blk
expect "a --keep that does not fit" 1 "$LUMEN" convert "$model" "$TEST_TMP/x.gguf" --quant q8_0 --keep '*=q4_k'
expect "a folder that is not there" 1 "$LUMEN" convert "$model" "$TEST_TMP/none/x.gguf" --quant q8_0
# What OUT is.
cp "$model" "$TEST_TMP/in.gguf"
ln -s in.gguf "$TEST_TMP/link.gguf"
mkfifo "$TEST_TMP/pipe"
expect "OUT is the input" 2 "$LUMEN" convert "$TEST_TMP/in.gguf" "$TEST_TMP/in.gguf" --quant q8_0
expect "OUT is a link to the input" 2 "$LUMEN" convert "$TEST_TMP/in.gguf" "$TEST_TMP/link.gguf" --quant q8_0
has "OUT is a link to the input: why" "$err" "is a file to read"
expect "OUT is a folder" 2 "$LUMEN" convert "$model" "$TEST_TMP" --quant q8_0
cat "$TEST_TMP/pipe" > "$TEST_TMP/piped.gguf" &
expect "OUT is a pipe" 0 timeout 60 "$LUMEN" convert "$model" "$TEST_TMP/pipe" --quant q8_0
wait
cmp -s "$TEST_TMP/piped.gguf" "$TEST_TMP/q8_0.gguf" && ok "which takes the bytes as they come" || not_ok "which takes the bytes as they come" "they differ"
[ -p "$TEST_TMP/pipe" ] && ok "and stays one" || not_ok "and stays one" "it does not"
cmp -s "$model" "$TEST_TMP/in.gguf" && ok "the input is as it was" || not_ok "the input is as it was" "it is not"
expect "a file that may not grow so long" 1 sh -c "ulimit -f 64; exec \"\$0\" convert '$model' '$TEST_TMP/x.gguf' --quant q8_0" "$LUMEN"
has "a file that may not grow so long: why" "$err" "File too large"
[ ! -e "$TEST_TMP/x.gguf" ] && [ ! -e "$TEST_TMP/x.gguf.part" ] && ok "nothing is left of what failed" || not_ok "nothing is left of what failed" "$(ls "$TEST_TMP")"
echo old > "$TEST_TMP/x.gguf.part"
expect "a part that nobody writes is in nobody's way" 0 "$LUMEN" convert "$model" "$TEST_TMP/x.gguf" --quant q8_0
[ ! -e "$TEST_TMP/x.gguf.part" ] && cmp -s "$TEST_TMP/x.gguf" "$TEST_TMP/q8_0.gguf" && ok "and is not in the file" || not_ok "and is not in the file" "it is"
expect "a part that somebody writes is left alone" 1 flock "$TEST_TMP/y.gguf.part" "$LUMEN" convert "$model" "$TEST_TMP/y.gguf" --quant q8_0
has "a part that somebody writes: why" "$err" "is being written by another process"
[ -e "$TEST_TMP/y.gguf.part" ] && ok "and is still there" || not_ok "and is still there" "it is not"
rm -f "$TEST_TMP/y.gguf.part"
expect "without a terminal there is no bar" 0 "$LUMEN" convert "$model" "$TEST_TMP/x.gguf" --quant q8_0
case $(cat "$err") in *"$(printf '\r')"* | *converting*) not_ok "one line says what was done" "$(cat "$err")" ;; *" 30 tensors, "*) ok "one line says what was done" ;; *) not_ok "one line says what was done" "$(cat "$err")" ;; esac
expect "--quiet" 0 "$LUMEN" convert "$model" "$TEST_TMP/x.gguf" --quant q8_0 --quiet
empty "--quiet says nothing" "$err"
cat > "$TEST_TMP/stop.py" <<'END'
"""On a terminal there is a bar; a signal amid the work ends it, and nothing is left: neither OUT nor its part, and an old OUT is as it was."""
import os, pty, signal, subprocess, sys, time
sys.path.insert(0, "tests")
import gguf as writer
lumen, tmp = sys.argv[1:]
writer.write(f"{tmp}/long.gguf", {"general.architecture": "none"}, [("w.weight", (4096, 8192), 0, bytes(4096) * 4096 * 8)])
bad = 0
for name in ("SIGINT", "SIGTERM", "SIGHUP"):
    out = f"{tmp}/{name}.gguf"
    with open(out, "w") as f:
        f.write("old")
    up, down = pty.openpty()
    p = subprocess.Popen([lumen, "convert", f"{tmp}/long.gguf", out, "--quant", "iq4_xs", "-t", "1"], stdin=subprocess.DEVNULL, stderr=down,
                         preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL))   # not as nohup leaves it
    os.close(down)
    said = b""
    while b"converting [" not in said:
        said += os.read(up, 4096)
    p.send_signal(getattr(signal, name))
    code = p.wait()
    left = [f for f in os.listdir(tmp) if f.startswith(name) and f != name + ".gguf"]
    with open(out, "rb") as f:
        old = f.read(20)
    why = None if code == 130 and not left and old == b"old" else f"exit code {code}, left {left}, OUT holds {old!r}, said {said[-200:]!r}"
    bad += why is not None
    print(f"not ok - {name}: {why}" if why else f"ok - {name} amid the work leaves nothing, and the old file as it was", flush=True)
sys.exit(bad > 0)
END
python3 "$TEST_TMP/stop.py" "$LUMEN" "$TEST_TMP" || n_bad=1
finish
