"""The models that are known by name: what each of their layers caches.

Each shape is that of the model's published config.json, which the comment names by its repository
and which was read as public repositories quote it; it was read again in the second source named.
Counted are the KV heads, not the attention heads, of the layers that a forward pass runs: layers
for multi-token prediction are not among them.
"""

from __future__ import annotations

import difflib

from vmkv.errors import InvalidError
from vmkv.shapes import Latent, Layers, Linear, attention


def _interleave(first: Layers, every: int, last: Layers, count: int) -> Layers:
    """So many layers, of which each `every`-th is `last` and the others are `first`."""
    pattern = first * (every - 1) + last
    return (pattern * (count // every + 1))[:count]


# Gated delta net of Qwen3.5 and 3.6: linear_conv_kernel_dim 4, linear_num_key_heads 16,
# linear_key_head_dim 128, linear_num_value_heads 32, linear_value_head_dim 128.
_DELTA_NET = Linear(4, 16, 128, 32, 128)

# Full attention in each fourth layer (layer_types; full_attention_interval 4) of 40.
_QWEN35_35B_A3B = _interleave((_DELTA_NET,), 4, (attention(2, 256),), 40)

MODELS: dict[str, Layers] = {
    # deepseek-ai/DeepSeek-V3; transformers DeepseekV3Config. MLA: kv_lora_rank 512 and
    # qk_rope_head_dim 64 in one row.
    "deepseek-v3": (Latent(512 + 64),) * 61,
    # google/gemma-3-27b-it; google-deepmind/gemma, gemma/gm/nn/_gemma.py. Five sliding layers, then
    # one with full attention; the last two slide.
    "gemma-3-27b": _interleave((attention(16, 128, 1024),), 6, (attention(16, 128),), 62),
    # google/gemma-4-31B-it; google-deepmind/gemma, gemma/gm/nn/gemma4/_gemma4.py. Layers with full
    # attention have fewer and wider heads (num_global_key_value_heads, global_head_dim). Their keys
    # and values come of one projection (attention_k_eq_v) but are normed and rotated differently,
    # so both are cached.
    "gemma-4-31b": _interleave((attention(16, 256, 1024),), 6, (attention(4, 512),), 60),
    # openai/gpt-oss-20b and -120b; openai/gpt-oss, gpt_oss/torch/model.py. Sliding and full
    # attention in turn, beginning with a sliding layer.
    "gpt-oss-20b": _interleave((attention(8, 64, 128),), 2, (attention(8, 64),), 24),
    "gpt-oss-120b": _interleave((attention(8, 64, 128),), 2, (attention(8, 64),), 36),
    # meta-llama/Llama-3.1-8B and -70B; meta-llama/llama-models, models/sku_list.py. head_dim is
    # hidden_size / num_attention_heads: 4096 / 32 and 8192 / 64.
    "llama-3.1-8b": (attention(8, 128),) * 32,
    "llama-3.1-70b": (attention(8, 128),) * 80,
    # Qwen/Qwen3-8B, -14B, -32B, -30B-A3B; their model cards, which give layers and KV heads.
    "qwen3-8b": (attention(8, 128),) * 36,
    "qwen3-14b": (attention(8, 128),) * 40,
    "qwen3-30b-a3b": (attention(4, 128),) * 48,
    "qwen3-32b": (attention(8, 128),) * 64,
    # Qwen/Qwen3.5-9B, text_config; transformers Qwen3_5TextConfig.
    "qwen3.5-9b": _interleave((_DELTA_NET,), 4, (attention(4, 256),), 32),
    # Qwen/Qwen3.5-35B-A3B and Qwen/Qwen3.6-35B-A3B, text_config, which are alike; transformers
    # Qwen3_5MoeTextConfig.
    "qwen3.5-35b-a3b": _QWEN35_35B_A3B,
    "qwen3.6-35b-a3b": _QWEN35_35B_A3B,
}


def find_name(name: str) -> str:
    """The listed name of a model, whatever its case.

    >>> find_name("Qwen3-8B")
    'qwen3-8b'

    Raises:
        InvalidError: an unknown model; the message lists those that are known.
    """
    wanted = str(name).strip().lower()
    if wanted in MODELS:
        return wanted
    close = difflib.get_close_matches(wanted, MODELS, n=2)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise InvalidError(f"unknown model {name!r}: {hint}known are {', '.join(sorted(MODELS))}")
