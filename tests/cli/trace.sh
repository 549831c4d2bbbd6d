# Every stage that --trace help lists prints something in a run of a small model, or its line of help says that it prints nothing.
# runtests: machine code
. tests/lib.sh
M=tests/run/tiny.gguf
expect "--trace help" 0 "$LUMEN" --trace help version
cp "$err" "$TEST_TMP/stages"
expect "a run without a trace" 0 "$LUMEN" run "$M" the -n 2 -T 0
cp "$out" "$TEST_TMP/answer"
while read -r stage meaning; do
  expect "a run with --trace $stage" 0 "$LUMEN" run "$M" the -n 2 -T 0 --trace "$stage>$TEST_TMP/trace"
  case $meaning in
    *"says nothing"*) empty "$stage says nothing, as its help says" "$TEST_TMP/trace" ;;
    *) has "$stage prints" "$TEST_TMP/trace" "[$stage] " ;;
  esac
  cmp -s "$out" "$TEST_TMP/answer" && ok "$stage leaves the answer as it is" || not_ok "$stage leaves the answer as it is" "another answer"
done < "$TEST_TMP/stages"
expect "a pattern picks a declaration" 0 "$LUMEN" run "$M" the -n 1 --trace ast@rms_norm
has "the picked one" "$err" "op rms_norm("
hasnt "and no other" "$err" "op rope("
expect "a trace into a folder that is not there" 1 "$LUMEN" version --trace "ir>$TEST_TMP/none/x"
has "why it cannot be written" "$err" "No such file or directory"

expect "time of a bench" 0 "$LUMEN" bench $M --prompt 20 --generate 3 --rounds 1 --threads 1 --trace "time>$TEST_TMP/time"
has "a kernel's place in the model's text" "$TEST_TMP/time" "llama.lum:"
has "percent of its roof" "$TEST_TMP/time" "% of reading"
has "peaks" "$TEST_TMP/time" "measured now"
has "the steps of the prompt" "$TEST_TMP/time" "1 steps of several tokens a sequence, 20.0 tokens"
has "and those of decode" "$TEST_TMP/time" "3 steps of one token a sequence, 1.0 tokens"
sed -n "s/.*lumen kern '\([^']*\)' --time --threads 1 --precision int8$/\1/p" "$TEST_TMP/time" | sort -u > "$TEST_TMP/repeat"
[ "$(wc -l < "$TEST_TMP/repeat")" -gt 3 ] && ok "commands that repeat kernels" || not_ok "commands that repeat kernels" "$(cat "$TEST_TMP/time")"
while read -r spec; do expect "$spec compiles" 0 "$LUMEN" kern "$spec" --precision int8; done < "$TEST_TMP/repeat"
expect "show --plan" 0 "$LUMEN" show --plan $M --kv f32 --threads 1
has "keys and values" "$out" "KV f32"
for p in int8:bf16 bf16:f16 f32:f32; do
  expect "show --plan at ${p%:*}" 0 "$LUMEN" show --plan $M --precision ${p%:*} --threads 1
  has "keys and values in ${p#*:} where nothing is said" "$out" "KV ${p#*:},"
done
has "packed bytes beside the file's" "$out" "MB in the file"
finish
