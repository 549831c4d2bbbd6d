"""refused.py LUMEN DIR: tiny models whose files or texts are wrong in one thing each, run by LUMEN; DIR is for files. A case is what is changed,
in the file (metadata, sizes) or in tests/models/refused.lum (a word in braces), and a part of what must be said with exit code 1; "" where
it is right after all and logits must come. Prints the tests' lines; exit code 1 if one failed."""
import os, random, struct, subprocess, sys
sys.path.insert(0, "tests")
import gguf

lumen, folder = sys.argv[1:]
SIZES = dict(L=1, E=32, F=32, H=4, G=2, D=8, V=40)
WORDS = dict(HYPER="", TENSOR="", KEYS="C[(P + 255) / 256, G, 8, D, 32]", VALUES="C[(P + 255) / 256, G, 8, 32, D]", STATE="", PARAMS="tokens: i32[M], pos: i32[M], rows: i32[O]",
             PRE="x = embed(embd, tokens)\n    c, s = rope_table(pos, freq)", BODY="", POST="", RESULT="linear(rms_norm(take_rows(x, rows), norm, eps), head)", OPS="")
PICK = "op pick(w: W[V,E], t: i32[M]) -> y: f32[M,E] {\n  y[m,e] = w[%s,e]\n}"
PICKED = "x = pick(embd, %s)\n    c, s = rope_table(pos, freq)"


def floats(n, seed):
    r = random.Random(seed)
    return struct.pack(f"<{n}f", *[r.uniform(-0.1, 0.1) for _ in range(n)])


def model(path, meta, sizes, extra):
    s = {**SIZES, **sizes}
    L, E, F, H, G, D, V = (s[k] for k in "LEFHGDV")
    kv = {"general.architecture": "llama", "llama.block_count": L, "llama.embedding_length": E, "llama.feed_forward_length": F, "llama.attention.head_count": H,
          "llama.attention.head_count_kv": G, "llama.attention.key_length": D, "llama.context_length": 64, "llama.attention.layer_norm_rms_epsilon": 1e-5,
          "llama.rope.freq_base": 10000.0, **meta}
    tensors = []

    def add(name, *dims):
        n = dims[0] * (dims[1] if len(dims) > 1 else 1)
        tensors.append((name, list(dims)[::-1], 0, floats(n, len(tensors))))
    add("token_embd.weight", V, E), add("output_norm.weight", E)
    for l in range(L):
        for name, *dims in (("attn_norm", E), ("attn_q", H * D, E), ("attn_k", G * D, E), ("attn_v", G * D, E), ("attn_output", E, H * D), ("ffn_norm", E),
                            ("ffn_gate", F, E), ("ffn_up", F, E), ("ffn_down", E, F)):
            add(f"blk.{l}.{name}.weight", *dims)
    for name, *dims in extra:
        add(name, *dims)
    gguf.write(path, kv, tensors)


# name, metadata, sizes, tensors more, what is said
FILES = [
    ("as it should be", {}, {}, (), ""),
    ("heads that their keys' heads do not divide", {}, dict(H=9, G=4), (), "an index of keys, dimension 1, runs from 0 to 4, expected 0 to 3"),
    ("fewer heads than keys' heads", {}, dict(H=2, G=3, D=16), (), "an int is divided by what may be 0"),
    ("no heads", {"llama.attention.head_count": 0}, {}, (), "dimension 0 is 0"),
    ("heads below 0", {"llama.attention.head_count": -4}, {}, (), "dimension 0 is -32"),
    ("heads of 7 elements", {}, dict(D=7), (), ""),
    ("heads of 1 element", {}, dict(D=1), (), "length 0, expected 1"),
    ("rows of 3 elements, 1 head", {}, dict(E=3, H=1, G=1, D=3, F=5, V=7), (), ""),
    ("more rotated than there is", {"llama.rope.dimension_count": 64}, {}, (), "op rope: y: an index of y"),
    ("rotated below 0", {"llama.rope.dimension_count": -8}, {}, (), "length -4, expected 1"),
    ("rotated without end", {"llama.rope.dimension_count": 4294967295}, {}, (), "expected 1 to 1048576"),
    ("no layers", {"llama.block_count": 0}, {}, (), "0 layers"),
    ("layers without end", {"llama.block_count": 4294967295}, {}, (), "layers, expected 1 to 4096"),
    ("a layer that is not there", {"llama.block_count": 2}, {}, (), "blk.1.attn_norm.weight: missing"),
    ("a context of 0", {"llama.context_length": 0}, {}, (), "expected 1 to"),
    ("a window of more than 32 bits", {"llama.sliding_window": 4294967295}, {}, (), "window is 4.29497e+09, expected a whole number of 32 bits"),
    ("a number that is none", {"llama.attention.layer_norm_rms_epsilon": float("nan")}, {}, (), "expected a finite number"),
    ("a number that is a list", {"llama.rope.freq_base": [1.0, 2.0]}, {}, (), "a list, expected one number"),
    ("half a head", {"llama.attention.head_count": 4.5}, {}, (), "expected a positive whole number"),
    ("factors for fewer pairs", {}, {}, (("rope_freqs.weight", 2),), "element 2 was asked for"),
    ("a bias too short", {}, {}, (("blk.0.attn_q.bias", 31),), "shape [31], expected [32]"),
    ("an output of other tokens", {}, {}, (("output.weight", 100, 32),), "shape [100, 32], expected [40, 32]"),
]
# name, words, what is said, what all logits are
TEXTS = [
    ("the text as it should be", {}, ""),
    ("a state for too few positions", dict(STATE="state few : C[G, 1, D]", BODY="b.few = keep_few(linear(x, b.k) as [M,G,D], pos)",
     OPS="op keep_few(x: f32[M,G,D], pos: i32[M]) -> v: C[G,B,D] {\n  v[g, pos[m], d] = x[m,g,d]\n}"), "an index of few, dimension 1, runs from 0 to 63, expected 0 to 0"),
    ("a state of blocks for too few positions", dict(STATE="state few : C[G, 1, D, 16]", BODY="b.few = keep_few(linear(x, b.k) as [M,G,D], pos)",
     OPS="op keep_few(x: f32[M,G,D], pos: i32[M]) -> k: C[G,B,D,16] {\n  k[g, pos[m] / 16, d, pos[m] % 16] = x[m,g,d]\n}"), "an index of few, dimension 1, runs from 0 to 3"),
    ("a state without end", dict(STATE="state z : f32[1000000000, 1000, 16]", BODY="b.z = zz(x)", OPS="op zz(x: f32[M,E]) -> y: f32[A,B,C] {\n  y[0,0,m % 16] = x[m,0]\n}"),
     "z: more than 70368744177664 bytes"),
    ("what is read before it is kept", dict(STATE="state old : f32[1,E]", BODY="x = with_old(x, b.old)\n      b.old = last(x)",
     OPS="op with_old(x: f32[M,E], o: C[1,E]) -> y: f32[M,E] {\n  y[m,e] = x[m,e] + o[0,e]\n}\nop last(x: f32[M,E]) -> y: C[1,E] {\n  y[i,e] = x[0,e] for i < 1\n}"), ""),
    ("tokens that index past the rows", dict(PRE=PICKED % "tokens", OPS=PICK % "t[m] + 1"), "an index of embd, dimension 0, runs from 1 to 40, expected 0 to 39"),
    ("positions that index rows", dict(PRE=PICKED % "pos", OPS=PICK % "t[m]"), "an index of embd, dimension 0, runs from 0 to 63, expected 0 to 39"),
    ("positions that index rows, within them", dict(PRE=PICKED % "pos", OPS=PICK % "t[m] % V"), ""),
    ("logits of more tokens than there are rows", dict(RESULT="wide(take_rows(x, rows))", OPS="op wide(x: f32[M,E]) -> y: f32[M,1000] {\n  y[m,e] = x[m,e % E]\n}"),
     "an index of embd, dimension 0, runs from 0 to 999"),
    ("logits of every row", dict(RESULT="linear(rms_norm(x, norm, eps), head)"), "the result's rows must be those that are asked for, O"),
    ("logits of one row, always", dict(RESULT="one(x)", OPS="op one(x: f32[M,E]) -> y: f32[1,E] {\n  y[i,e] = x[0,e] for i < 1\n}"), "the result's rows must be those"),
    ("logits that are ints", dict(RESULT="ints(take_rows(x, rows))", OPS="op ints(x: f32[M,E]) -> y: i32[M,E] {\n  y[m,e] = i32(x[m,e])\n}"), "the result must be an op's, f32"),
    ("a graph of two parameters", dict(PARAMS="tokens: i32[M], pos: i32[M]", RESULT="linear(rms_norm(x, norm, eps), head)"), "a graph is graph(tokens"),
    ("rows that are as many as tokens", dict(PARAMS="tokens: i32[M], pos: i32[M], rows: i32[M]"), "a graph is graph(tokens"),
    ("rows cut to nothing", dict(BODY="z = col(x) as [M]\n      x = plus(x, z)", OPS="op col(x: f32[M,E]) -> y: f32[M,1] {\n  y[m,e] = x[m,0] for e < 1\n}\n"
     "op plus(x: f32[M,E], z: f32[M]) -> y: f32[M,E] {\n  y[m,e] = x[m,e] + z[m]\n}"), "as [..] is for tensors that ops give"),
    ("a matrix of floats", dict(TENSOR='tensor m2 : f32[V,33] = "none" else 2.0', RESULT="last(take_rows(x, rows), m2)", OPS="op last(x: f32[M,E], z: f32[V,Q]) -> y: f32[M,V] {\n"
     "  y[m,v] = 0.0 * x[m,0] + z[v,Q-1]\n}"), "", {2.0}),
    ("floats without end", dict(TENSOR='tensor m2 : f32[2000000000,2000000000] = "none" else 2.0'), "more than 268435456 floats"),
    ("a tensor that is one number", dict(TENSOR='tensor m2 : f32 = "output_norm.weight"'), "0 dimensions, expected 1 to 4"),
    ("rows from outside", dict(TENSOR='tensor m2 : f32[V,E] = "token_embd.weight" rows r -> r + 1'), "row 39 would come from row 40 of 40"),
    ("the least of all ints", dict(HYPER="hyper least = abs(0 - 9223372036854775807 - 1)\n  hyper common = gcd(least, -1)\n  hyper turned = -least"), ""),
    ("a product too large", dict(HYPER="hyper large = 9223372036854775807 * 2"), "does not fit 64 bits"),
    ("a remainder too large", dict(HYPER="hyper large = (0 - 9223372036854775807 - 1) % (0 - 1)"), "divided by -1"),
    ("a layer's matrix that another stands in for", dict(STATE='tensor more : W[V,E] = "blk.{l}.none" else embd', BODY="x = fold(x, linear(x, b.more))",
     OPS="op fold(x: f32[M,E], z: f32[M,V]) -> y: f32[M,E] {\n  y[m,e] = x[m,e] + z[m,e % V]\n}"), ""),
    ("a matrix that another stands in for that another stands in for", dict(TENSOR='tensor third : W[V,E] = "none" else head',
     RESULT="linear(rms_norm(take_rows(x, rows), norm, eps), third)"), ""),
    ("what stands in is not there either", dict(TENSOR='tensor one : f32[E] = "none1" else none\n  tensor two : f32[E] = "none2" else one',
     BODY="x = has(two) ? add_bias(x, two) : x"), ""),
    ("what stands in is not there, and is used", dict(TENSOR='tensor one : f32[E] = "none1" else none\n  tensor two : f32[E] = "none2" else one',
     BODY="x = add_bias(x, two)"), "tensor two: the file has none, and the graph uses it"),
    ("an axis that the file makes a fraction", dict(HYPER='hyper half = dim("token_embd.weight", eps)'), "number 1e-05 among items, expected a whole one"),
    ("an item that the file makes a fraction", dict(HYPER='hyper list[i] = 1.0 * i for i < 4\n  hyper half = list[eps]'), "number 1e-05 among items, expected a whole one"),
    ("a dimension of more than 32 bits", dict(TENSOR='tensor wide : W[3000000000,E] = "none" else none'), "dimension 0 is 3000000000 by the model's numbers, expected at most 2147483647"),
    ("dimensions of more than 64 bits together", dict(TENSOR='tensor wide : W[2000000000,2000000000,2000000000] = "none" else none'), "dimension 2 is 2000000000 by the model's numbers"),
    ("more statements than fit", dict(BODY="\n".join(["x = add(x, x)"] * 2100)), "more than 2048 statements"),
    ("more variables than fit", dict(BODY="\n".join(f"v{i} = add(x, x)" for i in range(300))), "more than 250 variables"),
]
n_bad = 0


def run(name, path, said, values, *more):
    global n_bad
    ids, out = os.path.join(folder, "ids"), os.path.join(folder, "logits")
    for precision in ("int8", "f32"):
        p = subprocess.run([lumen, "logits", path, "--ids", ids, "--out", out, "--chunk", "4", "--precision", precision, *more], capture_output=True, text=True)
        if (p.returncode, said in p.stderr) != (1 if said else 0, True):
            n_bad += 1
            print(f"not ok - {name}: {precision}, exit code {p.returncode}, expected '{said}', it said: {p.stderr[-300:]}".replace("\n", " "))
            return
        logits = open(out, "rb").read() if not said else b""
        if values and set(struct.unpack(f"<{len(logits) // 4}f", logits)) != values:
            n_bad += 1
            print(f"not ok - {name}: {precision}, logits other than {values}")
            return
    print(f"ok - {name}")


with open(os.path.join(folder, "ids"), "w") as f:
    f.write("0 1 2 0 1 2 2 2 1")
path = os.path.join(folder, "model.gguf")
for name, meta, sizes, extra, said in FILES:
    model(path, meta, sizes, extra)
    run(name, path, said, None)
model(path, {}, {}, ())
text = open("tests/models/refused.lum").read()
std = os.path.join(folder, "std")
os.makedirs(std, exist_ok=True)
for name, words, said, *values in TEXTS:
    with open(os.path.join(std, "family.lum"), "w") as f:
        t = text
        for word, line in {**WORDS, **words}.items():
            t = t.replace("{" + word + "}", line)
        f.write(t)
    run(name, path, said, values[0] if values else None, "--std", std)
sys.exit(n_bad > 0)
