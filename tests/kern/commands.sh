# lumen kern, cc, decode: their forms, what they print, and that what is printed reads back.
# runtests: machine code
. tests/lib.sh

expect "kern prints plan, schedule, sizes" 0 "$LUMEN" kern 'linear w=q4_k[64,512] x=f32[M,512]' --target all
has "the plan names phases" "$out" "phase 1"
has "the road is told" "$out" "integer road: group 32"
has "code sizes are told" "$out" "bytes of code"
expect "kern --json" 0 "$LUMEN" kern 'rms_norm x=f32[3,64] w=f32[64] eps=1e-5' --json
is_json "kern --json lists kernels" "$out" 'o["kernels"][0]["code_bytes"] > 0 and o["target"]'
expect "kern --check" 0 "$LUMEN" kern 'linear w=q5_1[20,64] x=f32[3,64]' --check --target all --threads 2
has "kern --check says what it ran" "$out" "bit for bit the interpreter's: 6 shapes"
for spec in 'embed w=q4_0[64,64] t=i32[4]=63' 'embed w=q4_0[64,64] t=i32[M]=60' 'take_rows x=f32[3,64] row=i32[3]=2' 'take_rows x=f32[M,64] row=i32[2]=4'; do
  expect "kern --check: $spec, of which smaller shapes hold less" 0 "$LUMEN" kern "$spec" --check
done
expect "kern --check: values that fit nowhere" 2 "$LUMEN" kern 'embed w=q4_0[64,64] t=i32[M]=64' --check
has "kern --check: values that fit nowhere" "$err" "with values up to 64 something is indexed outside its dimensions"
expect "kern --check --precision f32 --json" 0 "$LUMEN" kern 'linear w=q5_1[20,64] x=f32[3,64]' --check --precision f32 --json
is_json "kern --check --json" "$out" 'o["same_bits"] and o["precision"] == "f32"'
expect "kern --time --json, the fixed form" 0 "$LUMEN" kern 'linear w=f32[256,256] x=f32[256,256]' --time --threads 2 --json
is_json "seconds, rates and the percentage of the peak" "$out" 'o["seconds"] > 0 and o["flops_per_second"] > 0 and o["bytes_per_second"] > 0 and o["percent_of_peak"] > 0 and o["threads"] == 2'
is_json "2 M N K operations" "$out" 'abs(o["flops"] - 2 * 256 ** 3) < 1 and abs(o["flops_per_second"] * o["seconds"] / o["flops"] - 1) < 1e-3'
expect "kern --time for all targets is an array" 0 "$LUMEN" kern 'add a=f32[4,64] b=f32[4,64]' --time --threads 1 --target all --json
is_json "one object a target" "$out" 'len(o) >= 1 if isinstance(o, list) else o["target"]'
expect "kern of an unknown op" 1 "$LUMEN" kern 'linaer w=f32[4,4] x=f32[1,4]'
has "its nearest name" "$err" "did you mean 'linear'?"
expect "kern of a bad spec" 2 "$LUMEN" kern 'linear w=f32[4,4'
expect "kern --time with rows left open" 2 "$LUMEN" kern 'add a=f32[M,64] b=f32[M,64]' --time
expect "kern of nothing" 2 "$LUMEN" kern
expect "kern for an unknown target" 2 "$LUMEN" kern 'add a=f32[1,64] b=f32[1,64]' --target x86-avx521
has "the nearest target" "$err" "did you mean x86-avx512"

for e in ast ir opt mach asm bin; do
  expect "cc --emit $e" 0 "$LUMEN" cc 'linear w=q4_0[64,64] x=f32[M,64]' --emit $e --target x86-avx2
  [ -s "$out" ] && ok "cc --emit $e prints" || not_ok "cc --emit $e prints" "nothing"
  cp "$out" "$TEST_TMP/k.$e"
done
for e in ir opt; do
  grep -v '^;' "$TEST_TMP/k.$e" > "$TEST_TMP/want"
  cp "$TEST_TMP/k.$e" "$TEST_TMP/text-$e.ir"
  expect "what --emit $e prints reads back" 0 "$LUMEN" cc "$TEST_TMP/text-$e.ir" --emit ir
  cmp -s "$out" "$TEST_TMP/want" && ok "and is the same" || not_ok "and is the same" "$(diff "$TEST_TMP/want" "$out" | head -3)"
done
expect "machine code from IR" 0 "$LUMEN" cc "$TEST_TMP/text-ir.ir" --emit bin --target x86-avx2
grep -v '^;' "$TEST_TMP/k.bin" > "$TEST_TMP/a"; grep -v '^;' "$out" > "$TEST_TMP/b"
cmp -s "$TEST_TMP/a" "$TEST_TMP/b" && ok "the same machine code as from the spec" || not_ok "the same machine code as from the spec" "they differ"
mkdir "$TEST_TMP/d" "$TEST_TMP/dd.lum" "$TEST_TMP/swiglu"
mkfifo "$TEST_TMP/pipe.lum"
program=$(realpath "$LUMEN")
for d in d dd.lum ./d; do
  expect "cc of a folder: $d" 2 sh -c 'cd "$1" && exec "$2" cc "$3"' sh "$TEST_TMP" "$program" "$d"
  has "cc of a folder: $d" "$err" "$d: a folder, expected a file"
done
expect "cc of a pipe" 1 "$LUMEN" cc "$TEST_TMP/pipe.lum"
has "cc of a pipe" "$err" "no regular file, expected a file"
expect "cc of an op whose name a folder has too" 0 sh -c 'cd "$1" && exec "$2" cc swiglu' sh "$TEST_TMP" "$program"
expect "cc's help" 0 "$LUMEN" help cc
for t in $(sed -n 's/^TARGET("\([^"]*\)".*/\1/p' src/gen/targets.def); do
  if grep -q -- "--target.*[ ,]$t[ ,]" "$out"; then ok "help cc names the target $t"; else not_ok "help cc names the target $t" "$(grep -e --target "$out")"; fi
done
expect "cc of an op by name" 0 "$LUMEN" cc swiglu --emit asm
for f in std/ops/*.lum; do expect "cc of every op of $f" 0 "$LUMEN" cc "$f"; done
expect "cc of a file, as declarations" 0 "$LUMEN" cc tests/formats/std/q5x40.lum --emit ast
cp "$out" "$TEST_TMP/again.lum"
expect "what --emit ast prints reads back" 0 "$LUMEN" cc "$TEST_TMP/again.lum" --emit ast
cmp -s "$out" "$TEST_TMP/again.lum" && ok "and is the same" || not_ok "and is the same" "they differ"
expect "cc of a file: its formats' kernels" 0 "$LUMEN" cc tests/formats/std/q5x40.lum --emit asm
has "unpacking and packing" "$out" "pack.q5x40"
expect "cc of a file that is not there" 1 "$LUMEN" cc "$TEST_TMP/none.lum"
printf 'format q { block 32 d : f16 @0 x(i) = e }\n' > "$TEST_TMP/bad.lum"
expect "cc of a wrong file" 1 "$LUMEN" cc "$TEST_TMP/bad.lum"
has "its place" "$err" "bad.lum:1:"
printf 'fn @f(%%1: i64) {\nb0(%%1):\n  rte\n}\n' > "$TEST_TMP/bad.ir"
expect "cc of wrong IR" 1 "$LUMEN" cc "$TEST_TMP/bad.ir"
has "its line" "$err" "line 3"
expect "cc --emit of an unknown stage" 2 "$LUMEN" cc swiglu --emit opp
has "the nearest stage" "$err" "did you mean opt?"

expect "decode needs a format" 2 "$LUMEN" decode
expect "decode of nothing is nothing" 0 "$LUMEN" decode --format q4_k
empty "no output" "$out"
expect "decode with an unknown format" 2 "$LUMEN" decode --format q4k
has "its nearest format" "$err" "did you mean 'q4_k'?"
for f in Q4_K BF16 IQ3_S; do
  "$LUMEN" decode --format "$(echo $f | tr A-Z a-z)" < tests/formats/decode/$f.bin > "$out"
  cmp -s "$out" tests/formats/decode/$f.f32 && ok "decode $f as the golden" || not_ok "decode $f as the golden" "they differ"
done
finish
