# lumen kern --time --json for every op and formats of every kind: its fields, and operations that agree with them. runtests: timeout 400
# runtests: machine code
. tests/lib.sh
cat > "$TEST_TMP/specs.py" <<'END'
import re
seen = set()
for line in open('tests/kern/ops.specs'):
    spec = re.sub(r'\bM\b', '3', line.split('#')[0].strip()).replace('KV', 'f16')
    kinds = re.sub(r'=[^\s[]*\[[^]]*\]', lambda m: m.group(0).split('[')[0], spec)
    op = spec.split(' ')[0], 'q8_0' in spec
    if spec and op not in seen: seen.add(op), print(spec)
for f in ('f32', 'bf16', 'q4_0', 'q6_k', 'iq2_xs', 'mxfp4'): print(f'linear w={f}[64,512] x=f32[5,512]')
print('embed w=q8_0[64,512] t=i32[3]')
END
python3 "$TEST_TMP/specs.py" > "$TEST_TMP/specs"
[ "$(wc -l < "$TEST_TMP/specs")" -gt 15 ] && ok "there are specs" || not_ok "there are specs" "$(wc -l < "$TEST_TMP/specs")"
while read -r spec; do
  expect "$spec" 0 "$LUMEN" kern "$spec" --time --threads 1 --json
  is_json "its figures" "$out" 'o["seconds"] > 0 and o["bytes_per_second"] > 0 and o["flops_per_second"] >= 0 and o["percent_of_peak"] > 0 and abs(o["bytes_per_second"] * o["seconds"] / o["bytes"] - 1) < 1e-3 and o["roof"] in ("memory", "compute") and "others_percent" in o'
  expect "its machine code" 0 "$LUMEN" cc "$spec" --emit asm
  has "is there" "$out" "bytes,"
done < "$TEST_TMP/specs"
finish
