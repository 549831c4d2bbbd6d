"""Compares `lumen encode` with the goldens of tests/formats/encode. Prints one line per case, as every test does."""
import array, json, math, os, subprocess, sys

lumen, here = sys.argv[1], "tests/formats/encode/"
bad = 0


def told(name, why=None):
    global bad
    print(f"not ok - {name}: {why}" if why else f"ok - {name}")
    bad += bool(why)


def read(name):
    with open(here + name, "rb") as f:
        return f.read()


def lumen_run(command, fmt, data, *more):
    r = subprocess.run([lumen, command, "--format", fmt, *more], input=data, capture_output=True)
    if r.returncode:
        raise SystemExit(f"not ok - {command} {fmt}: {r.stderr.decode()[:300]}")
    return r.stdout


def floats(data):
    return array.array("f", data)


def rms(x, y):                       # of each row of 1024
    return [math.sqrt(sum((a - b) ** 2 for a, b in zip(x[r:r + 1024], y[r:r + 1024])) / 1024) for r in range(0, len(x), 1024)]


x = read("input.f32")
for name in sorted(os.listdir(here)):
    if not name.endswith(".bin"):
        continue
    got, want = lumen_run("encode", name[:-4].lower(), x), read(name)
    diff = next((i for i, (a, b) in enumerate(zip(got, want)) if a != b), None)
    told(f"encode {name[:-4]}: bit for bit", f"byte {diff} is {got[diff]}, expected {want[diff]}" if diff is not None else None if len(got) == len(want) else f"{len(got)} bytes, expected {len(want)}")
for fmt, want in json.loads(read("rms.json")).items():
    got = rms(floats(x), floats(lumen_run("decode", fmt.lower(), lumen_run("encode", fmt.lower(), x))))
    worse = [f"row {i}: {a:.6g}, reference {b:.6g}" for i, (a, b) in enumerate(zip(got, want)) if a > b * (1 + 1e-6)]
    told(f"encode {fmt}: no row's error above the reference's", "; ".join(worse) or None)
for case in json.loads(read("half.json")):
    fmt, block = case["type"].lower(), bytes.fromhex(case["block"])
    if case["type"] + ".bin" not in os.listdir(here):
        continue
    probe = lumen_run("decode", fmt, block)
    data = array.array("f", case["input_then_zeros"] + [0.0] * (len(probe) // 4 - len(case["input_then_zeros"])))
    got = lumen_run("encode", fmt, data.tobytes())
    told(f"encode {case['type']}: ties, {case['rule'][:40]}", None if got == block else f"{got.hex()}, expected {block.hex()}")
r = read("rounding.f32")
for fmt, nan in (("F8_E4M3", lambda c: c & 127 == 127), ("F8_E5M2", lambda c: c & 127 > 124)):
    got, want = lumen_run("encode", fmt.lower(), r), read(fmt + ".u8")
    diff = [i for i in range(len(want)) if got[i] != want[i] and not (nan(got[i]) and nan(want[i]))]
    told(f"encode {fmt}: to nearest even, saturating", f"{len(diff)} differ, the first of {floats(r)[diff[0]]!r}: {got[diff[0]]}, expected {want[diff[0]]}" if diff else None)
    back = lumen_run("encode", fmt.lower(), lumen_run("decode", fmt.lower(), bytes(range(256))))
    diff = [c for c in range(256) if back[c] != c and not nan(c) and c not in (0x7c, 0xfc)]
    told(f"{fmt}: every code comes back", f"codes {diff[:8]} do not" if diff else None)
for n in (1, 15, 16, 17, 33):        # tiles of 16 blocks and what is left over
    part = x[:n * 128]
    told(f"encode Q8_0: {n} blocks alone are the same", None if lumen_run("encode", "q8_0", part) == read("Q8_0.bin")[:n * 34] else "they differ")
for target in ("x86-avx2", "x86-sse4"):
    for fmt in ("q4_k", "iq4_nl", "mxfp4", "tq1_0", "q8_k"):
        r = subprocess.run([lumen, "encode", "--format", fmt, "--target", target], input=x[:65536 // 4], capture_output=True)
        if b"cannot run" in r.stderr:
            print(f"skip - encode {fmt} on {target}: this machine cannot")
        else:
            told(f"encode {fmt} on {target}: the same bits", None if r.returncode == 0 and r.stdout == lumen_run("encode", fmt, x[:65536 // 4]) else "they differ " + r.stderr.decode()[:200])
sys.exit(bad > 0)
