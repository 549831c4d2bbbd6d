# `lumen convert` of a folder to every format that has an encoder: blocks are what `lumen encode` makes of the rows, ours runs it, llama.cpp (where it
# was fetched) loads what it knows and answers alike. Memory stays far below the model's size. runtests: timeout 300
# runtests: machine code
. tests/lib.sh
cat > "$TEST_TMP/formats.py" <<'END'
import array, os, struct, subprocess, sys
sys.path[:0] = ["tests", "tests/models"]
import folder
from told import told, end
lumen, tmp, peer = sys.argv[1:]
# Of ggml's own, which llama.cpp reads, with the bits that a weight takes; the others are ours.
PEER = "f32 f16 bf16 q8_0 q4_0 q4_1 q5_0 q5_1 q2_k q3_k q4_k q5_k q6_k iq4_nl iq4_xs mxfp4 nvfp4 tq1_0 tq2_0 q1_0 q2_0".split()
OURS = "f8_e4m3 f8_e5m2".split()


def run(*args, data=None):
    return subprocess.run([lumen, *args], input=data, capture_output=True)


def widen(data):
    return b"".join(b"\0\0" + data[i:i + 2] for i in range(0, len(data), 2))


def floats(path):
    with open(path, "rb") as f:
        return array.array("f", f.read())


size = {"hidden": 256, "ffn": 512}
t = folder.write(f"{tmp}/folder", folder.config(**size), **size)
p = "model.layers.0."
want = {"output.weight": widen(t["lm_head.weight"][3]), "blk.0.ffn_down.weight": widen(t[p + "mlp.down_proj.weight"][3]), "blk.0.attn_q.weight": folder.turned(widen(t[p + "self_attn.q_proj.weight"][3]), 256)}
with open(f"{tmp}/ids", "w") as f:
    f.write(" ".join(str((i * 37 + 11) % 500) for i in range(24)))
for fmt in PEER + OURS:
    path = f"{tmp}/{fmt}.gguf"
    r = run("convert", f"{tmp}/folder", path, "--quant", fmt, "-t", "2", "--quiet")
    if r.returncode or r.stderr:
        told(f"to {fmt}", f"exit code {r.returncode}: {r.stderr.decode()[:300]}")
        continue
    with open(path, "rb") as f:
        whole = f.read()
    lost = [k for k, v in want.items() if run("encode", "--format", fmt, data=v).stdout not in whole]
    told(f"to {fmt}: rows as encode makes them", f"not in the file: {lost}" if lost else None)
    r = run("logits", path, "--ids", f"{tmp}/ids", "--precision", "f32", "--out", f"{tmp}/ours")
    told(f"{fmt} runs", r.stderr.decode()[:300] if r.returncode else None)
    if fmt not in PEER or r.returncode:
        continue
    if not peer:
        print(f"skip - llama.cpp reads {fmt}: it was not fetched")
        continue
    r = subprocess.run([sys.executable, "tests/models/peer_reads.py", peer, path, f"{tmp}/ids", f"{tmp}/theirs"], capture_output=True)
    if r.returncode:
        told(f"llama.cpp reads {fmt}", f"exit code {r.returncode}: {r.stderr.decode()[-300:]}")
        continue
    a, b = floats(f"{tmp}/ours"), floats(f"{tmp}/theirs")
    off = (sum((x - y) ** 2 for x, y in zip(a, b)) / sum(x * x for x in a)) ** 0.5
    told(f"llama.cpp reads {fmt}, and its logits are near ours", f"{off:.3f} of their root mean square off" if len(a) != len(b) or off > 0.1 else None)

# A model of 100 MB goes through a few: what is asked for besides is the program and its windows.
size = {"hidden": 512, "ffn": 32768}
big = {k: v for k, v in folder.config(**size).items()}
os.makedirs(f"{tmp}/big")
for f in os.listdir(f"{tmp}/folder"):
    if f.startswith("token"):
        os.link(f"{tmp}/folder/{f}", f"{tmp}/big/{f}")
noise = os.urandom(1 << 20)
named = [(n, "F16", s, None) for n, s in folder.tensors(512, 32768, 1, 4, 2, True, "model.", False)]
header, at = {}, 0
for n, d, s, _ in named:
    k = 2 * s[0] * (s[1] if len(s) > 1 else 1)
    header[n] = {"dtype": d, "shape": list(s), "data_offsets": [at, at + k]}
    at += k
import json
text = json.dumps(header).encode()
with open(f"{tmp}/big/model.safetensors", "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text)
    for i in range(0, at, len(noise)):
        f.write(bytes(b & 0x3b for b in noise[:64]) * (len(noise) // 64) if i + len(noise) <= at else bytes(at - i))
with open(f"{tmp}/big/config.json", "w") as f:
    json.dump(big, f)
most = 80 if not os.environ.get("TEST_SANITIZED") else 240 # MiB; a sanitizer keeps what is freed for a while
for more in ([], ["--quant", "q4_k"], ["--quant", "q8_0", "--keep", "*attn_q*="]):
    pid = os.spawnv(os.P_NOWAIT, lumen, [lumen, "convert", f"{tmp}/big", f"{tmp}/big.gguf", "-t", "2", *more])
    _, status, used = os.wait4(pid, 0)
    told(f"{at / 1e6:.0f} MB {' '.join(more)}: memory stays small", None if status == 0 and used.ru_maxrss < most << 10 else f"status {status}, {used.ru_maxrss / 1024:.0f} MiB at most, expected below {most}")
end()
END
python3 "$TEST_TMP/formats.py" "$LUMEN" "$TEST_TMP" "$(peer)" || n_bad=1
finish
