#!/usr/bin/env python3
"""Checks that dependencies between folders point down only, and that files stay short enough to read.

    scripts/check_layers.py             fails on an include that points up, and on a file over 1,000 lines
    scripts/check_layers.py --lines     also prints lines per folder
"""
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
HARD_LIMIT, SOFT_LIMIT = 1000, 500  # lines of a file

# Lowest first; the longest prefix that fits is a file's layer. CMakeLists.txt adds the folders in the same order.
LAYERS = [
    "base/",
    "quant/",
    "gguf/",
    "text/segment",  # what the template engine hands to the tokenizer
    "text/jinja/",
    "text/",
    "program/",
    "backend/",  # the interface that backends implement ...
    "backend/reference/",
    "backend/cpu/",
    "backend/cuda/",
    "backend/metal/",
    "backend/registry",  # ... and the list of all of them
    "model/",
    "engine/",
    "cli/",
]
# Public headers of lower layers than the engine, which the others describe.
PUBLIC_BELOW = {"honeycrisp/result.h": "base/", "honeycrisp/log.h": "base/", "honeycrisp/top_logits.h": "base/",
                "honeycrisp/metal_ops.h": "backend/metal/"}
PUBLIC_PREFIX = "honeycrisp/"
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^>"]+)[>"]')
SOURCES = (".h", ".cpp", ".inl", ".cu", ".cuh", ".metal", ".mm", ".c")


def layer_of(path):
    """Index into LAYERS of a path relative to src/ or apps/; None if it is not ours."""
    if path.startswith(PUBLIC_PREFIX):
        return LAYERS.index(PUBLIC_BELOW.get(path, "engine/"))
    fitting = [prefix for prefix in LAYERS if path.startswith(prefix)]
    return LAYERS.index(max(fitting, key=len)) if fitting else None


def tracked_sources():
    names = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "src", "apps", "include", "tests"],
                           cwd=ROOT, capture_output=True, text=True, check=True).stdout.split("\n")
    return sorted(name for name in names if name.endswith(SOURCES) and (ROOT / name).is_file())


def includes(name):
    """(line number, included path) of a file; a path in quotes beside the file is made relative to src/."""
    for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").split("\n"), 1):
        if match := INCLUDE.match(line):
            yield number, match.group(1)


def check_file(name):
    top, _, inside = name.partition("/")
    if top == "tests":
        return
    public = top == "include"
    own = LAYERS.index("engine/") if public else layer_of(inside)
    if own is None:
        yield f"{name}: its folder is in no layer: add it to LAYERS in scripts/check_layers.py"
        return
    is_test = inside.endswith("_test.cpp")
    for number, included in includes(name):
        if public and ("/" in included and not included.startswith((PUBLIC_PREFIX, "tl/"))):
            yield f"{name}:{number}: a public header includes {included}, which is not public"
        other = layer_of(included)
        if not public and not is_test and other is not None and other > own:
            yield f"{name}:{number}: includes {included}: {LAYERS[own]} must not know {LAYERS[other]}"


def main():
    faults, lines = [], Counter()
    for name in tracked_sources():
        count = (ROOT / name).read_text(encoding="utf-8").count("\n")
        lines[str(Path(name).parent)] += count
        if count > HARD_LIMIT:
            faults.append(f"{name}: {count} lines; the limit is {HARD_LIMIT}, and about {SOFT_LIMIT} is meant")
        faults.extend(check_file(name))
    if "--lines" in sys.argv[1:]:
        for folder, count in sorted(lines.items()):
            print(f"{count:7} {folder}")
        print(f"{sum(lines.values()):7} in all")
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
