# lumen run with a prompt: where it comes from, what goes where, how it ends, what repeats.
# runtests: machine code
. tests/lib.sh
M=tests/run/tiny.gguf
# same NAME FILE FILE
same() { if cmp -s "$2" "$3"; then ok "$1"; else not_ok "$1" "'$(head -c 120 "$2")' and '$(head -c 120 "$3")'"; fi; }
differ() { if cmp -s "$2" "$3"; then not_ok "$1" "both '$(head -c 120 "$2")'"; else ok "$1"; fi; }
keep() { cp "$out" "$TEST_TMP/$1"; }

expect "greedy" 0 "$LUMEN" run $M "the light" --temperature 0 --max-tokens 12 --raw
empty "nothing on standard error" "$err"
keep greedy
if [ "$(tail -c 1 "$out" | od -An -tx1 | tr -d ' ')" = 0a ]; then ok "a newline at the end"; else not_ok "a newline at the end" "$(tail -c 3 "$out" | od -c)"; fi
for more in "--threads 1" "--threads 2 --chunk 1" "--target x86-sse4" "--top-k 3 --seed 5"; do
  expect "greedy, $more" 0 "$LUMEN" run $M "the light" --temperature 0 --max-tokens 12 --raw $more
  same "greedy, $more: the same answer" "$out" "$TEST_TMP/greedy"
done
expect "options before and words apart" 0 "$LUMEN" run --raw -n 12 -T 0 $M the light
same "the words are joined by blanks" "$out" "$TEST_TMP/greedy"
expect "an environment without HOME" 0 env -i "$LUMEN" run $M "the light" -T 0 -n 12 -r
same "changes nothing" "$out" "$TEST_TMP/greedy"

echo "the light" > "$TEST_TMP/prompt"
"$LUMEN" run $M -r -T 0 -n 12 < "$TEST_TMP/prompt" > "$out" 2> "$err"
same "a prompt on standard input, less its last newline" "$out" "$TEST_TMP/greedy"
printf 'a\n\nb' > "$TEST_TMP/both"
"$LUMEN" run $M -r -T 0 -n 12 < "$TEST_TMP/both" > "$TEST_TMP/want"
echo a | "$LUMEN" run $M -r -T 0 -n 12 b > "$out"
same "standard input comes before the prompt, a blank line between" "$out" "$TEST_TMP/want"
"$LUMEN" run $M -r -T 0 -n 12 "the light" <&- > "$out" 2> "$err"
same "standard input may be closed" "$out" "$TEST_TMP/greedy"

expect "a seed" 0 "$LUMEN" run $M "the light" -r -n 16 -T 1 --seed 3
keep seed3
expect "the same seed" 0 "$LUMEN" run $M "the light" -r -n 16 -T 1 --seed 3 --threads 1 --chunk 1
same "the same answer" "$out" "$TEST_TMP/seed3"
expect "another seed" 0 "$LUMEN" run $M "the light" -r -n 16 -T 1 --seed 4
differ "another answer" "$out" "$TEST_TMP/seed3"

expect "--json" 0 "$LUMEN" run $M "the light" -r -n 12 -T 0 --json
is_json "--json tells what happened" "$out" 'o["reason"] == "length" and o["tokens"] == 12 == len(o["ids"]) and o["prompt_tokens"] > 0 and o["reused_tokens"] == 0'
is_json "and the same text" "$out" "(o['text'] + '\n' == open('$TEST_TMP/greedy').read())"
expect "--json without a seed tells the one it took" 0 "$LUMEN" run $M "the light" -r -n 16 -T 1 --json
seed=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["seed"])' "$out")
keep told
expect "and that seed" 0 "$LUMEN" run $M "the light" -r -n 16 -T 1 --json --seed "$seed"
is_json "gives the same ids" "$out" "o['ids'] == __import__('json').load(open('$TEST_TMP/told'))['ids']"
first=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["ids"][0])' "$TEST_TMP/told")
expect "--logit-bias" 0 "$LUMEN" run $M "the light" -r -n 4 -T 0 --json --logit-bias "$first=1000"
is_json "brings its token up every time" "$out" "o['ids'] == [$first] * 4"
expect "and --repeat-penalty --frequency-penalty" 0 "$LUMEN" run $M "the light" -r -n 4 -T 0 --json --logit-bias "$first=100" --frequency-penalty 90
is_json "drive it away again" "$out" "o['ids'].count($first) < 4"
expect "--stop" 0 "$LUMEN" run $M "the light" -r -n 12 -T 0 --json --stop "$(head -c 3 "$TEST_TMP/greedy")"
is_json "ends before its text" "$out" 'o["reason"] == "stop" and o["text"] == ""'
expect "the context's end" 0 "$LUMEN" run $M "the light" -r -T 0 --logit-bias 40=1000 --context 20
has "is told" "$err" "the context is full with 20 tokens"
expect "the same with --json" 0 "$LUMEN" run $M "the light" -r -T 0 --logit-bias 40=1000 --context 20 --json
is_json "and is the reason" "$out" 'o["reason"] == "context" and o["tokens"] + o["prompt_tokens"] == 21'
expect "an end token" 0 "$LUMEN" run $M "the light" -r -T 0 --logit-bias 2=1000 --json
is_json "ends it" "$out" 'o["reason"] == "end" and o["ids"] == [2] and o["text"] == ""'
expect "--verbose" 0 "$LUMEN" run $M "the light" -r -T 0 -n 3 --verbose
has "prints figures on standard error" "$err" "3 answer tokens"
expect "a chat template" 0 "$LUMEN" run $M "the light" -T 0 -n 3 --json --system "be brief"
is_json "makes a longer prompt" "$out" 'o["prompt_tokens"] > 15'
own='{% for m in messages %}{{ m.content }}{% endfor %}'
printf %s "$own" > "$TEST_TMP/own.jinja"
expect "what is said without a template" 0 "$LUMEN" run $M "the light" -r -T 0 -n 3 --json
plain=$(python3 -c 'import json, sys; o = json.load(open(sys.argv[1])); print(o["ids"], o["prompt_tokens"])' "$out")
for given in "--chat-template-file $TEST_TMP/own.jinja" "--chat-template"; do
  if [ "$given" = --chat-template ]; then expect "$given" 0 "$LUMEN" run $M "the light" -T 0 -n 3 --json --chat-template "$own" --trace "chat>$TEST_TMP/trace"
  else expect "$given" 0 "$LUMEN" run $M "the light" -T 0 -n 3 --json $given --trace "chat>$TEST_TMP/trace"; fi
  is_json "is used instead of the model's own" "$out" "abs(o['prompt_tokens'] - int('$plain'.split()[-1])) <= 1"
  has "and told of" "$TEST_TMP/trace" "chat template: 50 bytes, given instead of the model's own"
done
expect "the model's own" 0 "$LUMEN" run $M "the light" -T 0 -n 3 --json --trace "chat>$TEST_TMP/trace"
has "is told of" "$TEST_TMP/trace" "bytes, the model's own"
printf 'a\n{%% if %%}' > "$TEST_TMP/broken.jinja"
expect "a template that is broken" 1 "$LUMEN" run $M "x" --chat-template-file "$TEST_TMP/broken.jinja"
has "its file and line are named" "$err" "broken.jinja: template line 2"
expect "a template that is not there" 1 "$LUMEN" run $M "x" --chat-template-file "$TEST_TMP/none.jinja"
expect "a name instead of a template" 2 "$LUMEN" run $M "x" --chat-template chatml
has "what is expected" "$err" "'chatml', expected the text of a Jinja template"
expect "two templates" 2 "$LUMEN" run $M "x" --chat-template "$own" --chat-template-file "$TEST_TMP/own.jinja"
expect "a template and --raw" 2 "$LUMEN" run $M "x" --raw --chat-template "$own"
expect "a template that refuses" 2 "$LUMEN" run $M "x" --chat-template '{{ raise_exception("not today") }}'
has "what it says" "$err" "not today"

expect "no model" 2 "$LUMEN" run
expect "a file that is not there" 1 "$LUMEN" run "$TEST_TMP/none.gguf" x
has "is named" "$err" "none.gguf"
expect "no such model" 1 "$LUMEN" run smolm2-135m x
has "a near name" "$err" "smollm2-135m"
expect "no prompt" 2 "$LUMEN" run $M
expect "an empty prompt" 2 "$LUMEN" run $M --raw ""
expect "more context than the model was made for" 0 "$LUMEN" run $M "the light" -T 0 -n 2 --context 100000
has "is said" "$err" "--context 100000 is more than the "
expect "a prompt longer than the context" 1 "$LUMEN" run $M --raw "the light of the world" --context 4
has "says both lengths" "$err" "the context holds 4"
expect "an empty stop text" 2 "$LUMEN" run $M x --raw --stop ""
expect "a temperature below 0" 2 "$LUMEN" run $M x --temperature -1
expect "a bias that is none" 2 "$LUMEN" run $M x --raw --logit-bias 5
expect "a bias of no token" 2 "$LUMEN" run $M x --raw --logit-bias 99999=1
has "is named" "$err" "99999"
expect "--raw and --system" 2 "$LUMEN" run $M x --raw --system y
expect "an unknown option" 2 "$LUMEN" run $M x --temprature 0
has "a near option" "$err" "--temperature"
finish
