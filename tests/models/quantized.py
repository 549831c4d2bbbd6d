"""quantized.py TARGET..: the checkpoints of tests/models/quantized: every rectangle of the two weights each tells of, decoded bit for bit on every target; of
whole models the logits, within 1e-4 of the largest at f32, within a tenth at int8. Prints ok and not ok lines."""
import array, json, os, subprocess, sys

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "quantized")
LUMEN = os.environ.get("LUMEN", "build/lumen")
TMP = os.environ.get("TEST_TMP", "/tmp")


def floats(data):
    a = array.array("f")
    a.frombytes(data)
    return a


def run(*args):
    return subprocess.run([LUMEN, *args], capture_output=True, timeout=600)


def rectangle(folder, r, target):
    n, k = r["full_shape"][-2:]
    shape = ["--shape", f"{n},{k}"] if "expert" not in r else []          # one of the layouts does not tell them
    p = run("decode", folder, r["weight"], "--target", target, *shape)
    if p.returncode:
        return p.stderr.decode()
    got, at = floats(p.stdout), (r.get("expert", 0) * n + r["row0"]) * k + r["col0"]
    mine = b"".join(got[at + i * k: at + i * k + r["cols"]].tobytes() for i in range(r["rows"]))
    return "" if mine == open(os.path.join(folder, r["file"]), "rb").read() else "other values"


def logits(folder, g, precision, tolerance, target):
    ids, out = os.path.join(TMP, "ids"), os.path.join(TMP, "logits")
    with open(ids, "w") as f:
        f.write(" ".join(map(str, g["tokens"])))
    p = run("logits", folder, "--ids", ids, "--out", out, "--precision", precision, "--target", target)
    if p.returncode:
        return p.stderr.decode()
    got, want = floats(open(out, "rb").read()), floats(open(os.path.join(folder, "logits.f32"), "rb").read())
    off = max(abs(a - b) for a, b in zip(got, want)) / g["max_abs_logit"]
    return "" if len(got) == len(want) and off < tolerance else f"off by {off:.1e} of the largest"


bad = 0
for case in sorted(os.listdir(HERE)):
    folder = os.path.join(HERE, case)
    if not os.path.isdir(folder):
        continue
    g = json.load(open(os.path.join(folder, "golden.json")))
    for target in sys.argv[1:]:
        faults = [f"{r['weight']}: {w}" for r in g["rectangles"] for w in [rectangle(folder, r, target)] if w]
        for precision, tolerance in (("f32", 1e-4), ("int8", 0.1)) if "tokens" in g and target == sys.argv[1] else ():
            w = logits(folder, g, precision, tolerance, target)
            faults += [f"{precision}: {w}"] if w else []
        print(f"not ok - {case} on {target}: {'; '.join(faults)}".replace("\n", " ") if faults else f"ok - {case} on {target}")
        bad += bool(faults)
sys.exit(bad > 0)
