# lumen grammar: what it says, what it takes, files with a byte order mark.
. tests/lib.sh
lines() { if [ "$(tr '\n' ' ' < "$out")" = "$2" ]; then ok "$1"; else not_ok "$1" "got '$(head -c 200 "$out")', expected '$2'"; fi; }
echo '{"type":"object","properties":{"이름":{"type":"string"},"n":{"type":"integer"}},"required":["이름"],"additionalProperties":false}' > "$TEST_TMP/s.json"
printf 'root ::= "예" | "아니요"\n' > "$TEST_TMP/g.gbnf"
for way in "--schema $TEST_TMP/s.json" "--gbnf $TEST_TMP/g.gbnf" "--regex 가+나" "--template tests/text/templates/templates/GLM-4.6.jinja --tools tests/reply/tools.json"; do
  # shellcheck disable=SC2086
  expect "lumen grammar $way" 0 "$LUMEN" grammar $way
  for word in compile_ms rules states edges; do has "says its $word" "$out" "$word "; done
done
printf '{"이름": "a"}\n{"\\uc774\\ub984": "a"}\n{"n": 1, "이름": "a"}\n{"n": 1}\n' > "$TEST_TMP/texts"
"$LUMEN" grammar --schema "$TEST_TMP/s.json" --test < "$TEST_TMP/texts" > "$out"
lines "--test" "accept accept accept reject "
"$LUMEN" grammar --schema "$TEST_TMP/s.json" --test --as-generated < "$TEST_TMP/texts" > "$out"
lines "--test --as-generated" "accept reject reject reject "
for f in s.json g.gbnf; do { printf '\357\273\277'; cat "$TEST_TMP/$f"; } > "$TEST_TMP/marked-$f"; done
expect "a schema with a byte order mark" 0 "$LUMEN" grammar --schema "$TEST_TMP/marked-s.json"
expect "a GBNF grammar with one" 0 "$LUMEN" grammar --gbnf "$TEST_TMP/marked-g.gbnf"
printf '\377\376{\0}\0' > "$TEST_TMP/wide.json"
expect "a schema in UTF-16" 1 "$LUMEN" grammar --schema "$TEST_TMP/wide.json"
has "is told" "$err" "wide.json: its byte order mark says UTF-16, expected UTF-8"
{ printf '\357\273\277'; cat tests/text/templates/templates/gguf-smollm2-135m.jinja; } > "$TEST_TMP/marked.jinja"
echo '{"messages": [{"role": "user", "content": "u"}]}' > "$TEST_TMP/r.json"
expect "a template with a byte order mark" 0 "$LUMEN" render --template "$TEST_TMP/marked.jinja" --request "$TEST_TMP/r.json"
if [ "$(head -c 12 "$out")" = "<|im_start|>" ]; then ok "renders without it"; else not_ok "renders without it" "$(head -c 20 "$out")"; fi
finish
