#!/usr/bin/env python3
"""Judges .metal files by the rules of the Metal Shading Language, as far as clang and its syntax tree can tell.

    strict_check.py --scan MSL_SCAN --clang CLANG FILE.metal...

Each file goes through msl_scan (attributes and their types), clang's C++ for OpenCL with the type-only headers beside
this script (address spaces, types, what OpenCL forbids as MSL does), and a walk over the syntax tree (a pointer or
reference without an address space, recursion, goto, asm). Prints `file:line: error: ...`; exits with 1 if there is any.
"""
import argparse
import json
import os
import re
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
FLAGS = ["-x", "cl", "-cl-std=CLC++2021", "-cl-no-stdinc", "-target", "spir64", "-fsyntax-only", "-Xclang",
         "-cl-ext=-all,+cl_khr_fp16,+__opencl_c_generic_address_space", "-I" + HERE,
         "-Wall", "-Wno-division-by-zero",  # function constants have no value here
         "-Werror=conversion-null", "-Wno-unknown-attributes", "-Wno-unused", "-Wno-null-dereference", "-Wno-undefined-internal",
         "-Wno-unknown-warning-option", "-Wno-c++20-extensions", "-Wno-double-promotion", "-Wno-pragma-once-outside-header"]
FORBIDDEN = {"GotoStmt": "goto", "IndirectGotoStmt": "goto", "GCCAsmStmt": "asm", "CXXTryStmt": "try", "CXXThrowExpr": "throw",
             "CXXNewExpr": "new", "CXXDeleteExpr": "delete"}
DECLARED = ("ParmVarDecl", "VarDecl", "FieldDecl", "FunctionDecl", "CXXMethodDecl", "TypedefDecl", "TypeAliasDecl")


class Walk:
    """One pass over a tree: places, forbidden statements, types without an address space, who calls whom."""

    def __init__(self, main):
        self.main, self.file, self.line = main, "", 0
        self.faults, self.calls, self.names = [], {}, {}

    def move(self, place):
        place = place.get("expansionLoc", place)
        self.file = place.get("presumedFile", place.get("file", self.file))
        self.line = place.get("presumedLine", place.get("line", self.line))

    def fault(self, text):
        fault = f"{self.file}:{self.line}: error: {text}"
        if fault not in self.faults:
            self.faults.append(fault)

    def visit(self, node, function=None):
        if not isinstance(node, dict) or not node:
            return
        if node.get("loc"):
            self.move(node["loc"])
        if node.get("range", {}).get("begin") and not node.get("loc"):
            self.move(node["range"]["begin"])
        kind = node.get("kind", "")
        ours = self.file.endswith((".metal", ".h"))
        if node.get("isImplicit") and kind in ("CXXConstructorDecl", "CXXMethodDecl", "CXXDestructorDecl"):
            return
        if ours and kind in DECLARED and "__generic" in node.get("type", {}).get("qualType", "") and not node.get("isImplicit"):
            if kind != "FunctionDecl" and kind != "CXXMethodDecl":  # their parameters are visited by themselves
                self.fault(f"{node.get('name', 'a parameter')}: pointer or reference without an address space")
            elif "__generic" in node["type"]["qualType"].split("(")[0]:
                self.fault(f"{node.get('name')}: returns a pointer or reference without an address space")
        if ours and kind in FORBIDDEN:
            self.fault(f"{FORBIDDEN[kind]} is not in MSL")
        if ours and kind == "FloatingLiteral" and node.get("type", {}).get("qualType") == "double":
            self.fault("a double literal: write 1.0f")
        if kind in ("FunctionDecl", "CXXMethodDecl"):
            function = node.get("mangledName", node.get("id"))
            self.names[node.get("id")] = function
            self.calls.setdefault(function, {"to": set(), "name": node.get("name", "?"), "at": (self.file, self.line), "ours": ours})
        if kind in ("DeclRefExpr", "MemberExpr") and function:
            to = node.get("referencedDecl", {}).get("id") or node.get("referencedMemberDecl")
            if to:
                self.calls[function]["to"].add(to)
        for child in node.get("inner", []):
            self.visit(child, function)

    def recursion(self):
        for start, entry in self.calls.items():
            seen, todo = set(), [self.names.get(t) for t in entry["to"]]
            while todo:
                at = todo.pop()
                if at == start and entry["ours"]:
                    self.faults.append(f"{entry['at'][0]}:{entry['at'][1]}: error: recursion: {entry['name']} calls itself")
                    break
                if at and at not in seen:
                    seen.add(at)
                    todo += [self.names.get(t) for t in self.calls.get(at, {"to": ()})["to"]]


def check(path, scan, clang):
    """Errors in one file, as lines."""
    with tempfile.TemporaryDirectory() as folder:
        unit = os.path.join(folder, "unit.cl")
        scanned = subprocess.run([scan, "strict", path, unit], capture_output=True, text=True, check=False)
        if scanned.returncode != 0:
            lines = [re.sub(r"^(\S+:\d+): ", r"\1: error: ", line) for line in scanned.stderr.splitlines()]
            return lines or [f"{path}:1: error: {scan} ended with {scanned.returncode}"]
        # one run gives both the messages and the tree; with errors the tree is of no use
        done = subprocess.run([clang, *FLAGS, "-Xclang", "-ast-dump=json", unit], capture_output=True, text=True, check=False)
    lines = [line for line in done.stderr.splitlines() if re.search(r"\b(fatal )?error: ", line)]
    warnings = [line.replace("warning: ", "error: ") for line in done.stderr.splitlines() if " warning: " in line]
    if done.returncode != 0 or lines:
        return lines or [f"{path}:1: error: {clang} failed: {done.stderr.strip()[:200]}"]
    walk = Walk(path)
    sys.setrecursionlimit(20000)
    walk.visit(json.loads(done.stdout))
    walk.recursion()
    return warnings + walk.faults


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    options.add_argument("--scan", required=True)
    options.add_argument("--clang", required=True)
    options.add_argument("files", nargs="+")
    arguments = options.parse_args()
    errors = [line for path in arguments.files for line in check(path, arguments.scan, arguments.clang)]
    print("\n".join(errors) if errors else f"strict check: {len(arguments.files)} file(s) clean")
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
