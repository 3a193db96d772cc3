"""Models in the sizes of published ones, as sparse files: a header, and data that are holes. What reads no weights
(inspect) sees the real thing; nothing else can use them. The figures are those of each model's published
configuration (config.json of the repository named at each function), as public code quotes them; the names of keys and
tensors are those of llama.cpp's converter, the types what its quantizer gives a file of that kind (gpt-oss: as
published, experts in MXFP4)."""
import struct

# name: number in a file, weights per block, bytes per block
TYPES = {"f32": (0, 1, 4), "f16": (1, 1, 2), "q4_0": (2, 32, 18), "q4_1": (3, 32, 20), "q5_0": (6, 32, 22),
         "q5_1": (7, 32, 24), "q8_0": (8, 32, 34), "q4_k": (12, 256, 144), "q5_k": (13, 256, 176), "q6_k": (14, 256, 210),
         "bf16": (30, 1, 2), "mxfp4": (39, 32, 17)}
ALIGNMENT = 32


def tensor_bytes(kind, dims):
    _, block, size = TYPES[kind]
    assert dims[0] % block == 0, (kind, dims)
    elements = 1
    for d in dims:
        elements *= d
    return elements // block * size


class Model:
    """Keys and tensors in file order. A key's value: int, float, str, or a list of bool or int."""

    def __init__(self, architecture, **keys):
        self.architecture = architecture
        self.keys = {"general.architecture": architecture, "tokenizer.ggml.model": "none"}
        self.tensors = {}  # name: (kind, dims, the value of all elements)
        for name, value in keys.items():
            self.key(name.replace("__", "."), value)

    def key(self, name, value):
        self.keys[f"{self.architecture}.{name}"] = value

    def matrix(self, name, kind, *dims):
        self.tensors[f"{name}.weight"] = (kind, dims, None)

    def vector(self, name, *dims, value=None):
        own_end = "." in name.removeprefix("blk.").partition(".")[2]
        self.tensors[name if own_end else f"{name}.weight"] = ("f32", dims, value)

    def bytes_of(self, *names):
        return sum(tensor_bytes(*self.tensors[f"{n}.weight"][:2]) for n in names)

    def total_bytes(self):
        return sum(tensor_bytes(kind, dims) for kind, dims, _ in self.tensors.values())

    def write(self, path, data_of_matrix=None):
        """`data_of_matrix(kind, dims)` gives pieces of bytes; without it matrices are holes."""
        def text(s):
            return struct.pack("<Q", len(s)) + s.encode()

        def value(v):
            if isinstance(v, str):
                return struct.pack("<I", 8) + text(v)
            if isinstance(v, float):
                return struct.pack("<If", 6, v)
            if isinstance(v, list) and isinstance(v[0], bool):
                return struct.pack("<IIQ", 9, 7, len(v)) + bytes(v)
            if isinstance(v, list):
                return struct.pack(f"<IIQ{len(v)}I", 9, 4, len(v), *v)
            return struct.pack("<II", 4, v)

        head = b"GGUF" + struct.pack("<IQQ", 3, len(self.tensors), len(self.keys))
        head += b"".join(text(k) + value(v) for k, v in self.keys.items())
        offset, filled = 0, []
        for name, (kind, dims, fill) in self.tensors.items():
            head += text(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, TYPES[kind][0], offset)
            if fill is not None:
                filled.append((offset, [struct.pack("<f", fill) * (tensor_bytes(kind, dims) // 4)]))
            elif data_of_matrix is not None:
                filled.append((offset, data_of_matrix(kind, dims)))
            offset += -(-tensor_bytes(kind, dims) // ALIGNMENT) * ALIGNMENT
        head += b"\0" * (-len(head) % ALIGNMENT)
        with open(path, "wb") as out:
            out.write(head)
            for at, pieces in filled:
                out.seek(len(head) + at)
                out.writelines(pieces)
            out.truncate(len(head) + offset)


def _attention(m, blk, width, heads, kv_heads, head, kind="q4_k", v_kind="q6_k", gate=1, v=True):
    m.vector(f"{blk}.attn_norm", width)
    m.matrix(f"{blk}.attn_q", kind, width, heads * head * gate)
    m.matrix(f"{blk}.attn_k", kind, width, kv_heads * head)
    if v:
        m.matrix(f"{blk}.attn_v", v_kind, width, kv_heads * head)
    m.matrix(f"{blk}.attn_output", kind, heads * head, width)


def _qk_norms(m, blk, head):
    m.vector(f"{blk}.attn_q_norm", head)
    m.vector(f"{blk}.attn_k_norm", head)


def _feed_forward(m, blk, width, hidden):
    m.matrix(f"{blk}.ffn_gate", "q4_k", width, hidden)
    m.matrix(f"{blk}.ffn_up", "q4_k", width, hidden)
    m.matrix(f"{blk}.ffn_down", "q6_k", hidden, width)


def _experts(m, blk, width, hidden, n, kind="q4_k", down_kind="q6_k"):
    m.matrix(f"{blk}.ffn_gate_inp", "f32", width, n)
    m.matrix(f"{blk}.ffn_gate_exps", kind, width, hidden, n)
    m.matrix(f"{blk}.ffn_up_exps", kind, width, hidden, n)
    m.matrix(f"{blk}.ffn_down_exps", down_kind, hidden, width, n)


def _ends(m, width, vocabulary, kind="q6_k", tied=False):
    m.matrix("token_embd", kind if tied else "q4_k" if width % 256 == 0 else kind, width, vocabulary)
    m.vector("output_norm", width)
    if not tied:
        m.matrix("output", kind, width, vocabulary)


def gemma4(layers, width, hidden, heads, kv, full_kv, window, shared=0, per_layer=0, v_is_k=False):
    """google/gemma-4-31B-it and google/gemma-4-E4B-it"""
    vocabulary, head, full_head = 262144, 256, 512
    sliding = [layer % 6 != 5 for layer in range(layers)]
    m = Model("gemma4", block_count=layers, context_length=131072, embedding_length=width, feed_forward_length=hidden,
              attention__head_count=heads, attention__head_count_kv=[kv if s else full_kv for s in sliding],
              attention__key_length=full_head, attention__value_length=full_head, attention__key_length_swa=head,
              attention__value_length_swa=head, attention__layer_norm_rms_epsilon=1e-6,
              attention__sliding_window=window, attention__sliding_window_pattern=sliding,
              attention__shared_kv_layers=shared, embedding_length_per_layer_input=per_layer, rope__freq_base=1e6,
              rope__freq_base_swa=1e4, rope__dimension_count=full_head, rope__dimension_count_swa=head,
              final_logit_softcapping=30.0)
    _ends(m, width, vocabulary, tied=True)
    m.vector("rope_freqs", full_head // 2, value=1.0)
    if per_layer:
        m.matrix("per_layer_token_embd", "q6_k", per_layer * layers, vocabulary)
        m.matrix("per_layer_model_proj", "q4_k", width, per_layer * layers)
        m.vector("per_layer_proj_norm", per_layer)
    for layer in range(layers):
        blk, h = f"blk.{layer}", head if sliding[layer] else full_head
        _attention(m, blk, width, heads, kv if sliding[layer] else full_kv, h, v=sliding[layer] or not v_is_k)
        _qk_norms(m, blk, h)
        _feed_forward(m, blk, width, hidden)
        for norm in ("post_attention_norm", "ffn_norm", "post_ffw_norm"):
            m.vector(f"{blk}.{norm}", width)
        if per_layer:
            m.matrix(f"{blk}.inp_gate", "q4_k", width, per_layer)
            m.matrix(f"{blk}.proj", "q4_k", per_layer, width)
            m.vector(f"{blk}.post_norm", width)
        m.vector(f"{blk}.layer_output_scale", 1, value=1.0)
    return m


def gemma4_31b():
    return gemma4(60, 5376, 21504, 32, 16, 4, 1024, v_is_k=True)


def gemma4_e4b():
    return gemma4(42, 2560, 10240, 8, 2, 2, 512, shared=18, per_layer=256)


def qwen3_30b_a3b():
    """Qwen/Qwen3-30B-A3B"""
    width, head = 2048, 128
    m = Model("qwen3moe", block_count=48, context_length=40960, embedding_length=width, feed_forward_length=6144,
              attention__head_count=32, attention__head_count_kv=4, attention__key_length=head,
              attention__value_length=head, attention__layer_norm_rms_epsilon=1e-6, rope__freq_base=1e6,
              expert_count=128, expert_used_count=8, expert_feed_forward_length=768)
    _ends(m, width, 151936)
    for layer in range(48):
        blk = f"blk.{layer}"
        _attention(m, blk, width, 32, 4, head)
        _qk_norms(m, blk, head)
        m.vector(f"{blk}.ffn_norm", width)
        _experts(m, blk, width, 768, 128)
    return m


def qwen35_27b():
    """Qwen/Qwen3.5-27B, with the layer that predicts the token after the next"""
    width, head, n_k, n_v, d = 5120, 256, 16, 48, 128
    m = Model("qwen35", block_count=65, nextn_predict_layers=1, context_length=262144, embedding_length=width,
              feed_forward_length=17408, attention__head_count=24, attention__head_count_kv=4,
              attention__key_length=head, attention__value_length=head, attention__layer_norm_rms_epsilon=1e-6,
              attention__recurrent_layers=[layer % 4 != 3 for layer in range(64)] + [False], full_attention_interval=4,
              rope__freq_base=1e7, rope__dimension_count=64, rope__dimension_sections=[11, 11, 10, 0],
              ssm__conv_kernel=4, ssm__state_size=d, ssm__group_count=n_k, ssm__time_step_rank=n_v,
              ssm__inner_size=n_v * d)
    _ends(m, width, 248320)
    for layer in range(65):
        blk = f"blk.{layer}"
        if layer % 4 == 3 or layer == 64:
            _attention(m, blk, width, 24, 4, head, gate=2)
            _qk_norms(m, blk, head)
        else:
            channels = (2 * n_k + n_v) * d
            m.vector(f"{blk}.attn_norm", width)
            m.matrix(f"{blk}.attn_qkv", "q4_k", width, channels)
            m.matrix(f"{blk}.attn_gate", "q4_k", width, n_v * d)
            m.matrix(f"{blk}.ssm_alpha", "q8_0", width, n_v)
            m.matrix(f"{blk}.ssm_beta", "q8_0", width, n_v)
            m.vector(f"{blk}.ssm_conv1d.weight", 4, channels)
            m.tensors[f"{blk}.ssm_a"] = ("f32", (n_v,), None)
            m.vector(f"{blk}.ssm_dt.bias", n_v)
            m.vector(f"{blk}.ssm_norm", d)
            m.matrix(f"{blk}.ssm_out", "q4_k", n_v * d, width)
        m.vector(f"{blk}.post_attention_norm", width)
        _feed_forward(m, blk, width, 17408)
    m.matrix("blk.64.nextn.eh_proj", "q8_0", 2 * width, width)
    return m


def gpt_oss_20b():
    """openai/gpt-oss-20b"""
    width, hidden, heads, kv, head, n = 2880, 2880, 64, 8, 64, 32
    m = Model("gpt-oss", block_count=24, context_length=131072, embedding_length=width, feed_forward_length=hidden,
              attention__head_count=heads, attention__head_count_kv=kv, attention__key_length=head,
              attention__value_length=head, attention__layer_norm_rms_epsilon=1e-5, attention__sliding_window=128,
              rope__freq_base=150000.0, rope__scaling__type="yarn", rope__scaling__factor=32.0,
              rope__scaling__original_context_length=4096, expert_count=n, expert_used_count=4,
              expert_feed_forward_length=hidden)
    _ends(m, width, 201088, "q8_0")
    for layer in range(24):
        blk = f"blk.{layer}"
        _attention(m, blk, width, heads, kv, head, "q8_0", "q8_0")
        for name, size in (("attn_q", heads * head), ("attn_k", kv * head), ("attn_v", kv * head),
                           ("attn_output", width), ("ffn_gate_inp", n)):
            m.vector(f"{blk}.{name}.bias", size)
        m.vector(f"{blk}.attn_sinks", heads)
        m.vector(f"{blk}.post_attention_norm", width)
        _experts(m, blk, width, hidden, n, "mxfp4", "mxfp4")
        for name, size in (("ffn_gate_exps", hidden), ("ffn_up_exps", hidden), ("ffn_down_exps", width)):
            m.vector(f"{blk}.{name}.bias", size, n)
    return m
