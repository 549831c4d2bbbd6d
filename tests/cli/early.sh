# What is wrong is told as early as it can be known: options, then the files they name, then what the model's files say, then weights. And `-`,
# which is standard input wherever a file is read whole.
# runtests: machine code
. tests/lib.sh
M=tests/run/tiny.gguf D=$TEST_TMP
echo '{"type":"strin"}' > "$D/schema.json"
echo '{"type":"function"}' > "$D/no_array.json"
echo '[{"type":"function"}]' > "$D/nameless.json"
echo '{% if %}' > "$D/broken.jinja"
echo '{"messages":[{"role":"user","content":"hi"}],"response_format":{"type":"nonsense"}}' > "$D/request.json"
printf 'root ::= other\n' > "$D/g.gbnf"
echo '{"messages":[{"role":"user","content":"hi"}]}' > "$D/request_ok.json"

# early CODE TEXT OPTIONS..   before the model is even looked for: there is none of this name.
early() {
  code=$1 text=$2
  shift 2
  expect "before the model: $*" "$code" "$LUMEN" run no-such-model hi "$@"
  has "it says $text" "$err" "$text"
  hasnt "of the model nothing" "$err" "no-such-model"
}
early 1 "expected null, boolean" --schema "$D/schema.json"
early 1 "No such file" --schema "$D/none.json"
early 2 "regular expression" --regex '('
early 1 "GBNF" --gbnf "$D/g.gbnf"
early 1 "JSON array" --tools "$D/no_array.json"
early 1 "tools" --tools "$D/nameless.json"
early 1 "broken.jinja" --chat-template-file "$D/broken.jinja"
early 2 "token id" --stop-token x
early 2 "stop text 1 is empty" --stop ''
early 2 "ID=X" --logit-bias x
early 2 "one of them" --regex a --json-object
early 2 "no tools are offered" --strict
expect "before the model: a request" 1 "$LUMEN" run no-such-model --request "$D/request.json"
has "its form is named" "$err" "nonsense"

# late CODE TEXT COMMAND..   what needs the model's files, but not its weights.
late() {
  code=$1 text=$2
  shift 2
  expect "before the weights: $*" "$code" "$LUMEN" "$@" --trace mem
  has "it says $text" "$err" "$text"
  hasnt "and nothing is packed" "$err" "packed weights"
}
expect "a run packs them" 0 "$LUMEN" run $M hi -n 1 --trace mem
has "and says so" "$err" "packed weights"
late 2 "expected 0 to 511" run $M hi --stop-token 512
late 2 "from 0 to 511" run $M hi --logit-bias 512=1
late 1 "the context holds 8" run $M -c 8 "a prompt of more than eight tokens, which is not much"
late 1 "the context holds 2" logits $M -c 2 --ids tests/cli/early.ids --out "$D/logits"
printf '1 2 512' > "$D/ids"
late 1 "token 512" logits $M --ids "$D/ids" --out "$D/logits"
printf '{"messages":[{"role":"nobody"}]}' > "$D/r.json"
late 1 "messages[0]" run $M --request "$D/r.json"
late 2 '"fly"' run $M hi --tools tests/cli/early.tools.json --tool-choice fly

# Where the result goes is looked at before the work.
late 1 "$D/none: No such file" logits $M --ids tests/cli/early.ids --out "$D/none/x"
late 1 "$D/none: No such file" bench $M --svg "$D/none/x.svg"
late 1 "$D/none: No such file" bench $M --json "$D/none/x.json"
late 2 "is a folder" logits $M --ids tests/cli/early.ids --out "$D"
# Texts that cannot be read are no fault of the model's.
for c in "run $M hi" "bench $M" "show $M --plan" "convert tests/models/quantized/gptq-v1 $D/x.gguf"; do
  expect "$c without its texts" 1 "$LUMEN" $c --std "$D/none"
  has "names the folder first" "$err" "lumen ${c%% *}: $D/none: cannot open this folder of texts"
done
expect "convert into no folder" 1 "$LUMEN" convert $M "$D/none/x.gguf" --quant q8_0
expect "convert to standard output" 2 "$LUMEN" convert $M - --quant q8_0
has "is told" "$err" "not to standard output"
expect "a model of standard input" 1 "$LUMEN" show -
has "is told" "$err" "not read from standard input"

# What was meant for another command, or is no such thing.
for w in $M ./none.txt README.md; do
  expect "cc of the path $w" 2 "$LUMEN" cc $w
  has "says what it takes" "$err" "$w: a path, expected a file that ends in .lum or .ir"
  expect "kern of the path $w" 2 "$LUMEN" kern $w
  has "says what it takes" "$err" "$w: a path, expected a call of an op"
done
expect "a tokenizer that is none" 1 "$LUMEN" tokenize --tokenizer "$LUMEN" hi
has "says what would be one" "$err" "neither JSON, nor ranks of tiktoken, nor a SentencePiece model"
expect "a cache folder that cannot be" 1 env LUMEN_HOME="$PWD/README.md" "$LUMEN" pull smollm2-135m
has "names LUMEN_HOME" "$err" "LUMEN_HOME names another"
python3 - "$D/base.gguf" <<'P'
import sys
# the tiny model without its template: the key is renamed, of the same length
b = open("tests/run/tiny.gguf", "rb").read().replace(b"tokenizer.chat_template", b"tokenizer.chat_templat_")
open(sys.argv[1], "wb").write(b)
P
expect "a base model" 0 "$LUMEN" run "$D/base.gguf" hi -n 1
has "continues" "$err" "has no chat template; the prompt is continued as it is"
for o in "--system x" "--tools tests/cli/early.tools.json"; do
  late 2 "${o%% *} wants a chat template, and $D/base.gguf has none" run "$D/base.gguf" hi $o
done
late 2 "--request wants a chat template" run "$D/base.gguf" --request "$D/request_ok.json"

# A long prompt shows how far it is, where somebody looks.
cat > "$D/teletype.py" <<'P'
import fcntl, os, pty, re, struct, subprocess, sys, termios
columns = int(sys.argv[1]) # 0: not known
main, side = pty.openpty()
fcntl.ioctl(side, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
p = subprocess.Popen(sys.argv[2:], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=side)
os.close(side)
said = b""
while True:
    try: more = os.read(main, 4096)
    except OSError: break
    if not more: break
    said += more
answer = p.stdout.read()
n = re.findall(rb"reading the prompt: (\d+) of (\d+) tokens", said)
print(p.wait(), len(n) > 0, b"reading" in answer, not n or (n == sorted(n, key=lambda x: int(x[0])) and said.endswith(b"\r\x1b[K")))
lines = [l.split(b"\r\n")[0] for l in re.split(rb"\r\x1b\[K", said)[1:]]
print(p.wait(), len(lines) > 0, max(map(len, lines), default=0) < columns, lines[0].decode() if lines else "")
P
long=$(python3 -c 'print("the light of the day " * 1300)')
set -- "$LUMEN" run $M "$long" -c 16384 --chunk 1 --threads 1 -n 1 -T 0
expect "on a terminal" 0 python3 "$D/teletype.py" 0 "$@"
has "a long prompt shows how far it is" "$out" "0 True False True"
expect "with --quiet" 0 python3 "$D/teletype.py" 0 "$@" --quiet
has "it does not" "$out" "0 False False True"
expect "elsewhere" 0 "$@"
hasnt "it does not either" "$err" "reading the prompt"
# What wraps stays behind: no line is as long as the terminal is wide.
expect "a terminal of 20 columns" 0 python3 "$D/teletype.py" 20 "$@"
has "is not overrun by a prompt" "$out" "0 True True reading the prompt:"
expect "nor by a conversion" 0 python3 "$D/teletype.py" 20 "$LUMEN" convert $M "$D/narrow.gguf" --quant q8_0
has "whose bar is left out" "$out" "0 True True converting "
expect "one of 40 columns" 0 python3 "$D/teletype.py" 40 "$LUMEN" convert $M "$D/narrow.gguf" --quant q8_0
has "has a short one" "$out" "0 True True converting ["

# `-`
into() {
  name=$1 file=$2
  shift 2
  if "$@" < "$file" > "$out" 2> "$err"; then ok "$name"; else not_ok "$name" "$(tail -n 2 "$err")"; fi
}
echo '{"enum":["ab"]}' > "$D/s"
into "--schema -" "$D/s" "$LUMEN" run $M hi --schema -
if [ "$(cat "$out")" = '"ab"' ]; then ok "the prompt is the words alone"; else not_ok "the prompt is the words alone" "$(cat "$out")"; fi
printf 'root ::= "yes"' > "$D/g"
into "--gbnf -" "$D/g" "$LUMEN" run $M hi --gbnf -
into "--tools -" tests/cli/early.tools.json "$LUMEN" run $M hi -n 2 --tools -
echo '{{ messages[0].content }}' > "$D/t"
into "--chat-template-file -" "$D/t" "$LUMEN" run $M hi -n 2 --chat-template-file -
echo '{"messages":[{"role":"user","content":"hi"}]}' > "$D/q"
into "--request -" "$D/q" "$LUMEN" run $M -n 2 --request -
into "logits --ids -" tests/cli/early.ids "$LUMEN" logits $M --ids - --out "$D/logits"
into "render --messages -" "$D/q" "$LUMEN" render $M --messages -
into "render --request -" "$D/q" "$LUMEN" render --template "$D/t" --request -
if [ "$(cat "$out")" = hi ]; then ok "renders it"; else not_ok "renders it" "$(cat "$out")"; fi
into "render --template -" "$D/t" "$LUMEN" render --template - --request "$D/q"
into "grammar --schema -" "$D/s" "$LUMEN" grammar --schema -
expect "two of them" 2 "$LUMEN" run $M hi --schema - --tools -
has "are named" "$err" "--tools -: standard input is what --schema reads"
expect "no prompt is left" 2 "$LUMEN" run $M --schema -
has "which is told" "$err" "no prompt: standard input is what --schema reads"
expect "texts to test are there" 2 "$LUMEN" grammar --schema - --test
expect "a reply is there" 2 "$LUMEN" parse --template -
for c in run grammar render parse logits; do
  expect "help $c" 0 "$LUMEN" help $c
  has "says it" "$out" "A file to read may be -"
done
finish
