"""logits: the file format, and the same bits whatever the chunk and the threads."""
import struct
import unittest

from support import DATA, Case

MODEL = str(DATA / "families" / "llama.gguf")
TOKENS = DATA / "families" / "llama.tokens.txt"
GOLDEN = DATA / "families" / "llama.logits.f32"


class Logits(Case):
    def logits(self, *options, tokens=TOKENS):
        out = self.folder / "logits.f32"
        self.assertEqual(self.succeed("logits", "-m", MODEL, "--tokens", str(tokens), "--out", str(out), *options), b"")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir() if path.is_file()),
                         sorted({"logits.f32", *(["tokens"] if tokens != TOKENS else [])}))
        return out.read_bytes()

    def test_reference_agrees_with_the_golden_file(self):
        ours, golden = self.logits("--backend", "reference"), GOLDEN.read_bytes()
        self.assertEqual(len(ours), len(golden))
        ours, golden = (struct.unpack(f"<{len(data) // 4}f", data) for data in (ours, golden))
        difference = sum((a - b) ** 2 for a, b in zip(ours, golden)) ** 0.5
        self.assertLess(difference / sum(b * b for b in golden) ** 0.5, 1e-5)

    def test_same_bits_for_every_chunk_and_thread_count(self):
        whole = self.logits()
        for chunk in ("1", "2", "3", "7", "512"):
            for threads in ("1", "2"):
                self.assertEqual(self.logits("--chunk", chunk, "--threads", threads), whole, (chunk, threads))

    def test_fast_activations_are_a_property_of_the_whole_run(self):
        quantized = ("--backend", "cpu", "-m", str(DATA / "families" / "gptoss-mxfp4.gguf"))
        tokens = self.write("tokens", " ".join(str(id) for id in range(3, 25)))
        fast = self.logits(*quantized, "--fast-activations", tokens=tokens)
        self.assertTrue(fast != self.logits(*quantized, tokens=tokens))
        for chunk in ("1", "7", "512"):
            ours = self.logits(*quantized, "--fast-activations", "--chunk", chunk, tokens=tokens)
            self.assertTrue(ours == fast, chunk)

    def test_logits_that_are_not_finite_are_written_and_told(self):
        with open(MODEL, "rb") as file:
            content = file.read()
        model = self.write("nan.gguf", content[:-4] + struct.pack("<f", float("nan")))
        out = self.folder / "logits.f32"
        result = self.run_binary("logits", "-m", str(model), "--tokens", str(TOKENS), "--out", str(out))
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stderr.decode(), r"^honeycrisp: warning: \d+ of \d+ logits are NaN or infinite\n$")
        self.assertEqual(out.stat().st_size, GOLDEN.stat().st_size)

    def test_cache_type_is_f32_unless_said_otherwise(self):
        self.assertEqual(self.logits(), self.logits("--kv-type", "f32"))
        self.assertNotEqual(self.logits(), self.logits("--kv-type", "f16"))

    def test_tokens_may_be_separated_by_any_white_space(self):
        tokens = self.write("tokens", "\n1\t2 \r\n 3")
        self.assertEqual(len(self.logits(tokens=tokens)) % 12, 0)

    def test_tokens_from_a_pipe(self):
        out = self.folder / "out"
        self.succeed("logits", "-m", MODEL, "--tokens", "/dev/stdin", "--out", str(out), stdin=TOKENS.read_bytes())
        self.assertEqual(out.read_bytes(), self.logits_of(TOKENS))

    def logits_of(self, tokens):
        out = self.folder / "again"
        self.succeed("logits", "-m", MODEL, "--tokens", str(tokens), "--out", str(out))
        return out.read_bytes()

    def test_bad_tokens_are_named(self):
        for text, word in (("", "no token ids"), ("1 x", '"x"'), ("-1", '"-1"'), ("1 99999999", "99999999"),
                           ("4294967296", "4294967296"), ("1,2", '"1,2"'), ("1.5", "1.5")):
            tokens = self.write("tokens", text)
            out = self.folder / "out"
            self.assertIn(word, self.fail_with(1, "logits", "-m", MODEL, "--tokens", str(tokens), "--out", str(out)))
            self.assertFalse(out.exists())

    def test_places_that_cannot_be_written(self):
        for out in (self.folder, self.folder / "absent" / "out", "/dev/full"):
            self.fail_with(1, "logits", "-m", MODEL, "--tokens", str(TOKENS), "--out", str(out))


if __name__ == "__main__":
    unittest.main()
