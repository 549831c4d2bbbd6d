# Files that commands write: never over what they read, under their names only when they are whole, through links, and with one manner of telling what is wrong.
# runtests: machine code
. tests/lib.sh
D=$TEST_TMP/d F=$TEST_TMP/f
mkdir "$D" "$F"
cp tests/run/tiny.gguf "$D/m.gguf"
cp tests/run/tiny.gguf "$TEST_TMP/kept.gguf"
ln -s m.gguf "$D/link.gguf"
ln "$D/m.gguf" "$D/other.bin"
echo "1 2 3" > "$D/ids"
M=$D/m.gguf short="--prompt 4 --generate 1 --rounds 1 --threads 1"
same() { if cmp -s "$2" "$3"; then ok "$1"; else not_ok "$1" "they differ"; cp "$2" "$3"; fi; }
gone() { if ls "$D" "$F" "$TEST_TMP" | grep '\.part'; then not_ok "$1" "a part is left"; else ok "$1"; fi; }

# kept TEXT COMMAND..   is refused as wrong usage, and the model stays.
kept() {
  text=$1
  shift
  expect "refused: $*" 2 "$LUMEN" "$@"
  has "it says $text" "$err" "$text"
  same "and the model is as it was" "$TEST_TMP/kept.gguf" "$M"
}
for o in "$M" "$D/link.gguf" "$D/other.bin" "$D/./m.gguf"; do
  kept "is a file to read" logits --ids "$D/ids" --out "$o" "$M"
  kept "is a file to read" bench "$M" $short --svg "$o"
  kept "is a file to read" bench "$M" $short --json="$o"
  kept "is a file to read" convert "$M" "$o" --quant q8_0
  kept "something else than a trace" run "$M" hi -n 1 --trace "sched>$o"
done
kept "is a file to read" logits --ids "$D/ids" --out "$D/ids" "$M"
has "the ids are there" "$D/ids" "1 2 3"
if "$LUMEN" logits --ids - --out "$D/ids" "$M" < "$D/ids" 2> "$err"; then not_ok "ids of standard input" "exit code 0"; else has "ids of standard input" "$err" "is a file to read"; fi
has "they are there" "$D/ids" "1 2 3"
kept "both go to $D/x" bench "$M" $short --svg "$D/x" --json="$D/x"
cp "$M" "$D/grown.part"
kept "where $D/grown would grow" convert "$D/grown.part" "$D/grown" --quant q8_0
same "a model named as a part" "$TEST_TMP/kept.gguf" "$D/grown.part"
rm "$D/grown.part"
mkdir "$D/std"
cp std/formats/float8.lum "$D/std/"
kept "is a file to read" convert "$M" "$D/std/float8.lum" --quant q8_0 --std "$D/std"

# A folder: what is read of it, and what another command would read.
cp tests/models/tokenizer/* tests/models/llama/*.json tests/models/llama/*.safetensors "$F/"
echo about > "$F/README.md"
(cd "$F" && cksum -- *) > "$TEST_TMP/sums"
for f in "$F"/*; do
  expect "convert into ${f##*/} of its folder" 2 "$LUMEN" convert "$F" "$f"
  has "is told" "$err" "to read, expected another file to write"
  expect "logits into ${f##*/}" 2 "$LUMEN" logits --ids "$D/ids" --out "$f" "$F"
  expect "bench into ${f##*/}" 2 "$LUMEN" bench "$F" $short --svg "$f"
  expect "a trace into ${f##*/}" 2 "$LUMEN" show "$F" --trace "ir>$f"
done
(cd "$F" && cksum -- *) > "$TEST_TMP/now"
same "the folder is as it was" "$TEST_TMP/sums" "$TEST_TMP/now"
expect "a GGUF file in its folder" 0 "$LUMEN" convert "$F" "$F/new.gguf"
expect "and once more" 0 "$LUMEN" convert "$F" "$F/new.gguf"
expect "a new file in it" 0 "$LUMEN" logits --ids "$D/ids" --out "$F/new.bin" "$F"
ln -s "$F/README.md" "$D/readme"
ln -s "$F/README.md" "$D/readme.gguf"
for o in readme readme.gguf; do
  expect "a file of it by a link: $o" 2 "$LUMEN" logits --ids "$D/ids" --out "$D/$o" "$F"
  has "is told" "$err" "is a file of the model to read"
done
mkdir "$D/blobs"                                       # as a hub's cache keeps them
echo notes > "$D/blobs/77"
ln -s "$D/blobs/77" "$F/NOTES"
ln -s "$F/NOTES" "$D/notes"
for o in notes blobs/77; do
  expect "a file that a link in it leads to: $o" 2 "$LUMEN" logits --ids "$D/ids" --out "$D/$o" "$F"
  has "is told" "$err" "is a file of the model to read"
done
has "and stays" "$D/blobs/77" "notes"
rm "$F/NOTES"
has "and stays" "$F/README.md" "about"

# A trace goes into a new file, an empty one or an older trace.
expect "a trace" 0 "$LUMEN" run "$M" hi -n 1 --trace "mem>$D/trace"
expect "over an older one" 0 "$LUMEN" run "$M" hi -n 1 --trace "mem>$D/trace"
has "it is one" "$D/trace" "[mem] "
expect "a result into the trace" 2 "$LUMEN" logits --ids "$D/ids" --out "$D/trace" "$M" --trace "mem>$D/trace"
expect "a trace without a name" 2 "$LUMEN" version --trace "mem>"

# Links are followed, whether their target is there or not.
echo old > "$D/target"
ln -s target "$D/to"
ln -s to "$D/to_to"
ln -s absent "$D/dangling"
ln -s loop "$D/loop"
for o in to_to dangling; do expect "through a link: $o" 0 "$LUMEN" convert "$M" "$D/$o" --quant q8_0; done
[ -L "$D/to" ] && [ -L "$D/to_to" ] && [ -L "$D/dangling" ] && ok "links stay links" || not_ok "links stay links" "$(ls -l "$D")"
cmp -s "$D/target" "$D/absent" && [ "$(wc -c < "$D/target")" -gt 1000 ] && ok "and their targets are written" || not_ok "and their targets are written" "$(ls -l "$D")"
expect "a link to itself" 1 "$LUMEN" logits --ids "$D/ids" --out "$D/loop" "$M"

# Names that are none; "-" wherever a text is written.
for c in "convert $M '' --quant q8_0" "logits --ids $D/ids --out '' $M" "bench $M $short --json=" "bench $M $short --svg ''"; do
  eval "expect \"no name: \$c\" 2 \"\$LUMEN\" $c"
  has "is told" "$err" "'' is no name"
done
expect "bench --json -" 0 "$LUMEN" bench "$M" $short --json -
is_json "prints JSON" "$out" 'o["decode"]'
expect "bench -j - before the model" 0 "$LUMEN" bench -j - "$M" $short
is_json "prints JSON" "$out" 'o["decode"]'

# What was there stays until the new file is whole.
seq 1 400 | tr '\n' ' ' > "$D/many"
printf kept > "$D/keep.bin"
expect "a file that may not grow" 1 sh -c "ulimit -f 10; exec \"\$0\" logits --ids '$D/many' --out '$D/keep.bin' '$M'" "$LUMEN"
has "it says why" "$err" "File too large"
[ "$(cat "$D/keep.bin")" = kept ] && ok "the old content stays" || not_ok "the old content stays" "it is gone"
expect "standard output that may not grow" 1 sh -c "ulimit -f 1; exec \"\$0\" help > '$D/grown'; " "$LUMEN"
has "it says why" "$err" "File too large"
expect "and of metadata" 1 sh -c "ulimit -f 1; exec \"\$0\" show -a '$M' > '$D/grown'" "$LUMEN"
has "it says why" "$err" "lumen show: standard output: cannot be written: File too large"
python3 - "$LUMEN" "$M" "$D" > "$TEST_TMP/said" <<'P'
import os, signal, subprocess, sys, time
lumen, model, d = sys.argv[1:]
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup would be inherited
open(d + "/long", "w").write(" ".join(["7"] * 60000))
for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    p = subprocess.Popen([lumen, "logits", "--ids", d + "/long", "--context", "65536", "--precision", "f32", "--threads", "1", "--out", d + "/keep.bin", model], stderr=subprocess.PIPE, text=True)
    for _ in range(6000):
        if os.path.exists(d + "/keep.bin.part") or p.poll() is not None: break
        time.sleep(.01)
    p.send_signal(sig)
    said = p.communicate(timeout=100)[1]
    fine = p.returncode == 130 and said.endswith("\nlumen logits: interrupted\n") and open(d + "/keep.bin").read() == "kept" and not os.path.exists(d + "/keep.bin.part")
    print("ok" if fine else "not ok", f"- {sig.name} takes back what was begun" + ("" if fine else f": {p.returncode} {said}"))
P
cat "$TEST_TMP/said"
[ "$(grep -c '^ok' "$TEST_TMP/said")" = 3 ] || n_bad=$((n_bad + 1))
gone "no part is left of anything"

# One line tells of a full disk, and it begins with the command's name.
if [ -w /dev/full ]; then
  echo '{{ messages }}' > "$D/template"
  mkdir -p "$TEST_TMP/cache/models/x" && : > "$TEST_TMP/cache/models/x/x.gguf"
  for c in "tokenize $M hi" "detokenize $M" "logits --ids $D/ids --out - $M" "show $M" "version" "list" "parse --template $D/template" "run $M hi -n 1" "bench $M $short" "bench $M $short --json -"; do
    if echo "1 2" | LUMEN_HOME="$TEST_TMP/cache" "$LUMEN" $c > /dev/full 2> "$err"; then got=0; else got=$?; fi
    [ "$got" = 1 ] && ok "a full disk: ${c%% *}" || not_ok "a full disk: $c" "exit code $got"
    [ "$(grep -c 'No space left on device' "$err")" = 1 ] && grep -q "^lumen ${c%% *}: .*No space left" "$err" && ok "told once" || not_ok "told once: $c" "$(cat "$err")"
  done
  for c in "convert $M /dev/full --quant q8_0" "logits --ids $D/ids --out /dev/full $M" "bench $M $short --svg /dev/full" "run $M hi -n 1 --trace mem>/dev/full"; do
    expect "to a full device: ${c%% *}" 1 "$LUMEN" $c
    has "is told" "$err" "No space left on device"
  done
  if "$LUMEN" --trace help > /dev/full 2> "$err"; then not_ok "--trace help to a full disk" "exit code 0"; else ok "--trace help to a full disk"; fi
else skip "a full disk" "no /dev/full here"; fi

# Control characters of names are shown, not sent to the terminal.
esc=$(printf '\033')
mkdir -p "$TEST_TMP/cache/models/a${esc}[31mb"
echo x > "$TEST_TMP/cache/models/a${esc}[31mb/f${esc}.gguf"
expect "list of such a name" 0 env LUMEN_HOME="$TEST_TMP/cache" "$LUMEN" list
has "is shown" "$out" 'a\x1b[31mb'
hasnt "not sent" "$out" "$esc"
env LUMEN_HOME="$TEST_TMP/cache" "$LUMEN" doctor > "$out" 2> "$err"
hasnt "nor by doctor" "$out" "$esc"
for c in "version --no${esc}[1m" "no${esc}[1m" "help x${esc}" "version x${esc}" "version --trace x${esc}"; do
  expect "such an argument" 2 "$LUMEN" $c
  has "is shown" "$err" '\x1b'
  hasnt "not sent" "$err" "$esc"
done
finish
