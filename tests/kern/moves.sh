# What goes to places apart: elements stored one by one in runs, results asked for before the sums that make them; the bits are those of the plain form.
# runtests: machine code
. tests/lib.sh

mkdir -p "$TEST_TMP/std"
cat > "$TEST_TMP/std/moves.lum" <<'LUM'
op turned(x: f32[M,D], pos: i32[M]) -> k: C[N,D,32] {
  k[pos[m] / 32, d, pos[m] % 32] = x[m,d]
}
op rounded_turned(x: f32[M,D], pos: i32[M]) -> k: C[N,D/2,64] {
  h[m,d] = to_bf16(x[m,d])
  k[pos[m] / 32, d / 2, pos[m] % 32 * 2 + d % 2] = h[m,d]
}
LUM
counts() { # LABEL WANT PATTERN SPEC STAGE: lines with the pattern
  expect "$1" 0 "$LUMEN" cc "$4" --std "$TEST_TMP/std" --emit "$5" --target x86-avx512
  n=$(grep -c "$3" "$out")
  [ "$n" = "$2" ] && ok "$1: $2" || not_ok "$1: $2" "$n times"
}
spec() { echo "$1 x=f32[9,$3] pos=i32[9]=95 k=$2[3,$4]"; } # OP KIND LENGTH DIMS
counts "a run of 16 stores" 16 'store.f32' "$(spec turned f32 64 64,32)" opt
counts "and what is left of the length" 24 'store.f32' "$(spec turned f32 40 40,32)" opt
counts "upper halves are read as such" 16 'load.u16' "$(spec rounded_turned bf16 64 32,64)" opt
for kind in f32 f16 bf16; do
  for n in 64 40 7; do expect "$kind, $n elements: the same bits on every target" 0 "$LUMEN" kern "$(spec turned $kind $n $n,32)" --std "$TEST_TMP/std" --check --target all; done
  expect "$kind, rounded before: the same bits on every target" 0 "$LUMEN" kern "$(spec rounded_turned $kind 64 32,64)" --std "$TEST_TMP/std" --check --target all
done

# 64 rows in tiles of 8, then 4, then 1: each asks for its own. One row is there already.
counts "results of many rows are asked for" 13 'prefetch' 'linear x=f32[64,512] w=q4_0[64,512]' opt
counts "of one row, they are not" 0 'prefetch' 'linear x=f32[1,512] w=q4_0[64,512]' opt
finish
