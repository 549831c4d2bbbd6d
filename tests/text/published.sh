# runtests: timeout 240
# Tokenizers as their publishers ship them, out of Python packages: published.py. The packages are kept beside the program.
. tests/lib.sh
if ! python3 -m pip --version >/dev/null 2>&1; then
  if [ -n "${CI:-}" ]; then not_ok "published tokenizers" "no pip"; else skip "published tokenizers" "no pip"; fi
  finish
fi
python3 tests/text/published.py check "$LUMEN" "$(dirname "$LUMEN")/published" || n_bad=1
finish
