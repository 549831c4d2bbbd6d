# lumen run: answers held to grammars, calls of tools, reasoning, requests. A random model says anything it may, so whatever comes out whole was held.
# runtests: machine code
. tests/lib.sh
M=tests/run/tiny.gguf
cat > "$TEST_TMP/schema.json" <<'S'
{"type":"object","properties":{"name":{"type":"string","maxLength":12},"age":{"type":"integer","minimum":0,"maximum":120},"tags":{"type":"array","items":{"enum":["a","b"]},"maxItems":2}},"required":["name","age","tags"],"additionalProperties":false}
S
fits='set(o) == {"name", "age", "tags"} and len(o["name"]) <= 12 and 0 <= o["age"] <= 120 and set(o["tags"]) <= {"a", "b"} and len(o["tags"]) <= 2'
for how in "-T 0" "-T 1 --seed 1" "-T 1 --seed 2" "-T 5 --seed 3 --top-k 0" "-T 1 --seed 4 --typical-p 0.8" "-T 1 --seed 5 --xtc-probability 0.5 --dry-multiplier 1"; do
  expect "a schema, $how" 0 "$LUMEN" run $M "the light" --schema "$TEST_TMP/schema.json" $how
  is_json "gives JSON that fits" "$out" "$fits"
done
expect "one thread" 0 "$LUMEN" run $M "the light" --schema "$TEST_TMP/schema.json" -T 1 --seed 7 --threads 1 --chunk 1
cp "$out" "$TEST_TMP/one"
expect "two threads" 0 "$LUMEN" run $M "the light" --schema "$TEST_TMP/schema.json" -T 1 --seed 7 --threads 2
if cmp -s "$out" "$TEST_TMP/one"; then ok "give the same"; else not_ok "give the same" "$(cat "$out") and $(cat "$TEST_TMP/one")"; fi
expect "--json tells that it is whole" 0 "$LUMEN" run $M "the light" --schema "$TEST_TMP/schema.json" -T 0 --json
is_json "and why it ended" "$out" 'o["whole"] is True and o["reason"] == "end"'
expect "cut short" 0 "$LUMEN" run $M "the light" --schema "$TEST_TMP/schema.json" -T 0 -n 3
has "is told" "$err" "before it was whole"
expect "--regex" 0 "$LUMEN" run $M "a date" --regex '[0-9]{4}-[0-9]{2}-[0-9]{2}' -T 1 --seed 3
if grep -qE '^[0-9]{4}-[0-9]{2}-[0-9]{2}$' "$out"; then ok "holds the whole answer"; else not_ok "holds the whole answer" "$(cat "$out")"; fi
expect "--regex with spaces in front" 0 "$LUMEN" run $M x --regex ' ab' --raw -T 0
if [ "$(cat "$out")" = " ab" ]; then ok "prints them"; else not_ok "prints them" "$(cat "$out")"; fi
printf 'root ::= "yes" | "no" tail\ntail ::= [a-c]{3}\n' > "$TEST_TMP/g.gbnf"
expect "--gbnf" 0 "$LUMEN" run $M x --gbnf "$TEST_TMP/g.gbnf" -T 1 --seed 9
if grep -qE '^(yes|no[a-c]{3})$' "$out"; then ok "holds it"; else not_ok "holds it" "$(cat "$out")"; fi
expect "--json-object" 0 "$LUMEN" run $M x --json-object -T 0 -n 40 --json
is_json "begins an object" "$out" 'o["text"].startswith("{")'
expect "two of them" 2 "$LUMEN" run $M x --regex a --json-object
expect "a schema that nothing satisfies" 1 sh -c "echo false > '$TEST_TMP/no.json'; exec '$LUMEN' run $M x --schema '$TEST_TMP/no.json' < /dev/null"
expect "a keyword that cannot be enforced" 1 sh -c "echo '{\"uniqueItems\":true,\"type\":\"array\"}' > '$TEST_TMP/u.json'; exec '$LUMEN' run $M x --schema '$TEST_TMP/u.json' < /dev/null"
has "is named" "$err" "uniqueItems"

cat > "$TEST_TMP/tools.json" <<'S'
[{"type":"function","function":{"name":"look","description":"Looks","parameters":{"type":"object","properties":{"what":{"type":"string","maxLength":6},"unit":{"enum":["C","F"]}},"required":["what","unit"],"additionalProperties":false}}},
 {"name":"stop","input_schema":{"type":"object","properties":{},"additionalProperties":false}}]
S
for seed in 1 2 3; do
  expect "--tool-choice required, seed $seed" 0 "$LUMEN" run $M "the light" --tools "$TEST_TMP/tools.json" --tool-choice look --strict -T 2 --seed $seed --context 2048
  is_json "calls the tool with arguments that fit" "$out" 'o["name"] == "look" and set(o["arguments"]) == {"what", "unit"} and o["arguments"]["unit"] in "CF" and len(o["arguments"]["what"]) <= 6'
done
expect "--json gives calls as clients get them" 0 "$LUMEN" run $M "the light" --tools "$TEST_TMP/tools.json" --tool-choice stop -T 0 --json --context 2048
is_json "with arguments as text" "$out" 'o["text"] == "" and o["tool_calls"][0]["function"] == {"name": "stop", "arguments": "{}"} and o["tool_calls"][0]["type"] == "function"'
expect "none hides the tools" 0 "$LUMEN" run $M "the light" --tools "$TEST_TMP/tools.json" --tool-choice none -T 0 -n 2 --json
cp "$out" "$TEST_TMP/none"
expect "as if there were none" 0 "$LUMEN" run $M "the light" -T 0 -n 2 --json
is_json "the prompt is the same" "$out" "o['ids'] == __import__('json').load(open('$TEST_TMP/none'))['ids'] and o['prompt_tokens'] == __import__('json').load(open('$TEST_TMP/none'))['prompt_tokens']"
expect "a tool that is not offered" 2 "$LUMEN" run $M x --tools "$TEST_TMP/tools.json" --tool-choice fly
has "is named" "$err" '"fly"'
expect "--strict without tools" 2 "$LUMEN" run $M x --strict
expect "tools and a schema" 2 "$LUMEN" run $M x --tools "$TEST_TMP/tools.json" --strict --schema "$TEST_TMP/schema.json"

cat > "$TEST_TMP/request.json" <<'S'
{"messages":[{"role":"developer","content":"be brief"},{"role":"user","content":[{"type":"text","text":"the light"},{"type":"text","text":"<|im_end|>"}]},
 {"role":"assistant","content":null,"tool_calls":[{"id":"call_12345","type":"function","function":{"name":"look","arguments":"{\"what\": \"sun\"}"}}]},
 {"role":"tool","tool_call_id":"call_12345","content":"bright"},{"role":"assistant","content":"It is"}]}
S
expect "--request" 0 "$LUMEN" run $M --request "$TEST_TMP/request.json" -T 0 -n 3 --json --trace "chat>$TEST_TMP/trace"
has "continues its last message" "$TEST_TMP/trace" "It is"
has "and shows the result" "$TEST_TMP/trace" "bright"
echo '{"messages":[{"role":"user","content":"x"}],"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{"enum":["yes","no"]}}}}' > "$TEST_TMP/format.json"
expect "a request's response_format" 0 "$LUMEN" run $M --request "$TEST_TMP/format.json" -T 1 --seed 2
is_json "is held to" "$out" 'o in ("yes", "no")'
echo '{"messages":[{"role":"user","content":"x"}],"tools":[{"name":"stop","input_schema":{"type":"object","properties":{},"additionalProperties":false}}],"tool_choice":{"type":"any"}}' > "$TEST_TMP/any.json"
expect "a request's tool_choice" 0 "$LUMEN" run $M --request "$TEST_TMP/any.json" -T 0 -n 100 --context 2048 --seed 5
has "is held to" "$out" '"name": "stop", "arguments": {}'
first=$(sed -n 's/.*"id": "\([^"]*\)".*/\1/p' "$out")
sed 's/"x"/"x and more"/' "$TEST_TMP/any.json" > "$TEST_TMP/more.json"
expect "a longer prompt, the same seed" 0 "$LUMEN" run $M --request "$TEST_TMP/more.json" -T 0 -n 100 --context 2048 --seed 5
has "calls the same" "$out" '"name": "stop", "arguments": {}'
hasnt "by another id: a turn's calls differ from the last turn's" "$out" "\"$first\""
echo '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:"}}]}]}' > "$TEST_TMP/image.json"
echo '{"messages":[{"role":"user","content":"x"}],"temperature":0,"max_tokens":3,"seed":7,"n":2,"stop":[],"logit_bias":{"40":1000},"top_p":null}' > "$TEST_TMP/settings.json"
expect "a request's settings" 0 "$LUMEN" run $M --request "$TEST_TMP/settings.json" --json
is_json "hold" "$out" 'o["tokens"] == 3 and o["seed"] == 7 and o["ids"] == [40, 40, 40]'
has "what is not heeded is told of" "$err" "not heeded: n"
hasnt "and nothing else" "$err" "top_p"
expect "an option beside them" 0 "$LUMEN" run $M --request "$TEST_TMP/settings.json" -n 2 --json
is_json "holds" "$out" 'o["tokens"] == 2 and o["seed"] == 7'
for wrong in '"temperature":"hot"' '"temperature":900' '"max_tokens":1.5' '"stop":3' '"stop":["a",1]' '"logit_bias":[1]' '"logit_bias":{"a":"b"}'; do
  echo '{"messages":[{"role":"user","content":"x"}],'"$wrong"'}' > "$TEST_TMP/wrong.json"
  expect "a request with $wrong" 1 "$LUMEN" run $M --request "$TEST_TMP/wrong.json" -n 2
  has "its file is named" "$err" "wrong.json: "
done
echo '{"messages":[{"role":"user","content":"x"}],"guided_choice":["네","아니요"]}' > "$TEST_TMP/choice.json"
expect "a request's guided_choice" 0 "$LUMEN" run $M --request "$TEST_TMP/choice.json" -T 1 --seed 2
if grep -qE '^(네|아니요)$' "$out"; then ok "is held to"; else not_ok "is held to" "$(cat "$out")"; fi
echo '{"messages":[{"role":"user","content":"x"}],"stop_sequences":["q"],"stop_token_ids":[40],"logit_bias":{"40":1000},"thinking":{"type":"enabled","budget_tokens":3},"reasoning":{"max_tokens":3},"thinking_budget":3}' > "$TEST_TMP/stops.json"
expect "a request's stop_sequences, stop_token_ids and budgets" 0 "$LUMEN" run $M --request "$TEST_TMP/stops.json" -T 0 -n 9 --json
is_json "are heeded" "$out" 'o["reason"] == "stop" and o["tokens"] == 1'
hasnt "and not told of" "$err" "not heeded"
for wrong in '"stop_sequences":3' '"stop_token_ids":["a"]' '"thinking":{"budget_tokens":-1}' '"reasoning":{"max_tokens":"x"}'; do
  echo '{"messages":[{"role":"user","content":"x"}],'"$wrong"'}' > "$TEST_TMP/wrong.json"
  expect "a request with $wrong" 1 "$LUMEN" run $M --request "$TEST_TMP/wrong.json" -n 2
done
expect "an effort that is none" 2 "$LUMEN" run $M x --think banana
has "those there are" "$err" "expected on, off, low, medium or high"
expect "a grammar that is a folder" 1 "$LUMEN" run $M x --gbnf "$TEST_TMP"
has "is named once" "$err" "lumen run: $TEST_TMP: cannot"
expect "an image that the template cannot show" 1 "$LUMEN" run $M --request "$TEST_TMP/image.json"
has "is refused by its place" "$err" "messages[0].content[0]"
expect "--logprobs" 0 "$LUMEN" run $M "the light" -T 0 -n 3 --logprobs 2 --json
is_json "tells of each token as clients expect it" "$out" 'len(o["logprobs"]["content"]) == 3 and all(set(t) == {"token", "bytes", "logprob", "top_logprobs"} and len(t["top_logprobs"]) == 2 and t["top_logprobs"][0]["logprob"] == t["logprob"] < 0 and len(t["bytes"]) > 0 for t in o["logprobs"]["content"])'
expect "--logprobs for people" 0 "$LUMEN" run $M "the light" -T 0 -n 2 --logprobs 1
has "tells on standard error" "$err" "   of "
echo '{"messages":[{"role":"user","content":"x"}],"logprobs":true,"top_logprobs":1}' > "$TEST_TMP/likely.json"
expect "a request's logprobs" 0 "$LUMEN" run $M --request "$TEST_TMP/likely.json" -T 0 -n 2 --json
is_json "are told" "$out" 'len(o["logprobs"]["content"][0]["top_logprobs"]) == 1'
hasnt "and not told of as if they were not heeded" "$err" "not heeded"
expect "too many" 2 "$LUMEN" run $M x --logprobs 21
expect "--stop-token" 0 "$LUMEN" run $M "the light" -r -T 0 --logit-bias 40=1000 --stop-token 40 --json
is_json "ends the answer" "$out" 'o["reason"] == "stop" and o["text"] == ""'
echo '{"name": "f"}' > "$TEST_TMP/object.json"
expect "--tools that are no array" 1 "$LUMEN" run $M "x" --tools "$TEST_TMP/object.json"
has "the file is named" "$err" "object.json: expected a JSON array of tools"
echo '[{"type":"web_search"},{"type":"function","function":{"name":"f"}}]' > "$TEST_TMP/own.json"
expect "a tool that servers run themselves" 0 "$LUMEN" run $M "x" --tools "$TEST_TMP/own.json" --chat-template-file tests/text/templates/templates/Qwen-Qwen3-0.6B.jinja -T 0 -n 1 -c 2048
has "is told of" "$err" "own.json: 1 of 2 tools are no functions and left out"
echo '[{"type":"web_search"}]' > "$TEST_TMP/own.json"
expect "nothing else, and a call required" 1 "$LUMEN" run $M "x" --tools "$TEST_TMP/own.json" --tool-choice required
has "is refused" "$err" "own.json: tool choice: none of the tools is a function"
expect "--think where the template cannot tell" 0 "$LUMEN" run $M "x" -T 0 -n 1 --raw --think high
has "says that nothing changes" "$err" "--think high changes nothing: no chat template is used"
expect "--think off there" 0 "$LUMEN" run $M "x" -T 0 -n 1 --raw --think off
hasnt "is nothing to tell of" "$err" "changes nothing"
expect "--stop-token outside the vocabulary" 2 "$LUMEN" run $M "the light" -r --stop-token 99999999
has "says what there is" "$err" "--stop-token: 99999999, expected 0 to "
expect "typed control tokens" 0 "$LUMEN" run $M "<|im_end|>" -T 0 -n 1 --json
typed=$(python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["prompt_tokens"])' "$out")
expect "a plain text" 0 "$LUMEN" run $M "x" -T 0 -n 1 --json
is_json "are more than one token" "$out" "$typed >= o['prompt_tokens'] + 5"
finish
