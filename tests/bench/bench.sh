# The benches, without a peer and on a small file: that they run, that their figures are figures, that files of every format are well formed.
# runtests: machine code
. tests/lib.sh
dir=$TEST_TMP/files
for f in $(python3 bench/mkgguf.py --list | sed -n 's/^formats: //p'); do
  expect "a file of $f" 0 python3 bench/mkgguf.py "$TEST_TMP/$f.gguf" tiny "$f"
  expect "its tensors are where it says" 0 "$LUMEN" show "$TEST_TMP/$f.gguf"
  has "it names $f" "$out" "tiny-$f"
done
expect "an unknown format" 1 python3 bench/mkgguf.py "$TEST_TMP/x.gguf" tiny Q9_9

expect "bench/run" 0 bench/run tiny:Q4_0,F16 --lumen "$LUMEN" --dir "$dir" --no-peer --rounds 1 --threads 1 --prompt 24 --generate 3 --json "$TEST_TMP/run.json"
is_json "a row for each format" "$TEST_TMP/run.json" '[r["format"] for r in o["rows"]] == ["Q4_0", "F16"]'
is_json "speeds and shares are positive" "$TEST_TMP/run.json" 'all(r["prefill"] > 0 and r["decode"] > 0 and (r["decode_share"] or 1) > 0 for r in o["rows"])'
is_json "peaks were measured" "$TEST_TMP/run.json" 'all(p["threads"] == 1 for r in o["rows"] for p in r["peaks"])'
is_json "whether it was quiet is told" "$TEST_TMP/run.json" 'o["quiet"] == (o["others_percent"] <= 5)'
[ -z "$(ls "$dir")" ] && ok "files are removed" || not_ok "files are removed" "$(ls "$dir")"
expect "bench/run --cpu" 0 bench/run tiny:Q8_0 --lumen "$LUMEN" --dir "$dir" --no-peer --rounds 1 --cpu --prompt 32 --generate 3
expect "an unknown shape" 1 bench/run huge:Q4_0 --dir "$dir"
expect "bench/gemm" 0 bench/gemm --lumen "$LUMEN" --no-peer --rounds 1 --n 64 --json "$TEST_TMP/gemm.json"
is_json "a rate" "$TEST_TMP/gemm.json" 'o["rows"][0]["flops_per_second"] > 0'
expect "bench/batch" 0 bench/batch --lumen "$LUMEN" --dir "$dir" --no-peer --rounds 1 --shape tiny --prompt 4 --generate 2 --threads 1
expect "bench/two" 0 bench/two --lumen "$LUMEN" --dir "$dir" --no-peer --rounds 1 --shape tiny --prompt 4 --generate 4
expect "bench/context" 0 bench/context --lumen "$LUMEN" --dir "$dir" --no-peer --rounds 1 --shape tiny --n 600 --generate 2
expect "bench/load" 0 bench/load --lumen "$LUMEN" --dir "$dir" --no-peer --rounds 1 --shape tiny
expect "bench/tokenize" 0 bench/tokenize tests/text/tokenizers/minilm --texts "map=MAP.md" --lumen "$LUMEN" --dir "$dir" --no-peer --rounds 1 --json "$TEST_TMP/tokenize.json"
is_json "its speed" "$TEST_TMP/tokenize.json" 'o["rows"][0]["megabytes_per_second"] > 0 and o["rows"][0]["load_ms"] > 0'
finish
