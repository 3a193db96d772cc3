#!/usr/bin/env python3
"""Writes docs/models.md from the registry of families and the list of golden files, or checks that it is current.

    scripts/models_page.py [--check]
"""
import re
import struct
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "models.md"
REGISTRY = ROOT / "src" / "model" / "registry.cpp"
GOLDEN = ROOT / "tests" / "support" / "golden_families.h"
MODELS_TEST = ROOT / "tests" / "golden" / "models_test.cpp"
MODELS = ROOT / "tests" / "golden" / "model_prompts.h"

# The rows of tests/golden/models_test.cpp: architecture and name of each real model.
REAL_MODELS = {"smollm2": ("llama", "SmolLM2-135M-Instruct Q4_1"), "gemma3": ("gemma3", "Gemma 3 270M Q4_K_M")}
# Older files, whose logits the library computed in f32.
SINGLE_PRECISION = ("gptoss", "qwen3moe")

TEXT = """# Models

<!-- Written by scripts/models_page.py; do not edit. -->

| `general.architecture` | models | golden files | real models |
|---|---|---|---|
{rows}

**Golden files** are tiny random models of the family in `tests/data/families`, exported by llama.cpp's converter. The
logits of all positions are compared with those of the `transformers` library, computed in f64 (in f32 for {single}):
the relative error (norm of the difference over the norm) must stay below the bound in brackets on the `reference`
backend, {default} where there is none, and below {cpu} on `cpu`
({wider}); chunks of 1, 2, 3, 7 and 512 tokens must give the same bits.
**Real models** are compared whole, on the file's dequantized weights: greedy continuations token by token, and a mean KL
divergence below {kl_f32} over all positions of some prompts with a cache of f32, below {kl_f16} with one of f16.

**Mixtures of experts**: a token reads only the experts chosen for it, but memory holds all; `honeycrisp inspect` says
how many are chosen and how many bytes a token reads. **Recurrent layers** (Qwen3-Next, Qwen3.5) keep a state of fixed
size per conversation instead of a cache that grows. Which backends compute them: `README.md`.

Every other architecture is refused by name, and so are mixtures of experts under the name of a dense family. Layers
that predict tokens beyond the next (`nextn_predict_layers`) are left out with a note. What a model's file does not say
is in the head of its file in `src/model/families`.

**Rope scaling**, for every family: none, linear, YaRN, long rope (short or long factors, chosen once by the context
asked for and printed), and frequency factors from `rope_freqs.weight` (Llama 3, Gemma 4); any other kind is refused.
`src/model/rope.h` says where each comes from.
"""


def architecture_of(path):
    """general.architecture, which converters write first."""
    data = path.read_bytes()
    at = data.index(b"general.architecture") + len("general.architecture")
    kind, length = struct.unpack_from("<IQ", data, at)
    assert kind == 8, path
    return data[at + 12:at + 12 + length].decode()


def one(pattern, path):
    match = re.search(pattern, path.read_text())
    if match is None:
        sys.exit(f"models_page: {path.relative_to(ROOT)} does not hold {pattern}")
    return match[1]


def bound(text):
    """1e-5 → 10⁻⁵, 1.5e-5 → 1.5·10⁻⁵"""
    digits, exponent = text.split("e-")
    power = "10⁻" + exponent.translate(str.maketrans("0123456789", "⁰¹²³⁴⁵⁶⁷⁸⁹"))
    return power if digits == "1" else f"{digits}·{power}"


def page():
    families = re.findall(r'^    \{"([^"]+)", build_\w+(?:, true)?\},\s*// (.+)$', REGISTRY.read_text(), re.M)
    if len(families) != len(re.findall(r'^    \{"[^"]+", build_', REGISTRY.read_text(), re.M)):
        sys.exit("models_page: a row of src/model/registry.cpp has no comment with its published models")
    if set(re.findall(r'^    \{"(\w+)", "[^"]+\.gguf"', MODELS.read_text(), re.M)) != set(REAL_MODELS):
        sys.exit("models_page: REAL_MODELS here and the table in tests/golden/model_prompts.h differ")
    golden, wider = {}, []
    for name, rest in re.findall(r'\{\.name = "([^"]+)"([^}]*)\}', GOLDEN.read_text()):
        bar = re.search(r"\.reference_bar = ([\d.e-]+)", rest)
        if cpu := re.search(r"\.cpu_bar = ([\d.e-]+)", rest):
            wider.append(f"`{name}`: {bound(cpu[1])}, its experts meet activations of 14 bits")
        architecture = architecture_of(ROOT / "tests" / "data" / "families" / f"{name}.gguf")
        golden.setdefault(architecture, []).append(f"`{name}`" + (f" ({bound(bar[1])})" if bar else ""))
    rows = []
    for architecture, models in sorted(families):
        real = ", ".join(name for a, name in REAL_MODELS.values() if a == architecture)
        rows.append(f"| `{architecture}` | {models} | {', '.join(golden.get(architecture, []))} | {real} |")
    return TEXT.format(rows="\n".join(rows), single=" and ".join(f"`{name}`" for name in SINGLE_PRECISION),
                       default=bound(one(r"reference_bar = ([\d.e-]+);", GOLDEN)),
                       cpu=bound(one(r"cpu_bar = ([\d.e-]+);", GOLDEN)), wider="; ".join(wider),
                       kl_f32=bound(one(r"kF32, ([\d.e-]+)\}", MODELS_TEST)),
                       kl_f16=bound(one(r"kF16, ([\d.e-]+)\}", MODELS_TEST)))


def main():
    if sys.argv[1:] == ["--check"]:
        if PAGE.read_text() != page():
            sys.exit("models_page: docs/models.md is not current (run scripts/models_page.py)")
    elif sys.argv[1:]:
        sys.exit(__doc__)
    else:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
