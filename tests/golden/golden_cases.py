"""The cases of make_golden.py: tiny configurations of odd sizes, one entry each.

Rules of a good case: sequences (48 tokens) longer than any window; head counts, widths and the vocabulary different from
each other, so that no shape passes by accident; every optional feature of the family switched on in at least one case;
under a megabyte.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch


@dataclass
class Case:
    what: str  # one line for people
    model_class: str  # of transformers
    config_class: str
    config: dict[str, Any]
    double: bool = True  # computed in f64; False where the library's code cannot
    norm_mean: float = 1.0  # of norm weights; 0 where the library adds 1 to them
    weight_scale: float = 1.0  # of matrices, relative to 1/sqrt(inputs)
    adjust: Callable | None = None  # (model, generator): further changes of the random weights
    tokens: int = 48  # positions
    published: dict[str, Any] | None = None  # entries of config.json that published models spell otherwise
    expert_type: str | None = None  # of the experts' tensors in the file, whose weights must be exact in it


# Rotary factors grow along a head, as published ones do.
def _factors(pairs: int, last: float) -> list[float]:
    return [round(last ** (i / (pairs - 1)), 3) for i in range(pairs)]


_PHI3 = dict(
    vocab_size=283, hidden_size=72, intermediate_size=88, num_hidden_layers=3, num_attention_heads=3,
    num_key_value_heads=1, rms_norm_eps=1e-5, rope_theta=10000.0, pad_token_id=0, bos_token_id=1, eos_token_id=2)
# 18 of 24 lanes rotate, as three quarters do in Phi-4-mini.
_PHI3_LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "partial_rotary_factor": 0.75,
              "short_factor": _factors(9, 1.7), "long_factor": _factors(9, 30.0)}

_TEXT = dict(vocab_size=283, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=False,
             pad_token_id=0, bos_token_id=1, eos_token_id=2)
_EXPERTS = dict(_TEXT, hidden_size=72, num_attention_heads=3, num_key_value_heads=1, moe_intermediate_size=40)
_DELTA = dict(
    _EXPERTS | dict(hidden_size=56, moe_intermediate_size=24), head_dim=32, num_hidden_layers=4,
    linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=24, linear_num_key_heads=2,
    linear_num_value_heads=4, num_experts=5, num_experts_per_tok=3,
    shared_expert_intermediate_size=56,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.25})


# Decays from almost nothing to almost everything, and gated norms around 1: the others are around 0, 1 added later.
def _adjust_delta(model, generator):
    for name, parameter in model.named_parameters():
        if name.endswith("A_log"):
            parameter.uniform_(0.01, 3, generator=generator).log_()
        elif name.endswith("linear_attn.norm.weight"):
            parameter.add_(1)


# Experts' weights that MXFP4 holds exactly: a power of two for each 32 inputs, times one of fifteen values.
def _adjust_gpt_oss(model, generator):
    values = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
    for name, parameter in model.named_parameters():
        if name.endswith(("gate_up_proj", "down_proj")):
            experts, inputs, outputs = parameter.shape
            blocks = parameter.reshape(experts, inputs // 32, 32, outputs)
            scale = 2 ** (torch.log2(blocks.abs().amax(2, keepdim=True)).floor() - 2)
            nearest = ((blocks / scale).abs()[..., None] - values).abs().argmin(-1)
            parameter.copy_((values[nearest] * blocks.sign() * scale).reshape(parameter.shape))
        elif name.endswith(("bias", "sinks")):
            parameter.mul_(3)


def _adjust_gemma4(model, generator):
    for name, parameter in model.named_parameters():
        if name.endswith(("router.scale", "per_expert_scale")):
            parameter.add_(1)
        elif name.endswith("router.proj.weight"):
            parameter.mul_(8)  # against the router's hidden^-1/2, so that the experts' weights differ
    for name, buffer in model.named_buffers():
        if name.endswith("layer_scalar"):
            buffer.uniform_(0.8, 1.2, generator=generator)


CASES: dict[str, Case] = {
    "llama-bias": Case(
        "Llama with biases on every projection, heads wider than width / heads",
        "LlamaForCausalLM", "LlamaConfig",
        dict(vocab_size=283, hidden_size=60, intermediate_size=88, num_hidden_layers=3, num_attention_heads=3,
             num_key_value_heads=1, head_dim=32, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0,
             attention_bias=True, mlp_bias=True, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "mistral3": Case(
        "Ministral 3: YaRN whose magnitude is divided out, a sequence longer than the original context: queries grow",
        "Ministral3ForCausalLM", "Ministral3Config",
        dict(vocab_size=283, hidden_size=60, intermediate_size=88, num_hidden_layers=3, num_attention_heads=3,
             num_key_value_heads=1, head_dim=32, max_position_embeddings=512, rms_norm_eps=1e-5, pad_token_id=0,
             bos_token_id=1, eos_token_id=2,
             rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 8.0, "beta_fast": 16.0,
                              "beta_slow": 1.0, "original_max_position_embeddings": 20, "mscale": 1.0,
                              "mscale_all_dim": 1.0, "llama_4_scaling_beta": 0.1})),
    "qwen2-yarn": Case(
        "Qwen2 with YaRN, whose range is rounded",
        "Qwen2ForCausalLM", "Qwen2Config",
        dict(vocab_size=283, hidden_size=96, intermediate_size=88, num_hidden_layers=3, num_attention_heads=3,
             num_key_value_heads=1, max_position_embeddings=512, rms_norm_eps=1e-6, tie_word_embeddings=True,
             pad_token_id=0, bos_token_id=1, eos_token_id=2,
             rope_parameters={"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0,
                              "original_max_position_embeddings": 128})),
    "phi3": Case(
        "Phi-3 without scaling, all layers with a sliding window of 16",
        "Phi3ForCausalLM", "Phi3Config",
        dict(_PHI3, max_position_embeddings=512, original_max_position_embeddings=512, sliding_window=16)),
    "phi3-long": Case(
        "Phi-3 with long rope, a sequence longer than the original context: long factors",
        "Phi3ForCausalLM", "Phi3Config",
        dict(_PHI3, max_position_embeddings=512, original_max_position_embeddings=32, sliding_window=None,
             rope_parameters=dict(_PHI3_LONG, original_max_position_embeddings=32))),
    "phi3-short": Case(
        "Phi-3 with long rope, within the original context: short factors (load with a context of 64)",
        "Phi3ForCausalLM", "Phi3Config",
        dict(_PHI3, max_position_embeddings=512, original_max_position_embeddings=64, sliding_window=None,
             rope_parameters=dict(_PHI3_LONG, original_max_position_embeddings=64))),
    "smollm3": Case(
        "SmolLM3: every fourth layer without rotation",
        "SmolLM3ForCausalLM", "SmolLM3Config",
        dict(vocab_size=283, hidden_size=72, intermediate_size=88, num_hidden_layers=5, num_attention_heads=3,
             num_key_value_heads=1, max_position_embeddings=512, rms_norm_eps=1e-6, rope_theta=50000.0,
             tie_word_embeddings=True, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "olmo2": Case(
        "OLMo 2: norms after the blocks, q and k normed over the whole projection",
        "Olmo2ForCausalLM", "Olmo2Config",
        dict(vocab_size=283, hidden_size=96, intermediate_size=88, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-6, rope_theta=500000.0,
             tie_word_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "olmo3": Case(
        "OLMo 3: windows of 16 on all but every fourth layer, YaRN on the others",
        "Olmo3ForCausalLM", "Olmo3Config",
        dict(vocab_size=283, hidden_size=64, intermediate_size=88, num_hidden_layers=5, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-6, sliding_window=16,
             tie_word_embeddings=False, pad_token_id=0, bos_token_id=1, eos_token_id=2,
             rope_parameters={
                 "sliding_attention": {"rope_type": "default", "rope_theta": 500000.0},
                 "full_attention": {"rope_type": "yarn", "rope_theta": 500000.0, "factor": 8.0,
                                    "original_max_position_embeddings": 64}})),
    "granite": Case(
        "Granite: embedding, attention, residual-branch and logits multipliers",
        "GraniteForCausalLM", "GraniteConfig",
        dict(vocab_size=283, hidden_size=96, intermediate_size=88, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0,
             embedding_multiplier=12.0, attention_multiplier=0.0625, residual_multiplier=0.22, logits_scaling=8.0,
             tie_word_embeddings=True, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
    "granite4": Case(
        "Granite 4, dense: what the converter of the hybrids writes when all layers attend",
        "GraniteMoeHybridForCausalLM", "GraniteMoeHybridConfig",
        dict(vocab_size=283, hidden_size=64, intermediate_size=88, shared_intermediate_size=88, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5,
             rope_theta=10000.0, embedding_multiplier=12.0, attention_multiplier=0.0625, residual_multiplier=0.22,
             logits_scaling=8.0, num_local_experts=0, num_experts_per_tok=0, layer_types=["attention"] * 3,
             position_embedding_type="rope", mamba_n_heads=8, mamba_d_head=16, tie_word_embeddings=True,
             pad_token_id=0, bos_token_id=1, eos_token_id=2),
        published={"layer_types": ["attention"] * 3}),
    "qwen2moe": Case(
        "Qwen2 MoE: weights that do not sum to 1, a shared expert, biases, one KV head; more than a page of positions",
        "Qwen2MoeForCausalLM", "Qwen2MoeConfig",
        dict(_EXPERTS, intermediate_size=64, num_hidden_layers=2, num_experts=6, num_experts_per_tok=4,
             shared_expert_intermediate_size=56, norm_topk_prob=False, qkv_bias=True, rope_theta=10000.0),
        tokens=130),
    "qwen3moe-all": Case(
        "Qwen3 MoE whose rows take every expert, one KV head",
        "Qwen3MoeForCausalLM", "Qwen3MoeConfig",
        dict(_EXPERTS, head_dim=32, intermediate_size=64, num_hidden_layers=2, num_experts=5, num_experts_per_tok=5,
             norm_topk_prob=True, rope_theta=10000.0)),
    "qwen3next": Case(
        "Qwen3-Next: gated delta rule with two value heads to a key head, gated attention, experts and a shared one",
        "Qwen3NextForCausalLM", "Qwen3NextConfig",
        dict(_DELTA, intermediate_size=64, norm_topk_prob=True),
        norm_mean=0.0, adjust=_adjust_delta, tokens=70),
    "qwen35moe": Case(
        "Qwen3.5 MoE: the same in a newer layout, three value heads to a key head, attention in the third layer of four",
        "Qwen3_5MoeForCausalLM", "Qwen3_5MoeTextConfig",
        dict(_DELTA, linear_num_value_heads=6,
             layer_types=["linear_attention", "linear_attention", "full_attention", "linear_attention"]),
        norm_mean=0.0, adjust=_adjust_delta),
    "mixtral": Case(
        "Mixtral: Llama with experts as wide as feed_forward_length",
        "MixtralForCausalLM", "MixtralConfig",
        dict(_TEXT, hidden_size=72, num_attention_heads=3, num_key_value_heads=1, head_dim=32, intermediate_size=40,
             num_hidden_layers=2, num_local_experts=5, num_experts_per_tok=2, rope_theta=10000.0, sliding_window=None)),
    "gptoss-mxfp4": Case(
        "gpt-oss with experts in MXFP4, weights exact in it; more than a page of positions",
        "GptOssForCausalLM", "GptOssConfig",
        dict(_TEXT, rms_norm_eps=1e-5, hidden_size=96, num_attention_heads=5, num_key_value_heads=1, head_dim=32,
             intermediate_size=64, num_hidden_layers=3, num_local_experts=6, num_experts_per_tok=4, sliding_window=16,
             layer_types=["sliding_attention", "full_attention", "sliding_attention"],
             rope_parameters={"rope_type": "yarn", "rope_theta": 150000.0, "factor": 32.0, "beta_fast": 32.0,
                              "beta_slow": 1.0, "truncate": False, "original_max_position_embeddings": 4096}),
        adjust=_adjust_gpt_oss, tokens=80, expert_type="MXFP4"),
    "gemma4-moe": Case(
        "Gemma 4 with experts beside the dense block, V is K on the full layer",
        "Gemma4ForCausalLM", "Gemma4TextConfig",
        dict(_TEXT | dict(tie_word_embeddings=True), hidden_size=56, intermediate_size=48, num_hidden_layers=3,
             num_attention_heads=4, num_key_value_heads=2, num_global_key_value_heads=1, head_dim=32, global_head_dim=64,
             attention_k_eq_v=True, sliding_window=16, final_logit_softcapping=30.0, hidden_size_per_layer_input=0,
             vocab_size_per_layer_input=283, enable_moe_block=True, num_experts=6, top_k_experts=3,
             moe_intermediate_size=24, layer_types=["sliding_attention", "sliding_attention", "full_attention"]),
        adjust=_adjust_gemma4),
}
