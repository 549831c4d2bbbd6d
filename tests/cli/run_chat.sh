# lumen run without a prompt on a terminal, and Ctrl-C: through a pseudo-terminal.
# runtests: machine code, timeout 300
. tests/lib.sh
cat > "$TEST_TMP/chat.py" <<'P'
import ctypes, os, pty, re, select, signal, subprocess, sys, time
LUMEN, MODEL = sys.argv[1], "tests/run/tiny.gguf"

def ok(name, good, why=""):
    print(f"ok - {name}" if good else f"not ok - {name}: {why!r}")

class Chat:
    def __init__(self, *options):
        self.pid, self.fd = pty.fork()
        if not self.pid:
            os.execv(LUMEN, ["lumen", "run", MODEL, *options])
        self.seen = ""
    def until(self, pattern, seconds=20):
        """What comes up to the pattern, without \\r; what was not found shows in the failure."""
        start, end = self.seen, time.time() + seconds
        while time.time() < end:
            m = re.search(pattern, self.seen)
            if m:
                text, self.seen = self.seen[:m.end()], self.seen[m.end():]
                return text
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    got = os.read(self.fd, 65536)
                except OSError:
                    break
                if not got:
                    break
                self.seen += got.decode(errors="replace").replace("\r", "")
        return None
    def prompt(self, seconds=30):
        """The prompt stands, and nothing more comes: an editor draws it again while it reads a line, and what is typed between two lines is not yet its own."""
        end = time.time() + seconds
        while time.time() < end:
            if select.select([self.fd], [], [], 0.3)[0]:
                try:
                    got = os.read(self.fd, 65536)
                except OSError:
                    return None
                self.seen += got.decode(errors="replace").replace("\r", "")
                if not got:
                    break
            elif re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", self.seen).endswith("> "):
                text, self.seen = self.seen, ""
                return text
        print(f"not ok - a prompt comes: {self.seen[-300:]!r}")
        return None
    def say(self, text):
        os.write(self.fd, text.encode())
    def status(self):
        end = time.time() + 30
        while time.time() < end:
            self.until("never", 0.1)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                return os.waitstatus_to_exitcode(status)
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        return "still running after 30 s"

FIGURES = r"(\d+) prompt tokens \((\d+) held\)[^\n]*\n"
def figures(c):
    t = c.until(FIGURES)
    m = t and re.search(FIGURES, t)
    return (int(m[1]), int(m[2])) if m else (None, None)

c = Chat("-v", "-T", "0", "-n", "8")
ok("a chat greets and prompts", c.prompt() and True, c.seen)
c.say("the light\n")
n1, held = figures(c)
ok("a first turn reads its whole prompt", n1 and held == 0, (n1, held))
c.prompt(); c.say("of the sun\n")
n2, held = figures(c)
ok("a second turn reads only what is new", n2 and n1 <= held < n2, (n1, n2, held))
c.prompt(); c.say('"""\nthe\nsun\n"""\n')
n3, held3 = figures(c)
ok("a message of several lines is one message", n3 and n3 > n2, (n2, n3))
c.prompt(); c.say("the 한국어\x7f\x7f\x7fsun\n")
n5, held = figures(c)
c.prompt(); c.say("/clear\n"); c.prompt(); c.say("the light\n"); figures(c); c.prompt(); c.say("of the sun\n"); figures(c)
c.prompt(); c.say('"""\nthe\nsun\n"""\n'); figures(c)
c.prompt(); c.say("the sun\n")
n6, held = figures(c)
ok("backspace takes whole characters", n5 and n5 == n6, (n5, n6))
c.prompt(); c.say("/help\n")
ok("an unknown command is told of, not asked", c.until("no command /help") is not None, c.seen)
c.prompt(); c.say("/clear\n"); c.prompt(); c.say("the light\n")
n4, held = figures(c)
ok("/clear starts afresh", n4 == n1, (n1, n4))
c.prompt(); c.say("the " * 600 + "\n")
ok("a message too long for the context is refused", c.until("context holds 512") is not None, c.seen)
c.prompt(); c.say("of\n")
n5, held = figures(c)
ok("and the conversation goes on without it", n5 and n4 < n5 < 200, (n4, n5))
c.prompt(); c.say("/exit\n")
ok("/exit ends with 0", c.status() == 0)

c = Chat(); c.prompt(); c.say("\x04")
ok("the end of input ends with 0", c.status() == 0)
ENDLESS = ("--logit-bias", "40=1000", "--context", "200k")   # token 40 for ever
c = Chat(*ENDLESS); c.prompt(); c.say("the\n")
ok("an endless answer streams", c.until("EEEE") is not None, c.seen[-80:])
c.say("\x03")
ok("Ctrl-C stops an answer and the chat goes on", c.until("\n> ") is not None, c.seen[-80:])
c.say("/exit\n")
ok("and ends well", c.status() == 0, c.seen)
codes = []
for _ in range(10):                                        # Ctrl-C may come as text is being written
    c = Chat(*ENDLESS); c.prompt(); c.say("the\n"); c.until("EEEE"); c.say("\x03"); c.until("\n> "); c.say("/exit\n")
    codes.append(c.status())
ok("whenever it comes", not any(codes), codes)
c = Chat("-v", "-T", "0", "-n", "4")
c.prompt(); c.say("the light\n"); first, _ = figures(c)
c.prompt(); c.say(" /Clear \n"); c.prompt(); c.say("the light\n"); again, held = figures(c)
ok("a command may have blanks around it, and capitals", first and again == first, (first, again))
c.prompt(); c.say(" /nothing \n")
ok("and so an unknown one", c.until("no command /nothing;") is not None, c.seen)
c.prompt(); c.say("/clear\n"); c.prompt(); c.say("of the sun"); c.until("sun"); c.say("\x03")
c.prompt(); c.say("the light\n"); again, _ = figures(c)
ok("Ctrl-C drops a line and nothing else", again == first, (first, again))
c.prompt(); c.say("/clear\n"); c.prompt(); c.say('"""\n'); c.until(r"\. "); c.say("of the\n"); c.until(r"\. "); c.say("\x03")
c.prompt(); c.say("the light\n"); again, _ = figures(c)
ok("and a message of several lines", again == first, (first, again))
c.prompt(); c.say("/clear\n"); c.prompt(); c.say('"""\n'); c.until(r"\. "); c.say("the light\n"); c.until(r"\. "); c.say("\x04"); again, _ = figures(c)
ok("Ctrl-D ends a message of several lines and sends it", again and again >= first, (first, again))
c.prompt(); c.say("\x03")
ok("Ctrl-C at an empty line says how to end", c.until("Ctrl-C once more") is not None, c.seen)
c.prompt(); c.say("\x03")
ok("and once more ends with 130", c.status() == 130)
c = Chat(); c.prompt(); c.say(" /EXIT \n")
ok("/EXIT ends too", c.status() == 0)
c = Chat("--raw")
ok("--raw wants a prompt", c.status() == 2)

import random
random.seed(6)
def lost(times):
    """Of so many Ctrl-Cs that come as a prompt is drawn, how many nobody heard."""
    n = 0
    for _ in range(times):
        c = Chat("-T", "0", "-n", "1")
        c.until("> "); time.sleep(random.random() * 0.004); c.say("\x03")
        n += c.until("Ctrl-C once more", 5) is None
        c.until("> "); time.sleep(random.random() * 0.004); c.say("\x03")
        n += c.status() != 130
    return n
os.environ["TERM"] = "dumb"
def ended_ahead():
    c = Chat("-T", "0", "-n", "300", "--logit-bias", "40=1000")
    c.prompt(); c.say("the\n"); c.until("EEE"); c.say("\x04")
    return c.status()
ok("Ctrl-D while an answer comes ends the chat behind it", ended_ahead() == 0)
n_lost = lost(20)
ok("no Ctrl-C is lost as a prompt is drawn", n_lost == 0, n_lost)

# With a line editor, where libedit is there: history, pastes, characters of two columns.
os.environ["TERM"] = "xterm"
c = Chat("-v", "-T", "0", "-n", "4")
c.prompt(); c.say("the light\n"); first, _ = figures(c)
c.prompt(); c.say("/clear\n"); c.prompt()
try:
    ctypes.CDLL("libedit.so.2")
except OSError:
    print("skip - the line editor: libedit.so.2 is not installed")
else:
    c.say("\x1b[A\x1b[A\n")                                # up, up: the line before /clear
    again, _ = figures(c)
    ok("the arrow up brings back a line", again == first, (first, again))
    c.prompt(); c.say("/clear\n"); c.prompt(); c.say("한국어\x1b[D\x1b[D\x7fthe light\x05\x7f\x7f\n")  # left twice, erase, type, end, erase two
    wide, _ = figures(c)
    ok("the cursor moves and erases by whole wide characters", wide == first, (first, wide))
    c.prompt(); c.say("/clear\n"); c.prompt(); c.say('"""\nthe\nsun\n"""\n'); block, _ = figures(c)
    c.prompt(); c.say("/clear\n"); c.prompt(); c.say("the\nsun\n")
    pasted, _ = figures(c)
    ok("a paste of two lines is one message", pasted and first < pasted <= block, (first, pasted, block))
    c.prompt(); c.say("/clear\n"); c.prompt(); c.say('"""\n'); c.until(r"\. "); c.say("the\n"); c.until(r"\. "); c.say("sun\n"); c.until(r"\. "); c.say('"""\n')
    typed, _ = figures(c)
    ok("lines between quotes are the same message pasted and typed", typed == block, (typed, block))
    os.environ["LUMEN_TRACE"] = "chat"
    for way, words in ("pasted", ['"""\n\n']), ("typed", ['"""\n', "\n"]):
        d = Chat("-T", "0", "-n", "1")
        d.prompt()
        for w in [*words, "x\n"]:
            d.say(w); d.until(r"\. ")
        d.say('"""\n')
        ok(f"an empty line behind the quotes stays, {way}", d.until("user\n\nx\n<") is not None, d.seen)
        d.prompt(); d.say("\x04"); d.status()
    d = Chat("-T", "0", "-n", "1")
    d.prompt(); d.say("\tthe\t\tsun\n")
    ok("a tab is a tab", d.until("user\n\tthe\t\tsun<") is not None, d.seen)
    d.prompt(); d.say("\u1112\u1161\u11ab\u1100\u116e\u11a8\u110b\u1165\x7fe\u0302\u0301x\u0301\xa0|\n")
    ok("letters that make a character are one, for backspace and the model", d.until("user\n한국\u1ebfx\u0301\xa0\\|<") is not None, d.seen)
    d.prompt(); d.say("\x04")
    ok("Ctrl-D ends an edited chat", d.status() == 0)
    del os.environ["LUMEN_TRACE"]
    c.prompt(); c.say("/clear\n"); c.prompt(); c.say("of the sun\x1b[D"); c.until("sun"); c.say("\x03"); c.prompt(); c.say("the light\n"); again, _ = figures(c)
    ok("Ctrl-C drops a line that is edited", again == first, (first, again))
    c.prompt(); c.say("the"); c.until("the"); c.say("\x03"); c.prompt(); c.say("\x03")
    ok("it does not end the chat", c.until("Ctrl-C once more") is not None, c.seen)
ok("Ctrl-D while an answer comes ends the chat behind it, with an editor", ended_ahead() == 0)
n_lost = lost(20)
ok("no Ctrl-C is lost as the editor begins", n_lost == 0, n_lost)
c.prompt(); c.say("\x04")
ok("and the editor leaves at the end of input", c.status() == 0)

p = subprocess.Popen([LUMEN, "run", MODEL, "the", "--raw", *ENDLESS], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
first = p.stdout.read(1)
p.send_signal(signal.SIGINT)
text, err = p.communicate(timeout=60)
ok("Ctrl-C stops a single answer with 130", p.returncode == 130, (p.returncode, err))
ok("its text ends with a newline", text.endswith(b"\n"), text[-5:])
P
python3 "$TEST_TMP/chat.py" "$LUMEN" > "$out" 2> "$err" || not_ok "the chat script runs" "$(tail -n 2 "$err")"
cat "$out"
if grep -q '^not ok' "$out"; then exit 1; fi
finish
