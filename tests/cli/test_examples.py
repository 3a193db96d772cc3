"""examples/: they are built, and do what the program does with the same library."""
import os
import subprocess
import unittest

from support import Case, hostile_folder, plain_model

COMPLETE = os.environ["HONEYCRISP_EXAMPLE_COMPLETE"]


class Complete(Case):
    @classmethod
    def setUpClass(cls):
        cls.cases = hostile_folder(cls)

    def complete(self, *arguments):
        return subprocess.run([COMPLETE, *arguments], capture_output=True, timeout=60, env=self.env, check=False)

    def test_it_continues_as_the_program_does(self):
        model = str(self.write("plain.gguf", plain_model(self.cases)))
        for prompt in ("hi", "a b c"):
            for tokens in ("1", "9"):
                program = self.succeed("run", "-m", model, "--raw", "-p", prompt, "--temp", "0", "-n", tokens, "-q")
                example = self.complete(model, prompt, tokens)
                self.assertEqual((example.returncode, example.stderr), (0, b""), prompt)
                # A random model's bytes; the program makes text of them.
                text = example.stdout.removesuffix(b"\n").decode(errors="replace")
                self.assertEqual(text, program.decode(), prompt)

    def test_what_is_wrong_is_said(self):
        self.assertEqual(self.complete().returncode, 2)
        for path, words in (("/nonexistent.gguf", b"/nonexistent.gguf: cannot open"), ("", b"the path is empty")):
            result = self.complete(path, "hi")
            self.assertEqual((result.returncode, result.stdout), (1, b""))
            self.assertIn(words, result.stderr)


if __name__ == "__main__":
    unittest.main()
