"""A tiny model of the family with the commonest tensor names, for tests of formats: its metadata, and its tensors told one by one."""


def describe(E, F, L, H, G):
    """-> GGUF's metadata. E: width, F: feed-forward width, L: layers, H heads over G of keys, of E / H."""
    return {"general.architecture": "llama", "llama.block_count": L, "llama.embedding_length": E, "llama.feed_forward_length": F, "llama.attention.head_count": H,
            "llama.attention.head_count_kv": G, "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0, "llama.context_length": 128}


def tensors(E, F, V, L, H, G, matrix, norm):
    """Calls matrix(name, rows, columns) and norm(name) in the order of the file; V: tokens."""
    D = E // H
    matrix("token_embd.weight", V, E)
    norm("output_norm.weight")
    matrix("output.weight", V, E)
    for i in range(L):
        p = f"blk.{i}."
        norm(p + "attn_norm.weight")
        norm(p + "ffn_norm.weight")
        for name, rows, columns in (("attn_q", E, E), ("attn_k", G * D, E), ("attn_v", G * D, E), ("attn_output", E, E), ("ffn_gate", F, E), ("ffn_up", F, E), ("ffn_down", E, F)):
            matrix(p + name + ".weight", rows, columns)
