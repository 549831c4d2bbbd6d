"""Made-up models as Hugging Face folders: random weights, the tokenizer of tests/models/tokenizer.

write(DIR, CONFIG, HIDDEN=64, FFN=128, LAYERS=1, HEADS=4, KV=2, DTYPE="BF16", PREFIX="model.", EXTRA={name: shape}, HEAD=True) writes a llama's tensors
(gemma=True: a Gemma 3's), or as a program: folder.py DIR HIDDEN FFN."""
import json, os, random, shutil, struct, sys

here = os.path.dirname(os.path.abspath(__file__))
VOCAB = 512


def bf16(n, rng, mean):
    return b"".join(struct.pack("<f", rng.gauss(mean, 0.08))[2:] for _ in range(n))


def tensors(hidden, ffn, layers, heads, kv, head, prefix, gemma):
    d = hidden // heads
    yield prefix + "embed_tokens.weight", (VOCAB, hidden)
    for i in range(layers):
        p = f"{prefix}layers.{i}."
        for n, rows, cols in (("q", heads * d, hidden), ("k", kv * d, hidden), ("v", kv * d, hidden), ("o", hidden, heads * d)):
            yield f"{p}self_attn.{n}_proj.weight", (rows, cols)
        for n, rows, cols in (("gate", ffn, hidden), ("up", ffn, hidden), ("down", hidden, ffn)):
            yield f"{p}mlp.{n}_proj.weight", (rows, cols)
        norms = ["input_layernorm", "post_attention_layernorm"] + (["pre_feedforward_layernorm", "post_feedforward_layernorm"] if gemma else [])
        for n in norms:
            yield f"{p}{n}.weight", (hidden,)
        for n in ("q_norm", "k_norm") if gemma else ():
            yield f"{p}self_attn.{n}.weight", (d,)
    yield prefix + "norm.weight", (hidden,)
    if head:
        yield ("lm_head.weight" if prefix == "model." or gemma else prefix + "lm_head.weight"), (VOCAB, hidden)


def turned(data, rows, d=64):
    """The rows of a llama's queries or keys, heads of d, as its GGUF file has them: the pairs of a head side by side."""
    n = len(data) // rows
    row = [data[i * n:i * n + n] for i in range(rows)]
    return b"".join(row[h * d + j // 2 + j % 2 * (d // 2)] for h in range(rows // d) for j in range(d))


def store(path, named):
    header, at = {}, 0
    for name, dtype, shape, data in named:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(x[3] for x in named))


def config(hidden=64, ffn=128, layers=1, heads=4, kv=2, **more):
    return {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": hidden, "intermediate_size": ffn, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv, "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": VOCAB, **more}


def write(folder, conf, hidden=64, ffn=128, layers=1, heads=4, kv=2, prefix="model.", head=True, gemma=False, extra=()):
    rng = random.Random(7)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join(here, "tokenizer"), folder)
    named = []
    for name, shape in tensors(hidden, ffn, layers, heads, kv, head, prefix, gemma):
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        named.append((name, "BF16", shape, bf16(n, rng, 1 if len(shape) == 1 and not gemma else 0)))
    for name, shape in extra:
        named.append((name, "BF16", shape, bf16(shape[0] * (shape[1] if len(shape) > 1 else 1), rng, 0)))
    store(os.path.join(folder, "model.safetensors"), named)
    with open(os.path.join(folder, "config.json"), "w") as f:
        json.dump(conf, f)
    return {x[0]: x for x in named}


if __name__ == "__main__":
    size = {"hidden": int(sys.argv[2]), "ffn": int(sys.argv[3])}
    write(sys.argv[1], config(**size), **size)
