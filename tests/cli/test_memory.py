"""How much memory a loaded model takes at most: weights times 1.1, the cache, and 96 MB; while it loads, one tensor
more. Measured as the system counts it (VmHWM), on a process of its own."""
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path

from support import BINARY, CHAT_TEMPLATE, SANITIZED, Case

sys.path.insert(0, str(Path(__file__).resolve().parent.parent.parent / "bench"))
import make_model  # noqa: E402

MB = 1e6
FIXED = 96 * MB


def status(pid, key):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


@unittest.skipIf(SANITIZED, "a sanitizer's own memory would be counted")
@unittest.skipUnless(Path("/proc/self/status").exists(), "Linux tells it in /proc")
class Memory(Case):
    def report(self, model, context):
        report = json.loads(self.succeed("inspect", model, "-c", str(context), "--backend", "cpu", "--json"))
        largest = max(tensor["bytes"] for tensor in report["tensors"])
        memory = report["memory"]
        return 1.1 * memory["weights"] + memory["cache"] + FIXED, largest, memory["weights"]

    def test_of_a_model_of_100_mb(self):
        """Prefill, decode and the measurement of memory, to the end of the process."""
        make_model.GEOMETRIES["middle"] = make_model.Geometry("llama", 12, 1024, 2560, 16, 4, 64, 8192, 1e4)
        self.addCleanup(make_model.GEOMETRIES.pop, "middle")
        path = str(self.folder / "middle.gguf")
        make_model.write("middle", "q8_0", path)
        most, largest, weights = self.report(path, 576)
        self.assertGreater(weights, 100 * MB)
        for arguments in (["-p", "512", "-n", "4", "-r", "1"], ["-p", "0", "-n", "4", "-d", "64", "-r", "1", "--ops"]):
            process = subprocess.Popen([BINARY, "bench", "-m", path, "--backend", "cpu", "--json", *arguments],
                                       stdout=subprocess.DEVNULL, env=self.env)
            _, result, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(result)
            self.assertEqual(process.returncode, 0)
            self.assertGreater(usage.ru_maxrss * 1024, weights)
            self.assertLess(usage.ru_maxrss * 1024, most + largest)


@unittest.skipIf(SANITIZED, "a sanitizer's own memory would be counted")
@unittest.skipUnless(Path("/proc/self/clear_refs").exists(), "Linux resets the peak there")
@unittest.skipUnless(os.environ.get("HONEYCRISP_MODEL_DIR"), "real models are in HONEYCRISP_MODEL_DIR")
class RealModels(Memory):
    test_of_a_model_of_100_mb = None

    def say(self, process, message):
        """Sends it and waits for the note of speed after the answer."""
        process.stdin.write(message)
        process.stdin.flush()
        for line in process.stderr:
            if b"prefill " in line:
                return
        self.fail("it ended without an answer")

    def check(self, name):
        (path,) = Path(os.environ["HONEYCRISP_MODEL_DIR"]).glob(name + "*.gguf")
        context = 1024
        most, largest, _ = self.report(str(path), context)
        template = self.folder / "template"
        template.write_text(CHAT_TEMPLATE)
        process = subprocess.Popen([BINARY, "chat", "-m", str(path), "-c", str(context), "--backend", "cpu", "-n", "8",
                                    "--chat-template", str(template)],
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.env)
        try:
            self.say(process, b"Hello there\n")
            loading = status(process.pid, "VmHWM")
            Path(f"/proc/{process.pid}/clear_refs").write_text("5")
            self.say(process, b"word " * 600 + b"\n")
            loaded = status(process.pid, "VmHWM")
        finally:
            process.stdin.close()
            process.wait(timeout=60)
            process.stdout.close()
            process.stderr.close()
        self.assertLess(loading, most + largest)
        self.assertLess(loaded, most)

    def test_of_smollm2(self):
        self.check("smollm2")

    def test_of_gemma3(self):
        self.check("gemma3")


if __name__ == "__main__":
    unittest.main()
