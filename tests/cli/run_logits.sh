# lumen logits and lumen bench: forms, files, faults.
# runtests: machine code
. tests/lib.sh
M=tests/run/tiny.gguf
echo "504, 163 [115]
264" > "$TEST_TMP/ids"
expect "logits" 0 "$LUMEN" logits $M --ids "$TEST_TMP/ids" --out "$TEST_TMP/a" --precision f32
empty "nothing on standard output" "$out"
n=$(wc -c < "$TEST_TMP/a")
[ "$n" = $((4 * 512 * 4)) ] && ok "a row of f32 for every token" || not_ok "a row of f32 for every token" "$n bytes"
for more in "--chunk 1" "--chunk 3 --threads 2" "--threads 1" "--target x86-sse4" "--context 4"; do
  expect "logits $more" 0 "$LUMEN" logits $M --ids "$TEST_TMP/ids" --out "$TEST_TMP/b" --precision f32 $more
  cmp -s "$TEST_TMP/a" "$TEST_TMP/b" && ok "logits $more: the same bits" || not_ok "logits $more: the same bits" "they differ"
done
expect "logits to standard output, ids from it" 0 sh -c '"$1" logits "$2" --ids - --out - --precision f32 < "$3"' sh "$LUMEN" $M "$TEST_TMP/ids"
cmp -s "$TEST_TMP/a" "$out" && ok "the same bits" || not_ok "the same bits" "they differ"
if python3 - "$TEST_TMP/a" <<'P'
import array, json, math, sys
a = array.array("f", open(sys.argv[1], "rb").read())
sys.exit(not (all(map(math.isfinite, a)) and len(set(a)) > 1000))
P
then ok "finite numbers"; else not_ok "finite numbers" "some are not, or all are alike"; fi

bad() { printf '%s' "$2" > "$TEST_TMP/bad"; rm -f "$TEST_TMP/c"; expect "$1" 1 "$LUMEN" logits $M --ids "$TEST_TMP/bad" --out "$TEST_TMP/c" --context 8; has "$1: why" "$err" "$3"
  [ -e "$TEST_TMP/c" ] && not_ok "$1: no file" "it is there" || ok "$1: no file"; }
bad "no ids" " , " "no token ids"
bad "letters" "1 x" "byte 2 is 0x78"
bad "a negative id" "-1" "0x2d"
bad "an id past 31 bits" "99999999999" "above 2147483647"
bad "an id outside the vocabulary" "1 512" "512"
bad "more ids than the context" "1 2 3 4 5 6 7 8 9" "8"
expect "more ids than the context" 1 "$LUMEN" logits $M --ids "$TEST_TMP/bad" --out "$TEST_TMP/c" --context 8
has "the option that holds more" "$err" "--context"
if [ -c /dev/full ]; then
  ln -s /dev/full "$TEST_TMP/full"
  expect "logits to a full device" 1 "$LUMEN" logits $M --ids "$TEST_TMP/ids" --out "$TEST_TMP/full"
  [ -e "$TEST_TMP/full" ] && ok "the device is still there" || not_ok "the device is still there" "it was removed"
else skip "logits to a full device" "no /dev/full here"; fi
printf '1 512' > "$TEST_TMP/bad"
mkfifo "$TEST_TMP/pipe"
expect "an id outside the vocabulary, into a pipe that nobody reads" 1 timeout 60 "$LUMEN" logits $M --ids "$TEST_TMP/bad" --out "$TEST_TMP/pipe" --context 8
cat "$TEST_TMP/pipe" > "$TEST_TMP/read" &
expect "into a pipe" 0 timeout 60 "$LUMEN" logits $M --ids "$TEST_TMP/ids" --out "$TEST_TMP/pipe"
wait
[ -s "$TEST_TMP/read" ] && ok "comes out of it" || not_ok "comes out of it" "nothing did"
[ -p "$TEST_TMP/pipe" ] && ok "the pipe stays" || not_ok "the pipe stays" "it is gone"
expect "no --ids" 2 "$LUMEN" logits $M --out "$TEST_TMP/c"
expect "no --out" 2 "$LUMEN" logits $M --ids "$TEST_TMP/ids"
expect "a folder that is not there" 1 "$LUMEN" logits $M --ids "$TEST_TMP/ids" --out "$TEST_TMP/none/c"
expect "a precision that is none" 2 "$LUMEN" logits $M --ids "$TEST_TMP/ids" --out "$TEST_TMP/c" --precision f64
expect "a target that is none" 2 "$LUMEN" logits $M --ids "$TEST_TMP/ids" --out "$TEST_TMP/c" --target z80

expect "bench" 0 "$LUMEN" bench $M --prompt 40 --generate 8
has "bench prints a table" "$out" "decode"
expect "bench --json" 0 "$LUMEN" bench $M --prompt 40 --generate 8 --batch 3 --json
is_json "bench counts" "$out" 'o["prefill"]["tokens"] == 120 and o["decode"]["tokens"] == 24 and o["batch"] == 3'
is_json "bench measures" "$out" 'all(o[k]["seconds"] > 0 and abs(o[k]["tokens_per_second"] * o[k]["seconds"] / o[k]["tokens"] - 1) < 1e-3 for k in ("prefill", "decode"))'
is_json "bench reports" "$out" 'o["compile_ms"] > 0 and o["first_token_ms"] > o["open_ms"] > 0 and o["peak_rss_bytes"] > 1e6 and o["decode"]["read_bandwidth_percent"] > 0'
finish
