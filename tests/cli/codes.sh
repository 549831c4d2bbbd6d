# Exit codes: 2 where the command line itself is wrong, 1 where what it names is, wherever that came from; and what the messages point at.
# runtests: machine code
. tests/lib.sh
M=tests/run/tiny.gguf D=$TEST_TMP
# is CODE TEXT INPUT COMMAND..   with INPUT (printf's) on standard input.
is() {
  code=$1 text=$2 input=$3
  shift 3
  printf "$input" > "$D/input"
  if "$LUMEN" "$@" > "$out" 2> "$err" < "$D/input"; then got=0; else got=$?; fi
  if [ "$got" = "$code" ]; then ok "$code: $*"; else not_ok "$code: $*" "exit code $got: $(tail -n 3 "$err")"; fi
  [ -z "$text" ] || has "it says $text" "$err" "$text"
}

# Data.
is 1 "byte 0 is 0x78" 'x\n' detokenize $M
is 1 "id 99999999999999999999999, expected 0 to 511" '99999999999999999999999' detokenize $M
is 1 "line 2: is blank, expected a JSON string" '"a"\n\n"b"\n' tokenize $M --lines
is 1 "line 1: ends inside" '[1, 2\n' detokenize $M --lines
is 1 "line 2: byte 3" '[]\n[1,,2]\n' detokenize $M --lines
is 1 "line 1: byte 1" '[[1]]\n' detokenize $M --lines
is 1 "line 1: byte 3" '[1,]\n' detokenize $M --lines
is 1 "line 1: is blank" '\n' detokenize $M --lines
is 0 "" '[]\n[ 104, 105 ]\r\n' detokenize $M --lines
is 1 "standard input: the user text is no UTF-8: byte 6 is 0xc7" 'hello \307\321' run $M -n 1
is 1 "standard input: the user text is no UTF-8: byte 6 is 0xc7" 'hello \307\321' run $M -n 1 "and this"
is 2 "the user text is no UTF-8: byte 2 is 0xff" 'hello' run $M -n 1 "$(printf 'ab\377')"
is 1 "max_tokens: -2, expected 0 to" '{"messages":[{"role":"user","content":"x"}],"max_tokens":-2}' run $M --request -
hasnt "and no option" "$err" "--max-tokens"
is 1 "regular expression" '{"messages":[{"role":"user","content":"x"}],"guided_regex":"("}' run $M --request -
is 1 "tool_choice" '{"messages":[{"role":"user","content":"x"}],"tool_choice":"required"}' run $M --request -
is 1 "expected a JSON array" '{}' run $M hi --tools -
is 1 "is empty, expected the text of a Jinja template" ' \n' run $M hi --chat-template-file -
is 1 "--chat-template: the chat template makes an empty prompt" '' run $M hi --chat-template '{{ "" }}'
is 1 "standard input, line 2" '"a"\nb\n' grammar --template tests/text/templates/templates/Qwen-Qwen3-0.6B.jinja --tools tests/cli/early.tools.json --test
is 1 "No such file or directory" '' version --trace "ir>$D/none/x"

# The command line.
is 2 "format 'foo'" '' decode --format foo
is 2 "format 'foo'" '' encode --format foo
is 2 "format 'foo'" '' convert $M "$D/o.gguf" --quant foo
is 2 "format 'foo'" '' convert $M "$D/o.gguf" --keep '*=foo'
is 2 "KV format 'foo'" '' run $M hi --kv foo
is 2 "precision 'foo'" '' run $M hi --precision foo
is 2 "stop text 1 is empty" '' run $M hi --stop ''
is 2 "stop text 1 has 1025 bytes" '' run $M hi --stop "$(printf '%01025d' 0)"
is 2 "stop text 1 is no UTF-8, so no answer can have it: byte 1 is 0xff" '' run $M hi --stop "$(printf 'a\377')"
set -- run $M hi
for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17; do set -- "$@" --stop $i; done
is 2 "17 stop texts" '' "$@"
is 2 "--regex: regular expression" '' run $M hi --regex '('
is 2 "--regex: regular expression" '' grammar --regex '('
is 2 "no tools are offered" '' run $M hi --one-call
is 2 "--kv goes with --plan" '' show --kv foo $M
is 2 "--threads goes with --plan" '' show -t4 $M
is 2 "--context goes with --plan" '' show -ac4 $M
is 2 "--perf-map goes with --plan" '' show --no-perf-map $M
is 2 "--precision goes with --plan" '' show --precision=f32 $M
is 2 "--answer goes with --template" '' grammar --regex a --answer
is 2 "--one-call goes with --template" '' grammar --regex a --one-call
is 2 "--as-generated goes with --schema" '' grammar --regex a --as-generated
is 2 "--relax goes with" '' grammar --regex a --relax
is 2 "--test and --mask-bench: one of them" '' grammar --regex a --test --mask-bench --tokenizer $M
is 0 "--think-budget changes nothing" '' run $M hi --think-budget 4 -n 1

if "$LUMEN" tokenize $M > "$out" 2> "$err" <&-; then not_ok "standard input that is closed" "exit code 0"; else ok "standard input that is closed"; fi
has "is named" "$err" "standard input: cannot be read"
echo '{"type":"object","properties":{"a":{"type":"string"}},"foo":1,"required":["a"]}' > "$D/schema.json"
is 0 "lumen grammar: not enforced: #" '' grammar --relax --schema "$D/schema.json"

# All tokens hidden: somebody wonders where the answer is.
think='{{ messages[0].content }}<think>{# </think> #}{% if false %}{{ m.reasoning_content }}</think>{% endif %}'
is 0 "all 5 tokens went into reasoning (--show-think prints it, --max-tokens" '' run $M hi --chat-template "$think" -n 5 -T 0
is 0 "all 5 tokens went into reasoning (--max-tokens" '' run $M hi --chat-template "$think" -n 5 -T 0 --show-think
is 0 "" '' run $M hi --chat-template "$think" -n 5 -T 0 --json
empty "as JSON has it, nothing is told" "$err"

# What is there and cannot be used is not called missing.
ln -s nowhere.gguf "$D/dangling.gguf"
ln -s circle.gguf "$D/circle.gguf"
mkfifo "$D/pipe.json"
for command in run pull show tokenize; do
  set -- $command "$D/dangling.gguf"
  is 1 "is a link to nowhere.gguf, which is not there" x "$@"
  set -- $command "$D/circle.gguf"
  is 1 "Too many levels of symbolic links" x "$@"
done
is 1 "is a file that is here" '' pull $M
is 1 "is a folder that is here" '' pull tests
is 1 "is a device or pipe, expected a regular file" '' tokenize --tokenizer "$D/pipe.json" x
echo x > "$D/file"
for home in "$D/file" /dev/null; do
  expect "list with $home as its folder" 1 env LUMEN_HOME="$home" "$LUMEN" list
  has "says so" "$err" "Not a directory"
done
expect "list with a folder that is not there yet" 0 env LUMEN_HOME="$D/none" "$LUMEN" list
if [ "$(id -u)" = 0 ] && command -v setpriv > /dev/null; then as_other() { setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; }
elif [ "$(id -u)" != 0 ]; then as_other() { "$@"; }
fi
mkdir -p "$D/bin" "$D/closed/models" "$D/closed/dir"
cp "$LUMEN" "$D/bin/lumen"
cp $M "$D/closed/m.gguf"
chmod 755 "$D" "$D/bin"
chmod 000 "$D/closed"
if command -v as_other > /dev/null && as_other "$D/bin/lumen" version > /dev/null 2>&1; then
  for path in closed/m.gguf closed/dir closed/none.gguf; do
    expect "show $path" 1 as_other "$D/bin/lumen" show "$D/$path"
    has "is not permitted" "$err" "Permission denied"
  done
  expect "tokenize with a file there" 1 as_other "$D/bin/lumen" tokenize --tokenizer "$D/closed/m.gguf" x
  has "is not permitted" "$err" "Permission denied"
  expect "cc of a text there" 1 as_other "$D/bin/lumen" cc "$D/closed/a.lum"
  has "is not permitted" "$err" "Permission denied"
  expect "list" 1 as_other env LUMEN_HOME="$D/closed" "$D/bin/lumen" list
  has "is not permitted" "$err" "Permission denied"
else skip "folders that may not be searched" "no other user to be"
fi
chmod 755 "$D/closed"

# Ranks that cannot stand for every text.
python3 -c '
import base64, sys
rows = [(bytes([i]), i) for i in range(256)]
def write(name, rows): open(f"{sys.argv[1]}/{name}.tiktoken", "w").write("".join(f"{base64.b64encode(b).decode()} {r}\n" for b, r in rows))
write("cl100k", rows); write("cl100k_less", [r for r in rows if r[0] != b"x"]); write("cl100k_twice", rows[:-1] + [(b"ab", 7)])' "$D"
is 0 "" '' tokenize --tokenizer "$D/cl100k.tiktoken" x
is 1 "no rank for the byte 0x78" '' tokenize --tokenizer "$D/cl100k_less.tiktoken" x
is 1 "line 256: rank 7 is there twice" '' tokenize --tokenizer "$D/cl100k_twice.tiktoken" x
finish
