"""tokenize: exact output formats, and golden ids of the tiny vocabulary by round trip."""
import unittest

from support import Case, hostile_folder


class Tokenize(Case):
    @classmethod
    def setUpClass(cls):
        cls.cases = hostile_folder(cls)
        cls.model = str(cls.cases["valid"][0])

    def tokenize(self, text, *options):
        return self.succeed("tokenize", "-m", self.model, *options, stdin=text).decode()

    def test_ids_on_one_line(self):
        self.assertRegex(self.tokenize("hello world"), r"^\d+( \d+)*\n$")

    def test_empty_input_is_an_empty_line(self):
        self.assertEqual(self.tokenize(""), "\n")

    def test_the_last_newline_is_text(self):
        self.assertNotEqual(self.tokenize("a"), self.tokenize("a\n"))

    def test_null_separated_texts_get_a_line_each(self):
        a, b = self.tokenize("one"), self.tokenize("two\n")
        self.assertEqual(self.tokenize(b"one\0two\n", "--null-separated"), a + b)
        self.assertEqual(self.tokenize(b"\0one\0\0", "--null-separated"), "\n" + a + "\n" + "\n")
        self.assertEqual(self.tokenize(b"", "--null-separated"), "\n")

    def test_without_null_separated_nul_is_text(self):
        self.assertEqual(self.tokenize(b"a\0b").count("\n"), 1)

    def test_decode_gives_the_text_back(self):
        for text in (b"hello world\n", b"", b" two  spaces\t", "naïve 🍎".encode(), b"a\0b"):
            ids = self.tokenize(text)
            self.assertEqual(self.succeed("tokenize", "-m", self.model, "--decode", stdin=ids), text)

    def test_decode_of_several_lines(self):
        ids = self.tokenize(b"one\0\0three", "--null-separated")
        decoded = self.succeed("tokenize", "-m", self.model, "--decode", "--null-separated", stdin=ids)
        self.assertEqual(decoded, b"one\0\0three")

    def test_decode_refuses_what_is_no_id(self):
        for text in ("x", "-1", "1 2 99999999", "1,2", "99999999999999999999", "1.0"):
            self.fail_with(1, "tokenize", "-m", self.model, "--decode", stdin=text)

    def test_long_input_without_spaces_is_linear(self):
        for piece in ("A", " ", "\n", "_", "你", "1", "a\u0301"):
            self.succeed("tokenize", "-m", self.model, stdin=piece * 200_000, timeout=10)


if __name__ == "__main__":
    unittest.main()
