#!/usr/bin/env python3
"""Writes a GGUF file with random weights in the geometry of a published model.

    bench/make_model.py qwen3-0.6b q4_0 qwen3-0.6b-q4_0.gguf
    bench/make_model.py --list

Speed depends on shapes and formats, not on what the weights say, so such a file stands in for one that cannot be
fetched. The weights are scaled so that activations stay finite. There is no vocabulary: it is for `bench`, not for
text. Types name what llama.cpp's quantizer would give: q4_k_m has some matrices in q6_k.
"""
import argparse
import contextlib
import errno
import os
import random
import signal
import struct
import sys
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/cli"))
from real_sizes import TYPES, Model, tensor_bytes  # noqa: E402  (the one writer of GGUF in Python)


class Geometry(NamedTuple):
    architecture: str
    layers: int
    width: int
    hidden: int  # of the feed-forward
    heads: int
    kv_heads: int
    head: int
    vocabulary: int
    rope_base: float
    biases: bool = False      # of q, k, v
    head_norms: bool = False  # of q and k
    post_norms: bool = False
    window: int = 0           # of sliding attention
    tied: bool = True         # the embedding is the output too
    experts: tuple = ()       # how many, how many of them a token takes, their hidden width


# From config.json of HuggingFaceTB/SmolLM2-135M-Instruct, google/gemma-3-270m-it and -27b-it, meta-llama/Llama-3.2-1B
# and -3.1-8B, and Qwen/….
GEOMETRIES = {
    "smollm2-135m": Geometry("llama", 30, 576, 1536, 9, 3, 64, 49152, 1e5),
    "gemma3-270m": Geometry("gemma3", 18, 640, 2048, 4, 1, 256, 262144, 1e6, head_norms=True, post_norms=True,
                            window=512),
    "llama3.2-1b": Geometry("llama", 16, 2048, 8192, 32, 8, 64, 128256, 5e5),
    "qwen2.5-1.5b": Geometry("qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 1e6, biases=True),
    "qwen3-0.6b": Geometry("qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 1e6, head_norms=True),
    "llama3.1-8b": Geometry("llama", 32, 4096, 14336, 32, 8, 128, 128256, 5e5, tied=False),
    "qwen3-8b": Geometry("qwen3", 36, 4096, 12288, 32, 8, 128, 151936, 1e6, head_norms=True, tied=False),
    "qwen2.5-14b": Geometry("qwen2", 48, 5120, 13824, 40, 8, 128, 152064, 1e6, biases=True, tied=False),
    "gemma3-27b": Geometry("gemma3", 62, 5376, 21504, 32, 16, 128, 262144, 1e6, head_norms=True, post_norms=True,
                           window=1024),
    "qwen3-30b-a3b": Geometry("qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 1e6, head_norms=True, tied=False,
                              experts=(128, 8, 768)),
}
# What a file of a type is made of: most matrices, those that a mixed file keeps finer, the table of embeddings.
MIXES = {
    "q4_0": ("q4_0", "q4_0", "q6_k"), "q4_1": ("q4_1", "q4_1", "q6_k"), "q5_0": ("q5_0", "q5_0", "q6_k"),
    "q5_1": ("q5_1", "q5_1", "q6_k"), "q8_0": ("q8_0", "q8_0", "q8_0"), "q4_k_m": ("q4_k", "q6_k", "q6_k"),
    "q5_k_m": ("q5_k", "q6_k", "q6_k"), "q6_k": ("q6_k", "q6_k", "q6_k"), "f16": ("f16", "f16", "f16"),
    "bf16": ("bf16", "bf16", "bf16"),
}
NARROW = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}  # for rows that are not whole blocks of 256


class Scales(NamedTuple):
    """Fields of a block that random bytes would make too large: f16 values per unit of weight, and masked bytes."""
    halves: dict  # offset: f16 for weights of about ±1
    masked: range = range(0)  # bytes cut to five bits


SCALES = {
    "q4_0": Scales({0: 1 / 4.6}),
    "q4_1": Scales({0: 1 / 4.6, 2: -7.5 / 4.6}),
    "q5_0": Scales({0: 1 / 9.2}),
    "q5_1": Scales({0: 1 / 9.2, 2: -15.5 / 9.2}),
    "q8_0": Scales({0: 1 / 74}),
    "q4_k": Scales({0: 1 / 75, 2: 1 / 32}, range(4, 16)),
    "q5_k": Scales({0: 1 / 155, 2: 1 / 32}, range(4, 16)),
    "q6_k": Scales({208: 1 / 288}, range(192, 208)),
}
BLOCKS_AT_ONCE = 1 << 14  # random ones, repeated


def random_blocks(kind, n, amplitude, source):
    _, _, size = TYPES[kind]
    if kind in ("f16", "bf16", "f32"):
        values = [source.gauss(0, amplitude) for _ in range(n)]
        if kind == "f16":
            return struct.pack(f"<{n}e", *values)
        singles = struct.pack(f"<{n}f", *values)
        return singles if kind == "f32" else b"".join(singles[i + 2:i + 4] for i in range(0, 4 * n, 4))
    blocks = bytearray(source.randbytes(n * size))
    scales = SCALES[kind]
    halves = {offset: struct.pack("<e", value * amplitude) for offset, value in scales.halves.items()}
    for start in range(0, n * size, size):
        for offset, value in halves.items():
            blocks[start + offset:start + offset + 2] = value
        for i in scales.masked:
            blocks[start + i] &= 0x1F
    return bytes(blocks)


def random_data(kind, dims, source):
    """The bytes of a matrix in pieces: outputs as large as its inputs. A large one repeats its beginning."""
    _, _, size = TYPES[kind]
    left = tensor_bytes(kind, dims)
    piece = random_blocks(kind, min(left // size, BLOCKS_AT_ONCE), dims[0] ** -0.5, source)
    while left > 0:
        yield piece[:left]
        left -= len(piece[:left])


def make(geometry, mix):
    g = GEOMETRIES[geometry]
    most, finer, embeddings = MIXES[mix]
    m = Model(g.architecture, block_count=g.layers, context_length=32768, embedding_length=g.width,
              feed_forward_length=g.hidden, attention__head_count=g.heads, attention__head_count_kv=g.kv_heads,
              attention__key_length=g.head, attention__value_length=g.head, attention__layer_norm_rms_epsilon=1e-6,
              rope__freq_base=g.rope_base, rope__dimension_count=g.head, vocab_size=g.vocabulary)
    if g.window:
        m.key("attention.sliding_window", g.window)
    n_experts, n_used, expert_width = g.experts or (0, 0, 0)
    if n_experts:
        m.key("expert_count", n_experts)
        m.key("expert_used_count", n_used)
        m.key("expert_feed_forward_length", expert_width)

    def matrix(name, kind, columns, *rows):
        m.matrix(name, kind if columns % TYPES[kind][1] == 0 else NARROW[kind], columns, *rows)

    matrix("token_embd", embeddings, g.width, g.vocabulary)
    for layer in range(g.layers):
        blk = f"blk.{layer}"
        # llama.cpp's rule: the first and the last eighth of the layers, and every third between them.
        eighth = g.layers // 8
        fine = finer if layer < eighth or layer >= 7 * g.layers // 8 or (layer - eighth) % 3 == 2 else most
        m.vector(f"{blk}.attn_norm", g.width, value=1.0)
        matrix(f"{blk}.attn_q", most, g.width, g.heads * g.head)
        matrix(f"{blk}.attn_k", most, g.width, g.kv_heads * g.head)
        matrix(f"{blk}.attn_v", fine, g.width, g.kv_heads * g.head)
        matrix(f"{blk}.attn_output", most, g.heads * g.head, g.width)
        if g.biases:
            for name, heads in (("q", g.heads), ("k", g.kv_heads), ("v", g.kv_heads)):
                m.vector(f"{blk}.attn_{name}.bias", heads * g.head, value=0.1)
        norms = (["attn_q_norm", "attn_k_norm"] if g.head_norms else []) + ["ffn_norm"]
        norms += ["post_attention_norm", "post_ffw_norm"] if g.post_norms else []
        for norm in norms:
            m.vector(f"{blk}.{norm}", g.head if norm in ("attn_q_norm", "attn_k_norm") else g.width, value=1.0)
        if n_experts:
            m.matrix(f"{blk}.ffn_gate_inp", "f32", g.width, n_experts)
            matrix(f"{blk}.ffn_gate_exps", most, g.width, expert_width, n_experts)
            matrix(f"{blk}.ffn_up_exps", most, g.width, expert_width, n_experts)
            matrix(f"{blk}.ffn_down_exps", fine, expert_width, g.width, n_experts)
        else:
            matrix(f"{blk}.ffn_gate", most, g.width, g.hidden)
            matrix(f"{blk}.ffn_up", most, g.width, g.hidden)
            matrix(f"{blk}.ffn_down", fine, g.hidden, g.width)
    m.vector("output_norm", g.width, value=1.0)
    if not g.tied:
        matrix("output", embeddings, g.width, g.vocabulary)
    return m


def write(geometry, mix, path):
    """The whole file or none: whatever ends it early, what was at `path` before stays there."""
    if not os.fspath(path):
        raise FileNotFoundError(errno.ENOENT, "the file's name is empty", "FILE")
    path = Path(os.path.realpath(path))
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    unfinished = path.with_name(f"{path.name}.{os.getpid()}.part")  # another process may be making the same
    source = random.Random(7)  # the same file every time
    try:
        make(geometry, mix).write(unfinished, lambda kind, dims: random_data(kind, dims, source))
        os.replace(unfinished, path)
    except OSError as error:  # a failing write() does not know the name
        raise OSError(error.errno, error.strerror, str(path)) from error
    finally:
        with contextlib.suppress(OSError):
            unfinished.unlink()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("geometry", nargs="?", metavar="GEOMETRY")
    parser.add_argument("mix", nargs="?", metavar="TYPE")
    parser.add_argument("path", nargs="?", metavar="FILE")
    parser.add_argument("--list", action="store_true", help="the geometries and types that there are")
    arguments = parser.parse_args()
    if arguments.list:
        print("geometries:", *GEOMETRIES)
        print("types:     ", *MIXES)
        return 0
    if arguments.path is None:
        parser.error("GEOMETRY, TYPE and FILE are required (--list shows what there is)")
    for given, known in ((arguments.geometry, GEOMETRIES), (arguments.mix, MIXES)):
        if given not in known:
            parser.error(f"{given!r} is unknown; there are: {' '.join(known)}")
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))  # so that the unfinished file goes
    try:
        write(arguments.geometry, arguments.mix, arguments.path)
    except KeyboardInterrupt:
        return 130
    except OSError as error:
        sys.exit(f"make_model.py: {error.filename}: {error.strerror}")
    print(f"{arguments.path}: {Path(arguments.path).stat().st_size / 1e6:.0f} MB", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
