#!/usr/bin/env python3
"""Writes tiny valid files as seeds for the fuzz targets. usage: seeds.py DIR   (makes DIR/gguf, DIR/safetensors, DIR/folder and DIR/reply)"""
import json, os, struct, sys


def text(s):
    b = s.encode()
    return struct.pack("<Q", len(b)) + b


def gguf(kvs, tensors, version=3, align=32):
    """kvs: [(key, type, bytes)]; tensors: [(name, dims fastest first, type, n_bytes)]."""
    out = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(kvs))
    for key, kind, value in kvs:
        out += text(key) + struct.pack("<I", kind) + value
    offset, data = 0, b""
    for name, dims, kind, n in tensors:
        out += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)
        data += bytes(n) + bytes(-n % align)
        offset = len(data)
    return out + (bytes(-len(out) % align) + data if tensors else b"")


def array(kind, items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def safetensors(tensors, meta=None):
    """tensors: [(name, dtype, shape, n_bytes)]."""
    header, at = {}, 0
    if meta is not None:
        header["__metadata__"] = meta
    for name, dtype, shape, n in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + n]}
        at += n
    b = json.dumps(header).encode()
    return struct.pack("<Q", len(b)) + b + bytes(at)


u32 = lambda v: struct.pack("<I", v)
SEEDS = {
    "gguf": [
        gguf([], []),
        gguf([("general.alignment", 4, u32(64)), ("a", 8, text("x"))], [("w", [64, 2], 2, 72)], align=64),
        gguf([("s", 9, array(8, [text("a"), text(""), text("bc")])), ("f", 9, array(6, [struct.pack("<f", 1.5)] * 3)), ("b", 7, b"\1"), ("n", 9, array(9, [array(4, [u32(1)])]))],
             [("v", [4], 0, 16), ("u", [2, 2], 77, 16)], version=2),
        gguf([("split.count", 2, b"\2\0"), ("split.no", 2, b"\0\0")], [("w", [1], 0, 4)]),
    ],
    "safetensors": [
        safetensors([], {}),
        safetensors([("a", "F32", [2, 3], 24), ("b", "F32", [], 4), ("c", "I64", [1], 8)], {"format": "pt"}),
    ],
}
CONFIG = json.dumps({"architectures": ["M"], "hidden_size": 8, "text_config": {"eps": 1e-5, "rope_scaling": {"type": "linear", "factor": 2.0}}, "layer_types": ["a", "b"], "tie": True}).encode()
PART = safetensors([("a", "F32", [2], 8), ("b", "F32", [], 4)])
INDEX = json.dumps({"metadata": {"total_size": 12}, "weight_map": {"a": "a.safetensors", "b": "a.safetensors"}}).encode()
SEEDS["folder"] = [b"\xff".join(x) for x in ([CONFIG, b'{"eos_token_id": [1, 2], "top_k": 5}', INDEX, PART], [b"{}", b"", INDEX, PART], [CONFIG, b"", b'{"weight_map": {"a": "../a.safetensors"}}', PART])]
for kind, files in SEEDS.items():
    folder = os.path.join(sys.argv[1], kind)
    os.makedirs(folder, exist_ok=True)
    for i, data in enumerate(files):
        with open(os.path.join(folder, f"seed{i}"), "wb") as f:
            f.write(data)

# Replies: every case of tests/reply, with the three bytes in front that choose a syntax and cuts.
os.makedirs(os.path.join(sys.argv[1], "reply"), exist_ok=True)
folder, n = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "reply"), 0
for name in sorted(os.listdir(folder)):
    if name.endswith(".txt") and name != "messages.txt":
        with open(os.path.join(folder, name), encoding="utf-8") as f:
            for part in f.read().split("<<<\n")[1:]:
                reply = part.split("\n>>>")[0].replace("get_weather", "now").replace("city", "a").encode()
                for syntax in (n % 25, 0, 1, 2):
                    with open(os.path.join(sys.argv[1], "reply", f"{n}-{syntax}"), "wb") as out:
                        out.write(bytes([syntax, n % 4, n % 7]) + reply)
                n += 1

# Structured output: our cases and some of the published ones; the first byte chooses the language, a text follows behind a zero byte.
os.makedirs(os.path.join(sys.argv[1], "grammar"), exist_ok=True)
folder, n = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "grammar"), 0
for name, first in [("regex.jsonl", 0), ("gbnf.jsonl", 1), ("schemas.jsonl", 2), ("schemas.jsonl", 5), ("refused.jsonl", 2), ("suite/oneOf.jsonl", 2), ("suite/not.jsonl", 2), ("suite/unevaluatedProperties.jsonl", 2)]:
    with open(os.path.join(folder, name), encoding="utf-8") as f:
        for row in map(json.loads, f):
            texts = [x for x in row[2:] if isinstance(x, list) and x]
            text = texts[0][0] if texts and isinstance(texts[0][0], str) else texts[0][0][0] if texts else ""
            with open(os.path.join(sys.argv[1], "grammar", f"{n}"), "wb") as out:
                out.write(bytes([first]) + row[1].encode() + b"\0" + text.encode("utf-8", "surrogatepass"))
            n += 1
