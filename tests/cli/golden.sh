# The default model's own tokenizer and chat template, through the commands, against what transformers makes of the same texts.
. tests/lib.sh
model=smollm2-135m
if ! "$LUMEN" list --json | python3 -c "import json, sys; sys.exit(not any(m['name'] == '$model' and m['here'] for m in json.load(sys.stdin)))"; then
  skip "golden ids and prompts of $model" "it is not here; \`lumen pull $model\` fetches it"
  finish
fi
cat > "$TEST_TMP/golden.py" <<'END'
import json, subprocess, sys
lumen, model, tmp = sys.argv[1:]
bad = 0


def check(name, got, want):
    global bad
    bad += got != want
    print(f"ok - {name}" if got == want else f"not ok - {name}: got {str(got)[:200]}, expected {str(want)[:200]}", flush=True)


def run(*args, text=None):
    p = subprocess.run([lumen, *args], input=text, capture_output=True)
    return p.stdout if p.returncode == 0 else b"exit %d: " % p.returncode + p.stderr


for line in open("tests/cli/golden/smollm2-135m-prompts.jsonl", encoding="utf-8"):
    r = json.loads(line)
    text = r.get("rendered", r.get("text"))
    check(f"{r['name']}: ids", run("tokenize", model, "--special", "--json", text=text.encode()).decode().strip(), json.dumps(r["ids"]))
    check(f"{r['name']}: text of the ids", run("detokenize", model, text=json.dumps(r["ids"]).encode()).decode().rstrip("\n"), text.rstrip("\n"))
    if "messages" in r:
        with open(f"{tmp}/messages.json", "w", encoding="utf-8") as f:
            json.dump(r["messages"], f)
        check(f"{r['name']}: prompt", run("render", model, "--messages", f"{tmp}/messages.json").decode(), r["rendered"])
sys.exit(bad > 0)
END
python3 "$TEST_TMP/golden.py" "$LUMEN" "$model" "$TEST_TMP"
exit $?
