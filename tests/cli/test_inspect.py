"""inspect: what it shows, its JSON, and files that run refuses."""
import json
import struct
import unittest

from support import DATA, Case, hostile_folder, with_metadata

FAMILIES = DATA / "families"


class Inspect(Case):
    @classmethod
    def setUpClass(cls):
        cls.cases = hostile_folder(cls)
        cls.model = str(cls.cases["valid"][0])

    def json(self, *arguments):
        return json.loads(self.succeed("inspect", *arguments, "--json"))

    def test_text_for_people(self):
        text = self.succeed("inspect", self.model).decode()
        for word in ("llama", "Bits per weight", "Memory", "context 512", "general.architecture", "F32"):
            self.assertIn(word, text)
        self.assertIn("blk.0.attn_q.weight", self.succeed("inspect", self.model, "--tensors").decode())

    def test_the_model_is_named_once_by_place_or_option(self):
        self.assertEqual(self.succeed("inspect", "-m", self.model), self.succeed("inspect", self.model))
        self.assertIn("FILE and -m", self.fail_with(2, "inspect", "-m", self.model, self.model))

    def test_json_has_the_program(self):
        for backend in ("reference", "cpu"):
            program = self.json(self.model, "--backend", backend)["program"]
            ops = program["ops"]
            self.assertEqual(program["launches"], sum(op["launches"] for op in ops))
            self.assertEqual(program["barriers"], sum(op["barriers"] for op in ops))
            self.assertEqual(program["weight_bytes"], sum(op["weight_bytes"] for op in ops))
            layers = 1 + max(op["layer"] for op in ops if op["layer"] is not None)
            self.assertEqual(program["launches_per_layer"] * layers,
                             sum(op["launches"] for op in ops if op["layer"] is not None))
            self.assertEqual([op["op"] for op in ops if op["layer"] == 0],
                             ["project", "attend", "project", "project", "project"])

    def test_json_has_all_of_the_file(self):
        report = self.json(self.model)
        raw = (FAMILIES.parent.parent / "data", self.model)[1]
        with open(raw, "rb") as file:
            _, version, tensors, keys = struct.unpack("<4sIQQ", file.read(24))
        self.assertEqual((report["gguf_version"], len(report["tensors"]), len(report["metadata"])), (version, tensors, keys))
        tokens = report["metadata"]["tokenizer.ggml.tokens"]
        self.assertGreater(len(tokens), 6)
        self.assertEqual(sum(share["bytes"] for share in report["formats"]), sum(t["bytes"] for t in report["tensors"]))

    def test_memory_grows_with_the_context(self):
        small, large = (self.json(self.model, "-c", c)["memory"] for c in ("64", "512"))
        self.assertEqual(large["cache"], 8 * small["cache"])
        self.assertEqual(self.json(self.model, "-c", "512", "--kv-type", "f32")["memory"]["cache"], 2 * large["cache"])
        self.assertEqual(large["total"], large["weights"] + large["cache"] + large["states"] + large["activations"])

    def test_scratch_of_a_backend_that_tells_is_counted(self):
        for family in ("llama", "qwen3moe"):
            model = str(FAMILIES / f"{family}.gguf")
            reports = [self.json(model, "--backend", backend, "-t", "1") for backend in ("cpu", "reference")]
            cpu, reference = (report["memory"]["activations"] for report in reports)
            self.assertGreater(cpu, reference)
            self.assertGreater(self.json(model, "--backend", "cpu", "-t", "2")["memory"]["activations"], cpu)
            self.assertIsNone(reports[0]["no_room"])

    def test_program_for_people(self):
        text = self.succeed("inspect", self.model, "--program", "--backend", "reference").decode()
        self.assertIn("launches", text)
        self.assertRegex(text, r"project +\S*reference|project +project")

    def test_a_file_that_cannot_run_is_shown_with_the_reason(self):
        unknown = self.write("unknown.gguf", self.unknown_architecture())
        report = self.json(str(unknown))
        self.assertIsNone(report["program"])
        self.assertIn("lluma", report["program_error"])
        text = self.succeed("inspect", str(unknown), "--program").decode()
        self.assertIn("Cannot run", text)
        self.fail_with(1, "run", "-m", str(unknown), "-p", "x")

    def unknown_architecture(self):
        content = self.cases["valid"][0].read_bytes()
        value = struct.pack("<Q", 5) + b"llama"
        self.assertEqual(content.count(value), 1)
        return content.replace(value, struct.pack("<Q", 5) + b"lluma")

    def test_hostile_text_is_harmless(self):
        content = with_metadata(self.cases["valid"][0].read_bytes(), "evil", "\x1b[2J\x07\u202e\u009b31m\n")
        path = self.write("evil.gguf", content)
        self.assertNotRegex(self.succeed("inspect", str(path)), rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae")
        self.assertTrue(self.json(str(path))["metadata"]["evil"].startswith("\x1b[2J"))
        self.assertNotIn(b"\x1b", self.succeed("inspect", str(path), "--json"))

    def test_every_golden_family_is_shown(self):
        for path in sorted(FAMILIES.glob("*.gguf")):
            report = self.json(str(path))
            self.assertTrue((report["program"] is None) != (report["program_error"] is None), path.name)


if __name__ == "__main__":
    unittest.main()
