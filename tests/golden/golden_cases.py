"""The cases of make_golden.py: tiny configurations of odd sizes, one entry each.

Rules of a good case: sequences (48 tokens) longer than any window; head counts, widths and the vocabulary different from
each other, so that no shape passes by accident; every optional feature of the family switched on in at least one case;
under a megabyte.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


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


# Rotary factors grow along a head, as published ones do.
def _factors(pairs: int, last: float) -> list[float]:
    return [round(last ** (i / (pairs - 1)), 3) for i in range(pairs)]


_PHI3 = dict(
    vocab_size=283, hidden_size=72, intermediate_size=88, num_hidden_layers=3, num_attention_heads=3,
    num_key_value_heads=1, rms_norm_eps=1e-5, rope_theta=10000.0, pad_token_id=0, bos_token_id=1, eos_token_id=2)
_PHI3_LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": _factors(12, 1.7),
              "long_factor": _factors(12, 30.0)}

CASES: dict[str, Case] = {
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
    "granite": Case(
        "Granite: embedding, attention, residual-branch and logits multipliers",
        "GraniteForCausalLM", "GraniteConfig",
        dict(vocab_size=283, hidden_size=96, intermediate_size=88, num_hidden_layers=3, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0,
             embedding_multiplier=12.0, attention_multiplier=0.0625, residual_multiplier=0.22, logits_scaling=8.0,
             tie_word_embeddings=True, pad_token_id=0, bos_token_id=1, eos_token_id=2)),
}
