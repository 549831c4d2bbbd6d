# A Unigram vocabulary as a GGUF file says it (kind t5), with its precompiled character map: every golden id.
. tests/lib.sh
cat > "$TEST_TMP/t5.py" <<'END'
import base64, gzip, json, os, subprocess, sys
sys.path.insert(0, "tests")
import gguf
lumen, where, golden = sys.argv[1], sys.argv[2], "tests/text/tokenizers"
def lines(path):
    with open(path, encoding="utf-8", newline="\n") as f: return [json.loads(x) for x in f.read().split("\n") if x]
j = json.load(gzip.open(f"{golden}/pegasus/tokenizer.json.gz"))
vocab, unk = j["model"]["vocab"], j["model"]["unk_id"]
types = [1] * len(vocab)
for a in j["added_tokens"]: types[a["id"]] = 3
types[unk] = 2
charsmap = next(n["precompiled_charsmap"] for n in j["normalizer"]["normalizers"] if n["type"] == "Precompiled")
meta = {"general.architecture": "none", "tokenizer.ggml.model": "t5", "tokenizer.ggml.tokens": [t for t, _ in vocab],
        "tokenizer.ggml.scores": [float(s) for _, s in vocab], "tokenizer.ggml.token_type": types, "tokenizer.ggml.unknown_token_id": unk,
        "tokenizer.ggml.eos_token_id": 1, "tokenizer.ggml.add_space_prefix": True, "tokenizer.ggml.remove_extra_whitespaces": True,
        "tokenizer.ggml.precompiled_charsmap": bytearray(base64.b64decode(charsmap))}
gguf.write(f"{where}/t5.gguf", meta)
gguf.write(f"{where}/spaces.gguf", {**meta, "tokenizer.ggml.remove_extra_whitespaces": False})
texts, rows = [x["text"] for x in lines(f"{golden}/texts.jsonl")], lines(f"{golden}/pegasus.jsonl")
def ids(file, texts, *flags):
    r = subprocess.run([lumen, "tokenize", f"{where}/{file}.gguf", "--lines", *flags], input="".join(json.dumps(t) + "\n" for t in texts), capture_output=True, text=True)
    if r.returncode: print(f"not ok - {file}: {r.stderr.strip()}")
    return [json.loads(x) for x in r.stdout.splitlines()]
bad = 0
for key, flags in (("ids", []), ("ids_special", ["--special"])):
    got = ids("t5", texts, *flags)
    wrong = [] if len(got) == len(rows) else ["number of rows"]
    for g, r in zip(got, rows):
        want = r[key]
        if g != want and r["id"] != "space-28": wrong.append(r["id"])        # U+0085: transformers cuts words there, SentencePiece does not
    print(f"ok - t5: {key} of {len(got)} texts" if not wrong else f"not ok - t5: {key}: {len(wrong)} of {len(rows)} differ: {wrong[:9]}")
    bad += len(wrong)
one, two = ids("t5", ["a  b", " a b "]), ids("spaces", ["a  b", " a b "])
print("ok - t5: spaces count where the file keeps them" if one[0] == one[1] and two[0] != one[0] and two[1] != one[0] else f"not ok - t5: spaces: {one} {two}")
sys.exit(bad > 0)
END
python3 "$TEST_TMP/t5.py" "$LUMEN" "$TEST_TMP" || n_bad=1
finish
