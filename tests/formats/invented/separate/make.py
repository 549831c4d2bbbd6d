#!/usr/bin/env python3
"""A tiny model whose weights lie as separate.lum says, and what they are worth, by numpy and nothing of Lumen's: model.safetensors, config.json, values.f32 (all
matrices, in the order of NAMES). Run by hand; the tests only read what it wrote."""
import json
import os
import struct
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
E, F, V, H, GROUP = 48, 72, 64, 3, 24
rng = np.random.default_rng(77)
SHAPES = [("self_attn.q_proj", E, E), ("self_attn.k_proj", E, E), ("self_attn.v_proj", E, E), ("self_attn.o_proj", E, E), ("mlp.gate_proj", F, E), ("mlp.up_proj", F, E), ("mlp.down_proj", E, F)]


def bf16(v):
    return (np.ascontiguousarray(v, "<f4").view("<u4") >> 16).astype("<u2")


def widened(u):
    return (u.astype("<u4") << 16).view("<f4")


tensors, values = {}, []
tensors["model.embed_tokens.weight"] = ("F32", rng.standard_normal((V, E)).astype("<f4"))
tensors["model.norm.weight"] = tensors["model.layers.0.input_layernorm.weight"] = tensors["model.layers.0.post_attention_layernorm.weight"] = ("F32", rng.uniform(0.5, 1.5, E).astype("<f4"))
for name, n, k in SHAPES:
    q = rng.integers(0, 64, (n, k))
    step = rng.integers(0, 256, (n, k // GROUP)).astype(np.uint8)
    book = (rng.uniform(0.5, 1.5, 256) * 0.006).astype("<f4")
    base = bf16(rng.standard_normal(n) * 0.02)
    low, high = (q & 15).reshape(n, k // 2, 2), (q >> 4).reshape(n, k // 4, 4)
    parts = {"low": ("U8", (low[:, :, 0] << 4 | low[:, :, 1]).astype(np.uint8)),
             "high": ("U8", (high @ [64, 16, 4, 1]).astype(np.uint8)), "step": ("U8", step), "book": ("F32", book), "base": ("BF16", base)}
    tensors.update({f"model.layers.0.{name}.{part}": t for part, t in parts.items()})
    v = (q - 31).astype(np.float32) * np.repeat(book[step], GROUP, axis=1) + widened(base)[:, None]
    assert v.dtype == np.float32
    values.append(v.astype("<f4").tobytes())
head, at = {}, 0
for name, (kind, v) in tensors.items():
    head[name] = {"dtype": kind, "shape": list(v.shape), "data_offsets": [at, at + v.nbytes]}
    at += v.nbytes
text = json.dumps(head).encode()
with open(os.path.join(HERE, "model.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + b"".join(v.tobytes() for _, v in tensors.values()))
with open(os.path.join(HERE, "values.f32"), "wb") as f:
    f.write(b"".join(values))
with open(os.path.join(HERE, "config.json"), "w") as f:
    json.dump({"architectures": ["LlamaForCausalLM"], "hidden_size": E, "intermediate_size": F, "num_hidden_layers": 1, "num_attention_heads": H, "num_key_value_heads": H, "vocab_size": V,
               "max_position_embeddings": 128, "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": True, "quantization_config": {"quant_method": "separate", "group_size": GROUP}}, f)
    f.write("\n")
