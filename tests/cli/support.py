"""What the black-box tests share: running the binary with pipes or in a pseudo-terminal, tiny model files, and places
that are removed after each test."""
import os
import pty
import re
import select
import shutil
import signal
import struct
import subprocess
import tempfile
import termios
import time
import unittest
from pathlib import Path

BINARY = os.environ["HONEYCRISP_BINARY"]
DATA = Path(__file__).resolve().parent.parent / "data"
SANITIZED = bool(os.environ.get("HONEYCRISP_SANITIZE"))  # slower by an order of magnitude
TIME_FACTOR = 10 if SANITIZED else 1

CHAT_TEMPLATE = ("{% for m in messages %}[{{ m.role }}]{{ m.content }}\n{% endfor %}"
                 "{% if add_generation_prompt %}[assistant]{% endif %}")


def environment(**changes):
    """A plain environment of its own; None removes a variable."""
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TERM": "xterm"}
    env.update({name: value for name, value in os.environ.items() if name.startswith(("ASAN", "UBSAN", "TSAN"))})
    for name, value in changes.items():
        if value is None:
            env.pop(name, None)
        else:
            env[name] = str(value)
    return env


class Case(unittest.TestCase):
    """A test with a folder of its own, which is also its home, cache and state."""

    def setUp(self):
        self.folder = Path(tempfile.mkdtemp(prefix="honeycrisp-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.env = environment(HOME=self.folder, HONEYCRISP_CACHE=self.folder / "cache")

    def run_binary(self, *arguments, stdin=b"", timeout=60, env=None, **options):
        if isinstance(stdin, str):
            stdin = stdin.encode()
        return subprocess.run([BINARY, *arguments], input=stdin, capture_output=True, timeout=timeout * TIME_FACTOR,
                              env=env or self.env, check=False, **options)

    def succeed(self, *arguments, **options):
        """Runs, expects exit code 0, returns stdout."""
        result = self.run_binary(*arguments, **options)
        self.assertEqual(result.returncode, 0, (arguments, result.stderr[-2000:]))
        return result.stdout

    def fail_with(self, code, *arguments, **options):
        """Runs, expects this exit code and one line of error; returns the line."""
        result = self.run_binary(*arguments, **options)
        self.assertEqual(result.returncode, code, (arguments, result.stdout[-500:], result.stderr[-2000:]))
        lines = result.stderr.decode().splitlines()
        self.assertEqual(len(lines), 1, (arguments, lines))
        self.assertTrue(lines[0].startswith("honeycrisp: "), lines)
        self.assertNotIn(b"\x1b", result.stderr)
        return lines[0]

    def write(self, name, content):
        path = self.folder / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path


def hostile_folder(test_class):
    """The generated GGUF files, once per class: {name: (path, verdict, words)}."""
    folder = Path(tempfile.mkdtemp(prefix="honeycrisp-hostile-"))
    test_class.addClassCleanup(shutil.rmtree, folder, ignore_errors=True)
    subprocess.run([os.environ["HONEYCRISP_MAKE_HOSTILE"], str(folder)], check=True)
    cases = {}
    for line in (folder / "cases.tsv").read_text(encoding="utf-8").splitlines():
        name, verdict, words = line.split("\t")
        cases[name.removesuffix(".gguf")] = (folder / name, verdict, words)
    return cases


def with_metadata(gguf, key, text):
    """The file's bytes with one more string key. Padded so that the data keeps its alignment."""
    magic, version, tensors, keys = struct.unpack_from("<4sIQQ", gguf)
    name, value = key.encode(), text.encode()
    size = 8 + len(name) + 4 + 8 + len(value)
    value += b" " * (-size % 64)
    entry = struct.pack("<Q", len(name)) + name + struct.pack("<IQ", 8, len(value)) + value
    return struct.pack("<4sIQQ", magic, version, tensors, keys + 1) + entry + gguf[24:]


def plain_model(cases):
    """The bytes of a tiny model with random weights and no chat template: its key is renamed."""
    return cases["valid"][0].read_bytes().replace(b"tokenizer.chat_template", b"tokenizer.chat_somethin")


def chat_model(cases):
    """The same with a chat template that is easily read."""
    return with_metadata(plain_model(cases), "tokenizer.chat_template", CHAT_TEMPLATE)


class Terminal:
    """The binary in a pseudo-terminal of its own session, so that Ctrl-C reaches it as it would from a keyboard."""

    def __init__(self, *arguments, env, columns=100):
        self.output = b""
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ["COLUMNS"] = str(columns)
            os.execve(BINARY, [BINARY, *arguments], env)
        self.status = None

    def read_until(self, pattern, timeout=30):
        """Reads until the pattern appears in what came since the last call; returns that text."""
        deadline = time.monotonic() + timeout * TIME_FACTOR
        wanted = re.compile(pattern if isinstance(pattern, bytes) else pattern.encode(), re.DOTALL)
        while True:
            match = wanted.search(self.output)
            if match:
                text, self.output = self.output[:match.end()], self.output[match.end():]
                if text.endswith(b"> "):
                    self.wait_for_editor(deadline)
                return text
            if not self.read_some(deadline - time.monotonic()):
                raise AssertionError(f"waited for {pattern!r}, got {self.output[-2000:]!r}")

    def wait_for_editor(self, deadline):
        """libedit shows its prompt a moment before it takes the terminal over; keys in between mean something else."""
        while termios.tcgetattr(self.fd)[3] & termios.ICANON and time.monotonic() < deadline:
            time.sleep(0.002)

    def read_some(self, timeout):
        if timeout <= 0 or not select.select([self.fd], [], [], timeout)[0]:
            return False
        try:
            block = os.read(self.fd, 65536)
        except OSError:  # the other side has gone
            return False
        self.output += block
        return bool(block)

    def send(self, text):
        os.write(self.fd, text if isinstance(text, bytes) else text.encode())

    def finish(self, timeout=30):
        """Reads to the end; returns the exit code, and minus the signal if one ended it."""
        deadline = time.monotonic() + timeout * TIME_FACTOR
        while self.read_some(deadline - time.monotonic()):
            pass
        while time.monotonic() < deadline:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
                return self.status
            time.sleep(0.01)
        raise AssertionError("the program does not end")

    def close(self):
        if self.status is None:
            try:
                os.kill(self.pid, signal.SIGKILL)
                os.waitpid(self.pid, 0)
            except (ProcessLookupError, ChildProcessError):
                pass
        os.close(self.fd)
