"""run: what goes where, prompts from everywhere, interrupts and closed pipes."""
import re
import signal
import subprocess
import time
import unittest

from support import BINARY, Case, Terminal, chat_model, environment, hostile_folder, plain_model


class RunCase(Case):
    @classmethod
    def setUpClass(cls):
        cls.cases = hostile_folder(cls)

    def setUp(self):
        super().setUp()
        self.model = str(self.write("chat.gguf", chat_model(self.cases)))
        self.plain = str(self.write("plain.gguf", plain_model(self.cases)))


class Run(RunCase):
    def test_the_answer_alone_goes_to_stdout(self):
        result = self.run_binary("run", "-m", self.model, "-p", "hi", "-n", "5", "--temp", "0")
        self.assertEqual(result.returncode, 0)
        quiet = self.run_binary("run", "-m", self.model, "-p", "hi", "-n", "5", "--temp", "0", "--quiet")
        self.assertEqual(quiet.stdout, result.stdout)
        self.assertEqual(quiet.stderr, b"")
        both = subprocess.run([BINARY, "run", "-m", self.model, "-p", "hi", "-n", "5", "--temp", "0"],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=self.env, check=True).stdout
        self.assertTrue(both.startswith(quiet.stdout.removesuffix(b"\n") + b"\nprefill "), both)
        self.assertRegex(result.stderr.decode(),
                         r"^prefill \d+ tokens?, [\d.]+ tok/s; decode \d+ tokens?, [\d.]+ tok/s\n"
                         r"[\d.]+ GB/s of weights, \d+ % of [\d.]+ GB/s measured( \(.*\))?; seed \d+\n$")

    def test_no_escape_bytes_without_a_terminal(self):
        for env in (self.env, {**self.env, "CLICOLOR_FORCE": "1"}):
            result = self.run_binary("run", "-m", self.model, "-p", "hi", "-n", "30", "--temp", "0", env=env)
            self.assertNotIn(b"\x1b", result.stderr)
            self.assertNotIn(b"\x1b", self.run_binary("run", "-m", "absent", "-p", "x", env=env).stderr)

    def test_prompt_from_stdin_is_the_same_prompt(self):
        options = ("run", "-m", self.model, "-n", "8", "--temp", "0", "-q")
        self.assertEqual(self.succeed(*options, stdin="what?\n"), self.succeed(*options, "-p", "what?"))
        self.assertIn("empty", self.fail_with(1, *options, stdin=""))
        self.assertIn("empty", self.fail_with(1, *options, stdin="\n"))

    def test_same_seed_same_answer(self):
        def answer(seed):
            return self.succeed("run", "-m", self.model, "-p", "hi", "-n", "20", "--temp", "1.5", "--seed", seed, "-q")
        self.assertEqual(answer("7"), answer("7"))
        self.assertGreater(len({answer(str(seed)) for seed in range(5)}), 1)

    def test_the_seed_that_was_drawn_is_shown_and_repeats(self):
        options = ("run", "-m", self.model, "-p", "hi", "-n", "20", "--temp", "1.5")
        first = self.run_binary(*options)
        seed = re.search(rb"seed (\d+)", first.stderr).group(1)
        self.assertEqual(self.succeed(*options, "--seed", seed), first.stdout)

    def test_a_model_without_a_template_continues_the_text_and_says_so(self):
        result = self.run_binary("run", "-m", self.plain, "-p", "hi", "-n", "3", "--temp", "0")
        self.assertIn(b"no chat template", result.stderr)
        raw = self.run_binary("run", "-m", self.plain, "-p", "hi", "-n", "3", "--temp", "0", "--raw")
        self.assertEqual(raw.stdout, result.stdout)
        self.assertNotIn(b"template", raw.stderr)

    def test_raw_and_templated_prompts_differ(self):
        self.assertNotEqual(self.prefill("--raw"), self.prefill())
        self.assertGreater(self.prefill("--system", "Be brief"), self.prefill())

    def prefill(self, *options):
        result = self.run_binary("run", "-m", self.model, "-p", "hi", "-n", "1", *options)
        return int(re.search(rb"prefill (\d+)", result.stderr).group(1))

    def test_chat_template_from_a_file(self):
        template = self.write("t.jinja", "{% for m in messages %}{{ m.content * 3 }}{% endfor %}")
        result = self.run_binary("run", "-m", self.plain, "-p", "hi", "-n", "1", "--chat-template", str(template))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("chat template, line 1", self.fail_with(1, "run", "-m", self.plain, "-p", "x", "--chat-template",
                                                       str(self.write("bad.jinja", "{% if %}"))))

    def test_system_text_needs_a_template(self):
        self.assertIn("--chat-template", self.fail_with(1, "run", "-m", self.plain, "-p", "x", "--system", "y"))

    def test_stop_texts_end_the_answer_before_them(self):
        options = ("run", "-m", self.model, "-p", "hi", "--temp", "0", "-q")
        whole = self.succeed(*options, "-n", "30").decode(errors="replace")
        stop = whole[4:6]
        stopped = self.succeed(*options, "-n", "30", "--stop", stop).decode(errors="replace")
        self.assertEqual(stopped, whole[:whole.index(stop)])

    def test_a_full_context_ends_the_answer_and_says_so(self):
        result = self.run_binary("run", "-m", self.model, "-p", "hi", "-c", "64", "--ignore-eos")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn(b"context of 64 positions is full", result.stderr)
        self.assertEqual(self.run_binary("run", "-m", self.model, "-p", "hi", "-c", "64", "--ignore-eos", "-q").stderr, b"")

    def test_quiet_leaves_out_warnings_too(self):
        words = ("run", "-m", self.model, "-p", "hi", "-n", "1", "-c", "100000")
        self.assertIn(b"warning: a context of 100000 is more than", self.run_binary(*words).stderr)
        self.assertEqual(self.run_binary(*words, "-q").stderr, b"")

    def test_prompt_of_the_size_of_the_context(self):
        tokens = self.prefill("--raw")
        for context, code in ((tokens - 1, 1), (tokens, 1), (tokens + 1, 0)):
            result = self.run_binary("run", "-m", self.model, "-p", "hi", "--raw", "-c", str(max(context, 1)), "-n", "5")
            self.assertEqual(result.returncode, code if context > 0 else 1, result.stderr)
            if code:
                self.assertIn(str(tokens).encode(), result.stderr)

    def test_no_tokens_wanted(self):
        self.assertEqual(self.succeed("run", "-m", self.model, "-p", "hi", "-n", "0"), b"")

    def test_without_mmap_the_answer_is_the_same(self):
        options = ("run", "-m", self.model, "-p", "hi", "-n", "8", "--temp", "0", "-q")
        self.assertEqual(self.succeed(*options), self.succeed(*options, "--no-mmap"))


class Pipes(RunCase):
    def start(self, *options):
        return subprocess.Popen([BINARY, "run", "-m", self.model, "-p", "hi", "--ignore-eos", *options], env=self.env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)

    def test_a_reader_that_leaves_ends_it_quietly(self):
        process = self.start()
        process.stdout.read(1)
        process.stdout.close()
        error = process.stderr.read()
        self.assertEqual((process.wait(timeout=20), error), (0, b""))
        process.stderr.close()

    def test_a_full_disk_is_an_error(self):
        with open("/dev/full", "wb") as full:
            result = subprocess.run([BINARY, "run", "-m", self.model, "-p", "hi", "-n", "5"], env=self.env, stdout=full,
                                    stderr=subprocess.PIPE, check=False)
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"No space left", result.stderr)

    def test_interrupt_exits_with_130_and_keeps_the_text(self):
        process = self.start("-c", "500")
        first = process.stdout.read(1)
        process.send_signal(signal.SIGINT)
        rest, error = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130, error)
        self.assertTrue(first + rest)
        self.assertNotIn(b"\x1b", error)

    def test_interrupt_while_reading_the_prompt(self):
        process = subprocess.Popen([BINARY, "run", "-m", self.model], env=self.env, stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        time.sleep(0.3)
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130)


class InATerminal(RunCase):
    def terminal(self, *arguments, **changes):
        terminal = Terminal(*arguments, env=environment(**{**self.env, **changes}))
        self.addCleanup(terminal.close)
        return terminal

    def test_errors_are_coloured_and_reset_unless_unwanted(self):
        for changes, colored in (({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True), ({"TERM": "dumb"}, False),
                                 ({"TERM": None}, False)):
            terminal = self.terminal("run", "-m", "absent", "-p", "x", **changes)
            self.assertEqual(terminal.finish(), 1)
            self.assertEqual(b"\x1b[31m" in terminal.output, colored, changes)
            self.assertEqual(terminal.output.count(b"\x1b[0m"), int(colored))

    def test_control_characters_of_the_model_do_not_reach_the_terminal(self):
        terminal = self.terminal("run", "-m", self.model, "-p", "hi", "-n", "200", "--temp", "100", "--ignore-eos",
                                 NO_COLOR="1")
        self.assertEqual(terminal.finish(), 0)
        self.assertNotRegex(terminal.output, rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")

    def test_answer_ends_with_a_newline(self):
        terminal = self.terminal("run", "-m", self.model, "-p", "hi", "-n", "3", "--temp", "0")
        terminal.finish()
        self.assertRegex(terminal.output, rb"\r\nprefill [^\n]*\r\n[^\n]*; seed \d+\r\n$")

    def test_a_prompt_is_needed(self):
        terminal = self.terminal("run", "-m", self.model)
        self.assertEqual(terminal.finish(), 2)
        self.assertIn(b"-p", terminal.output)


if __name__ == "__main__":
    unittest.main()
