"""Hostile and odd files as a model, in every command: one line of error, exit code 1, quickly, without a signal."""
import os
import resource
import subprocess
import time
import unittest

from support import BINARY, DATA, SANITIZED, Case, chat_model, hostile_folder

# Commands that open a model, as functions of its path.
COMMANDS = {
    "inspect": lambda model, folder: ["inspect", model],
    "inspect --json": lambda model, folder: ["inspect", model, "--json"],
    "inspect --program": lambda model, folder: ["inspect", model, "--program"],
    "tokenize": lambda model, folder: ["tokenize", "-m", model],
    "render": lambda model, folder: ["render", "-m", model, "--json", f"{folder}/chat.json"],
    "run": lambda model, folder: ["run", "-m", model, "-p", "x", "-n", "2"],
    "run --no-mmap": lambda model, folder: ["run", "-m", model, "-p", "x", "-n", "2", "--no-mmap"],
    "chat": lambda model, folder: ["chat", "-m", model],
    "logits": lambda model, folder: ["logits", "-m", model, "--tokens", f"{folder}/tokens", "--out", f"{folder}/out"],
}


class ModelFiles(Case):
    @classmethod
    def setUpClass(cls):
        cls.cases = hostile_folder(cls)

    def setUp(self):
        super().setUp()
        self.write("chat.json", '{"messages": []}')
        self.write("tokens", "1 2 3")

    def every_command(self, model):
        for command, arguments in COMMANDS.items():
            yield command, arguments(model, str(self.folder))

    def test_hostile_files_are_refused_by_every_command(self):
        for name, (path, verdict, words) in self.cases.items():
            if verdict != "refused":
                continue
            for command, arguments in self.every_command(str(path)):
                if SANITIZED and command not in ("inspect", "run"):
                    continue
                with self.subTest(file=name, command=command):
                    started = time.monotonic()
                    line = self.fail_with(1, *arguments)
                    self.assertIn(words, line)
                    self.assertLess(len(line), 4200)
                    if not SANITIZED:
                        self.assertLess(time.monotonic() - started, 1)
        self.assertFalse((self.folder / "out").exists())

    def test_readable_files_end_in_an_error_or_an_answer(self):
        for name, (path, verdict, _) in self.cases.items():
            if verdict == "refused":
                continue
            for command, arguments in self.every_command(str(path)):
                with self.subTest(file=name, command=command):
                    result = self.run_binary(*arguments)
                    self.assertIn(result.returncode, (0, 1), result.stderr)
                    self.assertNotIn(b"\x1b", result.stderr)
                    self.assertNotIn(b"\x1b", result.stdout if command.startswith("inspect") else b"")

    def test_odd_paths(self):
        os.mkfifo(self.folder / "fifo")
        os.mkdir(self.folder / "directory.gguf")
        os.symlink(self.folder / "loop", self.folder / "loop")
        for name in ("fifo", "directory.gguf", "loop", "absent.gguf", "absent/absent.gguf"):
            for command, arguments in self.every_command(str(self.folder / name)):
                with self.subTest(path=name, command=command):
                    self.fail_with(1, *arguments, timeout=10)
        for path in ("/dev/null", "/dev/zero"):
            self.fail_with(1, "inspect", path, timeout=10)

    def test_why_a_path_does_not_open_is_said(self):
        os.symlink(self.folder / "loop", self.folder / "loop")
        self.assertIn("symbolic links", self.fail_with(1, "inspect", str(self.folder / "loop")))
        self.assertIn("`honeycrisp pull https://example.org/a.gguf`",
                      self.fail_with(1, "inspect", "https://example.org/a.gguf"))

    def test_names_of_every_kind_are_opened(self):
        content = self.cases["valid"][0].read_bytes()
        for name in (b"with space.gguf", "🍎 naïve.gguf".encode(), b"new\nline.gguf", b"bad\xff\xfeutf8.gguf", b"-dash.gguf",
                     b"esc\x1b[31m.gguf"):
            path = os.path.join(os.fsencode(self.folder), name)
            with open(path, "wb") as file:
                file.write(content)
            with self.subTest(name=name):
                self.succeed("run", "-m", path, "-p", "x", "-n", "2")
                self.assertNotIn(b"\x1b", self.succeed("inspect", path))
                self.succeed("inspect", path, "--json")
            os.truncate(path, 40)
            with self.subTest(name=name, broken=True):
                self.fail_with(1, "run", "-m", path, "-p", "x")

    def test_a_file_cut_short_while_it_is_in_use_is_an_error(self):
        path = self.write("shrinking.gguf", chat_model(self.cases))
        process = subprocess.Popen([BINARY, "chat", "-m", str(path), "-n", "2", "-t", "1"], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
        process.stdin.write(b"hi\n")
        process.stdin.flush()
        self.assertTrue(process.stdout.read(1))
        os.truncate(path, 0)
        errors = process.communicate(b"hi\n", timeout=60)[1]
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn(b"--no-mmap", errors)

    def test_a_limit_on_file_sizes_is_an_error(self):
        out = self.folder / "logits.f32"
        line = self.fail_with(1, "logits", "-m", str(DATA / "families" / "llama.gguf"), "--tokens",
                              str(DATA / "families" / "llama.tokens.txt"), "--out", str(out),
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096)))
        self.assertIn("File too large", line)
        self.assertEqual(list(self.folder.glob("logits*")), [])

    def test_unreadable_file(self):
        path = self.write("secret.gguf", self.cases["valid"][0].read_bytes())
        path.chmod(0)
        if os.access(path, os.R_OK):
            self.skipTest("this user may read everything")
        self.assertIn("Permission denied", self.fail_with(1, "inspect", str(path)))

    def test_split_model_opens_by_any_shard(self):
        shard = self.cases["valid_one_shard-00001-of-00001"][0]
        self.succeed("run", "-m", str(shard), "-p", "x", "-n", "2")


class Names(Case):
    def test_unknown_name_lists_known_ones(self):
        line = self.fail_with(1, "run", "-m", "granny-smith", "-p", "x")
        self.assertIn("granny-smith", line)
        self.assertIn("smollm2", line)
        self.assertIn("honeycrisp list", line)

    def test_known_name_that_is_not_there_says_how_to_fetch_it(self):
        self.assertIn("honeycrisp pull gemma3-270m", self.fail_with(1, "inspect", "gemma3-270m"))

    def test_names_cannot_leave_the_cache(self):
        models = self.folder / "cache" / "models"
        models.mkdir(parents=True)
        (self.folder / "outside.gguf").write_bytes(b"GGUF")
        for name in ("../../outside", "..", ".", "models/..", "\x1b[31m"):
            self.fail_with(1, "inspect", name)
            self.fail_with(1, "rm", name)
        self.assertTrue((self.folder / "outside.gguf").exists())


if __name__ == "__main__":
    unittest.main()
