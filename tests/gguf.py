"""Writes small GGUF files for tests: write(path, metadata) with Python values (bool, int, float, str, bytearray for a list of bytes, and lists of one kind), and optionally
tensors as (name, dims innermost first, type number, bytes). Layout: the GGUF specification, version 3."""
import struct


def value(v):
    """-> (type number, bytes)"""
    if isinstance(v, bool):
        return 7, struct.pack("<B", v)
    if isinstance(v, int):
        return (4, struct.pack("<I", v)) if v >= 0 else (5, struct.pack("<i", v))
    if isinstance(v, float):
        return 6, struct.pack("<f", v)
    if isinstance(v, (str, bytes)):
        b = v.encode() if isinstance(v, str) else v
        return 8, struct.pack("<Q", len(b)) + b
    if isinstance(v, bytearray):
        return 9, struct.pack("<IQ", 0, len(v)) + bytes(v)
    parts = [value(x) for x in v]
    kind = 5 if any(isinstance(x, int) and not isinstance(x, bool) for x in v) else parts[0][0]
    data = b"".join(struct.pack("<i", x) for x in v) if kind == 5 else b"".join(p[1] for p in parts)
    return 9, struct.pack("<IQ", kind, len(v)) + data


def string(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def write(path, metadata, tensors=()):
    out = bytearray(b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)))
    for key, v in metadata.items():
        kind, data = value(v)
        out += string(key) + struct.pack("<I", kind) + data
    at = 0
    for name, dims, kind, data in tensors:
        out += string(name) + struct.pack("<I", len(dims)) + b"".join(struct.pack("<Q", d) for d in dims) + struct.pack("<IQ", kind, at)
        at += (len(data) + 31) // 32 * 32
    for _, _, _, data in tensors:
        out += bytes(-len(out) % 32) + data
    with open(path, "wb") as f:
        f.write(out)
