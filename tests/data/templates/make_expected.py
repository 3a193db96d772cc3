#!/usr/bin/env python3
"""Writes what Python renders: <template>.expected.json for every *.jinja with every case of conversations.json, and the
"text", "raises" or "fails" of every case in snippets.json. Needs Jinja2 (3.1.6 was used) and CPython 3.11; the
environment is set up as Hugging Face transformers' chat templates have it. The clock stands at 2026-07-26 13:05:09.

    make_expected.py [--published FOLDER]

With FOLDER (llama.cpp's models/templates) it writes published.json only: of each template there a hash, and of what it
renders of every conversation one too. Those templates have licences of their own and are not here."""
import datetime
import functools
import json
import pathlib
import sys

import jinja2
import jinja2.ext
import jinja2.sandbox


class Generation(jinja2.ext.Extension):
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_render"), [], [], body).set_lineno(line)

    def _render(self, caller):
        return caller()


class Raised(jinja2.TemplateError):
    pass


def raise_exception(message):
    raise Raised(str(message))


def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
    return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[Generation, jinja2.ext.loopcontrols])
environment.filters["tojson"] = tojson
environment.globals["raise_exception"] = raise_exception
environment.globals["strftime_now"] = datetime.datetime(2026, 7, 26, 13, 5, 9).strftime


@functools.cache
def compiled(source):
    return environment.from_string(source)


def outcome(source, variables):
    try:
        return {"text": compiled(source).render(**variables)}
    except Raised as error:
        return {"raises": error.message}
    except Exception as error:
        return {"fails": f"{type(error).__name__}: {error}"}


def write(path, value):
    path.write_text(json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def fnv1a(text):
    value = 0xCBF29CE484222325
    for byte in text.encode():
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:016x}"


def hashed(result):
    return fnv1a(result["text"]) if "text" in result else result if "raises" in result else {"fails": ""}


def write_published(folder, conversations, to):
    templates = []
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text()
        templates.append({"template": path.name, "hash": fnv1a(source),
                          "outcomes": [hashed(outcome(source, case["variables"])) for case in conversations]})
    lines = ",\n".join(json.dumps(t, ensure_ascii=False, separators=(",", ":")) for t in templates)
    to.write_text(f"[\n{lines}\n]\n")


def main():
    folder = pathlib.Path(__file__).parent
    conversations = json.loads((folder / "conversations.json").read_text())
    if len(sys.argv) == 3 and sys.argv[1] == "--published":
        write_published(pathlib.Path(sys.argv[2]), conversations, folder / "published.json")
        return
    for path in sorted(folder.glob("*.jinja")):
        source = path.read_text()
        write(path.with_suffix(".expected.json"),
              {case["name"]: outcome(source, case["variables"]) for case in conversations})
    snippets = json.loads((folder / "snippets.json").read_text())
    for case in snippets["cases"]:
        source = case["template"]
        case.clear()
        case.update({"template": source, **outcome(source, snippets["variables"])})
    write(folder / "snippets.json", snippets)


if __name__ == "__main__":
    main()
