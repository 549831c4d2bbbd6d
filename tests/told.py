"""A script's cases, a line each, as every test prints them: told(name) went well, told(name, why) did not. end() leaves with 1 where one did not."""
import sys

failed = 0


def told(name, why=None):
    global failed
    failed += why is not None
    print(f"not ok - {name}: {why}" if why else f"ok - {name}", flush=True)


def end():
    sys.exit(failed > 0)
