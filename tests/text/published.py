#!/usr/bin/env python3
"""Tokenizers as their publishers ship them inside Python packages: every text of tokenizers/texts.jsonl against ids that the reference library gave.
usage: published.py check LUMEN FOLDER     fetches the packages with pip into FOLDER (what lies there is kept) and holds lumen against published.jsonl
       published.py make FOLDER            writes published.jsonl; needs tiktoken, tokenizers, mistral-common and sentencepiece, of RWKV's the package itself
A row of published.jsonl: name, package, version, member of the wheel, who gave the ids, flags of `lumen tokenize`, a digest of the ids of each text
(8 hexadecimal digits of the SHA-256 of the numbers with spaces between), and for tiktoken the ids of broken UTF-8."""
import ast, base64, glob, hashlib, json, os, subprocess, sys, unicodedata, zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
PACKAGES = {"dashscope": "2.0.2", "litellm": "1.110.2", "mistral-common": "1.13.1", "rwkv": "0.8.32"}
LITE, MISTRAL = "litellm/litellm_core_utils/tokenizers/", "mistral_common/data/"
FILES = [  # name, package, member, reference
    ("cl100k_base", "litellm", LITE + "9b5ad71b2ce5302211f9c61530b329a4922fc6a4", "tiktoken"), ("p50k_base", "litellm", LITE + "ec7223a39ce59f226a68acc30dc1af2788490e15", "tiktoken"),
    ("o200k_base", "litellm", LITE + "fb374d419588a4632f3f557e76b4b70aebbca790", "tiktoken"), ("claude", "litellm", LITE + "anthropic_tokenizer.json", "tokenizers"),
    ("deepseek", "litellm", LITE + "deepseek_tokenizer.json", "tokenizers"), ("qwen", "dashscope", "dashscope/resources/qwen.tiktoken", "tiktoken"),
    ("tekken_240718", "mistral-common", MISTRAL + "tekken_240718.json", "mistral-common"), ("tekken_240911", "mistral-common", MISTRAL + "tekken_240911.json", "mistral-common"),
    ("mistral_v1", "mistral-common", MISTRAL + "tokenizer.model.v1", "sentencepiece"), ("mistral_v3", "mistral-common", MISTRAL + "mistral_instruct_tokenizer_240323.model.v3", "sentencepiece"),
    ("mistral_v7", "mistral-common", MISTRAL + "mistral_instruct_tokenizer_241114.model.v7", "sentencepiece"),
    ("rwkv_world", "rwkv", "rwkv/rwkv_vocab_v20230424.txt", "rwkv")]
BROKEN = ["e6ad", "80", "c080", "eda080", "f4908080", "e280", "61ff62", "eab080eab0", "f09f98", "efbfbd80", "fe", "c3", "e0a080f0", "eda0bdedb880"]
QWEN = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def texts():
    with open(f"{HERE}/tokenizers/texts.jsonl", encoding="utf-8", newline="\n") as f:
        return [json.loads(x)["text"] for x in f.read().split("\n") if x]


def digest(ids):
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()[:8]


def fetch(folder, package, version):
    """None, or why the package could not be had."""
    name = f"{package.replace('-', '_')}-{version}-*.whl"
    if glob.glob(f"{folder}/{name}"): return None
    try:
        r = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--only-binary", ":all:", "--retries", "1", "--timeout", "10",
                            "-d", folder, f"{package}=={version}"], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    except subprocess.TimeoutExpired:
        return "pip took more than a minute"
    return None if not r.returncode and glob.glob(f"{folder}/{name}") else (r.stderr.strip().splitlines() or ["pip gave no wheel"])[-1][:200]


def unpack(folder, package, version, member):
    path = f"{folder}/{package}-{version}/{os.path.basename(member)}"
    if not os.path.exists(path):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with zipfile.ZipFile(glob.glob(f"{folder}/{package.replace('-', '_')}-{version}-*.whl")[0]) as z, open(path + ".part", "wb") as f: f.write(z.read(member))
        os.rename(path + ".part", path)
    return path


def as_gguf(path):
    """RWKV's list of tokens as GGUF files hold it: Python's repr of the bytes."""
    out = path + ".gguf"
    if os.path.exists(out): return out
    sys.path.insert(0, os.path.dirname(HERE))
    import gguf
    tokens = ["<s>"]
    with open(path, encoding="utf-8") as f:
        for line in f:
            t = ast.literal_eval(line[line.index(" "):line.rindex(" ")].strip())
            tokens.append(repr(t.encode() if isinstance(t, str) else t)[2:-1])
    gguf.write(out, {"general.architecture": "none", "tokenizer.ggml.model": "rwkv", "tokenizer.ggml.tokens": tokens, "tokenizer.ggml.token_type": [3] + [1] * (len(tokens) - 1)})
    return out


def tokenize(lumen, path, flags):
    r = subprocess.run([lumen, "tokenize", "--tokenizer", path, "--lines", *flags], input="".join(json.dumps(t) + "\n" for t in texts()), capture_output=True, text=True)
    return [json.loads(x) for x in r.stdout.splitlines()], r.stderr.strip()


def check_row(lumen, row, path):
    got, told = tokenize(lumen, path, row["flags"])
    want = row["ids"].split()
    if len(got) != len(want): return f"{len(got)} of {len(want)} texts: {told[:200]}"
    bad = [i for i, (g, w) in enumerate(zip(got, want)) if digest(g) != w]
    for h, ids in row.get("broken", {}).items():
        r = subprocess.run([lumen, "tokenize", "--tokenizer", path], input=bytes.fromhex(h), capture_output=True)
        if list(map(int, r.stdout.split())) != ids: bad.append(h)
    return f"{len(bad)} of {len(want)} texts differ from {row['by']}: {bad[:9]}" if bad else None


def check(lumen, folder):
    os.makedirs(folder, exist_ok=True)
    with open(f"{HERE}/published.jsonl") as f: rows = [json.loads(x) for x in f]
    why, n_bad = {}, 0
    for row in rows:
        p, v = row["package"], row["version"]
        if p not in why: why[p] = fetch(folder, p, v)
        if why[p]:
            print(f"{'not ok' if os.environ.get('CI') else 'skip'} - published {row['name']}: {p} {v} cannot be fetched: {why[p]}")
            n_bad += bool(os.environ.get("CI"))
            continue
        path = unpack(folder, p, v, row["member"])
        e = check_row(lumen, row, as_gguf(path) if row["by"] == "rwkv" else path)
        print(f"not ok - published {row['name']}: {e}" if e else f"ok - published {row['name']}: {len(row['ids'].split())} texts")
        n_bad += e is not None
    return n_bad


def encoder(name, by, path):
    if by == "tokenizers":
        from tokenizers import Tokenizer
        k = Tokenizer.from_file(path)
        return lambda t: k.encode(t, add_special_tokens=False).ids, None
    if by == "mistral-common":
        from mistral_common.tokens.tokenizers.tekken import Tekkenizer
        k = Tekkenizer.from_file(path)
        return lambda t: k.encode(t, bos=False, eos=False), None
    if by == "sentencepiece":
        import sentencepiece
        return sentencepiece.SentencePieceProcessor(model_file=path).encode, None
    if by == "rwkv":
        scope = {}
        with open(unpack(os.path.dirname(os.path.dirname(path)), "rwkv", PACKAGES["rwkv"], "rwkv/rwkv_tokenizer.py")) as f: exec(f.read(), scope)
        k = scope["TRIE_TOKENIZER"](path)
        return k.encode, k.encodeBytes
    import tiktoken, tiktoken_ext.openai_public as public
    with open(path, "rb") as f: ranks = {base64.b64decode(a): int(b) for a, b in (x.split() for x in f.read().splitlines() if x)}
    if name == "qwen": pattern = QWEN
    else:
        public.load_tiktoken_bpe = lambda *a, **k: ranks                   # the library's own pattern, without its download
        pattern = getattr(public, name)()["pat_str"]
    e = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
    return lambda t: e.encode_ordinary(unicodedata.normalize("NFC", t) if name == "qwen" else t), e._encode_bytes


def make(folder):
    with open(f"{HERE}/published.jsonl", "w") as f:
        for name, package, member, by in FILES:
            version = PACKAGES[package]
            why = fetch(folder, package, version)
            if why: sys.exit(why)
            encode, raw = encoder(name, by, unpack(folder, package, version, member))
            row = {"name": name, "package": package, "version": version, "member": member, "by": by, "flags": ["--plain"] if by in ("mistral-common", "sentencepiece", "rwkv") else [],
                   "ids": " ".join(digest(encode(t)) for t in texts())}
            if raw: row["broken"] = {h: raw(bytes.fromhex(h)) for h in BROKEN}
            f.write(json.dumps(row) + "\n")


if __name__ == "__main__":
    if sys.argv[1:2] == ["make"]: make(sys.argv[2])
    else: sys.exit(check(sys.argv[2], sys.argv[3]) > 0)
