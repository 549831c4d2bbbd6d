# The frame of the commands: help, version, doctor, nearest name, exit codes, --trace, where output goes.
. tests/lib.sh

expect "no command is wrong usage" 2 "$LUMEN"
expect "help" 0 "$LUMEN" help
cp "$out" "$TEST_TMP/help"
empty "help says nothing on standard error" "$err"
expect "--help is help" 0 "$LUMEN" --help
cmp -s "$out" "$TEST_TMP/help" && ok "--help prints what help prints" || not_ok "--help prints what help prints" "they differ"
for c in $(sed -n 's/^CMD(\([a-z]*\),.*/\1/p' src/cmd/commands.def); do
  has "help lists $c" "$TEST_TMP/help" "  $c "
  expect "help $c" 0 "$LUMEN" help "$c"
  has "help $c prints its usage" "$out" "usage: lumen $c"
  cp "$out" "$TEST_TMP/one"
  expect "$c --help" 0 "$LUMEN" "$c" --help
  cmp -s "$out" "$TEST_TMP/one" && ok "$c --help prints what help $c prints" || not_ok "$c --help prints what help $c prints" "they differ"
  grep -q "lumen $c" docs/commands.md && ok "docs/commands.md tells of $c" || not_ok "docs/commands.md tells of $c" "not named"
done
expect "help for an unknown command" 2 "$LUMEN" help nonsense

expect "an unknown command" 2 "$LUMEN" hlep
has "its nearest name" "$err" 'did you mean `help`?'
empty "nothing on standard output" "$out"
expect "an unknown command like no other" 2 "$LUMEN" xyzzyplugh
hasnt "no nearest name" "$err" 'did you mean'

expect "version" 0 "$LUMEN" version
has "version names the program" "$out" "lumen "
expect "--version" 0 "$LUMEN" --version
expect "version --json" 0 "$LUMEN" version --json
is_json "version --json is JSON" "$out" 'o["name"] == "lumen" and o["version"]'
expect "version with a stranger" 2 "$LUMEN" version --jsn

no_target=$((1 - ${TEST_MACHINE_CODE:-1}))   # doctor's exit code where nothing we compile runs
expect "doctor" $no_target env LUMEN_HOME="$TEST_TMP/none" "$LUMEN" doctor
has "doctor names the cache" "$out" "$TEST_TMP/none: not made yet"
mkdir "$TEST_TMP/home"
head -c 1048576 /dev/zero > "$TEST_TMP/home/some.gguf"
: > "$TEST_TMP/home/$(printf 'bad\377name')"
expect "doctor --json" $no_target env LUMEN_HOME="$TEST_TMP/home" "$LUMEN" doctor --json
is_json "doctor --json is JSON" "$out" 'o["cpu"]["threads"] >= 1 and bool(o["cpu"]["targets"]) == (0 == '$no_target') and o["memory"]["total_bytes"] > 0'
is_json "doctor lists the cache's files" "$out" 'sorted(f["name"] for f in o["cache"]["files"])[1] == "some.gguf" and o["cache"]["bytes"] == 1 << 20'
expect "doctor respects affinity" $no_target taskset -c 0 "$LUMEN" doctor --json
is_json "one CPU allowed, one thread" "$out" 'o["cpu"]["threads"] == 1 and o["cpu"]["allowed"] == 1'

mkdir "$TEST_TMP/texts"
printf 'fn f(x: f32) -> f32 = y\n' > "$TEST_TMP/texts/wrong.lum"
expect "a text with a mistake" 1 "$LUMEN" cc rope --std "$TEST_TMP/texts"
[ -n "$(tail -n 1 "$err")" ] && ok "its message ends with its last line" || not_ok "its message ends with its last line" "an empty line"
expect "a name with control characters" 1 "$LUMEN" show "$(printf 'no\033[31m\302\233model')"
has "they are told, not sent to the terminal" "$err" 'no\x1b[31m\x9bmodel'
expect "--trace help" 0 "$LUMEN" --trace help version
has "--trace help lists the stages" "$err" "machine code as assembly"
expect "--trace help alone" 0 "$LUMEN" --trace help
has "is an answer" "$out" "machine code as assembly"
empty "and no lack of a command" "$err"
expect "--trace alone" 2 "$LUMEN" --trace ir
expect "--trace after the command" 0 "$LUMEN" version --trace ir
expect "an unknown trace stage" 2 "$LUMEN" version --trace nonsense
has "its name" "$err" "trace stage 'nonsense'"
expect "an unknown stage in LUMEN_TRACE" 2 env LUMEN_TRACE=nonsense "$LUMEN" version
expect "--trace without stages" 2 "$LUMEN" version --trace

tiny=tests/run/tiny.gguf
expect "a letter that is no option" 2 "$LUMEN" run -m "$tiny"
has "is named once" "$err" "unknown option -m;"
expect "a precision that is none, in cc" 2 "$LUMEN" cc linear --precision f64
has "those there are" "$err" "precision 'f64': expected f32, "
expect "a precision that is none, in kern" 2 "$LUMEN" kern 'linear w=f32[64,64] x=f32[1,64]' --precision f64
mkdir "$TEST_TMP/bare" "$TEST_TMP/gguf" "$TEST_TMP/old"
expect "a folder without texts" 1 "$LUMEN" cc rope --std "$TEST_TMP/bare"
has "what it lacks" "$err" "no text (NAME.lum)"
expect "--plan with --json" 2 "$LUMEN" show --plan --json "$tiny"
expect "a tensor's name with a slip" 1 "$LUMEN" decode "$tiny" output_norm.weigh
has "the tensor that is near" "$err" "did you mean output_norm.weight?"
expect "a format and a tensor" 2 "$LUMEN" decode --format f32 "$tiny" output_norm.weight
has "one of the two" "$err" "one of the two"
expect "a family's name" 1 "$LUMEN" show smollm2
has "its model" "$err" "did you mean smollm2-135m?"
expect "a name of the hub" 1 "$LUMEN" show owner/repository
has "how files of the hub are named" "$err" "hf:OWNER/REPOSITORY/FILE"
expect "an absolute path" 1 "$LUMEN" show /none/such
hasnt "is no name of the hub" "$err" "hf:"
expect "an address" 1 "$LUMEN" show 'https://host.example/o/r/blob/main/sub/f.gguf?x=1'
has "its name" "$err" "did you mean hf:o/r/sub/f.gguf?"
cp "$tiny" "$TEST_TMP/gguf/a.gguf"
expect "a folder with a GGUF file" 1 "$LUMEN" show "$TEST_TMP/gguf"
has "the file" "$err" "gguf/a.gguf"
echo '{}' > "$TEST_TMP/old/config.json"
: > "$TEST_TMP/old/pytorch_model.bin"
expect "a folder of pickles" 1 "$LUMEN" show "$TEST_TMP/old"
has "which are not read" "$err" "pytorch_model.bin is not read"
expect "no HOME" $no_target env -u HOME -u LUMEN_HOME -u XDG_CACHE_HOME "$LUMEN" doctor --json
is_json "the account's" "$out" '__import__("pwd").getpwuid(__import__("os").getuid()).pw_dir + "/.cache/lumen" == o["cache"]["path"]'

if [ -w /dev/full ]; then
  if "$LUMEN" help >/dev/full 2>"$err"; then not_ok "a full disk is a failure" "exit code 0"; else has "a full disk is a failure" "$err" "cannot be written"; fi
else skip "a full disk is a failure" "no /dev/full here"; fi
finish
