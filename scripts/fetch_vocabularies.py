#!/usr/bin/env python3
"""Fills a folder with the vocabulary files and chat templates that the tests of tokenizers and templates use.

    scripts/fetch_vocabularies.py FOLDER

They have licences of their own and are not part of this repository: they are taken from a source distribution on the
Python package index (pip's index settings are honoured), which is neither built nor kept. Does nothing if the folder
is complete.
"""
import hashlib
import json
import os
import re
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.parse
import urllib.request
from pathlib import Path

PACKAGE = "llama-cpp-python"
FILE = "llama_cpp_python-0.3.36.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
MEMBER = re.compile(r"[^/]+/vendor/llama\.cpp/models/"
                    r"(ggml-vocab-[a-z0-9.-]+\.gguf(?:\.inp|\.out)?|templates/[A-Za-z0-9._-]+\.jinja)")
STAMP = "complete-with-templates"  # holds SHA256 once every file is there


def index_url():
    """The index that pip would use; the default is the one that the program itself uses."""
    url = os.environ.get("PIP_INDEX_URL", "")
    if not url:
        try:
            url = subprocess.run(["pip", "config", "get", "global.index-url"], capture_output=True, text=True,
                                 check=False).stdout.strip()
        except OSError:
            pass
    if not url:
        sources = Path(__file__).resolve().parent.parent / "apps/cli/models/sources.h"
        url = re.search(r'kDefaultPackageIndex = "([^"]+)"', sources.read_text()).group(1)
    return url.rstrip("/")


def open_url(url, accept="*/*", tries=4):
    context = ssl.create_default_context(cafile=os.environ.get("PIP_CERT") or os.environ.get("SSL_CERT_FILE"))
    for attempt in range(tries):
        try:
            return urllib.request.urlopen(urllib.request.Request(url, headers={"Accept": accept}), timeout=60,
                                          context=context)
        except OSError:
            if attempt + 1 == tries:
                raise
            time.sleep(2**attempt)


def download(url, to):
    digest = hashlib.sha256()
    with open_url(url) as response:
        while block := response.read(1 << 20):
            digest.update(block)
            to.write(block)
    if digest.hexdigest() != SHA256:
        sys.exit(f"{FILE}: sha256 {digest.hexdigest()}, expected {SHA256}")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    stamp = folder / STAMP
    if stamp.is_file() and stamp.read_text().strip() == SHA256:
        return
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    list_url = f"{index_url()}/{PACKAGE}/"
    with open_url(list_url, "application/vnd.pypi.simple.v1+json") as response:
        files = {entry["filename"]: entry["url"] for entry in json.load(response)["files"]}
    if FILE not in files:
        sys.exit(f"the package index has no {FILE}")
    print(f"Fetching vocabularies ({FILE}) into {folder}", file=sys.stderr)
    with tempfile.TemporaryFile() as archive:
        download(urllib.parse.urljoin(list_url, files[FILE]), archive)
        archive.seek(0)
        with tarfile.open(fileobj=archive, mode="r:gz") as tar:
            for member in tar:
                match = MEMBER.fullmatch(member.name)
                if match and member.isfile():
                    (folder / match.group(1)).write_bytes(tar.extractfile(member).read())
    stamp.write_text(SHA256 + "\n")


if __name__ == "__main__":
    main()
