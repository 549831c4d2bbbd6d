# bfloat16 weights too small for a machine's products of pairs, which flush denormals: the same bits on every target all the same; a trace
# tells of them, and where there are none it does not. runtests: machine code
. tests/lib.sh
cat > "$TEST_TMP/tiny.py" <<'END'
import array, re, subprocess, sys
sys.path.insert(0, "tests")
from told import told, end
lumen, tmp = sys.argv[1:]


def run(*args, env=None):
    return subprocess.run([lumen, *args], capture_output=True, text=True, timeout=120, env=env)


def convert(name, rows):
    """tests/run/tiny.gguf in bf16, with the given rows of its output matrix multiplied."""
    listed = re.findall(r"^(\S+) +f32 +\[[\d, ]+\] +(\d+)$", run("show", "tests/run/tiny.gguf").stdout, re.M)
    data = bytearray(open("tests/run/tiny.gguf", "rb").read())
    start = len(data) - sum((int(n) + 31) // 32 * 32 for _, n in listed)
    if listed[0] != ("output.weight", "131072"):
        sys.exit(f"tests/run/tiny.gguf begins with {listed[:1]}")
    w = array.array("f", data[start:start + 131072])
    for row, by in rows.items():
        for k in range(64):
            w[row * 64 + k] *= by
    data[start:start + 131072] = w.tobytes()
    with open(f"{tmp}/f32.gguf", "wb") as f:
        f.write(data)
    r = run("convert", "--quiet", f"{tmp}/f32.gguf", f"{tmp}/{name}.gguf", "--quant", "bf16")
    if r.returncode:
        sys.exit(r.stderr)
    return f"{tmp}/{name}.gguf"


def logits(model, target, n):
    with open(f"{tmp}/ids", "w") as f:
        f.write(" ".join(str(5 + 7 * i % 500) for i in range(n)))
    r = run("logits", model, "--ids", f"{tmp}/ids", "--out", f"{tmp}/logits", "--target", target)
    return open(f"{tmp}/logits", "rb").read() if r.returncode == 0 else r.stderr


targets = re.search(r"^targets +(.*)$", run("doctor").stdout, re.M)[1].split()
plain, small = convert("plain", {}), convert("small", {8 * i: 2.0 ** -(50 + 6 * i) for i in range(16)})
for name, model in ("plain", plain), ("small", small):
    for n in 1, 5, 100:
        got = {t: logits(model, t, n) for t in targets}
        best = got[targets[0]]
        others = [t for t in targets if got[t] != best]
        told(f"{name}, {n} tokens: {', '.join(targets)}", f"{others} differ from {targets[0]}" if others or isinstance(best, str) else None)
    values = array.array("f", best)
    denormal = sum(0 < abs(v) < 2.0 ** -126 for v in values)
    told(f"{name}: {'some' if name == 'small' else 'no'} logits are denormal", None if bool(denormal) == (name == "small") else f"{denormal} of {len(values)}")
    trace = run("logits", model, "--ids", f"{tmp}/ids", "--out", f"{tmp}/logits", env={"LUMEN_TRACE": "sched"}).stderr
    told(f"{name}: is told", None if ("below 2^-56" in trace) == (name == "small") else trace[-300:])
end()
END
python3 "$TEST_TMP/tiny.py" "$LUMEN" "$TEST_TMP" > "$out" 2> "$err" || not_ok "the script ends well" "$(tail -n 2 "$err")"
cat "$out"
if grep -q '^not ok' "$out"; then exit 1; fi
finish
