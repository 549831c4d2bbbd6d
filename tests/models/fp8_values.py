"""fp8_values.py FOLDER WEIGHT VALUES: f8_e4m3 in blocks of 128 x 128 with bf16 scales, worked out here, are VALUES (f32) bit for bit; any NaN is any NaN."""
import array, struct, sys
import quantized_whole as whole

folder, weight, values = sys.argv[1:4]
tensors = whole.read(folder)


def e4m3(c):
    e, m = c >> 3 & 15, c & 7
    v = float("nan") if c & 127 == 127 else m / 512 if e == 0 else (8 + m) * 2.0 ** (e - 10)
    return -v if c & 128 else v


def bits(x):
    if x != x:
        return "nan"
    try:
        return struct.pack("<f", x)
    except OverflowError:
        return struct.pack("<f", float("inf") if x > 0 else -float("inf"))


_, (N, K), codes = tensors[weight + ".weight"]
_, (_, cols), raw = tensors[weight + ".weight_scale_inv"]
scale = [struct.unpack("<f", b"\0\0" + raw[i:i + 2])[0] for i in range(0, len(raw), 2)]
got = array.array("f", open(values, "rb").read())
table = [e4m3(c) for c in range(256)]
off = [i for i in range(N * K) if bits(table[codes[i]] * scale[i // K // 128 * cols + i % K // 128]) != bits(got[i])]
print(f"{len(off)} of {N * K} differ, first at {off[0]}: {got[off[0]]}" if off else "equal")
sys.exit(bool(off) or len(got) != N * K)
