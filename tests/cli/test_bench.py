"""bench: what it reports, and that its figures agree with each other. Speeds themselves are not tested."""
import json
import unittest

from support import DATA, Case

MODEL = str(DATA / "families" / "llama.gguf")


class Bench(Case):
    def report(self, *options):
        return json.loads(self.succeed("bench", "-m", MODEL, "-p", "40", "-n", "6", "-r", "2", "--json", *options))

    def test_json_has_a_test_for_prefill_and_one_for_decode(self):
        report = self.report("--backend", "cpu", "--threads", "1")
        self.assertEqual([test["test"] for test in report["tests"]], ["pp40", "tg6"])
        for test in report["tests"]:
            self.assertEqual(len(test["runs"]), 2)
            self.assertGreater(test["tokens_per_second"], 0)
            self.assertLessEqual(test["least"], test["tokens_per_second"])
            self.assertLessEqual(test["tokens_per_second"], test["most"])
            self.assertGreaterEqual(test["percent_of_others"], 0)
            self.assertLessEqual(test["percent_of_others"], 100)
            for share, speed, ceiling in (("percent_of_bandwidth", "bytes_per_second", "read_ceiling"),
                                          ("percent_of_peak", "operations_per_second", "operation_ceiling")):
                self.assertAlmostEqual(test[share], 100 * test[speed] / test[ceiling], places=6)
        decode = report["tests"][1]
        self.assertGreater(decode["bytes_per_second"], decode["tokens_per_second"] * report["weight_bytes_per_token"])

    def test_ops_cover_the_whole_program(self):
        report = self.report("--backend", "cpu", "--ops")
        program = json.loads(self.succeed("inspect", MODEL, "--backend", "cpu", "--json"))["program"]
        for test in report["tests"]:
            self.assertEqual(sum(op["steps"] for op in test["ops"]), len(program["ops"]))
            self.assertEqual(sum(op["weight_bytes"] for op in test["ops"]), report["weight_bytes_per_token"])
            self.assertAlmostEqual(sum(op["bytes"] for op in test["ops"]), test["bytes_per_step"], delta=1)
            self.assertAlmostEqual(sum(op["operations"] for op in test["ops"]), test["operations_per_step"], delta=1)
            self.assertTrue(all(op["seconds"] > 0 for op in test["ops"]))

    def test_ops_of_mixtures_and_recurrent_layers(self):
        for family, op in (("qwen3moe", "experts"), ("qwen3next", "delta_net")):
            model = str(DATA / "families" / f"{family}.gguf")
            text = self.succeed("bench", "-m", model, "-p", "20", "-n", "4", "-r", "1", "--backend", "cpu",
                                "--ops").decode()
            self.assertRegex(text, rf"(?m)^  \S*{op}\S* .* %", family)

    def test_a_prompt_of_several_chunks_counts_the_work_of_one(self):
        whole, halves = self.report("--backend", "cpu"), self.report("--backend", "cpu", "--chunk", "20")
        one, half = whole["tests"][0], halves["tests"][0]
        self.assertLess(half["operations_per_step"], one["operations_per_step"])
        self.assertAlmostEqual(2 * half["operations_per_step"], one["operations_per_step"], delta=1)
        self.assertGreater(2 * half["bytes_per_step"], one["bytes_per_step"])

    def test_text_names_what_limits(self):
        text = self.succeed("bench", "-m", MODEL, "-p", "20", "-n", "4", "-r", "1", "--backend", "cpu").decode()
        self.assertRegex(text, r"(?m)^test +tokens/s +least … most +of memory +of peak$")
        self.assertRegex(text, r"(?m)^tg4: a step reads .*\n  .* of [\d.]+ GB/s; .*; (memory|arithmetic) limits$")

    def test_lines_fit_a_terminal(self):
        text = self.succeed("bench", "-m", MODEL, "-p", "20", "-n", "4", "-r", "1", "--backend", "cpu", "--ops").decode()
        lines = text.splitlines()
        self.assertEqual(lines[0], MODEL)
        self.assertLessEqual(max(map(len, lines[1:])), 80, text)

    def test_depth_and_sequences_are_in_the_name(self):
        report = self.report("--backend", "cpu", "-d", "30", "-s", "3")
        self.assertEqual([test["test"] for test in report["tests"]], ["pp40 @ d30", "tg6x3 @ d30"])

    def test_a_backend_without_limits_says_so(self):
        report = self.report("--backend", "reference")
        self.assertIsNone(report["tests"][0]["percent_of_bandwidth"])
        self.assertIn("reference", report["no_ceilings"])
        self.assertIsNone(report["no_op_times"])
        text = self.succeed("bench", "-m", MODEL, "-p", "0", "-n", "2", "-r", "1", "--backend", "reference", "--ops").decode()
        self.assertIn("No share of the device's limits: reference", text)
        self.assertIn("No times per op: reference", text)
        self.assertNotIn("pp0", text)

    def test_fast_activations_are_said(self):
        quantized = ("--backend", "cpu", "-m", str(DATA / "families" / "gptoss-mxfp4.gguf"), "--ops")
        for options, said in ((("--fast-activations",), True), ((), False)):
            report = self.report(*quantized, *options)
            kernels = " ".join(op["kernel"] for op in report["tests"][0]["ops"])
            self.assertEqual("8-bit activations" in report["backend"], said)
            self.assertEqual(".a8." in kernels, said, kernels)

    def test_a_backend_without_fast_activations_refuses_them(self):
        message = self.fail_with(1, "bench", "-m", MODEL, "--backend", "reference", "--fast-activations")
        self.assertIn("reference", message)
        self.assertIn("fast activations", message)

    def test_wrong_usage(self):
        self.assertIn("nothing to measure", self.fail_with(2, "bench", "-m", MODEL, "-p", "0", "-n", "0"))
        for options in (("-r", "0"), ("-s", "0"), ("-p", "-1"), ("-n", "x")):
            self.fail_with(2, "bench", "-m", MODEL, *options)


if __name__ == "__main__":
    unittest.main()
