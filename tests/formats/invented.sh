# Formats that exist nowhere, written from the manual alone (tests/formats/invented/*.lum), with goldens by a few lines of numpy: values to the bit, encode
# runtests: machine code
# there and back, the road each takes, every target against the interpreter at odd sizes, and a whole model in each. runtests: timeout 900
. tests/lib.sh
std=tests/formats/invented
targets=$("$LUMEN" doctor --json | python3 -c 'import json, sys; print(" ".join(json.load(sys.stdin)["cpu"]["targets"]))')

# name, elements of a block, number in files, the most that encode may err (- where the text has none), what the plan says
while read -r f block number most road; do
  expect "$f decodes" 0 sh -c "\"\$0\" decode --format $f --std $std < $std/$f.blocks > '$TEST_TMP/floats'" "$LUMEN"
  cmp -s "$TEST_TMP/floats" "$std/$f.f32" && ok "$f: its values are numpy's" || not_ok "$f: its values are numpy's" "they differ"
  if [ "$most" != - ]; then
    expect "$f encodes" 0 sh -c "\"\$0\" encode --format $f --std $std < $std/$f.f32 > '$TEST_TMP/blocks' && \"\$0\" decode --format $f --std $std < '$TEST_TMP/blocks' > '$TEST_TMP/back'" "$LUMEN"
    wrong=$(python3 tests/formats/invented.py --error "$std/$f.f32" "$TEST_TMP/back")
    if python3 -c "import sys; sys.exit(float('$wrong') > float('$most'))"; then ok "$f: encode errs by no more than $most"; else not_ok "$f: encode errs by no more than $most" "$wrong"; fi
  fi
  expect "$f: its plan" 0 "$LUMEN" kern "linear w=$f[16,$block] x=f32[1,$block]" --std $std
  has "$f takes its road by analysis" "$out" "$road"
  for s in "int8 linear w=$f[33,$((3 * block))] x=f32[5,$((3 * block))]" "int8 linear w=$f[16,$block] x=f32[1,$block]" "bf16 linear w=$f[17,$((2 * block))] x=f32[3,$((2 * block))]" \
           "f32 linear w=$f[31,$((2 * block))] x=f32[9,$((2 * block))]" "f32 embed w=$f[9,$((2 * block))] t=i32[4]"; do
    expect "$s: every target gives the interpreter's bits" 0 "$LUMEN" kern "${s#* }" --std $std --target all --precision "${s%% *}" --check
  done
  for p in int8 f32; do
    expect "$f: attention over keys and values in it, $p" 0 "$LUMEN" kern "attention q=f32[2,2,$block] k=$f[1,2,8,$block,32] v=$f[1,2,8,32,$block] pos=i32[2] scale=0.2" --std $std --precision $p --check
  done
  if [ "$most" != - ]; then
    expect "$f: keys are stored in it" 0 "$LUMEN" kern "keep_keys x=f32[2,2,$block] pos=i32[2] k=$f[1,2,8,$block,32]" --std $std --check
    expect "$f: values are stored in it" 0 "$LUMEN" kern "keep_values x=f32[2,2,$block] pos=i32[2] v=$f[1,2,8,32,$block]" --std $std --check
  fi
  python3 tests/formats/invented.py "$f" "$block" "$number" "$TEST_TMP"
  expect "$f: the same weights as f32" 0 "$LUMEN" logits "$TEST_TMP/plain.gguf" --precision f32 --ids "$TEST_TMP/ids" --out "$TEST_TMP/plain"
  for p in f32 int8; do
    first=
    for t in $targets; do
      expect "$f: a model in it on $t, $p" 0 "$LUMEN" logits "$TEST_TMP/packed.gguf" --std $std --target "$t" --precision $p --ids "$TEST_TMP/ids" --out "$TEST_TMP/$t.$p"
      [ "$p" = f32 ] && first=$TEST_TMP/plain
      [ -n "$first" ] || first=$TEST_TMP/$t.$p
      cmp -s "$first" "$TEST_TMP/$t.$p" && ok "$f: on $t, $p: the bits it must have" || not_ok "$f: on $t, $p: the bits it must have" "they differ"
    done
  done
  [ "$most" = - ] && continue
  expect "$f: a model is converted into it" 0 "$LUMEN" convert "$TEST_TMP/plain.gguf" "$TEST_TMP/converted.gguf" --quant "$f" --std $std --quiet
  expect "$f: and runs" 0 "$LUMEN" logits "$TEST_TMP/converted.gguf" --std $std --precision f32 --ids "$TEST_TMP/ids" --out "$TEST_TMP/converted"
done <<'EOF'
odd15 60 201 0.06 leaf2: integer -8..7, shared by 1; 4-bit plane
plane5 64 202 0.01 integer road: group 64, bias 0, codes 0..31
signmag6 32 203 0.01 integer road: group 32, bias 31, codes 0..62
penta 96 204 0 integer road: group 48, bias 2, codes 0..4
blockbook 128 205 0.12 leaf0: integer 0..7, shared by 1; 3-bit plane
ladder 32 206 - leaf0: f32
bigend 48 207 0.005 integer road: group 48, bias 0, codes 0..255
powers 32 208 0 leaf0: integer 0..15, shared by 1; 4-bit plane
pairgrid 64 209 - integer road: group 16, bias 9, codes 0..18
outlier 40 210 0.02 leaf0: f32
oddments 40 211 - leaf0: f32
apart 192 212 0.02 integer road: group 24
EOF
finish
