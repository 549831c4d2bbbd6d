# `lumen convert` of folders whose weights lie in several tensors: to F32 the folder's logits bit for bit, to other formats the blocks that `lumen encode` makes
# of what `lumen decode` gives; llama.cpp (where it was fetched) answers alike. runtests: timeout 600
# runtests: machine code
. tests/lib.sh
cat > "$TEST_TMP/quantized.py" <<'END'
import array, os, subprocess, sys
sys.path[:0] = ["tests", "tests/models"]
import quantized_whole as whole
from told import told, end
lumen, tmp, peer = sys.argv[1:]


def run(*args, data=None):
    return subprocess.run([lumen, *args], input=data, capture_output=True, timeout=120)


def bytes_of(path):
    with open(path, "rb") as f:
        return f.read()


def logits(model, precision):
    r = run("logits", model, "--ids", f"{tmp}/ids", "--precision", precision, "--out", f"{tmp}/logits")
    return (bytes_of(f"{tmp}/logits"), None) if r.returncode == 0 else (b"", r.stderr.decode()[:300])


def off(a, b):
    a, b = array.array("f", a), array.array("f", b)
    return max(abs(x - y) for x, y in zip(a, b)) / max(map(abs, a)) if len(a) == len(b) and a else 9.0


def convert(name, model, *args):
    r = run("convert", model, f"{tmp}/out.gguf", "--quiet", *args)
    if r.returncode or r.stderr:
        told(f"{name}: convert {' '.join(args)}", f"exit code {r.returncode}: {r.stderr.decode()[:300]}")
        return False
    return True


def check(name, model, ordered):
    """ordered: the folder's columns are read in their own order, so that sums round alike."""
    want, why = logits(model, "f32")
    if not convert(name, model, "--quant", "f32", "-t", "1"):
        return
    one = bytes_of(f"{tmp}/out.gguf")
    got, also = logits(f"{tmp}/out.gguf", "f32")
    far = off(want, got)
    told(f"{name}: to F32, the folder's logits" + ("" if ordered else " but for the order of sums"), why or also or (None if got == want or (not ordered and far < 1e-5) else f"off by {far:.1e} of the largest"))
    if peer:
        r = subprocess.run([sys.executable, "tests/models/peer_reads.py", peer, f"{tmp}/out.gguf", f"{tmp}/ids", f"{tmp}/theirs"], capture_output=True)
        told(f"{name}: llama.cpp reads it, with logits like ours", r.stderr.decode()[-300:] if r.returncode else None if off(want, bytes_of(f"{tmp}/theirs")) < 0.005 else f"off by {off(want, bytes_of(f'{tmp}/theirs')):.1e}")
    else:
        print(f"skip - {name}: llama.cpp reads it: it was not fetched")
    if convert(name, model, "--quant", "f32", "-t", "3"):
        told(f"{name}: three threads write the same", None if bytes_of(f"{tmp}/out.gguf") == one else "other bytes")
    for fmt, limit in (("q8_0", 0.1), ("f16", 0.02)):
        if not convert(name, model, "--quant", fmt, "--keep", "token_embd*="):
            continue
        file = bytes_of(f"{tmp}/out.gguf")
        lost = [] if fmt == "f16" else [w for w, n, k in whole.held_by_several(model)[::3] if run("encode", "--format", fmt, data=whole.turned(model, w, run("decode", model, w, "--shape", f"{n},{k}").stdout, n)).stdout not in file]
        got, why = logits(f"{tmp}/out.gguf", "f32")
        told(f"{name}: to {fmt}, rows as encode makes them and near the folder", f"not in the file: {lost}" if lost else why or (None if off(want, got) < limit else f"off by {off(want, got):.1e}"))


with open(f"{tmp}/ids", "w") as f:
    f.write(" ".join(str((i * 37 + 11) % 500) for i in range(24)))
for case in sorted(os.listdir("tests/models/quantized")):
    path = f"tests/models/quantized/{case}"
    ordered = case not in ("gptq-v1-desc_act", "gptq-v2-desc_act", "int4-ct-actorder")
    if os.path.exists(path + "/tokenizer.json"):
        check(case, path, ordered)
    else:
        whole.write(path, f"{tmp}/{case}")
        check(case + ", in a model", f"{tmp}/{case}", ordered)

# What must be said.
model = "tests/models/quantized/int4-ct-g32-zp"
r = run("convert", model, f"{tmp}/no.gguf")
told("without a format for them it is refused", None if r.returncode == 2 and b"several tensors hold it (layout words_by_row)" in r.stderr and b"--quant F" in r.stderr else str(r))
r = run("convert", model, f"{tmp}/no.gguf", "--quant", "q8_0", "--keep", "*ffn_up*=")
told("they cannot stay as they are", None if r.returncode == 2 and b"blk.0.ffn_up.weight: several tensors hold it" in r.stderr else str(r))
r = run("convert", f"{tmp}/fp8-block", f"{tmp}/no.gguf", "--quant", "q4_k")
told("rows that are not whole blocks are refused, with what helps", None if r.returncode == 1 and b"rows of 448 are not whole blocks of 256, which q4_k has" in r.stderr and b"--keep" in r.stderr else str(r))
r = run("convert", f"{tmp}/fp8-block", f"{tmp}/some.gguf", "--quant", "q4_k", "--keep", "*ffn_down*=q8_0", "--quiet")
told("and --keep helps", None if r.returncode == 0 and logits(f"{tmp}/some.gguf", "f32")[1] is None else str(r))
told("nothing is left of what failed", None if not os.path.exists(f"{tmp}/no.gguf") and not os.path.exists(f"{tmp}/no.gguf.part") else "there is a file")

# A folder of 70 MB whose codes lie along columns: memory stays far below the floats that it stands for.
size = whole.write("tests/models/quantized/gptq-v1", f"{tmp}/big", repeat=64)
os.environ["ASAN_OPTIONS"] = os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=1"  # else it keeps 256 MiB of what is freed
pid = os.spawnv(os.P_NOWAIT, lumen, [lumen, "convert", f"{tmp}/big", f"{tmp}/big.gguf", "-t", "2", "--quiet", "--quant", "q8_0"])
_, status, used = os.wait4(pid, 0)
most = 130 if not os.environ.get("TEST_SANITIZED") else 200 # MiB
told(f"{size / 1e6:.0f} MB: memory stays small", None if status == 0 and used.ru_maxrss < most << 10 else f"status {status}, {used.ru_maxrss / 1024:.0f} MiB at most, expected below {most}")
end()
END
python3 "$TEST_TMP/quantized.py" "$LUMEN" "$TEST_TMP" "$(peer)" || n_bad=1
finish
