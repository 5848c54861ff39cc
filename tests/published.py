"""What the published config.json of models says of their KV caches: the keys that count, and some
that must not. Where the files of two models say the same, it is here once."""

from typing import Any

FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def _qwen3(layers: int, hidden_size: int, heads: int) -> dict[str, Any]:
    return {
        "architectures": ["Qwen3ForCausalLM"],
        "head_dim": 128,
        "hidden_size": hidden_size,
        "max_window_layers": layers,
        "model_type": "qwen3",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "sliding_window": None,
        "use_sliding_window": False,
    }


def _llama31(layers: int, hidden_size: int, heads: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden_size,
        "max_position_embeddings": 131072,
        "model_type": "llama",
        "num_attention_heads": heads,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
    }


def _gpt_oss(layers: int) -> dict[str, Any]:
    return {
        "architectures": ["GptOssForCausalLM"],
        "head_dim": 64,
        "hidden_size": 2880,
        "layer_types": [SLIDING, FULL] * (layers // 2),
        "model_type": "gpt_oss",
        "num_attention_heads": 64,
        "num_hidden_layers": layers,
        "num_key_value_heads": 8,
        "sliding_window": 128,
    }


def _qwen35(kind: str, layers: int, hidden_size: int, kv_heads: int) -> dict[str, Any]:
    return {
        "model_type": kind,
        "text_config": {
            "full_attention_interval": 4,
            "head_dim": 256,
            "hidden_size": hidden_size,
            "layer_types": [LINEAR, LINEAR, LINEAR, FULL] * (layers // 4),
            "linear_conv_kernel_dim": 4,
            "linear_key_head_dim": 128,
            "linear_num_key_heads": 16,
            "linear_num_value_heads": 32,
            "linear_value_head_dim": 128,
            "mamba_ssm_dtype": "float32",
            "model_type": f"{kind}_text",
            "mtp_num_hidden_layers": 1,
            "num_attention_heads": 16,
            "num_hidden_layers": layers,
            "num_key_value_heads": kv_heads,
        },
        "vision_config": {"depth": 27, "num_heads": 16},
    }


CONFIGS: dict[str, dict[str, Any]] = {
    # deepseek-ai/DeepSeek-V3. num_key_value_heads is of keys and values as they are computed.
    "deepseek-v3": {
        "architectures": ["DeepseekV3ForCausalLM"],
        "hidden_size": 7168,
        "kv_lora_rank": 512,
        "model_type": "deepseek_v3",
        "num_attention_heads": 128,
        "num_hidden_layers": 61,
        "num_key_value_heads": 128,
        "num_nextn_predict_layers": 1,
        "q_lora_rank": 1536,
        "qk_nope_head_dim": 128,
        "qk_rope_head_dim": 64,
        "v_head_dim": 128,
    },
    # google/gemma-3-27b-it. It names no pattern.
    "gemma-3-27b": {
        "architectures": ["Gemma3ForConditionalGeneration"],
        "model_type": "gemma3",
        "text_config": {
            "head_dim": 128,
            "hidden_size": 5376,
            "model_type": "gemma3_text",
            "num_attention_heads": 32,
            "num_hidden_layers": 62,
            "num_key_value_heads": 16,
            "query_pre_attn_scalar": 168,
            "rope_scaling": {"factor": 8.0, "rope_type": "linear"},
            "sliding_window": 1024,
        },
        "vision_config": {"model_type": "siglip_vision_model", "num_hidden_layers": 27},
    },
    # google/gemma-4-31B-it.
    "gemma-4-31b": {
        "architectures": ["Gemma4ForConditionalGeneration"],
        "model_type": "gemma4",
        "text_config": {
            "attention_k_eq_v": True,
            "global_head_dim": 512,
            "head_dim": 256,
            "hidden_size": 5376,
            "layer_types": ([SLIDING] * 5 + [FULL]) * 10,
            "model_type": "gemma4_text",
            "num_attention_heads": 32,
            "num_global_key_value_heads": 4,
            "num_hidden_layers": 60,
            "num_key_value_heads": 16,
            "num_kv_shared_layers": 0,
            "sliding_window": 1024,
            "use_bidirectional_attention": "vision",
        },
        "vision_config": {"model_type": "gemma4_vision", "num_hidden_layers": 27},
    },
    # openai/gpt-oss-20b and openai/gpt-oss-120b.
    "gpt-oss-20b": _gpt_oss(24),
    "gpt-oss-120b": _gpt_oss(36),
    # meta-llama/Llama-3.1-8B and meta-llama/Llama-3.1-70B.
    "llama-3.1-8b": _llama31(32, 4096, 32),
    "llama-3.1-70b": _llama31(80, 8192, 64),
    # Qwen/Qwen3-8B, Qwen/Qwen3-14B, Qwen/Qwen3-32B.
    "qwen3-8b": _qwen3(36, 4096, 32),
    "qwen3-14b": _qwen3(40, 5120, 40),
    "qwen3-32b": _qwen3(64, 5120, 64),
    # Qwen/Qwen3-30B-A3B.
    "qwen3-30b-a3b": {
        "architectures": ["Qwen3MoeForCausalLM"],
        "head_dim": 128,
        "hidden_size": 2048,
        "max_window_layers": 48,
        "model_type": "qwen3_moe",
        "num_attention_heads": 32,
        "num_experts": 128,
        "num_hidden_layers": 48,
        "num_key_value_heads": 4,
        "sliding_window": None,
        "use_sliding_window": False,
    },
    # Qwen/Qwen3.5-9B.
    "qwen3.5-9b": _qwen35("qwen3_5", 32, 4096, 4),
    # Qwen/Qwen3.5-35B-A3B and Qwen/Qwen3.6-35B-A3B.
    "qwen3.5-35b-a3b": _qwen35("qwen3_5_moe", 40, 2048, 2),
    "qwen3.6-35b-a3b": _qwen35("qwen3_5_moe", 40, 2048, 2),
}
