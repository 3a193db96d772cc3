"""Wrong usage: exit code 2, one line that says what to do; never a crash."""
import unittest

from support import Case, chat_model, hostile_folder


class Usage(Case):
    @classmethod
    def setUpClass(cls):
        cls.cases = hostile_folder(cls)

    def setUp(self):
        super().setUp()
        self.model = str(self.write("chat.gguf", chat_model(self.cases)))

    def test_no_command(self):
        self.assertIn("--help", self.fail_with(2))

    def test_unknown_command_and_option(self):
        self.fail_with(2, "frobnicate")
        line = self.fail_with(2, "run", "--frobnicate", "-p", "x")
        self.assertIn("--frobnicate", line)
        self.assertIn("honeycrisp run --help", line)

    def test_options_of_other_programs_are_answered(self):
        for command in ("run", "chat", "bench"):
            self.assertRegex(self.fail_with(2, command, "-m", self.model, "-ngl", "99"),
                             r'"-ngl" is not an option: a model runs whole .*--backend auto.* \(see')
        for words, hint in ((("--n-gpu-layers=99",), "--backend auto"), (("--ctx-size", "64"), "-c gives"),
                            (("--n-predict", "5"), "-n limits"), (("-ctk", "q8_0"), "--kv-type"), (("-fa",), "tiles")):
            self.assertIn(hint, self.fail_with(2, "run", "-m", self.model, "-p", "x", *words))

    def test_stray_words_are_told_where_they_go(self):
        self.assertIn("-p", self.fail_with(2, "run", "hello"))
        for command in ("bench", "chat", "tokenize"):
            self.assertRegex(self.fail_with(2, command, "smollm2"), r'"smollm2" was not expected: a model goes after -m \(')

    def test_required_options_are_named(self):
        self.assertIn("--tokens", self.fail_with(2, "logits", "--out", "x"))
        self.assertIn("--json", self.fail_with(2, "render"))
        self.assertIn("FILE", self.fail_with(2, "inspect"))
        self.assertIn("WHAT", self.fail_with(2, "pull"))
        self.assertIn("NAME", self.fail_with(2, "rm"))
        self.assertIn("SHELL", self.fail_with(2, "completions"))

    def test_numbers_out_of_range_and_junk(self):
        for option, values in {
            "-c": ["0", "-1", "4294967295", "4294967296", "99999999999999999999", "abc", "", "1.5", "1e3", "0x10", " 8"],
            "-n": ["-2", "x", "3000000000", ""],
            "-t": ["0", "-1", "100000", "two"],
            "--temp": ["nan", "inf", "-1", "1e999", "hot", "", "0,5"],
            "--top-p": ["1.1", "-0.1", "nan"],
            "--min-p": ["2", "-1"],
            "--top-k": ["-2", "1e9", "99999999999"],
            "--repeat-penalty": ["0", "-1", "nan"],
            "--seed": ["-1", "x", "18446744073709551616"],
            "--logit-bias": ["x", "1", "1:", "1:x", "-1:2", "1:nan", "1:inf", "99999999999:1"],
            "--kv-type": ["f64", ""],
            "--backend": ["abacus", ""],
        }.items():
            for value in values:
                line = self.fail_with(2, "run", "-m", self.model, "-p", "x", option, value)
                self.assertIn(option, line)

    def test_extreme_but_legal_numbers_run(self):
        for options in (["--temp", "1e9"], ["--temp", "1e-9"], ["--top-k", "-1"], ["--top-k", "1000000000"],
                        ["--top-p", "0"], ["--top-p", "1e-9"], ["--min-p", "1"], ["--seed", "18446744073709551615"],
                        ["--logit-bias", "3:-inf", "--logit-bias", "4=1.5", "--logit-bias", "5+2", "--logit-bias", "6-inf"],
                        ["-c", "64"], ["-t", "1"]):
            self.succeed("run", "-m", self.model, "-p", "x", "-n", "2", *options)

    def test_greedy_ignores_the_other_samplers(self):
        answers = {self.succeed("run", "-m", self.model, "-p", "x", "-n", "8", "--temp", "0", "--top-p", top_p, "--top-k",
                                top_k, "--min-p", min_p)
                   for top_p in ("0", "1e-9", "1") for top_k in ("-1", "0", "1", "1000000000") for min_p in ("0", "1")}
        self.assertEqual(len(answers), 1)

    def test_context_too_small_for_the_prompt_names_both_numbers(self):
        line = self.fail_with(1, "run", "-m", self.model, "-p", "a long prompt", "-c", "1")
        self.assertIn("1", line)
        self.assertRegex(line, r"\d+ .*\d+|context")

    def test_a_token_outside_the_vocabulary_is_refused(self):
        self.assertIn("12345678", self.fail_with(1, "run", "-m", self.model, "-p", "x", "--logit-bias", "12345678:1"))

    def test_an_unknown_instruction_set_is_refused_whatever_the_backend_was(self):
        for backend in ("auto", "cpu"):
            line = self.fail_with(1, "run", "-m", self.model, "-p", "x", "-n", "2", "--backend", backend,
                                  env={**self.env, "HONEYCRISP_ISA": "pdp11"})
            self.assertIn("HONEYCRISP_ISA", line)
            self.assertIn("scalar", line)

    def test_empty_model_name(self):
        self.fail_with(1, "run", "-m", "", "-p", "x")


if __name__ == "__main__":
    unittest.main()
