"""bench/compare-peer and bench/make_model.py: what they read, count and write. The peer is a script that says what
llama-bench would; nothing is built."""
import importlib.machinery
import importlib.util
import json
import math
import os
import re
import resource
import signal
import struct
import subprocess
import sys
import time
import unittest
from pathlib import Path

from support import BINARY, Case

BENCH = Path(__file__).resolve().parent.parent.parent / "bench"


def load(name):
    loader = importlib.machinery.SourceFileLoader(re.sub(r"\W", "_", name), str(BENCH / name))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    return module


sys.dont_write_bytecode = True
peer, maker = load("compare-peer"), load("make_model.py")

TINY = maker.Geometry("llama", 2, 64, 96, 4, 2, 16, 40, 1e4)
# llama-bench's answer to -p, -n and -d: 100 tokens/s of prefill, 10 of decode.
FAKE_PEER = f"""#!{sys.executable}
import json, sys
options = dict(zip(sys.argv[1::2], sys.argv[2::2]))
prompt, generate = int(options["-p"]), int(options["-n"])
print(json.dumps([{{"n_prompt": prompt, "n_gen": generate, "n_depth": int(options["-d"]),
                    "avg_ts": 100.0 if prompt else 10.0}}]))
"""


class Reading(unittest.TestCase):
    def test_the_peer_s_entry_of_a_test_is_found_among_others(self):
        output = json.dumps([{"n_prompt": 512, "n_gen": 0, "n_depth": 0, "avg_ts": 1.0},
                             {"n_prompt": 0, "n_gen": 64, "n_depth": 0, "avg_ts": 2.0},
                             {"n_prompt": 0, "n_gen": 64, "n_depth": 4096, "avg_ts": 3.0}])
        for test, speed in ((("pp", 512, 0), 1.0), (("tg", 64, 0), 2.0), (("tg", 64, 4096), 3.0)):
            self.assertEqual(peer.peer_speed(output, peer.Test(*test))["tokens_per_second"], speed)
        with self.assertRaisesRegex(ValueError, "no tg32"):
            peer.peer_speed(output, peer.Test("tg", 32, 0))

    def test_ours_is_found_by_the_name_of_the_test(self):
        output = json.dumps({"tests": [{"test": "tg64 @ d4096", "tokens_per_second": 5.0, "percent_of_bandwidth": 70.0,
                                        "percent_of_peak": None}]})
        self.assertEqual(peer.our_speed(output, peer.Test("tg", 64, 4096)),
                         {"tokens_per_second": 5.0, "percent_of_bandwidth": 70.0, "percent_of_peak": None})
        with self.assertRaisesRegex(ValueError, "no tg64"):
            peer.our_speed(output, peer.Test("tg", 64, 0))

    def test_ratios_are_of_the_same_round(self):
        runs = {peer.PEER: [{"tokens_per_second": v} for v in (10.0, 20.0, 40.0)],
                "honeycrisp": [{"tokens_per_second": v, "percent_of_peak": None} for v in (30.0, 40.0, 80.0)]}
        ours = peer.summarize(runs)["honeycrisp"]
        self.assertEqual(ours["ratio"], {"median": 2.0, "least": 2.0, "most": 3.0, "runs": [3.0, 2.0, 2.0]})
        self.assertEqual((ours["median"], ours["least"], ours["most"]), (40.0, 30.0, 80.0))
        self.assertNotIn("percent_of_peak", ours)

    def test_rounds_alternate(self):
        order = []

        class Stub(peer.Contestant):
            def run(self, model, test, cores):
                order.append(self.name)
                return {"tokens_per_second": 1.0, "percent_of_others": 0.0}
        tests = [peer.Test("pp", 8, 0)]
        peer.say = lambda text: None
        peer.measure("m", tests, [Stub("a", [], None), Stub("b", [], None)], 3, None, {})
        self.assertEqual(order, ["a", "b", "b", "a", "a", "b"])

    def test_what_others_compute_is_told_and_our_own_is_not(self):
        class Fake(peer.Others):
            times = [(10.0, 4.0, 1.0), (20.0, 11.0, 3.0)]

            def now(self):
                return self.times.pop(0)
        self.assertEqual(Fake().percent(), 50.0)  # 7 of 10 seconds were busy, 2 of them ours
        whole, busy, own = peer.Others.now()
        self.assertLessEqual(busy, whole)
        self.assertGreater(own, 0)

    def test_cores(self):
        usable = sorted(os.sched_getaffinity(0))
        self.assertEqual(peer.parse_cores(str(usable[0])), {usable[0]})
        self.assertEqual(peer.parse_cores(f"{usable[0]}-{usable[0]}"), {usable[0]})
        for wrong in ("", "x", "1-", "99999", "2-1", "0-99999999999", "٠"):
            with self.assertRaises(Exception, msg=wrong):
                peer.parse_cores(wrong)


class Running(Case):
    def setUp(self):
        super().setUp()
        maker.GEOMETRIES["tiny"] = TINY
        self.addCleanup(maker.GEOMETRIES.pop, "tiny")
        self.model = self.folder / "tiny.gguf"
        maker.write("tiny", "q4_1", self.model)
        self.peer = self.script("llama-bench", FAKE_PEER)

    def script(self, name, text):
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def compare(self, *options, code=0):
        result = subprocess.run([sys.executable, "-B", str(BENCH / "compare-peer"), "--honeycrisp", BINARY, "--peer",
                                 str(self.peer), "--cache", str(self.folder / "cache"), "-m", str(self.model), "-p",
                                 "16", "-n", "4", "-r", "2", "-t", "1", *options], capture_output=True, text=True,
                                env=self.env, timeout=120, check=False)
        self.assertEqual(result.returncode, code, result.stderr)
        return result

    def test_both_programs_run_and_are_compared(self):
        report = json.loads(self.compare("--json").stdout)
        (model,) = report["models"]
        self.assertEqual(list(model["tests"]), ["pp16", "tg4"])
        for name, speed in (("pp16", 100.0), ("tg4", 10.0)):
            results = model["tests"][name]
            self.assertEqual(results["llama.cpp"]["runs"], [speed, speed])
            ours = results["honeycrisp"]
            self.assertAlmostEqual(ours["ratio"]["median"], ours["median"] / speed)
            self.assertGreater(ours["percent_of_peak"], 0)
            self.assertGreaterEqual(ours["percent_of_others"], 0)
        text = self.compare("-d", "8").stdout
        self.assertRegex(text, r"(?m)^  tg4 @ d8 +honeycrisp +[\d.]+ +[\d.]+ … [\d.]+ +\d+ % +\d+ % +[\d.]+")

    def test_a_peer_that_fails_or_talks_nonsense_is_told(self):
        self.peer = self.script("failing", "#!/bin/sh\necho cannot load >&2\nexit 3\n")
        self.assertRegex(self.compare(code=1).stderr, r"llama.cpp failed \(3\): .*\n  cannot load")
        self.peer = self.script("talking", "#!/bin/sh\necho '[{}]'\n")
        self.assertIn("its output cannot be read", self.compare(code=1).stderr)

    def test_rounds_before_a_failure_are_reported(self):
        """The peer is a script that fails when it is asked for the third time: after prefill and decode of a round."""
        count = self.folder / "count"
        self.peer = self.script("tiring", f"#!/bin/sh\necho >> {count}\n[ $(wc -l < {count}) -lt 3 ] || exit 7\n"
                                f"exec {self.script('answering', FAKE_PEER)} \"$@\"\n")
        result = self.compare("--json", code=1)
        self.assertIn("llama.cpp failed (7)", result.stderr)
        report = json.loads(result.stdout)
        self.assertIn("llama.cpp failed (7)", report["failure"])
        tests = report["models"][0]["tests"]
        self.assertEqual([tests[name]["llama.cpp"]["runs"] for name in ("pp16", "tg4")], [[100.0], [10.0]])
        self.assertEqual(len(tests["pp16"]["honeycrisp"]["runs"]), 2)  # of the second round, before the peer's turn
        self.assertEqual(len(tests["pp16"]["honeycrisp"]["ratio"]["runs"]), 1)

    def test_both_take_the_threads_that_ours_takes(self):
        told = self.folder / "told"
        self.peer = self.script("telling", f"#!/bin/sh\necho \"$@\" > {told}\n"
                                f"exec {self.script('answering', FAKE_PEER)} \"$@\"\n")
        command = [sys.executable, "-B", str(BENCH / "compare-peer"), "--honeycrisp", BINARY, "--peer", str(self.peer),
                   "-m", str(self.model), "-p", "0", "-n", "2", "-r", "1", "--json"]
        result = subprocess.run(command, capture_output=True, text=True, env=self.env, timeout=120, check=True)
        backend = json.loads(self.succeed("inspect", str(self.model), "--backend", "cpu", "--json"))["program"]["backend"]
        threads = json.loads(result.stdout)["threads"]
        self.assertIn(f", {threads} thread", backend)
        self.assertIn(f"-t {threads} ", told.read_text())

    def test_what_it_started_ends_with_it(self):
        """The peer is a script that starts another process, which tells its number."""
        told = self.folder / "number"
        self.peer = self.script("starting", f"#!/bin/sh\nsleep 60 & echo $! > {told}.part\n"
                                f"mv {told}.part {told}; wait\n")
        for ending, code in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            told.unlink(missing_ok=True)
            process = subprocess.Popen([sys.executable, "-B", str(BENCH / "compare-peer"), "--honeycrisp", BINARY,
                                        "--peer", str(self.peer), "-m", str(self.model)], env=self.env,
                                       stdout=subprocess.PIPE, stderr=subprocess.PIPE)
            while not told.exists():
                self.assertIsNone(process.poll())
                time.sleep(0.01)
            process.send_signal(ending)
            out, errors = process.communicate(timeout=60)
            self.assertEqual((process.returncode, out), (code, b""), errors)
            self.assertNotIn(b"Traceback", errors)
            number = int(told.read_text())
            for _ in range(1000):  # killed, and then buried by whoever inherits it
                try:
                    state = Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0]
                except OSError:
                    break
                if state == "Z":
                    break
                time.sleep(0.01)
            else:
                self.fail(f"{ending.name} left process {number} running")

    def test_programs_are_files_and_not_searched(self):
        result = subprocess.run([sys.executable, "-B", str(BENCH / "compare-peer"), "--honeycrisp", BINARY, "--peer",
                                 "llama-bench", "-m", "tiny.gguf", "-p", "0", "-n", "4", "-r", "1", "-t", "1"],
                                capture_output=True, text=True, env=self.env, cwd=self.folder, timeout=120, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.peer = self.folder
        self.assertIn("no such program", self.compare(code=1).stderr)
        self.peer = self.script("other-machine", "\x7fELF")
        self.assertRegex(self.compare(code=1).stderr, r"(?m)^compare-peer: .*other-machine: Exec format error$")

    def test_wrong_usage_and_models(self):
        self.assertIn("nothing to measure", self.compare("-p", "0", "-n", "0", code=2).stderr)
        self.assertIn("whole number from 1", self.compare("-r", "0", code=2).stderr)
        self.assertIn("nope: no such file", self.compare("-m", "nope", code=1).stderr)
        self.assertIn("the type is none of", self.compare("-m", "qwen3-0.6b:q9", code=1).stderr)


class Models(Case):
    def test_a_made_model_of_every_type_computes_finite_logits_that_differ(self):
        maker.GEOMETRIES["tiny"] = TINY
        self.addCleanup(maker.GEOMETRIES.pop, "tiny")
        for mix in maker.MIXES:
            path = self.folder / f"{mix}.gguf"
            maker.write("tiny", mix, path)
            report = json.loads(self.succeed("inspect", str(path), "--backend", "cpu", "--json"))
            self.assertIsNone(report["program_error"], mix)
            logits = self.folder / "logits"
            (self.folder / "tokens").write_text("1 2 3")
            self.succeed("logits", "-m", str(path), "--backend", "cpu", "--tokens", str(self.folder / "tokens"),
                         "--out", str(logits))
            values = struct.unpack(f"<{3 * TINY.vocabulary}f", logits.read_bytes())
            self.assertTrue(all(map(math.isfinite, values)), mix)
            self.assertGreater(max(values) - min(values), 0.01, mix)

    def test_geometries_have_as_many_parameters_as_the_published_models(self):
        for geometry, millions in (("smollm2-135m", 134.5), ("gemma3-270m", 268), ("llama3.2-1b", 1236),
                                   ("qwen2.5-1.5b", 1544), ("qwen3-0.6b", 596), ("llama3.1-8b", 8030),
                                   ("qwen3-8b", 8191), ("qwen2.5-14b", 14770), ("gemma3-27b", 27009),
                                   ("qwen3-30b-a3b", 30532)):
            parameters = sum(math.prod(dims) for _, dims, _ in maker.make(geometry, "f16").tensors.values())
            self.assertAlmostEqual(parameters / 1e6 / millions, 1, delta=0.002, msg=geometry)

    def test_an_unfinished_file_replaces_nothing(self):
        path = self.folder / "model.gguf"
        path.write_text("precious")
        command = [sys.executable, "-B", str(BENCH / "make_model.py"), "smollm2-135m", "q4_0", str(path)]
        full = subprocess.run(command, capture_output=True, text=True, check=False,
                              preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)))
        self.assertEqual((full.returncode, full.stderr), (1, f"make_model.py: {path}: File too large\n"))
        stopped = subprocess.Popen(command)
        while len(list(self.folder.iterdir())) == 1:
            self.assertIsNone(stopped.poll())
            time.sleep(0.001)
        stopped.terminate()
        self.assertEqual(stopped.wait(), 143)
        self.assertEqual(([path], "precious"), (list(self.folder.iterdir()), path.read_text()))

    def test_only_a_regular_file_is_replaced(self):
        for path in (os.devnull, self.folder, ""):
            with self.assertRaises(OSError):
                maker.write("smollm2-135m", "q4_0", path)
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_wrong_names_are_told(self):
        for arguments in (["nope", "q4_0", "x"], ["qwen3-0.6b", "nope", "x"], ["qwen3-0.6b"]):
            result = subprocess.run([sys.executable, "-B", str(BENCH / "make_model.py"), *arguments],
                                    capture_output=True, text=True, cwd=self.folder, check=False)
            self.assertEqual(result.returncode, 2)
        self.assertEqual(list(self.folder.iterdir()), [])


if __name__ == "__main__":
    unittest.main()
