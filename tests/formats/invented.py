"""invented.py FORMAT BLOCK GGUF DIR: a tiny model whose matrices are blocks of tests/formats/invented/FORMAT.blocks taken at random (packed.gguf), the
same values as f32 (plain.gguf), and ids. invented.py --error WANT GOT: the error of floats, relative to those wanted, root of mean square."""
import array, math, random, sys
sys.path.insert(0, "tests")
import gguf, tiny


def floats(path):
    x = array.array("f")
    with open(path, "rb") as f:
        x.frombytes(f.read())
    return x


def model(name, block, number, folder):
    r = random.Random(40)
    values = floats(f"tests/formats/invented/{name}.f32")
    with open(f"tests/formats/invented/{name}.blocks", "rb") as f:
        raw = f.read()
    n = len(values) // block
    size = len(raw) // n
    E = block * 16 // math.gcd(block, 16)  # heads of 16
    E *= 2 if E < 100 else 1
    F, V, L, H = E + block, 101, 2, E // 16
    meta = tiny.describe(E, F, L, H, H)
    packed, plain = [], []

    def add(name, rows, cols):
        which = [r.randrange(n) for _ in range(rows * cols // block)]
        packed.append((name, [cols, rows], number, b"".join(raw[k * size:(k + 1) * size] for k in which)))
        plain.append((name, [cols, rows], 0, b"".join(values[k * block:(k + 1) * block].tobytes() for k in which)))

    def norm(name):
        x = array.array("f", [r.uniform(0.5, 1.5) for _ in range(E)]).tobytes()
        packed.append((name, [E], 0, x))
        plain.append((name, [E], 0, x))
    tiny.tensors(E, F, V, L, H, H, add, norm)
    gguf.write(folder + "/packed.gguf", meta, packed)
    gguf.write(folder + "/plain.gguf", meta, plain)
    with open(folder + "/ids", "w") as f:
        print(*[r.randrange(V) for _ in range(19)], file=f)


def error(want, got):
    a, b = floats(want), floats(got)
    if len(a) != len(b):
        return math.inf
    return math.sqrt(sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a))


if sys.argv[1] == "--error":
    print(f"{error(*sys.argv[2:4]):.4f}")
else:
    model(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
