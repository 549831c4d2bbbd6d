"""compact.py GOLDEN OUT: the outside goldens of the real model in compact form. GOLDEN has prompts.jsonl, top.json, greedy.json and logits-NAME.f32.
prompts.json: name, ids, and where there is one the greedy continuation (ids up to the first step whose gap is below 2e-3).
top.bin: for every position of every prompt in order 16 ids (i32), their logits (f32), the logsumexp (f32): 132 bytes.
logits-NAME.u16: per position the smallest logit and the step (f32 each), then [vocabulary] u16: logit = smallest + step * u (off by half a step, 5e-4)."""
import array, json, struct, sys

src, out = sys.argv[1:3]
top, greedy = json.load(open(f"{src}/top.json")), json.load(open(f"{src}/greedy.json"))
V = json.load(open(f"{src}/source.json"))["vocabulary"]
prompts = [json.loads(line) for line in open(f"{src}/prompts.jsonl", encoding="utf-8")]
rows, packed = [], bytearray()
for p in prompts:
    row = {"name": p["name"], "ids": p["ids"]}
    if p["name"] in greedy:
        g = greedy[p["name"]]
        row["greedy"] = g["ids"][:next((i for i, gap in enumerate(g["gap"]) if gap < 2e-3), len(g["ids"]))]
    rows.append(row)
    t = top[p["name"]]
    for ids, logits, lse in zip(t["top_ids"], t["top_logits"], t["logsumexp"]):
        packed += struct.pack("<16i16ff", *ids, *logits, lse)
with open(f"{out}/prompts.json", "w") as f:
    f.write("[\n" + ",\n".join(json.dumps(r, separators=(",", ":")) for r in rows) + "\n]\n")
with open(f"{out}/top.bin", "wb") as f:
    f.write(packed)
for name in ("capital", "lens", "korean"):
    a = array.array("f", open(f"{src}/logits-{name}.f32", "rb").read())
    with open(f"{out}/logits-{name}.u16", "wb") as f:
        for at in range(0, len(a), V):
            row = a[at:at + V]
            lo, step = struct.unpack("<ff", struct.pack("<ff", min(row), (max(row) - min(row)) / 65535))
            f.write(struct.pack("<ff", lo, step) + array.array("H", [min(65535, round((x - lo) / step)) for x in row]).tobytes())
