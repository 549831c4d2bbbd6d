# What a model's file or text says wrong is said in words: hyperparameters that do not fit together, tensors of other shapes, graphs that
# index outside what they have. tests/models/refused.py makes the models and knows what is to be said. runtests: timeout 300
# runtests: machine code
. tests/lib.sh
python3 tests/models/refused.py "$LUMEN" "$TEST_TMP" || n_bad=1
# All that is missing at once, beside what nobody asked for; and files that are something else.
cat > "$TEST_TMP/lacks.py" <<'END'
import os, shutil, sys
sys.path[:0] = ["tests/models", "tests"]
import folder, quantized_whole as whole
to = sys.argv[1]
os.mkdir(to)
shutil.copy("tests/models/llama/config.json", to)
t = whole.read("tests/models/llama")
t = {k: v for k, v in t.items() if "down_proj" not in k and "v_proj" not in k}
folder.store(to + "/model.safetensors", [(k, *v) for k, v in {**t, "surprise": ("F32", [2], bytes(8))}.items()])
END
python3 "$TEST_TMP/lacks.py" "$TEST_TMP/lacks"
echo 1 2 3 > "$TEST_TMP/ids"
expect "tensors that are missing" 1 "$LUMEN" logits "$TEST_TMP/lacks" --ids "$TEST_TMP/ids" --out "$TEST_TMP/o"
has "all are told" "$err" "model.layers.0.self_attn.v_proj.weight: missing from the file, and so are model.layers.0.mlp.down_proj.weight, model.layers.1.self_attn.v_proj.weight"
has "and what is there instead" "$err" "the model's text does not name: surprise"
other() { # NAME BYTES TEXT
  printf "$2" > "$TEST_TMP/$1"
  expect "$1 of '$3'" 1 "$LUMEN" show "$TEST_TMP/$1"
  has "$1 of '$3': is told" "$err" "$3"
}
for file in a.safetensors a.gguf; do
  other $file 'version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n' "is a Git LFS pointer"
  other $file '<!DOCTYPE html><html></html>' "is a web page"
  other $file 'PK\003\004aaaaaaaaaaaa' "is a zip archive"
  other $file '\200\002}qaaaaaaaaaaaa' "is a Python pickle"
done
other a.safetensors 'GGUF\003\000\000\000aaaaaaaa' "is a GGUF file"
finish
