# lumen run --chat-template-file: a model of random weights, held to calls in the syntax of each chat template of the test sets, makes calls that are read and fit.
# runtests: machine code, timeout 400
. tests/lib.sh
M=tests/run/tiny.gguf
cat > "$TEST_TMP/tools.json" <<'T'
[{"type":"function","function":{"name":"look","description":"Looks","parameters":{"type":"object","properties":{"what":{"type":"string","description":"w","maxLength":6},"often":{"type":"integer","description":"n","minimum":0,"maximum":9},
 "how":{"type":"string","description":"h","enum":["C","<b>"]},"at":{"type":"array","description":"a","items":{"type":"boolean"},"maxItems":2}},"required":["what","often","how","at"],"additionalProperties":false}}},
 {"type":"function","function":{"name":"stop","description":"Stops","parameters":{"type":"object","properties":{},"additionalProperties":false}}}]
T
fits='len(o["tool_calls"]) >= 1 and o["text"] == "" and all((lambda f, a: a == {} if f["name"] == "stop" else f["name"] == "look" and set(a) == {"what", "often", "how", "at"} and len(a["what"]) <= 6 and a["often"] in range(10) and a["how"] in ("C", "<b>") and len(a["at"]) <= 2 and all(isinstance(x, bool) for x in a["at"]))(c["function"], __import__("json").loads(c["function"]["arguments"])) for c in o["tool_calls"])'
n=0
for template in tests/text/templates/templates/*.jinja tests/reply/templates/*.jinja; do
  label=$(basename "$template" .jinja)
  n=$((n + 1))
  # Two templates of the set refuse tools in any conversation.
  case $label in MiroThinker | fireworks*) continue ;; esac
  expect "$label" 0 "$LUMEN" run $M "the light" --chat-template-file "$template" --tools "$TEST_TMP/tools.json" --tool-choice required --strict --think-budget 9 -T 2 --seed $n --top-k 0 --context 8192 -n 700 --json
  is_json "$label calls what fits" "$out" "$fits"
done
expect "one call" 0 "$LUMEN" run $M "the light" --chat-template-file tests/text/templates/templates/Qwen3-Coder.jinja --tools "$TEST_TMP/tools.json" --tool-choice look --strict -T 1 --seed 3 --context 8192 --json
is_json "is one" "$out" 'len(o["tool_calls"]) == 1 and o["tool_calls"][0]["function"]["name"] == "look" and o["whole"] is True'

# What a cut leaves of the next call is text, and stands behind the line of the one that is whole.
expect "a call and the beginning of another" 0 "$LUMEN" run $M "the light" --chat-template-file tests/text/templates/templates/GLM-4.6.jinja --tools "$TEST_TMP/tools.json" --tool-choice required --strict --think off -T 1 --seed 9 --context 8192 -n 170
{ IFS= read -r line; rest=$(cat); } < "$out"
case $line in '{"id": "'*'"name": "stop"'*) ok "first the call" ;; *) not_ok "first the call" "$line" ;; esac
case $rest in '<tool_call>look'*) ok "then the text" ;; *) not_ok "then the text" "$rest" ;; esac
finish
