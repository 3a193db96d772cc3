"""The source distribution on the Python package index that holds llama.cpp: the tests take vocabularies from it, and
bench/compare-peer builds it. One pinned version; pip's index settings are honoured. Neither a package manager nor the
distribution's own build is run."""
import hashlib
import json
import os
import re
import ssl
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

PACKAGE = "llama-cpp-python"
VERSION = "0.3.36"
FILE = f"llama_cpp_python-{VERSION}.tar.gz"
SHA256 = "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e"
FOLDER = "vendor/llama.cpp/"  # inside the distribution's own folder


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


def download(to):
    """Writes the distribution into the open file `to`; what is not the pinned bytes ends the program."""
    list_url = f"{index_url()}/{PACKAGE}/"
    with open_url(list_url, "application/vnd.pypi.simple.v1+json") as response:
        files = {entry["filename"]: entry["url"] for entry in json.load(response)["files"]}
    if FILE not in files:
        sys.exit(f"the package index has no {FILE}")
    digest = hashlib.sha256()
    with open_url(urllib.parse.urljoin(list_url, files[FILE])) as response:
        while block := response.read(1 << 20):
            digest.update(block)
            to.write(block)
    if digest.hexdigest() != SHA256:
        sys.exit(f"{FILE}: sha256 {digest.hexdigest()}, expected {SHA256}")
