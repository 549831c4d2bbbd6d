# An op of --std takes the place of the standard one in models. This one sums in stripes, for which packed weights do not serve: with weights in blocks, and with the
# same numbers as plain floats, the logits are the same bits, and others than those of the standard op.
# runtests: machine code
. tests/lib.sh
d=$TEST_TMP
mkdir "$d/std" "$d/other"
printf '%s\n' 'op linear(x: f32[M,K], w: W[N,K], most: i32 = 32) -> y: f32[M,N] { y[m,n] = sum(k: x[m,k] * w[n,k]) }' > "$d/std/own.lum"
printf '%s\n' 'op linear(x: f32[M,K], w: W[N,K]) -> y: f32[M,N] { y[m,n] = sum(k: x[m,k] * w[n,k]) }' > "$d/other/own.lum"
expect "weights in blocks" 0 "$LUMEN" convert tests/models/llama/model.gguf "$d/q.gguf" --quant q8_0 --quiet
expect "the same numbers as floats" 0 "$LUMEN" convert "$d/q.gguf" "$d/f.gguf" --quant f32 --quiet
for f in q f; do
  expect "$f: with an op of one's own" 0 "$LUMEN" logits --ids tests/models/llama/tokens.txt --out "$d/$f" --std "$d/std" --kv f32 "$d/$f.gguf"
  expect "$f: with the standard op" 0 "$LUMEN" logits --ids tests/models/llama/tokens.txt --out "$d/$f.standard" --precision f32 --kv f32 "$d/$f.gguf"
done
if cmp -s "$d/q" "$d/f"; then ok "an op that sums in stripes has the same bits from blocks and from floats"; else not_ok "an op that sums in stripes has the same bits from blocks and from floats" "other bits"; fi
if cmp -s "$d/q" "$d/q.standard"; then not_ok "it is the op that is used" "the standard op's bits"; else ok "it is the op that is used"; fi
expect "one that is called differently" 1 "$LUMEN" logits --ids tests/models/llama/tokens.txt --out "$d/no" --std "$d/other" "$d/q.gguf"
has "its place is told" "$err" "own.lum:1:4: this linear takes or gives other things than the one at std/ops/core.lum"
hasnt "and nothing of the models that call it" "$err" "gemma"
finish
