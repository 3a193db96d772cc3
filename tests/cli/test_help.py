"""Help, version and completion scripts."""
import re
import shutil
import subprocess
import unittest

from support import BINARY, Case

COMMANDS = ["run", "chat", "pull", "list", "rm", "inspect", "tokenize", "render", "logits", "bench",
            "completions"]


class Help(Case):
    def test_top_level_names_every_command(self):
        text = self.succeed("--help").decode()
        for command in COMMANDS:
            self.assertRegex(text, rf"(?m)^  {command} ")
        self.assertIn("Exit codes", text)

    def test_every_command_has_help_with_an_example(self):
        for command in COMMANDS:
            text = self.succeed(command, "--help").decode()
            self.assertIn("Example", text, command)
            self.assertIn(f"honeycrisp {command}", text, command)
            self.assertLess(max(map(len, text.splitlines())), 400, command)

    def test_help_is_a_word_too(self):
        self.assertEqual(self.succeed("help"), self.succeed("--help"))
        for command in COMMANDS:
            self.assertEqual(self.succeed("help", command), self.succeed(command, "--help"))

    def test_help_of_what_is_no_command_is_refused(self):
        for arguments in (["help", "frobnicate"], ["frobnicate", "--help"]):
            self.assertIn('"frobnicate" is not a subcommand', self.fail_with(2, *arguments))

    def test_sampling_defaults_are_documented(self):
        text = self.succeed("run", "--help").decode()
        for option, default in [("--temp", "0.8"), ("--top-k", "40"), ("--top-p", "0.95"), ("--min-p", "0.05"),
                                ("--repeat-penalty", "1")]:
            self.assertRegex(text, rf"{option} [^\n]*{re.escape(default)}")

    def test_version(self):
        self.assertRegex(self.succeed("--version").decode(), r"^honeycrisp \d+\.\d+\.\d+\n$")

    def test_help_that_cannot_be_written_is_an_error(self):
        for arguments in (["--help"], ["--version"], ["run", "--help"]):
            with open("/dev/full", "wb") as full:
                result = subprocess.run([BINARY, *arguments], stdout=full, stderr=subprocess.PIPE, env=self.env,
                                        check=False)
            self.assertEqual(result.returncode, 1, arguments)
            self.assertIn(b"cannot write to standard output", result.stderr)

    def test_help_does_not_touch_the_cache(self):
        self.succeed("--help")
        self.assertEqual(list(self.folder.iterdir()), [])


class Completions(Case):
    def test_every_long_option_of_the_help_is_completed(self):
        scripts = {shell: self.succeed("completions", shell).decode() for shell in ("bash", "zsh", "fish")}
        for command in COMMANDS:
            options = set(re.findall(r"--[a-z][a-z-]+", self.succeed(command, "--help").decode().split("Example")[0]))
            self.assertIn("--help", options)
            for option in options - {"--unfinished"} if command != "rm" else options:
                self.assertIn(option, scripts["bash"], command)
                self.assertIn(option, scripts["zsh"], command)
                self.assertIn(f"-l {option[2:]}", scripts["fish"], command)

    def test_scripts_parse(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.succeed("completions", shell)
            if shutil.which(shell):
                result = subprocess.run([shell, "-n"], input=script, capture_output=True, check=False)
                self.assertEqual((result.returncode, result.stderr), (0, b""), shell)

    def complete_in_bash(self, line):
        script = f"""
            PATH="$(dirname {BINARY}):$PATH"
            source <(honeycrisp completions bash)
            COMP_WORDS=({line} "$1"); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _honeycrisp
            printf '%s\\n' "${{COMPREPLY[@]}}" """
        return lambda word: subprocess.run(["bash", "-c", script, "bash", word], capture_output=True, text=True,
                                           env=self.env, check=True).stdout.split()

    def test_bash_completes_commands_options_and_choices(self):
        self.assertEqual(self.complete_in_bash("honeycrisp")("tok"), ["tokenize"])
        self.assertEqual(self.complete_in_bash("honeycrisp run")("--kv"), ["--kv-type"])
        self.assertEqual(self.complete_in_bash("honeycrisp run --kv-type")("f"), ["f16", "f32"])
        self.assertEqual(self.complete_in_bash("honeycrisp completions")("z"), ["zsh"])

    def test_bash_completes_names_of_models(self):
        models = self.folder / "cache" / "models"
        models.mkdir(parents=True)
        (models / "pear.gguf").write_bytes(b"GGUF")
        self.assertEqual(self.complete_in_bash("honeycrisp run -m")("pe"), ["pear"])


if __name__ == "__main__":
    unittest.main()
