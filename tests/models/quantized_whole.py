"""A whole model, one layer of the commonest family, around the two weights that a case of tests/models/quantized keeps: write(CASE, FOLDER). Every matrix whose
shape one of them has is a copy of it, under its own name; the rest are BF16. held_by_several(FOLDER) -> [(weight, rows, columns)] that are such copies."""
import json, os, random, shutil, struct, sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import folder

HEAD = 64


def read(path):
    with open(os.path.join(path, "model.safetensors"), "rb") as f:
        b = f.read()
    n = struct.unpack_from("<Q", b)[0]
    head = json.loads(b[8:8 + n])
    head.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], b[8 + n + v["data_offsets"][0]:8 + n + v["data_offsets"][1]]) for k, v in head.items()}


def parts_of(tensors, weight):
    """{what comes behind the weight's stem: tensor}, of fused experts those of the first."""
    fused = {end: tensors[weight + end] for end in ("_blocks", "_scales") if weight + end in tensors}
    if fused:
        return {".weight" + end: (d, s[1:], data[:len(data) // s[0]]) for end, (d, s, data) in fused.items()}
    stem = weight[:-len(".weight")]
    return {k[len(stem):]: t for k, t in tensors.items() if k.startswith(stem + ".") and k != stem + ".bias"}


def write(case, out, repeat=1):
    """repeat: layers. -> bytes of the weights."""
    tensors = read(case)
    with open(case + "/golden.json") as f:
        rects = json.load(f)["rectangles"]
    with open(case + "/config.json") as f:
        old = json.load(f)
    have = {tuple(r["full_shape"][-2:]): parts_of(tensors, r["weight"]) for r in rects}
    (rows, hidden), (_, ffn) = (r["full_shape"][-2:] for r in rects)
    heads = 2 if rows in (448, 256) else rows // HEAD
    d = heads * HEAD
    conf = folder.config(hidden, ffn, repeat, heads, heads, head_dim=HEAD, quantization_config=old["quantization_config"])
    rng = random.Random(5)
    named = []

    def plain(name, shape, mean=0):
        named.append((name, "BF16", shape, folder.bf16(shape[0] * (shape[1] if len(shape) > 1 else 1), rng, mean)))
    plain("model.embed_tokens.weight", (folder.VOCAB, hidden))
    plain("model.norm.weight", (hidden,), 1)
    once = {}
    for i in range(repeat):
        p = f"model.layers.{i}."
        plain(p + "input_layernorm.weight", (hidden,), 1)
        plain(p + "post_attention_layernorm.weight", (hidden,), 1)
        for name, shape in (("self_attn.q_proj", (d, hidden)), ("self_attn.k_proj", (d, hidden)), ("self_attn.v_proj", (d, hidden)), ("self_attn.o_proj", (hidden, d)),
                            ("mlp.gate_proj", (ffn, hidden)), ("mlp.up_proj", (ffn, hidden)), ("mlp.down_proj", (hidden, ffn))):
            if shape in have:
                named += [(p + name + end, *t) for end, t in have[shape].items()]
            elif shape in once:
                named.append((p + name + ".weight", "BF16", shape, once[shape]))
            else:
                plain(p + name + ".weight", shape)
                once[shape] = named[-1][3]
    shutil.rmtree(out, ignore_errors=True)
    shutil.copytree(os.path.join(folder.here, "tokenizer"), out)
    folder.store(out + "/model.safetensors", named)
    conf["tie_word_embeddings"] = True
    with open(out + "/config.json", "w") as f:
        json.dump(conf, f)
    return sum(len(x[3]) for x in named)


def held_by_several(path):
    with open(path + "/config.json") as f:
        c = json.load(f)
    h, f, d = c["hidden_size"], c["intermediate_size"], c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    q, k = d * c["num_attention_heads"], d * c["num_key_value_heads"]
    shape = {"q_proj": (q, h), "k_proj": (k, h), "v_proj": (k, h), "o_proj": (h, q), "gate_proj": (f, h), "up_proj": (f, h), "down_proj": (h, f)}
    found = {}
    for name in read(path):
        stem, _, end = name.partition("_proj")
        if name.startswith("model.layers.0.") and "_proj" in name and end not in (".weight", ".bias"):
            found[stem + "_proj.weight"] = shape[stem.rpartition(".")[2] + "_proj"]
    return [(w, *s) for w, s in found.items()]


def turned(path, weight, data, rows):
    """Values as the GGUF file has them."""
    with open(path + "/config.json") as f:
        llama = json.load(f)["architectures"] == ["LlamaForCausalLM"]
    return folder.turned(data, rows, HEAD) if llama and ("q_proj" in weight or "k_proj" in weight) else data
