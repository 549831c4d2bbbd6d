# `lumen encode`: goldens bit for bit, searched formats by error, ties, tails, every target; and what it refuses.
# runtests: machine code
. tests/lib.sh
python3 tests/formats/encode.py "$LUMEN" || n_bad=1

expect "encode without a format" 2 "$LUMEN" encode
expect "encode with a format that is none" 2 "$LUMEN" encode --format q8_00
has "its nearest name" "$err" "did you mean 'q8_0'?"
expect "encode with a format that is none, and near none" 2 "$LUMEN" encode --format nope
has "the known are told" "$err" "known are f8_e4m3,"
has "all of them" "$err" "iq2_xxs"
expect "encode of a format without encode" 1 "$LUMEN" encode --format iq2_xxs
has "it says so" "$err" "no encode"
head -c 100 tests/formats/encode/input.f32 > "$TEST_TMP/part"
if "$LUMEN" encode --format q8_0 < "$TEST_TMP/part" > "$out" 2> "$err"; then not_ok "encode of half a block" "it went through"; else has "encode of half a block" "$err" "100 bytes, expected f32 for whole blocks of 32"; fi
finish
