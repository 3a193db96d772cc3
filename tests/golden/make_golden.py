#!/usr/bin/env python3
"""Makes golden files of model families: tests/data/families/NAME.gguf, .tokens.txt, .logits.f32.

    make_golden.py --llama-cpp DIR [--out DIR] [NAME ...]
    make_golden.py --list

A case is a tiny random model of the `transformers` library, described by its configuration (one entry of CASES in
golden_cases.py). Its f32 weights are exported by llama.cpp's own converter (DIR is a source tree of llama.cpp with
convert_hf_to_gguf.py and conversion/), so that names and layouts are those that people's files have. The logits of
every position are the library's, computed in f64 on the same weights: places where its code asks for float32 get
float64 instead. Needs torch, transformers, numpy, safetensors. The result depends on the case's name and configuration
only (and on the versions of torch and transformers).
"""

import argparse
import contextlib
import hashlib
import json
import logging
import sys
import tempfile
import types
from pathlib import Path

import numpy as np
import torch
import transformers

from golden_cases import CASES, Case


# The library's own loops, which run in any precision.
PLAIN = {"attn_implementation": "eager", "experts_implementation": "eager"}


def seed_of(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:4], "little")


class DoubleTorch(types.ModuleType):
    """`torch` as a modelling file sees it, with float64 wherever it says float32."""

    def __init__(self):
        super().__init__("torch")

    def __getattr__(self, name):
        return torch.float64 if name in ("float", "float32") else getattr(torch, name)


@contextlib.contextmanager
def double_precision():
    """The library's explicit casts to float32 (norms, softmax, rotary tables, routers) become casts to float64."""
    stand_in = DoubleTorch()
    patched = [m for n, m in list(sys.modules.items())
               if n.startswith("transformers.m") and getattr(m, "torch", None) is torch]
    old_float, old_default = torch.Tensor.float, torch.get_default_dtype()
    for module in patched:
        module.torch = stand_in
    torch.Tensor.float = torch.Tensor.double
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(old_default)
        torch.Tensor.float = old_float
        for module in patched:
            module.torch = torch


def random_model(case: Case, name: str) -> torch.nn.Module:
    """f32 weights: every tensor random, so that no norm, bias or gate can be left out unnoticed."""
    config = getattr(transformers, case.config_class)(**case.config)
    model = getattr(transformers, case.model_class)._from_config(config, **PLAIN).float().eval()
    generator = torch.Generator().manual_seed(seed_of(name))
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if parameter.dim() == 1 and "norm" in key and key.endswith("weight"):
                parameter.copy_(case.norm_mean + 0.2 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(0.2 * noise)
            else:
                parameter.copy_(noise * case.weight_scale / parameter.shape[-1] ** 0.5)
        if case.adjust is not None:
            case.adjust(model, generator)
    return model


def golden_logits(case: Case, model: torch.nn.Module, tokens: np.ndarray) -> np.ndarray:
    """[tokens][vocabulary], in f64 but for cases that cannot."""
    ids = torch.from_numpy(tokens)[None]
    with torch.no_grad():
        if not case.double:
            return model(ids, use_cache=False).logits[0].numpy()
        with double_precision():
            precise = type(model)._from_config(model.config, **PLAIN).double().eval()
            precise.load_state_dict({k: v.double() for k, v in model.state_dict().items()})
            return precise(ids, use_cache=False).logits[0].numpy()


def convert(llama_cpp: Path, folder: Path, target: Path, expert_type: str | None) -> None:
    """llama.cpp's converter, with a tokenizer of kind "none" (these models have no text)."""
    for path in (llama_cpp / "gguf-py", llama_cpp):
        sys.path.insert(0, str(path))
    import gguf
    from conversion import ModelBase, ModelType, get_model_architecture, get_model_class

    cls = get_model_class(get_model_architecture(ModelBase.load_hparams(folder, False), ModelType.TEXT))
    cls.no_mtp = True  # these models predict the next token only
    with torch.inference_mode():
        converter = cls(folder, gguf.LlamaFileType.ALL_F32, target, model_name=f"tiny-{target.stem}")
        writer = getattr(converter, "impl", converter)  # some classes only choose another

        def without_tokenizer():
            writer.gguf_writer.add_tokenizer_model("none")
            # Families that write vocab_size themselves do it with the other hyper-parameters.
            if "add_vocab_size" not in _names_in(type(writer), "set_gguf_parameters"):
                writer.gguf_writer.add_vocab_size(writer.hparams["vocab_size"])

        def forced_type(name, new_name, bid, n_dims, plain=writer.tensor_force_quant):
            if expert_type is not None and new_name.endswith("_exps.weight"):
                return gguf.GGMLQuantizationType[expert_type]
            return plain(name, new_name, bid, n_dims)

        writer.set_vocab = without_tokenizer
        writer.tensor_force_quant = forced_type
        converter.write()


def _names_in(cls: type, method: str) -> set[str]:
    """Attribute names that a method uses in any class of its family."""
    return {name for c in cls.__mro__ if method in vars(c) for name in vars(c)[method].__code__.co_names}


def make(name: str, llama_cpp: Path, out: Path) -> None:
    case = CASES[name]
    model = random_model(case, name)
    vocabulary = model.config.get_text_config().vocab_size
    tokens = np.random.default_rng(seed_of(name)).integers(3, vocabulary, case.tokens)
    tokens[0] = 1
    logits = golden_logits(case, model, tokens)
    rough = golden_logits(Case(**{**vars(case), "double": False}), model, tokens)
    distance = np.linalg.norm(rough - logits) / np.linalg.norm(logits)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(json.loads(config.read_text()) | (case.published or {})))
        # Gemma's converter counts the tokens of this file.
        tokenizer = {"model": {"vocab": {str(i): i for i in range(vocabulary)}}, "added_tokens": []}
        Path(folder, "tokenizer.json").write_text(json.dumps(tokenizer))
        convert(llama_cpp, Path(folder), out / f"{name}.gguf", case.expert_type)
    (out / f"{name}.tokens.txt").write_text(" ".join(map(str, tokens)))
    logits.astype("<f4").tofile(out / f"{name}.logits.f32")
    size = (out / f"{name}.gguf").stat().st_size
    print(f"{name}: {size:,} bytes; logits {np.abs(logits).mean():.3f} on average; the library in f32 is off by {distance:.1e}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="cases to make (default: all)")
    parser.add_argument("--llama-cpp", type=Path, help="source tree of llama.cpp, whose converter is used")
    parser.add_argument("--out", type=Path, default=Path(__file__).parents[1] / "data" / "families")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    arguments = parser.parse_args()
    if arguments.list:
        for name, case in CASES.items():
            print(f"{name:14} {case.what}")
        return
    if arguments.llama_cpp is None:
        parser.error("--llama-cpp is missing")
    if unknown := [n for n in arguments.names if n not in CASES]:
        parser.error(f"no such case: {', '.join(unknown)} (--list shows them)")
    logging.disable(logging.WARNING)
    for name in arguments.names or CASES:
        make(name, arguments.llama_cpp, arguments.out)


if __name__ == "__main__":
    main()
