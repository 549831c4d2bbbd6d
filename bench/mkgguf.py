#!/usr/bin/env python3
"""GGUF files with random weights, real shapes and no tokenizer, for speed tests without a download: what weights say does not change the work.
usage: mkgguf.py OUT SHAPE FORMAT      mkgguf.py --list
Source: the project's shared yardstick of the same name, which makes the same files.
"""
import os, struct, sys

# Architecture, layers, width, heads, heads of keys, head size, inner width, vocabulary, context.
FIELDS = ('arch', 'layers', 'width', 'heads', 'kv_heads', 'head', 'inner', 'vocab', 'context')
SHAPES = {
    'tiny': ('llama', 2, 256, 4, 2, 64, 512, 1000, 2048),
    'smol135': ('llama', 30, 576, 9, 3, 64, 1536, 49152, 8192),
    'mid': ('llama', 16, 1024, 16, 8, 64, 3072, 8192, 4096),                  # every format's blocks divide its rows
    'qwen06': ('qwen3', 28, 1024, 16, 8, 128, 3072, 151936, 40960),
    'qwen17': ('qwen3', 28, 2048, 16, 8, 128, 6144, 151936, 40960),
    'qwen4': ('qwen3', 36, 2560, 32, 8, 128, 9728, 151936, 40960),
}
# Number in the file, elements and bytes of a block, where its f16 numbers stand and a harmless value for each.
FORMATS = {
    'F32': (0, 1, 4, {}), 'F16': (1, 1, 2, {}), 'BF16': (30, 1, 2, {}),
    'Q4_0': (2, 32, 18, {0: .004}), 'Q4_1': (3, 32, 20, {0: .004, 2: -.03}), 'Q5_0': (6, 32, 22, {0: .002}), 'Q5_1': (7, 32, 24, {0: .002, 2: -.03}),
    'Q8_0': (8, 32, 34, {0: .0003}), 'Q2_K': (10, 256, 84, {80: .001, 82: .001}), 'Q3_K': (11, 256, 110, {108: .0003}),
    'Q4_K': (12, 256, 144, {0: .0001, 2: .0005}), 'Q5_K': (13, 256, 176, {0: .00005, 2: .0005}), 'Q6_K': (14, 256, 210, {208: .00001}),
    'IQ2_XXS': (16, 256, 66, {0: .002}), 'IQ3_XXS': (18, 256, 98, {0: .001}), 'IQ1_S': (19, 256, 50, {0: .01}), 'IQ4_NL': (20, 32, 18, {0: .0003}),
    'IQ3_S': (21, 256, 110, {0: .001}), 'IQ4_XS': (23, 256, 136, {0: .00001}), 'TQ1_0': (34, 256, 54, {52: .03}), 'TQ2_0': (35, 256, 66, {64: .03}),
    'MXFP4': (39, 32, 17, {}), 'IQ2_XS': (17, 256, 74, {0: .002}), 'IQ2_S': (22, 256, 82, {0: .002}), 'IQ1_M': (29, 256, 56, {}),
    'NVFP4': (40, 64, 36, {}), 'Q1_0': (41, 128, 18, {0: .03}), 'Q2_0': (42, 64, 18, {0: .03}),
}


def shape(name): return dict(zip(FIELDS, SHAPES[name]))


def layer_parameters(name):
    """Weights of the matrix products of all layers: what every token of a prompt is multiplied with (the vocabulary's only the last is)."""
    s = shape(name)
    per_layer = s['width'] * s['head'] * (2 * s['heads'] + 2 * s['kv_heads']) + 3 * s['width'] * s['inner']
    return s['layers'] * per_layer


def kv_bytes_per_token(name, n_bytes=2):
    s = shape(name)
    return s['layers'] * 2 * s['kv_heads'] * s['head'] * n_bytes


def random_blocks(fmt, n_blocks=65536):
    _, _, n_bytes, scales = FORMATS[fmt]
    b = bytearray(os.urandom(n_bytes * n_blocks))
    for off, value in scales.items():
        half = struct.pack('<e', value)
        b[off::n_bytes], b[off + 1::n_bytes] = bytes([half[0]]) * n_blocks, bytes([half[1]]) * n_blocks
    if fmt == 'F16': b[1::2] = bytes(0x20 | (x & 0x83) for x in b[1::2])    # magnitudes around 0.01, either sign
    elif fmt == 'BF16': b[1::2] = bytes(0x3c | (x & 0x80) for x in b[1::2])
    elif fmt == 'F32': b[3::4], b[2::4] = bytes(0x3c | (x & 0x80) for x in b[3::4]), bytes(x & 0x7f for x in b[2::4])
    elif fmt == 'MXFP4': b[0::n_bytes] = bytes([119]) * n_blocks
    elif fmt == 'NVFP4':
        for off in range(4): b[off::n_bytes] = bytes([0x18]) * n_blocks
    elif fmt == 'IQ1_M':                                                    # the scale is the high nibbles of four words
        for off, nibble in ((49, 9), (51, 1), (53, 8), (55, 1)): b[off::n_bytes] = bytes(nibble << 4 | (x & 15) for x in b[off::n_bytes])
    return bytes(b)


def tensors(name, fmt):
    """(name, dimensions, format) of every tensor. Rows that a format's blocks do not divide fall back as llama.cpp's own quantizer does."""
    s = shape(name)
    E, Q, K, F = s['width'], s['heads'] * s['head'], s['kv_heads'] * s['head'], s['inner']
    fits = lambda cols, f: f if cols % FORMATS[f][1] == 0 else 'Q8_0' if f.endswith('_K') else 'F16'
    yield 'token_embd.weight', (E, s['vocab']), fits(E, 'Q6_K' if fmt == 'Q4_K' else fmt)
    yield 'output_norm.weight', (E,), 'F32'
    for i in range(s['layers']):
        p = f'blk.{i}.'
        norms = [('attn_norm', E), ('ffn_norm', E)] + ([('attn_q_norm', s['head']), ('attn_k_norm', s['head'])] if s['arch'] == 'qwen3' else [])
        for n, cols in norms: yield f'{p}{n}.weight', (cols,), 'F32'
        for n, cols, rows in (('attn_q', E, Q), ('attn_k', E, K), ('attn_v', E, K), ('attn_output', Q, E), ('ffn_gate', E, F), ('ffn_up', E, F), ('ffn_down', F, E)):
            yield f'{p}{n}.weight', (cols, rows), fits(cols, fmt)


def tensor_bytes(dims, fmt):
    n = 1
    for d in dims: n *= d
    return n // FORMATS[fmt][1] * FORMATS[fmt][2]


def weight_bytes(name, fmt): return sum(tensor_bytes(d, f) for _, d, f in tensors(name, fmt))


def header(name, fmt):
    s, a = shape(name), SHAPES[name][0]
    text = lambda x: struct.pack('<Q', len(x)) + x.encode()
    kv = [text(k) + struct.pack('<I', 8) + text(v) for k, v in (('general.architecture', a), ('general.name', f'{name}-{fmt}'), ('tokenizer.ggml.model', 'no_vocab'))]
    kv += [text(f'{a}.{k}') + struct.pack('<II', 4, v) for k, v in (
        ('block_count', s['layers']), ('context_length', s['context']), ('embedding_length', s['width']), ('feed_forward_length', s['inner']),
        ('attention.head_count', s['heads']), ('attention.head_count_kv', s['kv_heads']), ('attention.key_length', s['head']),
        ('attention.value_length', s['head']), ('rope.dimension_count', s['head']), ('vocab_size', s['vocab']))]
    kv += [text(f'{a}.{k}') + struct.pack('<If', 6, v) for k, v in (('attention.layer_norm_rms_epsilon', 1e-5), ('rope.freq_base', 10000.0))]
    info, off, all_tensors = b'', 0, list(tensors(name, fmt))
    for n, dims, f in all_tensors:
        info += text(n) + struct.pack('<I', len(dims)) + b''.join(struct.pack('<Q', d) for d in dims) + struct.pack('<IQ', FORMATS[f][0], off)
        off += (tensor_bytes(dims, f) + 31) // 32 * 32
    return b'GGUF' + struct.pack('<IQQ', 3, len(all_tensors), len(kv)) + b''.join(kv) + info


def write(out, name, fmt):
    """Writes beside and renames, so that a file that is there is whole."""
    blocks = {}
    with open(out + '.part', 'wb') as o:
        o.write(header(name, fmt))
        o.write(b'\0' * (-o.tell() % 32))
        for _, dims, f in tensors(name, fmt):
            if f not in blocks: blocks[f] = random_blocks(f)
            left = tensor_bytes(dims, f)
            pad = -left % 32
            while left > 0:
                o.write(blocks[f][:left])
                left -= min(left, len(blocks[f]))
            o.write(b'\0' * pad)
    os.replace(out + '.part', out)


if __name__ == '__main__':
    if sys.argv[1:] == ['--list']: print('shapes: ' + ' '.join(SHAPES) + '\nformats: ' + ' '.join(FORMATS))
    elif len(sys.argv) != 4 or sys.argv[2] not in SHAPES or sys.argv[3] not in FORMATS: sys.exit(__doc__)
    else:
        write(*sys.argv[1:])
        print(sys.argv[1], os.path.getsize(sys.argv[1]) / 1e6, 'MB')
