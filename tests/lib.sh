# What shell tests share; a test begins with `. tests/lib.sh` and ends with `finish`. tools/runtests sets LUMEN and TEST_TMP.
# Without it, build/lumen and a temporary folder serve.
: "${LUMEN:=build/lumen}"
[ -n "${TEST_TMP:-}" ] || { TEST_TMP=$(mktemp -d); trap 'rm -rf "$TEST_TMP"' EXIT; }
out=$TEST_TMP/out err=$TEST_TMP/err n_bad=0

ok() { echo "ok - $1"; }
not_ok() { n_bad=$((n_bad + 1)); echo "not ok - $1: $(printf '%s' "$2" | tr '\n' ' ')"; }
skip() { echo "skip - $1: $2"; }
finish() { [ "$n_bad" = 0 ] || exit 1; exit 0; }

# expect NAME CODE COMMAND...   runs it (output in $out and $err) and checks its exit code.
expect() {
  name=$1 code=$2
  shift 2
  if "$@" >"$out" 2>"$err" </dev/null; then got=0; else got=$?; fi
  if [ "$got" = "$code" ]; then ok "$name"; else not_ok "$name" "exit code $got, expected $code; it said: $(tail -n 3 "$err")"; fi
}
# has NAME FILE TEXT / hasnt NAME FILE TEXT   a fixed text in a file.
has() { if grep -qF -e "$3" "$2"; then ok "$1"; else not_ok "$1" "no '$3' in: $(head -c 300 "$2")"; fi; }
hasnt() { if grep -qF -e "$3" "$2"; then not_ok "$1" "'$3' in: $(head -c 300 "$2")"; else ok "$1"; fi; }
# peer   the folder of llama.cpp's libraries; nothing where `tools/peers llama` did not fetch them.
peer() { ls -d "${LUMEN_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/lumen}"/peers/llama-*/node_modules/@node-llama-cpp/linux-x64/bins/linux-x64 2> /dev/null | head -n 1; }
# empty NAME FILE
empty() { if [ -s "$2" ]; then not_ok "$1" "not empty: $(head -c 300 "$2")"; else ok "$1"; fi; }
# is_json NAME FILE [PYTHON]   a JSON text, of which the Python expression over `o` holds.
is_json() {
  if why=$(python3 -c 'import json, sys; o = json.load(open(sys.argv[1])); assert eval(sys.argv[2]), o' "$2" "${3:-True}" 2>&1); then ok "$1"
  else not_ok "$1" "$(printf '%s' "$why" | tail -n 1 | head -c 300)"; fi
}
