# lumen bench: both phases against the machine, JSON in a file, the roofline plot as XML and in a browser.
# runtests: machine code
. tests/lib.sh
M=tests/run/tiny.gguf
expect "bench prints both phases" 0 "$LUMEN" bench $M --prompt 40 --generate 4 --rounds 2 --threads 1 --json "$TEST_TMP/b.json" --svg "$TEST_TMP/b.svg"
has "prefill against the peak" "$out" "of peak"
has "and against bandwidth" "$out" "of bandwidth"
has "whether others used the machine" "$out" "Other processes used"
is_json "phases say what they were" "$TEST_TMP/b.json" 'o["prefill"]["prompt"] == 40 and o["decode"]["context"] == 40 and o["rounds"] == 2 and o["quiet"] == (o["others_percent"] <= 5)'
is_json "percentages are of the peaks that are told" "$TEST_TMP/b.json" 'all(0 < o[p]["percent_of_bandwidth"] and 0 < o[p]["percent_of_peak"] and len(o[p]["rounds"]) == 2 for p in ("prefill", "decode")) and abs(o["decode"]["bytes_per_second"] / o["peak"]["read_bytes_per_second"] * 100 - o["decode"]["percent_of_bandwidth"]) < 1e-3'
is_json "operations are the model's: 2 for a weight and token" "$TEST_TMP/b.json" 'sum(k["operations"] * k["calls"] for k in o["decode"]["kernels"] if k["name"].startswith("linear")) / 4 == 2 * (512 * 64 + 3 * (64 * 64 * 2 + 2 * 32 * 64 + 3 * 160 * 64))'
is_json "kernels say where they come from" "$TEST_TMP/b.json" 'all(k["where"].startswith("llama.lum:") and k["seconds"] >= 0 for p in ("prefill", "decode") for k in o[p]["kernels"])'
python3 tests/bench/svg.py "$TEST_TMP/b.svg" || n_bad=$((n_bad + 1))

expect "a plot to standard output" 0 "$LUMEN" bench $M -p 8 -g 2 -r 1 -t 1 --svg -
cp "$out" "$TEST_TMP/o.svg"
python3 tests/bench/svg.py "$TEST_TMP/o.svg" || n_bad=$((n_bad + 1))
[ ! -e ./- ] && ok "no file of that name" || not_ok "no file of that name" "there is one"
expect "a plot to standard output, figures to a file" 0 "$LUMEN" bench $M -p 8 -g 2 -r 1 -t 1 --svg - --json "$TEST_TMP/o.json"
is_json "both are whole" "$TEST_TMP/o.json" 'o["prefill"]["tokens"] == 8 and open("'"$out"'").read().rstrip().endswith("</svg>")'
expect "both to standard output" 2 "$LUMEN" bench $M -p 8 -g 2 -r 1 -t 1 --svg - --json
has "is told" "$err" "both go to standard output"

expect "decode after many tokens, few of them prompt" 0 "$LUMEN" bench $M -p 8 -g 2 -c 300 -b 2 -r 1 -t 1 --json
is_json "counts" "$out" 'o["prefill"]["tokens"] == 16 and o["decode"]["tokens"] == 4 and o["decode"]["context"] == 300'
is_json "attention reads all of them, for each sequence" "$out" '[k["bytes"] for k in o["decode"]["kernels"] if k["name"] == "attention"][0] > 300 * 2 * 32 * 2'
expect "decode after fewer tokens than the prompt has" 0 "$LUMEN" bench $M -p 40 -g 2 -c 8 -r 1 -t 1 --json
is_json "decode after 8" "$out" 'o["decode"]["context"] == 8'
expect "--json=FILE" 0 "$LUMEN" bench $M -p 8 -g 2 -r 1 -t 1 --json="$TEST_TMP/figures"
is_json "is written" "$TEST_TMP/figures" 'o["model"]'
expect "a plot into a folder that is not there" 1 "$LUMEN" bench $M -p 8 -g 2 -r 1 -t 1 --svg "$TEST_TMP/none/b.svg"
expect "a prompt longer than the model's context" 2 "$LUMEN" bench $M --prompt 100000
has "both are named" "$err" "--prompt 100000"
has "and the model's" "$err" "the model was made for 512"
expect "more context than there may be" 2 "$LUMEN" bench $M --context 17m
expect "a context that what is generated goes past" 2 "$LUMEN" bench $M --context 16777216 -g 2
has "all three are named" "$err" "--context 16777216, --generate 2), but the most is 16777216"

odd="$TEST_TMP/a&b <i>\"x\" $(printf '\377\303\050').gguf"
cp $M "$odd"
expect "a model whose name is markup and no text" 0 "$LUMEN" bench "$odd" -p 8 -g 2 -r 1 -t 1 --svg "$TEST_TMP/odd.svg"
python3 tests/bench/svg.py "$TEST_TMP/odd.svg" || n_bad=$((n_bad + 1))
has "its name is escaped" "$TEST_TMP/odd.svg" 'a&amp;b &lt;i&gt;&quot;x&quot;'
browser=$(command -v chromium-headless-shell || command -v chromium || command -v google-chrome || true)
if [ -z "$browser" ]; then skip "the plot in a browser" "no chromium here"
else python3 tests/bench/svg.py "$TEST_TMP/odd.svg" "$browser" "$TEST_TMP/shot.png" || n_bad=$((n_bad + 1)); fi
if command -v rsvg-convert >/dev/null; then expect "another renderer takes it" 0 rsvg-convert "$TEST_TMP/odd.svg" -o "$TEST_TMP/rsvg.png"
else skip "another renderer takes it" "no rsvg-convert here"; fi
finish
