# A storage format by text alone: tests/formats/std/q5x40.lum, a layout that exists nowhere. It decodes as an independent decoder says, takes
# runtests: machine code
# the integer road by analysis, runs on every target against the interpreter, and carries a whole model. runtests: timeout 300
. tests/lib.sh
std=tests/formats/std f=q5x40
targets=$("$LUMEN" doctor --json | python3 -c 'import json, sys; print(" ".join(json.load(sys.stdin)["cpu"]["targets"]))')
python3 tests/formats/new_format.py "$TEST_TMP"

expect "the format by text decodes" 0 sh -c "\"\$0\" decode --format $f --std $std < '$TEST_TMP/blocks' > '$TEST_TMP/floats'" "$LUMEN"
cmp -s "$TEST_TMP/floats" "$TEST_TMP/want" && ok "its values are those of a decoder of its own" || not_ok "its values are those of a decoder of its own" "they differ"
expect "without --std there is no such format" 2 "$LUMEN" decode --format $f
expect "a part of a block is refused" 1 sh -c "head -c 27 '$TEST_TMP/blocks' | \"\$0\" decode --format $f --std $std" "$LUMEN"
has "a part of a block is refused: why" "$err" "whole blocks of 28"
expect "its plan" 0 "$LUMEN" kern "linear w=$f[33,80] x=f32[3,80]" --std $std
has "it takes the integer road by analysis" "$out" "integer road: group 40, bias 0, codes 0..31"
for p in int8 f32; do
  for s in "linear w=$f[33,80] x=f32[5,80]" "linear w=$f[16,120] x=f32[3,120] most=16" "embed w=$f[33,80] t=i32[5]"; do
    expect "$s, $p: every target gives the interpreter's bits" 0 "$LUMEN" kern "$s" --std $std --target all --precision $p --check
  done
done

logits() { name=$1; shift; expect "$name" 0 "$LUMEN" logits "$@" --ids "$TEST_TMP/ids"; }
logits "the same weights as f32" "$TEST_TMP/f32.gguf" --precision f32 --out "$TEST_TMP/plain"
expect "a model in it needs the text" 1 "$LUMEN" logits "$TEST_TMP/q5x40.gguf" --ids "$TEST_TMP/ids" --out "$TEST_TMP/no"
for t in $targets; do
  logits "a whole model in it on $t, f32" "$TEST_TMP/q5x40.gguf" --std $std --target "$t" --precision f32 --out "$TEST_TMP/$t.f32"
  cmp -s "$TEST_TMP/plain" "$TEST_TMP/$t.f32" && ok "on $t, f32: the same bits as the same weights in f32" || not_ok "on $t, f32: the same bits as the same weights in f32" "they differ"
  logits "a whole model in it on $t, int8" "$TEST_TMP/q5x40.gguf" --std $std --target "$t" --precision int8 --out "$TEST_TMP/$t.int8"
  [ -f "$TEST_TMP/int8" ] || cp "$TEST_TMP/$t.int8" "$TEST_TMP/int8"
  cmp -s "$TEST_TMP/int8" "$TEST_TMP/$t.int8" && ok "on $t, int8: the same bits as elsewhere" || not_ok "on $t, int8: the same bits as elsewhere" "they differ"
done
if why=$(python3 tests/formats/new_format.py --compare "$TEST_TMP/plain" "$TEST_TMP/int8"); then ok "int8 is close to f32, and not the same"; else not_ok "int8 is close to f32, and not the same" "$why"; fi
finish
