"""new_format.py DIR: random blocks of the format tests/formats/std/q5x40.lum describes (blocks), their values by a decoder written here (want),
and a tiny model of the family with the commonest tensor names, once with its matrices in that format (q5x40.gguf), once with the very same
values as f32 (f32.gguf), with ids. new_format.py --compare F32 INT8: that two files of logits are close but not equal."""
import array, random, struct, sys
sys.path.insert(0, "tests")
import gguf, tiny

QS, Z, QH, D = 0, 20, 21, 26  # byte offsets


def block(r):
    """-> (28 bytes, 40 values), codes around the zero point"""
    z, d = r.randrange(8, 24), r.choice([-1, 1]) * r.uniform(0.004, 0.012)
    codes = [min(31, max(0, round(r.gauss(z, 6)))) for _ in range(40)]
    b = bytearray(28)
    for i, q in enumerate(codes):
        b[QS + i // 2] |= (q & 15) << (4 * (i % 2))
        b[QH + i % 5] |= (q >> 4) << (i // 5)
    b[Z] = z
    struct.pack_into("<e", b, D, d)
    d = struct.unpack_from("<e", b, D)[0]
    return bytes(b), [d * (q - z) for q in codes]  # 11 bits times 6: exact in f32


def matrix(r, rows, cols):
    blocks = [block(r) for _ in range(rows * cols // 40)]
    return b"".join(b for b, _ in blocks), array.array("f", [v for _, x in blocks for v in x]).tobytes()


def model(folder):
    r = random.Random(40)
    E, F, V, L, H, G = 80, 160, 120, 2, 5, 1  # heads of 16
    meta = tiny.describe(E, F, L, H, G)
    packed, plain = [], []

    def add(name, rows, cols):
        b, x = matrix(r, rows, cols)
        packed.append((name, [cols, rows], 200, b))
        plain.append((name, [cols, rows], 0, x))

    def norm(name):
        x = array.array("f", [r.uniform(0.5, 1.5) for _ in range(E)]).tobytes()
        packed.append((name, [E], 0, x))
        plain.append((name, [E], 0, x))
    tiny.tensors(E, F, V, L, H, G, add, norm)
    gguf.write(folder + "/q5x40.gguf", meta, packed)
    gguf.write(folder + "/f32.gguf", meta, plain)
    with open(folder + "/ids", "w") as f:
        print(*[r.randrange(V) for _ in range(37)], file=f)


def compare(plain, int8):
    a, b = array.array("f"), array.array("f")
    for x, path in ((a, plain), (b, int8)):
        with open(path, "rb") as f:
            x.frombytes(f.read())
    top = max(map(abs, a))
    worst = max(abs(x - y) for x, y in zip(a, b))
    print(f"largest logit {top:.3f}, largest difference {worst:.4f} of {len(a)} and {len(b)}")
    return len(a) == len(b) and top > 0.5 and 0 < worst < 0.05 * top


if sys.argv[1] == "--compare":
    sys.exit(0 if compare(*sys.argv[2:4]) else 1)
rng = random.Random(5)
data = [block(rng) for _ in range(500)]
with open(sys.argv[1] + "/blocks", "wb") as f:
    f.write(b"".join(b for b, _ in data))
with open(sys.argv[1] + "/want", "wb") as f:
    f.write(array.array("f", [v for _, x in data for v in x]).tobytes())
model(sys.argv[1])
