#!/bin/sh
# Quantized checkpoints whose scales lie in tensors of their own: values, logits, and what is refused.
# runtests: machine code
. tests/lib.sh
export LUMEN TEST_TMP
cases=tests/models/quantized
targets=$("$LUMEN" doctor --json | python3 -c 'import json, sys; print(*json.load(sys.stdin)["cpu"]["targets"])')
python3 tests/models/quantized.py $targets || n_bad=1

# What no layout describes is told with all that was found, never read as something else.
odd=$TEST_TMP/odd
with() { rm -rf "$odd"; python3 tests/models/quantized_edit.py "$1" "$odd" "$2"; }
w=model.layers.0.self_attn.k_proj
with $cases/gptq-v1 "rename $w.scales $w.scale_of"
expect "a tensor that is missing" 1 "$LUMEN" decode "$odd" $w.weight --shape 128,256
has "it lists what is there" "$err" "$w.qweight I32 [32, 128]"
with $cases/gptq-v1 "add $w.extra F32 4"
expect "a tensor nobody knows" 1 "$LUMEN" decode "$odd" $w.weight --shape 128,256
has "it is named" "$err" "$w.extra F32 [4]"
with $cases/fp8-channel-ct "retype $w.weight_scale I16"
expect "scales of a kind nobody knows" 1 "$LUMEN" decode "$odd" $w.weight
has "their kind is named" "$err" "$w.weight_scale I16 [128, 1]"
with $cases/gptq-v1-desc_act "poke $w.g_idx 0 7"
expect "a column of a group that is not there" 1 "$LUMEN" decode "$odd" $w.weight
has "which column" "$err" "column 0 is in group 7, expected 0 to 1"
with $cases/bnb-nf4 "poke $w.weight.quant_map 3 0"
expect "a code book that is another" 1 "$LUMEN" decode "$odd" $w.weight --shape 128,256
has "which number" "$err" "element 3 is 0, table nf4 has"
expect "extents that cannot be" 1 "$LUMEN" decode $cases/fp8-block model.layers.0.mlp.gate_proj.weight --shape 449,256
rm -rf "$odd"; cp -r $cases/nvfp4-modelopt "$odd"
expect "scales of activations do not matter" 0 "$LUMEN" decode "$odd" $w.weight
mkdir -p "$TEST_TMP/half"
cat > "$TEST_TMP/half/half.lum" <<'EOF'
layout half [N, K] = "*.weight" {
  two = P * 2
  tensor w : f8_e4m3 [N, K] = "*.weight"
  tensor s : f32 | bf16 | f16 [two / 2] = "*.weight_scale"
  tensor o : f32 [P] = "*.none" else none
  x(n, k) = w[n, k] * s[n]
}
EOF
expect "an extent that nothing tells" 0 timeout 60 "$LUMEN" decode $cases/fp8-channel-ct $w.weight --std "$TEST_TMP/half"

# What the elements of a checkpoint allow is used, what they do not is not: a NaN among 8-bit floats, a scale that a power of two would overflow.
w=model.layers.0.mlp.gate_proj
for edit in "poke $w.weight 0 255" "poke $w.weight 5 32512" "poke $w.weight_scale_inv 0 1148846080" "poke $w.weight_scale_inv 0 2130706432 poke $w.weight 1 127" "poke $w.weight_scale_inv 0 2143289344"; do
  with $cases/fp8-block "$edit"
  "$LUMEN" decode "$odd" $w.weight > "$TEST_TMP/values"
  expect "8-bit floats after: $edit" 0 python3 tests/models/fp8_values.py "$odd" $w "$TEST_TMP/values"
done
finish
