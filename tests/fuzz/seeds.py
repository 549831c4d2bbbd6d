#!/usr/bin/env python3
"""Writes tiny valid files as seeds for the fuzz targets. usage: seeds.py DIR   (makes a folder for each kind of input)"""
import base64, json, os, random, struct, sys


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

# Calls: schemas of parameters in every syntax, and a walk.
os.makedirs(os.path.join(sys.argv[1], "calls"), exist_ok=True)
folder, n, chance = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "grammar"), 0, random.Random(7)
own = [{"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}, "c": {"enum": ["x", 1, None]}}, "required": ["a"], "additionalProperties": False},
       {"type": "object", "properties": {"a": {"type": ["string", "null"], "maxLength": 5}, "b": {"type": "array", "items": {"type": "string"}}}, "additionalProperties": {"type": "number"}},
       {"$ref": "#/$defs/o", "$defs": {"o": {"properties": {"a": {"type": "boolean"}}, "required": ["a"]}}}]
with open(os.path.join(folder, "schemas.jsonl"), encoding="utf-8") as f:
    schemas = own + [{"type": "object", "properties": {"a": json.loads(row[1])}, "required": ["a"]} for row in map(json.loads, f)]
for schema in schemas:
    for syntax in chance.sample(range(25), 5):
        with open(os.path.join(sys.argv[1], "calls", f"{n}"), "wb") as out:
            out.write(bytes([syntax, chance.randrange(4)]) + json.dumps(schema).encode() + b"\0" + chance.randbytes(150))
        n += 1

# Templates: the first byte chooses what the JSON behind the zero byte is.
here = os.path.dirname(os.path.abspath(__file__))
os.makedirs(os.path.join(sys.argv[1], "template"), exist_ok=True)
read = lambda *path: open(os.path.join(here, "..", "text", "templates", *path), encoding="utf-8", newline="").read()
context = read("conformance-context.json").encode()
for i, row in enumerate(map(json.loads, filter(None, read("jinja-conformance.jsonl").split("\n")))):
    with open(os.path.join(sys.argv[1], "template", f"{i}"), "wb") as out:
        out.write(b"\0" + row["template"].encode("utf-8", "surrogatepass").replace(b"\0", b"") + b"\0" + context)
conversations = list(json.loads(read("conversations.json")).values())
for i, name in enumerate(sorted(os.listdir(os.path.join(here, "..", "text", "templates", "templates")))):
    for way in (1, 2, 5):
        c = conversations[(3 * i + way) % len(conversations)]
        with open(os.path.join(sys.argv[1], "template", f"t{i}-{way}"), "wb") as out:
            out.write(bytes([way]) + read("templates", name).encode().replace(b"\0", b"") + b"\0" + json.dumps(c, ensure_ascii=False).encode("utf-8", "surrogatepass"))

# Tokenizers: small whole files of each kind, files with a text of their own, texts for vocabularies that are kept.
os.makedirs(os.path.join(sys.argv[1], "tokenizer"), exist_ok=True)
b64 = lambda b: base64.b64encode(b).decode()
level = {b: chr(b) if 33 <= b < 127 or 161 <= b != 173 else None for b in range(256)}
for i, b in enumerate(b for b in range(256) if level[b] is None):
    level[b] = chr(256 + i)
words = ["".join(level[b] for b in w.encode()) for w in ("He", "ll", "\uac00", " a", "aa", "aaaa", "\n\n", "lo")]


def bpe(parts, added=(), **more):
    vocab = {level[b]: b for b in range(256)} if more.get("levels", True) else {chr(b): b for b in range(32, 127)}
    merges = []
    for w in parts:
        for n in range(2, len(w) + 1):
            if w[:n] not in vocab:
                vocab[w[:n]] = len(vocab) + 300
                merges.append(f"{w[:n - 1]} {w[n - 1]}")
    model = {"type": "BPE", "vocab": vocab, "merges": merges, **{k: v for k, v in more.items() if k in ("unk_token", "byte_fallback", "fuse_unk", "ignore_merges")}}
    return {"added_tokens": list(added), "model": model, **{k: v for k, v in more.items() if k in ("normalizer", "pre_tokenizer", "decoder", "post_processor")}}


added = [{"id": 600, "content": "<s>", "special": True}, {"id": 601, "content": "<mask>", "special": True, "lstrip": True}, {"id": 602, "content": "api", "single_word": True, "normalized": True}]
level_steps = {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True}
template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>"}}, {"Sequence": {"id": "A"}}], "special_tokens": {"<s>": {"ids": [600]}}}
split = lambda pattern, how="Isolated": {"type": "Split", "pattern": {"Regex": pattern}, "behavior": how, "invert": False}
mark = "\u2581"
files = [
    bpe(words, added, pre_tokenizer=level_steps, decoder={"type": "ByteLevel"}, post_processor=template),
    bpe(words, added, normalizer={"type": "NFC"}, pre_tokenizer={"type": "Sequence", "pretokenizers": [split("(?i:'s|'t)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|\\s+(?!\\S)|\\s+"), {"type": "Digits", "individual_digits": True},
                                       {"type": "ByteLevel", "add_prefix_space": True, "use_regex": False}]}, ignore_merges=True),
    bpe([mark + "He", "ll", "lo", mark + mark], added, levels=False, unk_token="!", byte_fallback=True, fuse_unk=True,
        normalizer={"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": mark}, {"type": "Replace", "pattern": {"String": " "}, "content": mark}, {"type": "NFKC"}, {"type": "Strip"}]},
        decoder={"type": "Sequence", "decoders": [{"type": "Replace"}, {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "start": 1}]}),
    {"model": {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0], [mark, -2], ["He", -3], ["l", -4.5], ["lo", -5], ["a", -3], ["aa", -4]]}, "normalizer": {"type": "Sequence", "normalizers": [{"type": "Nmt"},
      {"type": "Lowercase"}, {"type": "StripAccents"}]}, "pre_tokenizer": {"type": "Metaspace", "replacement": mark, "prepend_scheme": "first", "split": True}, "decoder": {"type": "Metaspace"}},
    {"model": {"type": "WordPiece", "unk_token": "[UNK]", "vocab": {"[UNK]": 0, "hello": 1, "##lo": 2, "he": 3, "##l": 4, "a": 5, "##a": 6, "12": 7, "##3": 8}}, "normalizer": {"type": "BertNormalizer"},
     "pre_tokenizer": {"type": "BertPreTokenizer"}, "decoder": {"type": "WordPiece"}, "post_processor": {"type": "BertProcessing", "cls": ["[UNK]", 0], "sep": ["a", 5]}},
    {"config": {"pattern": "\\p{N}|[^\\s]+|\\s+", "default_num_special_tokens": 5, "default_vocab_size": 300}, "vocab": [{"rank": i, "token_bytes": b64(bytes([i]))} for i in range(256)] +
     [{"rank": 256 + i, "token_bytes": b64(w)} for i, w in enumerate([b"He", b"ll", b"llo", b"aa", "\uac00".encode()])], "special_tokens": [{"rank": 1, "token_str": "<s>"}]},
]


def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, wire, data):
    return varint(number << 3 | wire) + (varint(len(data)) + data if wire == 2 else data)


def spm(kind, pieces):
    out = b"".join(field(1, 2, field(1, 2, t.encode()) + field(2, 5, struct.pack("<f", score)) + field(3, 0, varint(typ))) for t, score, typ in pieces)
    return out + field(2, 2, field(3, 0, varint(kind)) + field(40, 0, varint(0))) + field(3, 2, field(3, 0, varint(1)))


pieces = [("<unk>", 0, 2), ("<s>", 0, 3), ("</s>", 0, 3)] + [(f"<0x{b:02X}>", 0, 6) for b in range(256)] + [(mark, -1, 1), ("H", -2, 1), ("e", -3, 1), ("l", -4, 1), ("o", -5, 1), ("He", -0.5, 1), ("ll", -0.6, 1),
          ("llo", -0.7, 1), (mark + "He", -0.4, 1), ("a", -6, 1), ("aa", -0.3, 1), (mark + mark, -0.9, 1), ("api", 0, 4)]
raw = [json.dumps(f, ensure_ascii=False).encode() for f in files] + [spm(2, pieces), spm(1, pieces), spm(1, pieces[:3] + pieces[259:]), "".join(f"{b64(bytes([i]))} {i}\n" for i in range(256)).encode() +
    b"SGU= 256\nbGw= 257\nYWE= 258\n"]
texts = ["Hello  world", "\uac00\ub098\ub2e4 \ub77c\ub9c8", "don't\n\n\t 123 <s><mask> api apis", "a" * 40, "\u1100\u1161\u11a8 e\u0301 \U0001f999", "   \u3000 \u2581 x"]
for i, f in enumerate(raw):
    with open(os.path.join(sys.argv[1], "tokenizer", f"file{i}"), "wb") as out:
        out.write(bytes([4 * i & 60]) + f)
    with open(os.path.join(sys.argv[1], "tokenizer", f"both{i}"), "wb") as out:
        out.write(bytes([2 + 4 * i & 255]) + f.replace(b"\0", b" ") + b"\0" + texts[i % len(texts)].encode())
lines = ["3<s>"] + [f"1\\x{b:02x}" for b in range(256)] + ["1He", "1llo", "1\\n\\n\\t", "1\\xea\\xb0\\x80", "1aaaa", "4api"]
bpe_lines = ["2<unk>"] + ["1" + c for c in "Helo aĠ"] + ["1He", "1ll", "4api", "mH e", "ml l"]
for i, (kind, rows) in enumerate([(1, lines), (0, bpe_lines), (2, bpe_lines), (3, bpe_lines), (4, bpe_lines), (5, bpe_lines)]):
    with open(os.path.join(sys.argv[1], "tokenizer", f"meta{i}"), "wb") as out:
        out.write(bytes([1 + 4 * i, kind]) + "\n".join(rows).encode())
for i, t in enumerate(texts * 4):
    with open(os.path.join(sys.argv[1], "tokenizer", f"text{i}"), "wb") as out:
        out.write(bytes([3 + 64 * (i // 6) + 4 * (i % 3)]) + t.encode())
