#!/usr/bin/env python3
"""Runs strict_cases.txt through the strict check: what is wrong must be refused for the right reason, what is legal not.

    strict_test.py STRICT_CHECK.py MSL_SCAN CLANG
"""
import importlib.util
import re
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

FRAME = """#include <metal_stdlib>
using namespace metal;
constant bool kFlag [[function_constant(0)]];
struct B { half d; uchar q[16]; };
struct Args { uint n; float s; };
static inline float read_shared(threadgroup const float *p) { return p[0]; }
%s
"""
KERNEL = """kernel void frame(device const B *b [[buffer(0)]], device float *y [[buffer(1)]], constant Args &args [[buffer(2)]],
                  threadgroup float *xs [[threadgroup(0)]], uint t [[thread_position_in_grid]]) {
  float4 v = float4(1.0f, 2.0f, 3.0f, 4.0f);
  float acc[4] = {0.0f};
  y[t] = v.x + float(b[t].d) * args.s + acc[0] + (kFlag ? read_shared(xs) : 0.0f);
%s
}
"""


def cases(path):
    """(name, where, what, code) of each case."""
    for part in re.split(r"^@ ", path.read_text(encoding="utf-8"), flags=re.M)[1:]:
        head, _, code = part.partition("\n")
        name, where, what = (word.strip() for word in head.split("|", 2))
        yield name, where, what, code.strip()


def main():
    checker, scan, clang = sys.argv[1:4]
    spec = importlib.util.spec_from_file_location("strict_check", checker)
    strict = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(strict)

    def judge(case):
        name, where, what, code = case
        text = FRAME % (code if where != "body" else "") + (KERNEL % (code if where == "body" else "") if where != "kernel" else "")
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / f"{name}.metal"
            path.write_text(text, encoding="utf-8")
            errors = strict.check(str(path), scan, clang)
        if what == "legal":
            return f"{name}: refused: {errors}" if errors else None
        if not errors:
            return f"{name}: accepted"
        return None if any(re.search(what, error) for error in errors) else f"{name}: refused, but not for /{what}/: {errors}"

    every = list(cases(Path(__file__).parent / "strict_cases.txt"))
    with ThreadPoolExecutor(2) as pool:
        failures = [failure for failure in pool.map(judge, every) if failure]
    legal = sum(case[2] == "legal" for case in every)
    print("\n".join(failures))
    print(f"strict check: {len(every) - legal} faulty and {legal} legal cases, {len(failures)} misjudged")
    return 1 if failures or not every else 0


if __name__ == "__main__":
    sys.exit(main())
