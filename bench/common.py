"""What the benches share: where files lie, how a figure is taken, how it is told. Standard library only.

A figure is the median of several rounds, and in a round everything that is compared runs once, one after the other; so a machine that slows
down slows all of them. Percentages are of peaks measured in the same round. What other processes used meanwhile is measured and printed:
above 5% the run is marked as not quiet.
"""
import argparse, datetime, json, math, os, platform, shutil, statistics, subprocess, sys, time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, HERE)
import mkgguf

QUIET_PERCENT = 5


def cache_dir():
    own, xdg = os.environ.get('LUMEN_HOME'), os.environ.get('XDG_CACHE_HOME', '')
    return own or (os.path.join(xdg, 'lumen') if xdg.startswith('/') else os.path.expanduser('~/.cache/lumen'))


def options(text, args='', **more):
    """The options of every bench; more: name=default adds one (a flag where the default is False). args: what the other arguments are called, if any may stand."""
    a = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    add(a, dict(threads=usable_cpus(), rounds=5, lumen=os.path.join(ROOT, 'build', 'lumen'), dir=os.path.join(cache_dir(), 'bench'), json='', keep=False, no_peer=False, best=False))
    add(a, more)
    if args: a.add_argument('args', nargs='*', metavar=args)
    o = a.parse_intermixed_args()
    os.makedirs(o.dir, exist_ok=True)
    return o


def add(a, names):
    told = dict(threads='threads of every program', rounds='rounds; figures are medians', lumen='the program', dir='where files with random weights are made',
                json='also write the figures there', keep='keep the files made', no_peer='measure Lumen alone', best='best rounds instead of medians: for a machine that is not quiet')
    for n, default in names.items():
        flag = '--' + n.replace('_', '-')
        if default is False: a.add_argument(flag, action='store_true', help=told.get(n))
        else: a.add_argument(flag, type=type(default), default=default, help=f'{told.get(n, n)} (default: {default})')


def usable_cpus():
    """Affinity and the cgroup's quota, as the program itself counts."""
    n = len(os.sched_getaffinity(0))
    try:
        quota, period = open('/sys/fs/cgroup/cpu.max').read().split()
        if quota != 'max': n = min(n, max(1, math.ceil(int(quota) / int(period))))
    except OSError: pass
    return n


# ---- programs ----
def call(command, **more):
    r = subprocess.run(command, capture_output=True, text=True, **more)
    if r.returncode: sys.exit(f"{' '.join(command)}: {r.stderr.strip() or r.stdout.strip()}")
    return r.stdout


def call_json(command, **more): return json.loads(call([str(c) for c in command], **more))


def lumen(o, file, prompt=512, generate=64, *more, **kw): return call_json(lumen_command(o, file, prompt, generate, *more), **kw)


def lumen_command(o, file, prompt, generate, *more):
    return [o.lumen, 'bench', file, '--prompt', prompt, '--generate', generate, '--threads', o.threads, '--rounds', 1, '--json', *more]


def peer_dir(o, cached=[]):
    if not cached: cached.append(call([os.path.join(ROOT, 'tools', 'peers'), 'llama']).strip())
    return cached[0]


def peer(o, file, prompt=512, generate=64, *more, **kw):
    return call_json(peer_command(o, file, prompt, generate, *more), **kw)


def peer_command(o, file, prompt, generate, *more):
    return [sys.executable, os.path.join(HERE, 'peer_llama.py'), '--lib', peer_dir(o), file, '--prompt', str(prompt), '--generate', str(generate), '--threads', str(o.threads), *more]


def peak(o):
    exe, src = os.path.join(ROOT, 'build', 'bench', 'peak'), os.path.join(HERE, 'peak.c')
    if not os.path.exists(exe) or os.path.getmtime(exe) < os.path.getmtime(src):
        os.makedirs(os.path.dirname(exe), exist_ok=True)
        call(['gcc', '-O2', '-o', exe, src, '-lpthread'])
    return call_json([exe, o.threads] + ['cpu'] * getattr(o, 'cpu', False))


# ---- files ----
class File:
    """A file of random weights, removed at the end unless it is to be kept or was there before."""
    def __init__(self, o, shape, fmt):
        self.path, self.shape, self.fmt, self.o = os.path.join(o.dir, f'{shape}-{fmt}.gguf'), shape, fmt, o
        self.weight_bytes = mkgguf.weight_bytes(shape, fmt)

    def __enter__(self):
        self.made = not os.path.exists(self.path)
        if self.made:
            free = shutil.disk_usage(self.o.dir).free
            if free < self.weight_bytes * 1.1 + (1 << 30): sys.exit(f'{self.o.dir}: {free >> 20} MB free, {self.path} needs {self.weight_bytes >> 20} and some room')
            mkgguf.write(self.path, self.shape, self.fmt)
        return self

    def __exit__(self, *_):
        if self.made and not self.o.keep: os.unlink(self.path)


# ---- figures ----
def figure(o, values): return (max if o.best else statistics.median)(values)


def geomean(values):
    v = [x for x in values if x]
    return math.exp(sum(map(math.log, v)) / len(v)) if v else float('nan')


def rounds(o, things):
    """things: {name: function}. Every function once a round, in turn. -> {name: [result of each round]}"""
    out = {name: [] for name in things}
    for _ in range(o.rounds):
        for name, f in things.items(): out[name].append(f())
    return out


class Quiet:
    """What others made of the processors between start and end, in percent of all of them."""
    def __init__(self): self.t, self.busy, self.own = time.monotonic(), *self.now()

    @staticmethod
    def now():
        ticks = list(map(int, open('/proc/stat').readline().split()[1:9]))
        t = os.times()
        return (sum(ticks) - ticks[3] - ticks[4]) / os.sysconf('SC_CLK_TCK'), t.user + t.system + t.children_user + t.children_system

    def percent(self):
        busy, own = self.now()
        return max(0.0, 100 * (busy - self.busy - (own - self.own)) / ((time.monotonic() - self.t) * os.cpu_count()))


def machine():
    cpu = next((l.split(':')[1].strip() for l in open('/proc/cpuinfo') if l.startswith('model name')), platform.machine())
    ident = {l.split(':')[0].strip(): l.split(':')[1].strip() for l in open('/proc/cpuinfo').read().split('\n\n')[0].splitlines() if ':' in l}
    mem = int(open('/proc/meminfo').readline().split()[1]) // 1048576
    return f"{cpu} (family {ident.get('cpu family')}, model {ident.get('model')}), {usable_cpus()} processors, cache {ident.get('cache size')}, {mem} GiB, Linux {platform.release()}"


def commit(): return call(['git', '-C', ROOT, 'rev-parse', '--short', 'HEAD']).strip() if shutil.which('git') and os.path.exists(os.path.join(ROOT, '.git')) else ''


class Report:
    """Prints a heading at once, rows as they come, and at the end the notes; writes everything as JSON where asked."""
    def __init__(self, o, title, columns):
        self.o, self.title, self.columns, self.rows, self.notes, self.quiet = o, title, columns, [], [], Quiet()
        self.start = datetime.datetime.now(datetime.timezone.utc).strftime('%Y-%m-%d %H:%M UTC')
        print(f"{title}\n{self.start}, commit {commit()}, {o.threads} thread{'s' * (o.threads != 1)}, {o.rounds} rounds, {'best' if o.best else 'medians'}\n{machine()}\ncommand: {' '.join(sys.argv)}\n")
        print('| ' + ' | '.join(columns) + ' |\n|' + '---|' * len(columns), flush=True)

    def row(self, cells, **data):
        self.rows.append(data)
        print('| ' + ' | '.join('-' if c is None else c if isinstance(c, str) else f'{c:.4g}' for c in cells) + ' |', flush=True)

    def note(self, text): self.notes.append(text)

    def end(self, timed=True, **data):
        """timed: the figures are times, so that what others did matters."""
        others = self.quiet.percent()
        quiet = others <= QUIET_PERCENT
        if timed: self.note(f"Other processes used {others:.1f}% of the processors{'' if quiet else ': NOT QUIET, so the figures say little'}.")
        print('\n' + '\n'.join(self.notes))
        if self.o.json:
            with open(self.o.json, 'w') as f:
                json.dump(dict(title=self.title, when=self.start, commit=commit(), machine=machine(), command=sys.argv, threads=self.o.threads, rounds=self.o.rounds, best=self.o.best,
                               others_percent=others, quiet=quiet, rows=self.rows, **data), f, indent=1)
                f.write('\n')


def over(a, b): return a / b if a and b else None
def times(x): return None if x is None else f'{x:.2f}x'
def percent(x): return None if x is None else f'{100 * x:.0f}%'
