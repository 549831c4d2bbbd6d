# tools/runtests counts what really happened: each way to fail is tried on a small tree of its own. tools/setup: a second call does nothing.
. tests/lib.sh
tree=$TEST_TMP/tree
mkdir -p "$tree/tools" "$tree/tests/unit" "$tree/tests/x" "$tree/build/tests"
cp tools/runtests "$tree/tools/"
printf '#!/bin/sh\necho "ok - lint"\n' > "$tree/tools/lint"
chmod +x "$tree/tools/lint"
# unit NAME SCRIPT: a "program" with a source beside it
unit() { echo "/* ${3:-} */" > "$tree/tests/unit/$1.c"; printf '#!/bin/sh\n%s\n' "$2" > "$tree/build/tests/$1"; chmod +x "$tree/build/tests/$1"; }
last() { tail -n 1 "$out"; }
totals() { if [ "$(last)" = "$2" ]; then ok "$1"; else not_ok "$1" "last line '$(last)', expected '$2'"; fi; }

unit good 'echo "ok - a"; echo "ok - b"; echo "skip - c: no such CPU"'
echo 'echo "ok - $(cat /dev/null)from a script"' > "$tree/tests/x/a.sh"
expect "all well" 0 "$tree/tools/runtests" build
totals "all well, the last line" "5 passed, 0 failed, 1 skipped"
has "a skip prints its reason" "$out" "skip - unit/good: c: no such CPU"

unit bad 'echo "ok - a"; echo "not ok - b: 1 is not 2"; exit 1'
expect "a failed case" 1 "$tree/tools/runtests" build
totals "a failed case is counted" "6 passed, 1 failed, 1 skipped"
has "and printed" "$out" "not ok - unit/bad: b: 1 is not 2"
unit bad 'echo "ok - a"; echo "trouble"; kill -SEGV $$'
expect "a program that dies" 1 "$tree/tools/runtests" build bad
has "is named with its signal and last words" "$out" "died of SIGSEGV; its last words: trouble"
unit bad 'echo "ok - a"; exit 3'
expect "an exit status without a failed case" 1 "$tree/tools/runtests" build bad
totals "is a failure" "1 passed, 1 failed, 0 skipped"
unit bad ':'
expect "a program without cases" 1 "$tree/tools/runtests" build bad
has "is a failure" "$out" "ran no case"
unit bad 'echo "ok - a"; sleep 30' 'runtests: timeout 1'
expect "a program that hangs" 1 "$tree/tools/runtests" build bad
has "is stopped" "$out" "still running after 1 s"
unit bad 'echo "ok - a"; sleep 30' 'runtests: machine code, timeout 1'
expect "one that hangs and says more of itself" 1 "$tree/tools/runtests" build bad
has "is stopped too" "$out" "still running after 1 s"
rm "$tree/build/tests/bad"
expect "a program that was not built" 1 "$tree/tools/runtests" build bad
has "is a failure too" "$out" "did not start"
expect "a failed build" 1 "$tree/tools/runtests" --build-failed build good
has "is printed" "$out" "not ok - build"

unit bad 'echo "ok - a, $TEST_PATIENCE times, $TEST_MACHINE_CODE"' 'runtests: machine code'
printf '#!/bin/sh\necho "{\\"cpu\\": {\\"targets\\": [$TARGETS]}}"\n' > "$tree/build/lumen"
printf '#!/bin/sh\necho under >> "%s/under"\nexec "$@"\n' "$TEST_TMP" > "$TEST_TMP/emulator"
chmod +x "$tree/build/lumen" "$TEST_TMP/emulator"
echo 'test "$("$LUMEN" doctor)$TEST_MACHINE_CODE" = "{\"cpu\": {\"targets\": [$TARGETS]}}${TARGETS:-0}" && echo "ok - lumen under an emulator"' > "$tree/tests/x/a.sh"
expect "an emulator" 0 env TARGETS=1 "$tree/tools/runtests" --under "$TEST_TMP/emulator" build /
totals "carries programs and scripts; tests of machine code are run where there is a target" "4 passed, 0 failed, 1 skipped"
[ "$(wc -l < "$TEST_TMP/under")" = 4 ] && ok "each through it" || not_ok "each through it" "$(wc -l < "$TEST_TMP/under") runs, expected 4"
expect "a processor without a target" 0 env TARGETS= "$tree/tools/runtests" --under "$TEST_TMP/emulator" build /
totals "skips tests of machine code" "3 passed, 0 failed, 2 skipped"
has "with the reason" "$out" "skip - unit/bad: no target is for this processor yet"
expect "tests by their full names" 0 "$tree/tools/runtests" --only unit/bad build
totals "are run alone" "1 passed, 0 failed, 0 skipped"
expect "a name that no test has" 1 "$tree/tools/runtests" --only unit/bad,unit/none build
has "is a failure" "$out" "not ok - unit/none: --only names it"
expect "a pattern that matches nothing" 1 "$tree/tools/runtests" build nonsense

mkdir -p "$TEST_TMP/s/tools" "$TEST_TMP/bin"
cp tools/setup "$TEST_TMP/s/tools/"
printf '#!/bin/sh\necho "$@" >> "%s/apt-calls"\nexit 1\n' "$TEST_TMP" > "$TEST_TMP/bin/apt-get"
chmod +x "$TEST_TMP/bin/apt-get"
expect "set-up where all is there" 0 env PATH="$TEST_TMP/bin:$PATH" "$TEST_TMP/s/tools/setup" build
[ -e "$TEST_TMP/apt-calls" ] && not_ok "nothing is installed" "$(cat "$TEST_TMP/apt-calls")" || ok "nothing is installed"
mv "$TEST_TMP/bin/apt-get" "$TEST_TMP/apt-get"
for c in dirname cksum tr; do ln -s "$(command -v $c)" "$TEST_TMP/bin/$c"; done
expect "a second set-up looks at nothing but its stamp" 0 env PATH="$TEST_TMP/bin" "$TEST_TMP/s/tools/setup" build
mv "$TEST_TMP/apt-get" "$TEST_TMP/bin/apt-get"
for c in mkdir id env tail; do ln -s "$(command -v $c)" "$TEST_TMP/bin/$c"; done
rm -r "$TEST_TMP/s/build"
expect "a set-up that cannot install fails" 1 env PATH="$TEST_TMP/bin" "$TEST_TMP/s/tools/setup" build
has "and says what" "$err" "could not install make gcc"
expect "a strange level" 2 tools/setup everything
finish
