# tokenize, detokenize and render over a GGUF file made here, whose ids are known by construction, and over broken ones.
. tests/lib.sh
mkdir "$TEST_TMP/m"
cat > "$TEST_TMP/make.py" <<'END'
import sys
sys.path.insert(0, "tests")
import gguf
where = sys.argv[1]
# Byte-level BPE: tokens 0..255 are the bytes in GPT-2's alphabet, then two merges, then special tokens.
shown = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
letters, n = {b: chr(b) for b in shown}, 0
for b in range(256):
    if b not in letters:
        letters[b] = chr(256 + n)
        n += 1
tokens = [letters[b] for b in range(256)] + ["he", "Ġt", "<|s|>", "<|end|>", "<|pad|>"]
chatml = ("{% for m in messages %}<|s|>{{ m.role }}\n{{ m.content }}<|end|>\n{% endfor %}"
          "{% if add_generation_prompt %}<|s|>assistant\n{% endif %}{{ eos_token }}")
good = {
    "general.architecture": "none", "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "gpt-2", "tokenizer.ggml.tokens": tokens,
    "tokenizer.ggml.token_type": [1] * 258 + [3, 3, 3], "tokenizer.ggml.merges": ["h e", "Ġ t"], "tokenizer.ggml.bos_token_id": 258,
    "tokenizer.ggml.eos_token_id": 259, "tokenizer.ggml.add_bos_token": True, "tokenizer.chat_template": chatml,
}
gguf.write(f"{where}/good.gguf", good)
for name, change in {
    "no-vocab": {"tokenizer.ggml.model": None}, "no-tokens": {"tokenizer.ggml.tokens": None}, "no-template": {"tokenizer.chat_template": None},
    "bad-eos": {"tokenizer.ggml.eos_token_id": 261}, "bad-type": {"tokenizer.ggml.token_type": [9] * 261},
    "short-types": {"tokenizer.ggml.token_type": [1] * 5}, "kind": {"tokenizer.ggml.model": "nonsense"}, "text-bos": {"tokenizer.ggml.bos_token_id": "x"},
    "template-syntax": {"tokenizer.chat_template": "{% if %}"}, "template-refuses": {"tokenizer.chat_template": "{{ raise_exception('not this one') }}"},
}.items():
    gguf.write(f"{where}/{name}.gguf", {k: v for k, v in {**good, **change}.items() if v is not None})
END
python3 "$TEST_TMP/make.py" "$TEST_TMP/m"
m=$TEST_TMP/m/good.gguf
same() { if [ "$(cat "$out")" = "$2" ]; then ok "$1"; else not_ok "$1" "got '$(head -c 200 "$out")', expected '$2'"; fi; }

expect "tokenize" 0 "$LUMEN" tokenize "$m" --json 'the <|end|>'
same "its ids" '[116, 256, 32, 259]'
expect "tokenize --special" 0 "$LUMEN" tokenize "$m" --special --json 'he'
same "adds the first token" '[258, 256]'
expect "tokenize --special of a text that begins with it" 0 "$LUMEN" tokenize "$m" --special --json '<|s|>he'
same "adds it all the same, as the reference does" '[258, 258, 256]'
expect "tokenize --special --plain of the same" 0 "$LUMEN" tokenize "$m" --special --plain --json '<|s|>'
same "adds it before what only looks like it" '[258, 60, 124, 115, 124, 62]'
expect "tokenize --plain" 0 "$LUMEN" tokenize "$m" --plain --json '<|s|>'
same "takes a special token's spelling as text" '[60, 124, 115, 124, 62]'
printf 'a the\n' > "$TEST_TMP/in"
expect "tokenize standard input" 0 sh -c '"$1" tokenize "$2" --json < "$3"' sh "$LUMEN" "$m" "$TEST_TMP/in"
same "newline and all" '[97, 257, 256, 10]'
expect "tokenize an empty text" 0 "$LUMEN" tokenize "$m" --json ''
same "has no ids" '[]'
printf '"he"\n"\\u00e9"\n' > "$TEST_TMP/in"
printf '"he"\n7\n"he"\n' > "$TEST_TMP/bad"
expect "tokenize --lines with a bad line" 1 sh -c '"$1" tokenize "$2" --lines < "$3" 2>"$4"' sh "$LUMEN" "$m" "$TEST_TMP/bad" "$TEST_TMP/told"
same "prints the good ones before it" '[256]'
expect "and tells which is bad" 0 grep -q 'line 2' "$TEST_TMP/told"
expect "tokenize --lines" 0 sh -c '"$1" tokenize "$2" --lines < "$3"' sh "$LUMEN" "$m" "$TEST_TMP/in"
same "an array for each line" '[256]
[195, 169]'
expect "a text and nothing to read it with" 2 "$LUMEN" tokenize

echo '[116, 256, 32, 259]' > "$TEST_TMP/in"
expect "detokenize" 0 sh -c '"$1" detokenize "$2" < "$3"' sh "$LUMEN" "$m" "$TEST_TMP/in"
has "the text again" "$out" 'the <|end|>'
expect "detokenize --skip-special" 0 sh -c '"$1" detokenize "$2" --skip-special < "$3"' sh "$LUMEN" "$m" "$TEST_TMP/in"
hasnt "special tokens print nothing" "$out" '<|end|>'

echo '[{"role": "user", "content": "hi"}]' > "$TEST_TMP/chat.json"
expect "render" 0 "$LUMEN" render "$m" --messages "$TEST_TMP/chat.json"
printf '<|s|>user\nhi<|end|>\n<|s|>assistant\n<|end|>' > "$TEST_TMP/want"
cmp -s "$out" "$TEST_TMP/want" && ok "the prompt, byte for byte" || not_ok "the prompt, byte for byte" "got '$(cat "$out")'"
echo '{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yes"}]}' > "$TEST_TMP/chat.json"
expect "render a conversation that ends with an answer" 0 "$LUMEN" render "$m" --messages "$TEST_TMP/chat.json"
printf '<|s|>user\nhi<|end|>\n<|s|>assistant\nyes<|end|>\n<|end|>' > "$TEST_TMP/want"
cmp -s "$out" "$TEST_TMP/want" && ok "opens no new answer" || not_ok "opens no new answer" "got '$(cat "$out")'"
echo '{"messages": "hi"}' > "$TEST_TMP/bad.json"
expect "messages that are none" 1 "$LUMEN" render "$m" --messages "$TEST_TMP/bad.json"
has "are named" "$err" "expected an array of messages"
echo '[{"role": ' > "$TEST_TMP/bad.json"
expect "broken JSON" 1 "$LUMEN" render "$m" --messages "$TEST_TMP/bad.json"
has "has a line and a column" "$err" "line"
expect "render without messages" 2 "$LUMEN" render "$m"
expect "render with a template and nothing to render" 2 "$LUMEN" render --template x
printf '{{ a + 1 }}' > "$TEST_TMP/t.jinja"
echo '{"a": 41}' > "$TEST_TMP/context.json"
expect "render --template --context" 0 "$LUMEN" render --template "$TEST_TMP/t.jinja" --context "$TEST_TMP/context.json"
same "the template's text" 42

# Every fault of a file is an error that names the field.
# fault FILE EXPECTED-TEXT ARGUMENTS..
fault() {
  file=$1 text=$2 command=$3
  shift 3
  expect "$file" 1 "$LUMEN" "$command" "$TEST_TMP/m/$file.gguf" "$@"
  has "$file names the fault" "$err" "$text"
  empty "$file prints no answer" "$out"
}
fault no-vocab "tokenizer.ggml.model" tokenize he
fault no-tokens "tokenizer.ggml.tokens" tokenize he
fault bad-eos "tokenizer.ggml.eos_token_id: 261" tokenize he
fault bad-type "tokenizer.ggml.token_type: token 0 has type 9" tokenize he
fault short-types "tokenizer.ggml.token_type: 5 values" tokenize he
fault kind "nonsense" tokenize he
fault text-bos "tokenizer.ggml.bos_token_id" tokenize he
fault no-template "no chat template" render --messages "$TEST_TMP/chat.json"
fault template-syntax "chat template of" render --messages "$TEST_TMP/chat.json"
fault template-refuses "not this one" render --messages "$TEST_TMP/chat.json"
expect "a model that is not there" 1 "$LUMEN" tokenize "$TEST_TMP/none.gguf" he
has "is named" "$err" "none.gguf"

expect "tokenize --tokenizer with a model file" 0 "$LUMEN" tokenize --tokenizer "$m" --json 'the <|end|>'
same "gives the model's ids" '[116, 256, 32, 259]'
expect "detokenize --tokenizer with one" 0 sh -c 'echo 116 256 | "$1" detokenize --tokenizer "$2"' sh "$LUMEN" "$m"
same "gives the text" 'the'
python3 -c 'import base64
for i in range(256): print(base64.b64encode(bytes([i])).decode(), i)' > "$TEST_TMP/x.tiktoken"
cp "$TEST_TMP/x.tiktoken" "$TEST_TMP/cl100k_base.tiktoken"
expect "a file of ranks whose name says nothing" 0 "$LUMEN" tokenize --tokenizer "$TEST_TMP/x.tiktoken" ab
has "the rule that was taken is told, and how to choose" "$err" "lumen tokenize: $TEST_TMP/x.tiktoken: ranks only, and its name does not say how text is split: taken as llama3; a name with o200k, cl100k, llama3, qwen, r50k, p50k, gpt2 or kimi in it chooses"
expect "one whose name says it" 0 "$LUMEN" tokenize --tokenizer "$TEST_TMP/cl100k_base.tiktoken" ab
empty "nothing is told" "$err"
finish
