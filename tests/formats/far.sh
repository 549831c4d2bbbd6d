#!/bin/sh
# Layouts of tensors of more than 2 GiB, whose bytes 31 bits do not count. The files are holes but for the numbers that are asked for.
# runtests: machine code
. tests/lib.sh
mkdir -p "$TEST_TMP/std"
cat > "$TEST_TMP/std/far.lum" <<'EOS'
layout by_row [N, K] = "*.weight" {
  tensor w : i32[N, P] = "*.by_row"
  tensor s : f32[N, K] = "*.scale"
  x(n, k) = w[n, k * (P / K) + n % 2] * s[n, k]
}
layout halves [N, K] = "*.weight" {
  tensor w : f16[N, P] = "*.halves"
  tensor s : f32[N, K] = "*.scale"
  x(n, k) = w[n, k * (P / K)] * s[n, k]
}
layout odd_even [N, K] = "*.weight" {
  tensor w : i32[2, N / 2, P] = "*.odd_even"
  tensor s : f32[N, K] = "*.scale"
  x(n, k) = w[n % 2, n / 2, k * (P / K)] * s[n, k]
}
layout by_column [N, K] = "*.weight" {
  tensor w : i32[P, N] = "*.by_column"
  tensor s : f32[N, K] = "*.scale"
  x(n, k) = w[k * (P / K), n] * s[n, k]
}
layout ordered [N, K] = "*.weight" {
  tensor w : i32[P, N / 2] = "*.ordered"
  tensor s : f32[N, K] = "*.scale"
  tensor order : i32[K] groups 7 = "*.order"
  x(n, k) = w[order[k] * (P / 7), n / 2] * s[n, k]
}
layout backwards [N, K] = "*.weight" {
  tensor w : i32[N, P] = "*.backwards"
  tensor s : f32[N, K] = "*.scale"
  x(n, k) = w[(N - 1) + n * (0 - 1), k * (P / K)] * s[n, k]
}
layout pairs_backwards [N, K] = "*.weight" {
  tensor w : i32[N / 2, P] = "*.pairs_backwards"
  tensor s : f32[N, K] = "*.scale"
  x(n, k) = w[N / 2 - 1 - n / 2, P - 2 - k * (P / K) + n % 2] * s[n, k]
}
layout bytes [N, K] = "*.weight" {
  tensor w : f8_e4m3[N, P] = "*.bytes"
  tensor s : f32[N, K] = "*.scale"
  x(n, k) = w[n, k * (P / K)] * s[n, k]
}
layout many [N, K] = "*.weight" {
  tensor w : f8_e4m3[P, N] = "*.many"
  tensor c : f32[K] = "*.column"
  x(n, k) = w[k + 127, N - 1 - n] * c[k]
}
EOS
# Rows in another order, 30 and more apart within a tile: of the folder's tensor, and of the GGUF file that is written of it.
for way in loaded written; do
  mkdir -p "$TEST_TMP/$way"
  case $way in
    loaded) source='"a.weight" rows r -> r % 2 * 20 + r / 2' ;;
    written) source='"token_embd.weight" rows r -> r % 2 * 20 + r / 2 | "a.weight"' ;;
  esac
  cat > "$TEST_TMP/$way/far.lum" <<EOS
layout by_row [N, K] = "*.weight" {
  tensor w : i32[N, P] = "*.by_row"
  tensor s : f32[N, K] = "*.scale"
  x(n, k) = w[n, k * (P / K)] * s[n, k]
}
model far_rows {
  file gguf "far"
  file hf "FarRows"
  hyper V = dim("token_embd.weight" | "a.scale", 0)
  hyper E = dim("token_embd.weight" | "a.scale", 1)
  write "context_length" = key("max_position_embeddings")
  tensor embd : W[V,E] = $source
  graph(tokens: i32[M], pos: i32[M], rows: i32[O]) {
    return linear(take_rows(embed(embd, tokens), rows), embd)
  }
}
EOS
done
cat > "$TEST_TMP/far.py" <<'EOS'
import json, os, shutil, struct, subprocess, sys
sys.path[:0] = ["tests"]
from told import told, end
lumen, tmp = sys.argv[1:]
N, K, ORDER = 40, 4, (3, 0, 6, 5)


def write(kind, size, dims, at, put):
    """A checkpoint whose tensor's numbers are at(n, k) elements of size bytes away, as put writes n * 10 + k."""
    folder = f"{tmp}/{kind}"
    os.mkdir(folder)
    with open(folder + "/config.json", "w") as f:
        f.write("{}")
    n_bytes = size
    for d in dims:
        n_bytes *= d
    assert n_bytes > 1 << 31
    small = {"scale": ("F32", [N, K], struct.pack(f"<{N * K}f", *(0.5 + n for n in range(N) for k in range(K)))), "order": ("I32", [K], struct.pack(f"<{K}i", *ORDER))}
    if kind != "ordered":
        del small["order"]
    head, pos = {f"a.{kind}": {"dtype": {4: "I32", 2: "F16", 1: "F8_E4M3"}[size], "shape": dims, "data_offsets": [0, n_bytes]}}, n_bytes
    for name, (dtype, shape, data) in small.items():
        head["a." + name] = {"dtype": dtype, "shape": shape, "data_offsets": [pos, pos + len(data)]}
        pos += len(data)
    text = json.dumps(head).encode()
    with open(folder + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        start = f.tell()
        f.truncate(start + pos)
        for n in range(N):
            for k in range(K):
                f.seek(start + at(n, k) * size)
                f.write(put(n * 10 + k))
        f.seek(start + n_bytes)
        for dtype, shape, data in small.values():
            f.write(data)
    return folder


def case(name, kind, size, dims, at, put=lambda v: struct.pack("<i", v), value=lambda n, k: n * 10 + k):
    folder = write(kind, size, dims, at, put)
    r = subprocess.run([lumen, "decode", folder, "a.weight", "--std", tmp + "/std"], capture_output=True, timeout=100)
    want = struct.pack(f"<{N * K}f", *(value(n, k) * (0.5 + n) for n in range(N) for k in range(K)))
    told(name, None if r.returncode == 0 and r.stdout == want else f"{r.returncode} {r.stderr.decode()[:300]} {struct.unpack(f'<{len(r.stdout) // 4}f', r.stdout)[:20]}")
    subprocess.run(["rm", "-r", folder], check=True)


P = 14_000_000
case("row by row, 56 MB each", "by_row", 4, [N, P], lambda n, k: n * P + k * (P // K) + n % 2)
H = 28_000_000
case("halves", "halves", 2, [N, H], lambda n, k: n * H + k * (H // K), lambda v: struct.pack("<e", v))
case("column by column", "by_column", 4, [P, N], lambda n, k: k * (P // K) * N + n)
O = 2 * P // 7 * 7
case("columns as data says, two rows in one", "ordered", 4, [O, N // 2], lambda n, k: ORDER[k] * (O // 7) * (N // 2) + n // 2, value=lambda n, k: n // 2 * 20 + 10 + k)
for wide in (P, 50_000_000, 60_000_000):
    case(f"from the last row up, {4 * wide // 1000000} MB each", "backwards", 4, [N, wide], lambda n, k: (N - 1 - n) * wide + k * (wide // K))
W = 60_000_000
case("two rows in one from the last up, columns too", "pairs_backwards", 4, [N // 2, W], lambda n, k: (N // 2 - 1 - n // 2) * W + W - 2 - k * (W // K) + n % 2)
B = 56_000_000
case("bytes", "bytes", 1, [N, B], lambda n, k: n * B + k * (B // K), lambda v: bytes([(7 + v % 8) << 3]), lambda n, k: 2.0 ** ((n * 10 + k) % 8))


def many():
    """More rows than are called a small number, counted down, one element of a byte each."""
    rows, at = 17_000_000, (0, 5, 16, 1 << 24, 16_999_999)
    folder, n_bytes = tmp + "/many", 128 * rows
    os.mkdir(folder)
    with open(folder + "/config.json", "w") as f:
        f.write("{}")
    text = json.dumps({"a.many": {"dtype": "F8_E4M3", "shape": [128, rows], "data_offsets": [0, n_bytes]}, "a.column": {"dtype": "F32", "shape": [1], "data_offsets": [n_bytes, n_bytes + 4]}}).encode()
    with open(folder + "/model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        start = f.tell()
        f.truncate(start + n_bytes)
        for i, n in enumerate(at):
            f.seek(start + 127 * rows + rows - 1 - n)
            f.write(bytes([(8 + i) << 3]))
        f.seek(start + n_bytes)
        f.write(struct.pack("<f", 3))
    r = subprocess.run([lumen, "decode", folder, "a.weight", "--std", tmp + "/std"], capture_output=True, timeout=100)
    got = [struct.unpack_from("<f", r.stdout, 4 * n)[0] for n in at] if len(r.stdout) == 4 * rows else []
    others = len(r.stdout) - r.stdout.count(0)
    told("17 million rows counted down", None if got == [3 * 2.0 ** (1 + i) for i in range(len(at))] and others == 2 * len(at) else f"{r.returncode} {r.stderr.decode()[:300]} {got} {others}")
    subprocess.run(["rm", "-r", folder], check=True)


many()
folder = write("by_row", 4, [N, P], lambda n, k: n * P + k * (P // K), lambda v: struct.pack("<i", v))
for name in os.listdir("tests/models/tokenizer"):
    shutil.copy("tests/models/tokenizer/" + name, folder)
with open(folder + "/config.json", "w") as f:
    json.dump({"architectures": ["FarRows"], "max_position_embeddings": 64}, f)
with open(tmp + "/ids", "w") as f:
    f.write("1 2 3")
r = subprocess.run([lumen, "logits", folder, "--std", tmp + "/loaded", "--ids", tmp + "/ids", "--precision", "f32", "--out", tmp + "/logits"], capture_output=True, timeout=100)
told("a model that wants rows far apart side by side is refused", None if r.returncode == 1 and b"tensor a.weight: rows of one tile lie more than 1 GiB apart" in r.stderr else str(r))
r = subprocess.run([lumen, "convert", folder, tmp + "/far.gguf", "--std", tmp + "/written", "--keep", "*=f32"], capture_output=True, timeout=100)
got = subprocess.run([lumen, "decode", tmp + "/far.gguf", "token_embd.weight"], capture_output=True, timeout=100).stdout
want = {n % 2 * 20 + n // 2: [(n * 10 + k) * (0.5 + n) for k in range(K)] for n in range(N)}
told("written as GGUF row by row", None if got == struct.pack(f"<{N * K}f", *(v for n in range(N) for v in want[n])) else f"{r} {struct.unpack(f'<{len(got) // 4}f', got)[:20]}")
subprocess.run(["rm", "-r", folder], check=True)
folder = write("odd_even", 4, [2, N // 2, P], lambda n, k: 0, lambda v: bytes(4))
r = subprocess.run([lumen, "decode", folder, "a.weight", "--std", tmp + "/std"], capture_output=True, timeout=100)
told("rows side by side that lie half a tensor apart are refused", None if r.returncode == 1 and b"layout odd_even: w holds 2240000000 bytes, and its rows lie too far apart" in r.stderr else str(r))
end()
EOS
python3 "$TEST_TMP/far.py" "$LUMEN" "$TEST_TMP" || n_bad=1
finish
