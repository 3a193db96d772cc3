#!/usr/bin/env python3
"""Checks that every selector that compiled Objective-C++ sends is one of Apple's: metal-cpp registers it.

    check_selectors.py ASSEMBLY [WHEEL|FOLDER]

The look-alike framework of the tests is ours; this is what ties its names to Apple's. ASSEMBLY is what clang -S makes
of apple/device.mm. metal-cpp's headers lie in the PyPI wheel mlx-metal for macOS: WHEEL, or one in FOLDER, which is
$HONEYCRISP_MLX_METAL if not given. Nothing is downloaded; without a wheel the exit status is 77 (skipped), and what is
printed says how to have one. Types of arguments and values of constants are not compared."""
import glob
import os
import re
import sys
import zipfile

FETCH = ("pip download --no-deps --only-binary=:all: --platform macosx_14_0_arm64 --python-version 3.12 "
         "-d FOLDER mlx-metal")
# Of the compiler's own, for members of classes.
OURS = {".cxx_construct", ".cxx_destruct"}


def sent_by(path):
    with open(path, encoding="utf-8") as file:
        names = re.findall(r'OBJC_METH_VAR_NAME_[^\n]*:[^\n]*\n\s*\.asciz\s+"([^"]+)"', file.read())
    return set(names) - OURS


def of_apple(path):
    known = set()
    with zipfile.ZipFile(path) as wheel:
        for name in wheel.namelist():
            if name.endswith(".hpp"):
                text = wheel.read(name).decode("utf-8", "replace")
                known.update(re.findall(r'_(?:MTL|NS)_PRIVATE_DEF_SEL\(\s*\w+,\s*"([^"]+)"', text))
    return known


def main():
    where = sys.argv[2] if len(sys.argv) > 2 else os.environ.get("HONEYCRISP_MLX_METAL", ".")
    wheels = [where] if os.path.isfile(where) else sorted(glob.glob(os.path.join(where, "mlx_metal-*.whl")))
    if not wheels:
        print(f"SKIPPED: selectors are not compared with Apple's, because there is no wheel of mlx-metal in {where}.\n"
              f"To have one:\n  {FETCH}\nand set HONEYCRISP_MLX_METAL=FOLDER")
        return 77
    sent, known = sent_by(sys.argv[1]), of_apple(wheels[-1])
    print(f"{len(sent)} selectors against the {len(known)} of {os.path.basename(wheels[-1])}: {', '.join(sorted(sent))}")
    if len(sent) < 30 or len(known) < 1000:  # a reader that finds nothing would find nothing wrong
        print("too few of either: they were not read")
        return 1
    unknown = sorted(sent - known)
    for selector in unknown:
        print(f"{sys.argv[1]}: {selector} is in no header of metal-cpp")
    return 1 if unknown else 0


if __name__ == "__main__":
    sys.exit(main())
