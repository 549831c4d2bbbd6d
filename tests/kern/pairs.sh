# Products of pairs of bfloat16: which chains become dot2, which do not, and that the bits are the same either way.
# runtests: machine code
. tests/lib.sh

spec() { echo "attention q=f32[M,4,$2] k=$1[2,2,8,$2,32] v=$1[2,2,8,32,$2] pos=i32[M] scale=0.2"; } # KIND LENGTH of heads
counts() { # LABEL WANT(0: none, 1: some) WORD COMMAND.. : whether the word is in what the command prints
  label=$1 want=$2 word=$3; shift 3
  expect "$label" 0 "$@"
  n=$(grep -c "$word" "$out")
  [ $((n > 0)) = "$want" ] && ok "$label: $word" || not_ok "$label: $word" "$n times"
}
counts "int8, keys and values in bf16" 1 ' = dot2 ' "$LUMEN" cc "$(spec bf16 64)" --emit ir --precision int8 --target x86-avx512-bf16
counts "machine code of it" 1 vdpbf16ps "$LUMEN" cc "$(spec bf16 64)" --emit asm --precision int8 --target x86-avx512-bf16
counts "a target without the product" 0 ' = dot2 ' "$LUMEN" cc "$(spec bf16 64)" --emit ir --precision int8 --target x86-avx512
counts "keys and values in f16" 0 ' = dot2 ' "$LUMEN" cc "$(spec f16 64)" --emit ir --precision int8 --target x86-avx512-bf16
counts "at f32" 0 ' = dot2 ' "$LUMEN" cc "$(spec bf16 64)" --emit ir --precision f32 --target x86-avx512-bf16
counts "heads of 48" 0 ' = dot2 ' "$LUMEN" cc "$(echo "$(spec bf16 64)" | sed 's/64/48/g')" --emit ir --precision int8 --target x86-avx512-bf16

# Ops of one's own: the order and the values decide, no name.
mkdir -p "$TEST_TMP/std"
cat > "$TEST_TMP/std/pairs.lum" <<'LUM'
op odd_first(x: f32[M,K], c: C[N,K/2,32]) -> y: f32[M,N,16] {
  h[m,k] = to_bf16(x[m,k])
  y[m,n,j] = chain(i < K/2: h[m, 2*i + 1] * c[n,i, 2*j + 1] + h[m, 2*i] * c[n,i, 2*j])
}
op even_first(x: f32[M,K], c: C[N,K/2,32]) -> y: f32[M,N,16] {
  h[m,k] = to_bf16(x[m,k])
  y[m,n,j] = chain(i < K/2: h[m, 2*i] * c[n,i, 2*j] + h[m, 2*i + 1] * c[n,i, 2*j + 1])
}
op not_rounded(x: f32[M,K], c: C[N,K/2,32]) -> y: f32[M,N,16] {
  h[m,k] = x[m,k] * 2.0
  y[m,n,j] = chain(i < K/2: h[m, 2*i + 1] * c[n,i, 2*j + 1] + h[m, 2*i] * c[n,i, 2*j])
}
op far_apart(x: f32[M,K], c: C[N,K/2,32]) -> y: f32[M,N,16] {
  h[m,k] = to_bf16(x[m,k])
  y[m,n,j] = chain(i < K/2: h[m, i + K/2] * c[n,i, 2*j + 1] + h[m, i] * c[n,i, 2*j])
}
LUM
for op in odd_first even_first not_rounded far_apart; do
  S="c=bf16[3,32,32] x=f32" want=0
  [ $op != odd_first ] || want=1
  counts "$op" $want ' = dot2 ' "$LUMEN" cc "$op $S[M,64]" --std "$TEST_TMP/std" --emit ir --target x86-avx512-bf16
  expect "$op: the same bits on every target" 0 "$LUMEN" kern "$op $S[5,64]" --std "$TEST_TMP/std" --check --target all
done

# Pairs of a weight's values, which panels of many rows keep as they are: where all that is unpacked are such pairs and nothing else reads them. Odd
# positions, an odd length and neighbours of another kind (codes, what is made of a weight, the same weight once more) come out the same without.
P='chain(i < K/2: h[m, 2*i + 1] * w[n, 2*i + 1] + h[m, 2*i] * w[n, 2*i])'
weight() { # NAME WANT(1: in panels, 0: not) SUM SPEC
  op="x: f32[M,K], w: W[N,K]"
  case $4 in *v=*) op="$op, v: V[N,K]" ;; esac
  echo "op $1($op) -> y: f32[M,N] { h[m,k] = to_bf16(x[m,k]) y[m,n] = $3 }" > "$TEST_TMP/std/weight.lum"
  expect "weights, $1 $4: the same bits on every target" 0 "$LUMEN" kern "$1 $4" --std "$TEST_TMP/std" --check --target all
  expect "weights, $1 $4: kernels" 0 "$LUMEN" cc "$1 $(echo "$4" | sed 's/x=f32\[[0-9]*/x=f32[M/')" --std "$TEST_TMP/std" --emit asm --target x86-avx512-bf16 --trace "sched>$TEST_TMP/sched.$1"
  n=$(grep -c 'weights in pairs of bfloat16' "$TEST_TMP/sched.$1")
  [ $((n > 0)) = "$2" ] && ok "$1: pairs in panels: $2" || not_ok "$1: pairs in panels: $2" "$n times"
}
weight plain 1 "$P" 'w=bf16[17,90] x=f32[40,90]'
weight blocks 1 'chain(b < K/32: chain(i < 16: h[m, b*32 + 2*i + 1] * w[n, b*32 + 2*i + 1] + h[m, b*32 + 2*i] * w[n, b*32 + 2*i]))' 'w=bf16[17,64] x=f32[40,64]'
weight odd_length 0 "$P" 'w=bf16[17,65] x=f32[40,65]'
weight one 0 "$P" 'w=bf16[17,1] x=f32[40,1]'
weight odd_begin 0 'chain(i < K/2 - 1: h[m, 2*i + 2] * w[n, 2*i + 2] + h[m, 2*i + 1] * w[n, 2*i + 1])' 'w=bf16[17,64] x=f32[40,64]'
weight shifted 0 'chain(i < K/2 - 1: h[m, 2*i + 1] * w[n, 2*i + 2] + h[m, 2*i] * w[n, 2*i + 1])' 'w=bf16[17,64] x=f32[40,64]'
weight neighbours 0 'chain(i < K - 1: h[m, i + 1] * w[n, i + 1] + h[m, i] * w[n, i])' 'w=bf16[17,64] x=f32[40,64]'
weight odd_blocks 0 'chain(b < K/3: h[m, b*3 + 1] * w[n, b*3 + 1] + h[m, b*3] * w[n, b*3])' 'w=bf16[17,66] x=f32[40,66]'
weight once_more 0 "$P + chain(k: x[m,k] * w[n,k])" 'w=bf16[17,90] x=f32[40,90]'
weight beside_values 0 "$P + chain(k: x[m,k] * v[n,k])" 'w=bf16[17,64] x=f32[40,64] v=q8_0[17,64]'
weight beside_made 0 "$P + chain(k: x[m,k] * sqrt(abs(v[n,k])))" 'w=bf16[17,64] x=f32[40,64] v=bf16[17,64]'
weight beside_codes 1 "$P + chain(g < K/32: f32(isum(k < 32: i8(rint(x[m, g*32 + k])) * v.code[n, g*32 + k])) * v.scale[n, g*32])" 'w=bf16[17,64] x=f32[40,64] v=q8_0[17,64]'

# Work: both products count, and the roof knows that they take one step.
if "$LUMEN" kern 'add a=f32[1,16] b=f32[1,16]' --check --target x86-avx512-bf16 > /dev/null 2>&1; then
  S="odd_first x=f32[64,1024] c=bf16[8,512,32]"
  expect "time of pairs" 0 "$LUMEN" kern "$S" --std "$TEST_TMP/std" --time --threads 1 --target x86-avx512-bf16 --json
  is_json "two products a pair, at half the price" "$out" 'o["flops"] == 2 * 64 * 1024 * 8 * 16 and 0.45 < o["percent_of_peak"] * o["peak"]["f32_flops_per_second"] / 100 / o["flops_per_second"] < 0.55'
fi
finish
