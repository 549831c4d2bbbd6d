"""quantized_edit.py FROM TO EDITS: a checkpoint folder with one file, changed. EDITS, words: rename OLD NEW | retype NAME DTYPE | poke NAME INDEX VALUE (a 32-bit
int, written as its four bytes) | add NAME DTYPE COUNT (f32 zeros)."""
import json, os, shutil, struct, sys

source, to, words = sys.argv[1], sys.argv[2], sys.argv[3].split()
shutil.copytree(source, to)
path = os.path.join(to, "model.safetensors")
b = open(path, "rb").read()
n = struct.unpack("<Q", b[:8])[0]
head, data = json.loads(b[8:8 + n]), bytearray(b[8 + n:])
while words:
    verb = words.pop(0)
    if verb == "rename":
        old, new = words.pop(0), words.pop(0)
        if old in head:
            head[new] = head.pop(old)
    elif verb == "retype":
        name, dtype = words.pop(0), words.pop(0)
        head[name]["dtype"] = dtype
    elif verb == "poke":
        at = head[words.pop(0)]["data_offsets"][0] + 4 * int(words.pop(0))
        data[at:at + 4] = struct.pack("<i", int(words.pop(0)))
    else:
        name, dtype, count = words.pop(0), words.pop(0), int(words.pop(0))
        head[name] = {"dtype": dtype, "shape": [count], "data_offsets": [len(data), len(data) + 4 * count]}
        data += bytes(4 * count)
j = json.dumps(head).encode()
os.chmod(path, 0o644)
open(path, "wb").write(struct.pack("<Q", len(j)) + j + data)
