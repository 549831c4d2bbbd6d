# A layout that exists nowhere, its scales in tensors of their own (tests/formats/invented/separate.lum, written from the manual alone): values to the bit, and the
# whole model on every target against the same weights in one piece.
# runtests: machine code
. tests/lib.sh
std=tests/formats/invented
model=$std/separate
targets=$("$LUMEN" doctor --json | python3 -c 'import json, sys; print(" ".join(json.load(sys.stdin)["cpu"]["targets"]))')
cat > "$TEST_TMP/plain.py" <<'END'
"""The golden's values, a file for each matrix; and as a folder of plain F32 tensors."""
import json, os, sys
sys.path[:0] = ["tests", "tests/models"]
import folder
import quantized_whole as whole
model, tmp = sys.argv[1:]
have = whole.read(model)
with open(model + "/config.json") as f:
    c = json.load(f)
del c["quantization_config"]
os.mkdir(tmp + "/plain")
with open(tmp + "/plain/config.json", "w") as f:
    json.dump(c, f)
named = [(k, *t) for k, t in have.items() if k.endswith(".weight")]
with open(model + "/values.f32", "rb") as f:
    for name, n, k in whole.held_by_several(model):
        data = f.read(4 * n * k)
        named.append((name, "F32", (n, k), data))
        with open(f"{tmp}/{name}.f32", "wb") as one:
            one.write(data)
    assert not f.read()
folder.store(tmp + "/plain/model.safetensors", named)
with open(tmp + "/ids", "w") as f:
    print(*[(7 * i + 3) % 64 for i in range(21)], file=f)
END
python3 "$TEST_TMP/plain.py" $model "$TEST_TMP"
for t in self_attn.q_proj self_attn.o_proj mlp.gate_proj mlp.down_proj; do
  w=model.layers.0.$t.weight
  n=$(($(wc -c < "$TEST_TMP/$w.f32") / 4))
  for target in $targets; do
    expect "$t decodes on $target" 0 sh -c "\"\$0\" decode $model $w --target $target --std $std > '$TEST_TMP/got'" "$LUMEN"
    cmp -s "$TEST_TMP/got" "$TEST_TMP/$w.f32" && ok "$t on $target: numpy's $n values" || not_ok "$t on $target: numpy's $n values" "they differ"
  done
done
expect "the same weights in one piece" 0 "$LUMEN" logits "$TEST_TMP/plain" --precision f32 --ids "$TEST_TMP/ids" --out "$TEST_TMP/want.f32"
for p in f32 int8; do
  for t in $targets; do
    expect "the model on $t, $p" 0 "$LUMEN" logits $model --std $std --target "$t" --precision $p --ids "$TEST_TMP/ids" --out "$TEST_TMP/got.$p"
    [ -e "$TEST_TMP/want.$p" ] || cp "$TEST_TMP/got.$p" "$TEST_TMP/want.$p"
    cmp -s "$TEST_TMP/got.$p" "$TEST_TMP/want.$p" && ok "on $t, $p: the bits it must have" || not_ok "on $t, $p: the bits it must have" "they differ"
  done
done
if python3 -c 'import array, sys
a, b = (array.array("f", open(p, "rb").read()) for p in sys.argv[1:])
sys.exit(max(abs(x - y) for x, y in zip(a, b)) > 0.1 * max(map(abs, a)))' "$TEST_TMP/want.f32" "$TEST_TMP/want.int8"; then ok "int8 is near"; else not_ok "int8 is near" "it is not"; fi
expect "its plan" 0 "$LUMEN" show $model --plan --std $std
has "codes and scales take the integer road" "$out" "integer road"
has "by its own name" "$out" "separate"
expect "without the text it is refused" 1 "$LUMEN" logits $model --ids "$TEST_TMP/ids" --out "$TEST_TMP/no"
has "its method is named" "$err" '"separate", expected one of'
finish
