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
expect "a trace into a folder that is not there" 2 "$LUMEN" version --trace "ir>$TEST_TMP/none/x"
has "why it cannot be written" "$err" "No such file or directory"
finish
