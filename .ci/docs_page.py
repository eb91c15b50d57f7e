"""Finds the blocks of a page and runs them. The language of a block says by what, comments before it say how:

  expect: REGEX              what it shows has that in it
  background until: REGEX    it goes on running, once it has shown that
  there: REGEX               it is repeated until what was begun last shows that
  type: TEXT                 what a reader types into what goes on running
  with NAME from dev: REGEX  a variable that a reader takes from what the page began first, for this block and those after it
  given: TEXT, then: TEXT    what a reader has before it, and does after it, in the same language
  excerpt of: FILE           it stands there, and is compiled
  token for: URL             these claims, signed, open that
"""
import base64
import contextlib
import hmac
import os
import pathlib
import re
import signal
import subprocess
import urllib.request

from docs_machine import wait_for

HINTS = {"expect", "background until", "there", "type", "given", "then", "excerpt of", "token for"}
BLOCK = re.compile(r"((?:^<!-- [^\n]* -->\n)*)^```(\w*)\n(.*?)^```$", re.S | re.M)
NEEDED = {"sh": None, "sql": None, "js": None, "yaml": None, "toml": None, "text": None, "rust": "excerpt of", "json": "token for"}
TARGET = pathlib.Path(__file__).absolute().parent.parent / os.environ.get("CARGO_TARGET_DIR", "target")
WITHIN = 900  # seconds, of which most is compiling


def can_be_run(language, hints):
    return language in NEEDED and NEEDED[language] in (None, *hints)


def blocks(page):
    """Line, language, hints and text of each block. What Markdown knows as a block and this does not is an error."""
    text = pathlib.Path(page).read_text()
    found, rest = [], text
    for block in BLOCK.finditer(text):
        line = text.count("\n", 0, block.end(1)) + 1
        parts = (hint.partition(":") for hint in re.findall(r"<!-- (.*?) -->", block[1]))
        hints = {hint: value.strip() for hint, _, value in parts}
        unknown = [hint for hint in hints if hint not in HINTS and not re.fullmatch(r"with \w+( from dev)?", hint)]
        assert not unknown, f"{page}:{line}: nobody knows what {unknown} means"
        found.append((line, block[2], hints, block[3]))
        rest = rest.replace(block[0], re.sub(r"[^\n]+", "-", block[0]))
    odd = re.search(r"^ *(```|~~~)|(?<=\n\n) {4,}\S|(?<=-->\n) {4,}\S", rest, re.M)
    assert not odd, f"a block nobody runs: {page}:{rest.count(chr(10), 0, odd.start()) + 1}: it begins unlike others"
    return found


class Page:
    """What was begun on a page, and what its reader knows."""

    def __init__(self, name, log):
        self.name, self.log, self.begun, self.known = name, log, [], {}

    def shown(self, which=-1):
        return pathlib.Path(self.begun[which][1]).read_text()

    def command(self, language, text, hints):
        text = "\n".join(filter(None, [hints.get("given"), text.rstrip("\n"), hints.get("then")])) + "\n"
        if language == "sh":
            return ["bash", "-euo", "pipefail", "-c", text.replace("target/release", f"{TARGET}/release")], None, None
        if language == "sql":
            assert "DATABASE_URL" in self.known, "in which database?"
            return ["psql", self.known["DATABASE_URL"], "--no-psqlrc", "-At", "-v", "ON_ERROR_STOP=1"], text, None
        if language == "js":
            return ["node", "--input-type=module"], text, "tests/clients"
        if language == "yaml":
            return ["promtool", "check", "config", "--syntax-only", "/dev/stdin"], text, None
        return None

    def check(self, language, text, hints):
        """What is no program."""
        if language == "rust":
            whole = pathlib.Path(hints["excerpt of"]).read_text()
            assert " ".join(text.split()) in " ".join(whole.split()), f"{hints['excerpt of']} has another text"
        elif language == "toml":
            wanted = re.findall(r"^([\w-]+) = \{", text, re.M)
            known = pathlib.Path("Cargo.toml").read_text()
            assert wanted and all(f"\n{name} = {{ path" in known for name in wanted), "there is no such crate"
        elif language == "text":
            shown = " ".join(re.sub(r"\d+", "0", self.shown()).split())
            for line in text.replace("…", "").splitlines():
                assert " ".join(re.sub(r"\d+", "0", line).split()) in shown, f"no {line!r} in {self.shown()}"
        else:
            opens(hints["token for"], text)

    def run(self, language, hints, text):
        for hint, value in hints.items():
            if hint.startswith("with "):
                name, _, source = hint.removeprefix("with ").partition(" ")
                self.known[name] = re.search(value, self.shown(0), re.M).group(1) if source else value
        how = self.command(language, text, hints)
        if not how:
            return self.check(language, text, hints)
        command, stdin, cwd = how
        options = {"cwd": cwd, "env": {**os.environ, **self.known}, "text": True}
        if "background until" in hints:
            return self.begin(command, stdin, options, hints)

        def once():
            source = {"input": stdin} if stdin else {"stdin": subprocess.DEVNULL}
            done = subprocess.run(command, **source, **options, capture_output=True, timeout=WITHIN if "cargo" in text else 60)
            assert done.returncode == 0, f"exit code {done.returncode}: {done.stdout}{done.stderr}"
            assert re.search(hints.get("expect", ""), done.stdout), f"no {hints['expect']!r} in {done.stdout!r}"
            return re.search(hints.get("there", ""), self.shown() if self.begun else "")

        wait_for(once, hints.get("there"))

    def begin(self, command, stdin, options, hints):
        log = f"{self.log}/{len(self.begun)}"
        with open(log, "w") as out:
            process = subprocess.Popen(
                command, **options, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
            )
        self.begun.append((process, log))
        if stdin:
            process.stdin.write(stdin)
            process.stdin.close()

        def has(wanted):
            assert process.poll() is None, f"it ended:\n{self.shown()}"
            return re.search(wanted, self.shown())

        try:
            wait_for(lambda: has(hints["background until"]), hints["background until"], WITHIN)
            if "type" in hints:
                process.stdin.write(hints["type"] + "\n")
                process.stdin.flush()
            wait_for(lambda: has(hints.get("expect", "")), hints.get("expect"))
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.shown()}") from None

    def end(self):
        """What is begun first is ended last, and must end well; others are cut off in the middle of a stream."""
        for process, _ in reversed(self.begun):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(60)
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        return not self.begun or self.begun[0][0].returncode == 0


def opens(url, claims):
    """A login service does no more than this."""
    part = lambda data: base64.urlsafe_b64encode(data).rstrip(b"=")
    signed = part(b'{"alg":"HS256"}') + b"." + part(claims.encode())
    token = signed + b"." + part(hmac.digest(os.environ["AUTH_JWT_SECRET"].encode(), signed, "sha256"))
    request = urllib.request.Request(url, headers={"authorization": f"Bearer {token.decode()}"})
    assert urllib.request.urlopen(request).status == 200
