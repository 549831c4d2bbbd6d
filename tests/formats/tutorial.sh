# docs/formats.md, every command of it, with a small model. runtests: timeout 300
# runtests: machine code
. tests/lib.sh
root=$(pwd)
case "$LUMEN" in /*) ;; *) LUMEN=$root/$LUMEN ;; esac
export LUMEN
cat > "$TEST_TMP/run.py" <<'END'
import os, re, subprocess, sys
root, tmp = sys.argv[1:]
os.chdir(tmp)
os.makedirs("mine", exist_ok=True), os.makedirs("broken", exist_ok=True), os.makedirs("bin", exist_ok=True)
os.path.lexists("bin/lumen") or os.symlink(os.environ["LUMEN"], "bin/lumen")
env = {**os.environ, "PATH": tmp + "/bin:" + os.environ["PATH"], "MODEL": root + "/tests/models/llama/model.gguf"}
bad, said = 0, ""
with open(root + "/docs/formats.md", encoding="utf-8") as f:
    blocks = re.findall(r"^```(\S+)( error)?\n(.*?)^```$", f.read(), re.M | re.S)


def told(name, why):
    global bad
    bad += why is not None
    print(f"ok - {name}" if why is None else f"not ok - {name}: {why}", flush=True)


def shows_roofline(path):
    with open(path, encoding="utf-8") as f:
        svg = f.read()
    return "even3.gguf" in svg and svg.count("<circle") + svg.count("<path") > 5 and "linear" in svg


for kind, error, text in blocks:
    if kind == "lum":
        with open(f"mine/{text.split()[1]}.lum", "w") as f:
            f.write(text)
    elif kind == "text":
        told("the message that is shown", None if text.strip() in said else f"it said {said[:300]!r}")
    elif kind == "sh":
        for line in text.splitlines():
            r = subprocess.run(["sh", "-c", line], env=env, capture_output=True)
            said = r.stderr.decode(errors="replace")
            fails = bool(error) and line.startswith("lumen")
            why = None if (r.returncode != 0) == fails else f"exit code {r.returncode}: {said[:300]}"
            if " show " in line and b"type 1234" not in r.stdout and b"even3" not in r.stdout:
                why = why or "the format is not shown: " + r.stdout.decode()[-300:]
            if " kern " in line and "--check" not in line and "--time" not in line and b"3-bit" not in r.stdout and b"integer" not in r.stdout:
                why = why or "no integer product: " + r.stdout.decode()[:500]
            if line.startswith("lumen run") and not r.stdout.strip():
                why = why or "no answer"
            if "--check" in line and b"same" not in r.stdout and b"bit" not in r.stdout:
                why = why or "it does not say that bits are equal: " + r.stdout.decode()[:300]
            if "--time" in line and not re.search(rb"\d% of the (memory|int8|f32|compute|arithmetic)", r.stdout):
                why = why or "no percentage of a peak: " + r.stdout.decode()[:300]
            if "--svg" in line and (not re.search(rb"decode .*% of bandwidth", r.stdout) or not shows_roofline("even3.svg")):
                why = why or "no roofline: " + r.stdout.decode()[:500]
            told(line[:100], why)
with open("floats", "rb") as f:
    told("zeros come back", None if f.read() == bytes(1280) else "they do not")
sys.exit(bad > 0)
END
python3 "$TEST_TMP/run.py" "$root" "$TEST_TMP" || n_bad=1
finish
