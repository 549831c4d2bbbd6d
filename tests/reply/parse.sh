#!/bin/sh
# `lumen parse`: events, the whole message, its options and its faults.
. tests/lib.sh
same() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "'$2', expected '$3'"; fi; }
t=tests/text/templates/templates/Qwen-Qwen3-0.6B.jinja
reply='<think>hm</think>Look.<tool_call>{"name": "get_weather", "arguments": {"city": "x"}}</tool_call>'
events=$(printf %s "$reply" | "$LUMEN" parse --template $t --tools tests/reply/tools.json | sed 's/"id": "[0-9a-z]*"/"id": "ID"/')
same "events" "$events" '{"event": "reasoning", "text": "hm"}
{"event": "content", "text": "Look."}
{"event": "call", "index": 0, "id": "ID", "name": "get_weather"}
{"event": "arguments", "index": 0, "text": "{\"city\": \"x\"}"}
{"event": "end", "index": 0, "broken": false}'
whole=$(printf %s "$reply" | "$LUMEN" parse --template $t --tools tests/reply/tools.json --json)
for cut in 1 2 5; do same "whole, cut $cut" "$(printf %s "$reply" | "$LUMEN" parse --template $t --tools tests/reply/tools.json --json --cut $cut --eager)" "$whole"; done
same "prefix" "$(printf 'hm</think>\n\na' | "$LUMEN" parse --template $t --json --prefix '<think>')" '{"role": "assistant", "content": "a", "reasoning_content": "hm"}'
same "no tools" "$(printf '<tool_call>x' | "$LUMEN" parse --template $t --json)" '{"role": "assistant", "content": "<tool_call>x"}'
same "nothing" "$(: | "$LUMEN" parse --template $t --json)" '{"role": "assistant", "content": ""}'
same "an unknown tool, asked for" "$(printf '<tool_call>{"name": "f"}</tool_call>' | "$LUMEN" parse --template $t --tools tests/reply/tools.json --keep-unknown | tail -1)" '{"event": "end", "index": 0, "broken": false}'
expect "no template" 2 "$LUMEN" parse
printf '{%% if x %%}' > "$TEST_TMP/broken.jinja"
expect "a template that is broken" 1 sh -c "echo x | \"\$0\" parse --template '$TEST_TMP/broken.jinja'" "$LUMEN"
has "where" "$err" "broken.jinja: template line 1"
expect "a template that is not there" 1 "$LUMEN" parse --template none.jinja
empty "it prints nothing" "$out"
echo '{' >"$TEST_TMP/bad.json"
expect "tools that are no JSON" 1 "$LUMEN" parse --template $t --tools "$TEST_TMP/bad.json"
finish
