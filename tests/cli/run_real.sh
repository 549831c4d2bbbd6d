# Structured answers of the default model and a second one, where they are here: greedy answers held to a schema are JSON that satisfies it.
# runtests: machine code
. tests/lib.sh
cat > "$TEST_TMP/person.json" <<'S'
{"type":"object","properties":{"name":{"type":"string","maxLength":30},"born":{"type":"integer","minimum":1000,"maximum":2100},"fields":{"type":"array","items":{"type":"string","maxLength":20},"minItems":1,"maxItems":3}},"required":["name","born","fields"],"additionalProperties":false}
S
cat > "$TEST_TMP/mood.json" <<'S'
{"enum": ["good", "bad", "mixed"]}
S
cat > "$TEST_TMP/tools.json" <<'S'
[{"type":"function","function":{"name":"get_weather","description":"Weather of a city","parameters":{"type":"object","properties":{"city":{"type":"string","maxLength":20},"unit":{"enum":["C","F"]}},"required":["city","unit"],"additionalProperties":false}}}]
S
for model in smollm2-135m gemma3-270m; do
  if ! "$LUMEN" list --json | python3 -c "import json, sys; sys.exit(not any(m['name'] == '$model' and m['here'] for m in json.load(sys.stdin)))"; then
    skip "structured answers of $model" "it is not here; \`lumen pull $model\` fetches it"
    continue
  fi
  raw=; [ $model = gemma3-270m ] && raw=--raw    # a base model
  expect "$model: a person" 0 "$LUMEN" run $model "Ada Lovelace was" $raw -T 0 --schema "$TEST_TMP/person.json" -n 200
  is_json "$model: satisfies its schema" "$out" 'set(o) == {"name", "born", "fields"} and len(o["name"]) <= 30 and 1000 <= o["born"] <= 2100 and 1 <= len(o["fields"]) <= 3'
  expect "$model: a word" 0 "$LUMEN" run $model "How was the film? I loved it." $raw -T 0 --schema "$TEST_TMP/mood.json"
  is_json "$model: one of three" "$out" 'o in ("good", "bad", "mixed")'
  [ -z "$raw" ] || continue
  expect "$model: a call" 0 "$LUMEN" run $model "What is the weather in Paris?" -T 0 --tools "$TEST_TMP/tools.json" --tool-choice required --strict
  is_json "$model: of the tool, about the city" "$out" 'o["name"] == "get_weather" and o["arguments"]["city"] == "Paris" and o["arguments"]["unit"] in "CF"'
done
finish
