# docs/kernel.md, every command of it. runtests: timeout 300
# runtests: machine code
. tests/lib.sh
case "$LUMEN" in /*) ;; *) LUMEN=$(pwd)/$LUMEN ;; esac
export LUMEN
mkdir -p "$TEST_TMP/bin" "$TEST_TMP/tests/formats"
ln -sf "$LUMEN" "$TEST_TMP/bin/lumen"
ln -sfn "$(pwd)/tests/formats/std" "$TEST_TMP/tests/formats/std"
cat > "$TEST_TMP/run.py" <<'END'
import os, re, shutil, subprocess, sys
root, tmp = sys.argv[1:]
env = {**os.environ, 'PATH': tmp + '/bin:' + os.environ['PATH'], 'MODEL': root + '/tests/run/tiny.gguf'}
text = open(root + '/docs/kernel.md', encoding='utf-8').read()
bad, said, before = 0, '', ''
for kind, body in re.findall(r'^```(\S+(?: \S+)?)\n(.*?)^```$', text, re.M | re.S):
    why = None
    if kind.startswith('c '): open(os.path.join(tmp, kind[2:]), 'w').write(body)
    if kind == 'text' and body.rstrip('\n') not in said: why = f'it said {said[:300]!r}'
    if kind == 'sh':
        name = body.strip().splitlines()[-1][:70]
        if body.startswith('gcc') and not shutil.which('gcc'):
            print(f'skip - {name}: no gcc here')
            continue
        if body.startswith('S='): before = body
        r = subprocess.run(['bash', '-euc', before + body], cwd=tmp, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True)
        said = r.stdout + r.stderr
        if r.returncode: why = f'exit code {r.returncode}: {said[-300:]!r}'
        elif not said and body != before: why = 'it printed nothing'
    if kind not in ('sh', 'text'): continue
    bad += why is not None
    print((f'ok - {name}' if why is None else f'not ok - {name}: {why}') if kind == 'sh' else 'ok - what is shown under it' if why is None else f'not ok - what is shown under it: {why}')
sys.exit(bad > 0)
END
python3 "$TEST_TMP/run.py" "$(pwd)" "$TEST_TMP" || n_bad=$((n_bad + 1))
finish
