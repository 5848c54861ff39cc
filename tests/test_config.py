"""Geometries from Hugging Face's config.json."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

import vmkv
from published import CONFIGS, FULL, LINEAR, SLIDING
from vmkv import Geometry, Group, Tensor

KIB, MIB = 2**10, 2**20

# mistralai/Mistral-7B-v0.1
MISTRAL = {
    "model_type": "mistral",
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
}
# google/gemma-3-4b-it: what is missing is as its class has it.
GEMMA_3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "hidden_size": 2560,
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
}
# google/gemma-4-E2B-it: the last 20 layers read the cache of layers 13 and 14.
GEMMA_4_E2B = {
    "model_type": "gemma4",
    "text_config": {
        "attention_k_eq_v": False,
        "global_head_dim": 512,
        "head_dim": 256,
        "layer_types": ([SLIDING] * 4 + [FULL]) * 7,
        "model_type": "gemma4_text",
        "num_global_key_value_heads": None,
        "num_hidden_layers": 35,
        "num_key_value_heads": 1,
        "num_kv_shared_layers": 20,
        "sliding_window": 512,
        "use_bidirectional_attention": None,
    },
}


def changed(config: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """A config with other values of the text model's keys; ... takes a key away."""
    new = copy.deepcopy(config)
    text = new.get("text_config", new)
    for name, value in changes.items():
        if value is ...:
            del text[name]
        else:
            text[name] = value
    return new


def policies(geometry: Geometry) -> dict[int, tuple[str, int]]:
    return {
        layer: (group.policy, group.window_tokens)
        for group in geometry.groups
        for layer in group.layers
    }


def refusal(config: Any) -> str:
    with pytest.raises(vmkv.InvalidError) as caught:
        Geometry.from_config(config)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_from_a_file_a_directory_and_a_mapping(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["gemma-4-31b"]), encoding="utf-8-sig")
    expected = Geometry.preset("gemma-4-31b")
    for source in (path, str(path), tmp_path, CONFIGS["gemma-4-31b"]):
        assert Geometry.from_config(source) == expected


def test_dtypes() -> None:
    config = CONFIGS["qwen3.5-9b"]
    attention, state = Geometry.from_config(config, "q8_0", v_dtype="f16", state_dtype="f16").groups
    assert attention.tensors == (Tensor("k", 4, 256, "q8_0"), Tensor("v", 4, 256, "f16"))
    assert {tensor.dtype for tensor in state.tensors} == {"f16"}
    for arguments in ({"dtype": "f17"}, {"v_dtype": "f17"}, {"state_dtype": "f17"}):
        with pytest.raises(vmkv.InvalidError, match="not 'f17'"):
            Geometry.from_config(config, **arguments)


def test_mistral_slides_in_all_layers() -> None:
    tensors = (Tensor("k", 8, 128), Tensor("v", 8, 128))
    geometry = Geometry.from_config(MISTRAL)
    assert geometry.groups == (Group("window", range(32), tensors, 4096),)  # type: ignore[arg-type]
    assert (geometry.bytes_per_token, geometry.fixed_bytes) == (0, 128 * KIB * 4096)
    # As of v0.2 and v0.3.
    assert Geometry.from_config(changed(MISTRAL, sliding_window=None)) == Geometry.full(32, 8, 128)
    # Nobody means the window of 4096 that the class takes.
    assert refusal(changed(MISTRAL, sliding_window=...)).endswith("missing sliding_window")
    mixed = changed(MISTRAL, model_type="ministral", layer_types=[FULL, SLIDING] * 16)
    assert policies(Geometry.from_config(mixed))[0] == ("full", 0)
    assert policies(Geometry.from_config(mixed))[31] == ("window", 4096)


def test_mistral_in_a_multimodal_config() -> None:
    """mistralai/Mistral-Small-3.1-24B-Instruct-2503 and mistralai/Ministral-3-8B-Base-2512."""
    text = changed(MISTRAL, head_dim=128, sliding_window=None, num_hidden_layers=40)
    for kind in ("mistral", "ministral3"):
        config = {"model_type": "mistral3", "text_config": {**text, "model_type": kind}}
        assert Geometry.from_config(config) == Geometry.full(40, 8, 128)
    message = refusal({"model_type": "mistral3", "text_config": changed(text, model_type=...)})
    assert message.endswith("architecture mistral3: missing text_config.model_type")
    assert "text_config, an object, is missing" in refusal({"model_type": "mistral3"})


def test_mixtral_has_no_window_unless_it_says_so() -> None:
    config = changed(MISTRAL, model_type="mixtral", sliding_window=...)
    assert Geometry.from_config(config) == Geometry.full(32, 8, 128)
    assert Geometry.from_config(changed(config, sliding_window=64)).bytes_per_token == 0


def test_qwens_window_is_there_only_if_it_is_used() -> None:
    """Qwen/Qwen2.5-7B-Instruct has one that isn't."""
    qwen = {
        "hidden_size": 3584,
        "max_window_layers": 28,
        "model_type": "qwen2",
        "num_attention_heads": 28,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "sliding_window": 131072,
        "use_sliding_window": False,
    }
    assert Geometry.from_config(qwen) == Geometry.full(28, 4, 128)
    used = changed(qwen, use_sliding_window=True, max_window_layers=20)
    kinds = policies(Geometry.from_config(used))
    assert kinds == {n: ("full", 0) if n < 20 else ("window", 131072) for n in range(28)}
    missing = changed(qwen, use_sliding_window=...)
    assert refusal(missing).endswith("architecture qwen2: missing use_sliding_window")
    missing = changed(qwen, use_sliding_window=True, max_window_layers=..., sliding_window=None)
    assert refusal(missing).endswith("missing sliding_window, max_window_layers")
    moe = changed(CONFIGS["qwen3-30b-a3b"], use_sliding_window=True, sliding_window=4096)
    assert refusal(moe).endswith("architecture qwen3_moe: missing layer_types")
    typed = changed(moe, layer_types=[FULL] * 24 + [SLIDING] * 24)
    assert Geometry.from_config(typed).bytes_per_token == 48 * KIB


def test_gemma_3_has_six_layers_in_its_pattern_unless_told_otherwise() -> None:
    geometry = Geometry.from_config(GEMMA_3_4B)
    assert [layer for layer, kind in sorted(policies(geometry).items()) if kind[0] == "full"] == [
        5, 11, 17, 23, 29,
    ]  # fmt: skip
    assert geometry.bytes_per_token == 5 * 2 * 4 * 256 * 2
    assert geometry.fixed_bytes == 29 * 2 * 4 * 256 * 2 * 1024
    told = changed(GEMMA_3_4B, sliding_window_pattern=2, head_dim=128, num_key_value_heads=1)
    assert Geometry.from_config(told).bytes_per_token == 17 * 2 * 1 * 128 * 2
    typed = changed(GEMMA_3_4B, layer_types=[FULL] + [SLIDING] * 33)
    assert Geometry.from_config(typed).bytes_per_token == 2 * 4 * 256 * 2
    # The text model by itself, and all keys on one level.
    text = GEMMA_3_4B["text_config"]
    assert Geometry.from_config(text) == geometry  # type: ignore[arg-type]
    assert Geometry.from_config({**text, "model_type": "gemma3"}) == geometry  # type: ignore[dict-item]


def test_gemma_2_slides_in_every_other_layer() -> None:
    """google/gemma-2-9b."""
    config = {
        "head_dim": 256,
        "model_type": "gemma2",
        "num_hidden_layers": 42,
        "num_key_value_heads": 8,
        "sliding_window": 4096,
    }
    kinds = policies(Geometry.from_config(config))
    assert [kinds[layer] for layer in range(4)] == [("window", 4096), ("full", 0)] * 2
    assert Geometry.from_config(config).bytes_per_token == 21 * 2 * 8 * 256 * 2


def test_layers_that_share_a_cache_have_none() -> None:
    geometry = Geometry.from_config(GEMMA_4_E2B)
    assert geometry.layers == tuple(range(15))
    assert [group.layers for group in geometry.groups if group.policy == "full"] == [(4, 9, 14)]
    assert geometry.bytes_per_token == 3 * 2 * 512 * 2
    assert geometry.fixed_bytes == 12 * 2 * 256 * 2 * 512
    with pytest.raises(vmkv.RangeError, match="no layer 15"):
        geometry.locate(15)
    gemma3n = {
        "model_type": "gemma3n",
        "text_config": {
            "head_dim": 256,
            "layer_types": ([SLIDING] * 4 + [FULL]) * 7,
            "model_type": "gemma3n_text",
            "num_hidden_layers": 35,
            "num_key_value_heads": 2,
            "num_kv_shared_layers": 15,
            "sliding_window": 512,
        },
    }
    geometry = Geometry.from_config(gemma3n)
    assert geometry.layers == tuple(range(20))
    assert geometry.bytes_per_token == 4 * 2 * 2 * 256 * 2
    for config in (GEMMA_4_E2B, gemma3n):
        missing = changed(config, num_kv_shared_layers=...)
        assert refusal(missing).endswith("missing text_config.num_kv_shared_layers")
    assert "num_kv_shared_layers is 0 to 34, not 35" in refusal(
        changed(GEMMA_4_E2B, num_kv_shared_layers=35)
    )


def test_heads_of_gemma_4s_full_attention() -> None:
    large = CONFIGS["gemma-4-31b"]
    # Without the one projection they have as many heads as the others.
    own = Geometry.from_config(changed(large, attention_k_eq_v=False))
    assert own.groups[0].tensors[0] == Tensor("k", 16, 512)
    assert Geometry.from_config(changed(large, num_global_key_value_heads=None)) == own
    missing = changed(large, attention_k_eq_v=..., global_head_dim=...)
    assert refusal(missing).endswith(
        "missing text_config.global_head_dim, text_config.attention_k_eq_v"
    )
    wrong_end = changed(large, layer_types=[FULL] + [SLIDING] * 59)
    assert "layer_types has to end with full_attention" in refusal(wrong_end)
    # As transformers 5 writes it.
    full = {str(n): {"head_dim": 512, "num_key_value_heads": 4} for n in range(5, 60, 6)}
    rewritten = changed(
        large, global_head_dim=..., num_global_key_value_heads=..., per_layer_config=full
    )
    assert Geometry.from_config(rewritten) == Geometry.preset("gemma-4-31b")


@pytest.mark.parametrize(
    ("per_layer", "message"),
    [
        ([1], "per_layer_config is an object, not a list"),
        (5, "per_layer_config is an object, not a number"),
        ({"one": {}}, "per_layer_config has objects by layer number"),
        ({"01": {}}, "per_layer_config has objects by layer number"),
        ({"32": {"head_dim": 5}}, "per_layer_config has a layer 32: there are 32, from 0 on"),
        ({"1": {"head_dim": None}}, "head_dim is a whole number, not null"),
        ({"1": 5}, "per_layer_config has objects by layer number"),
        ({"1": {"head_dim": "x"}}, "head_dim is a whole number, not 'x'"),
        ({"1": {"sliding_window": 5}}, "has sliding_window, which isn't known here"),
        ({"1": {"skip": ["attention"]}}, "has skip, which isn't known here"),
    ],
)
def test_layers_that_differ_in_odd_ways(per_layer: Any, message: str) -> None:
    assert message in refusal(changed(MISTRAL, per_layer_config=per_layer))


def test_layers_that_differ() -> None:
    per_layer = {"1": {"num_key_value_heads": 4, "intermediate_size": 5}, "3": {"head_dim": 64}}
    geometry = Geometry.from_config(changed(CONFIGS["llama-3.1-8b"], per_layer_config=per_layer))
    assert [len(group.layers) for group in geometry.groups] == [30, 1, 1]
    assert geometry.bytes_per_token == 2 * 2 * (30 * 1024 + 4 * 128 + 8 * 64)


def test_encoders_have_no_cache() -> None:
    message = "tokens attend to later ones too, so there is no KV cache"
    assert message in refusal(changed(GEMMA_3_4B, use_bidirectional_attention=True))
    assert message in refusal(changed(GEMMA_4_E2B, use_bidirectional_attention="all"))


def test_hybrids_by_interval() -> None:
    """Qwen/Qwen3-Next-80B-A3B-Instruct names no layer types."""
    config = changed(
        CONFIGS["qwen3.5-35b-a3b"]["text_config"],
        model_type="qwen3_next", num_hidden_layers=48, layer_types=...,
    )  # fmt: skip
    geometry = Geometry.from_config(config)
    assert geometry.groups[0].layers == tuple(range(3, 48, 4))
    assert geometry.bytes_per_token == 12 * 2 * 2 * 256 * 2
    neither = changed(config, full_attention_interval=...)
    assert refusal(neither).endswith("qwen3_next: missing layer_types or full_attention_interval")
    missing = changed(config, linear_value_head_dim=..., linear_conv_kernel_dim=...)
    assert refusal(missing).endswith("missing linear_conv_kernel_dim, linear_value_head_dim")


def test_wider_values_in_linear_attention() -> None:
    config = changed(CONFIGS["qwen3.5-9b"], linear_value_head_dim=256, linear_num_value_heads=48)
    conv, recurrent = Geometry.from_config(config).groups[1].tensors
    assert conv.row_bytes == (2 * 16 * 128 + 48 * 256) * 3 * 4
    assert recurrent.row_bytes == 48 * 128 * 256 * 4


def test_deepseek_v2_lite_and_kimi_k2() -> None:
    lite = changed(CONFIGS["deepseek-v3"], model_type="deepseek_v2", num_hidden_layers=27)
    assert Geometry.from_config(lite).bytes_per_token == 27 * 576 * 2
    kimi = changed(CONFIGS["deepseek-v3"], model_type="kimi_k2")
    assert Geometry.from_config(kimi) == Geometry.preset("deepseek-v3")


# Besides the number of layers: the keys without which there is no telling.
NEEDED = {
    "deepseek": {"kv_lora_rank", "qk_rope_head_dim"},
    "gemma-3": {"sliding_window"},
    "gemma-4": {
        "attention_k_eq_v",
        "global_head_dim",
        "head_dim",
        "layer_types",
        "num_global_key_value_heads",
        "num_key_value_heads",
        "num_kv_shared_layers",
        "sliding_window",
    },
    "gpt-oss": {"head_dim", "layer_types", "num_key_value_heads", "sliding_window"},
    "llama": {"hidden_size", "num_attention_heads", "num_key_value_heads"},
    "qwen3-": {"head_dim", "num_key_value_heads"},
    "qwen3.": {
        "head_dim",
        "linear_conv_kernel_dim",
        "linear_key_head_dim",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_value_head_dim",
        "num_key_value_heads",
    },
}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_every_key_that_counts_is_needed(name: str) -> None:
    """Without a key the error names it, or it has no part in the geometry."""
    (needed,) = (keys for prefix, keys in NEEDED.items() if name.startswith(prefix))
    config = CONFIGS[name]
    for key in config.get("text_config", config):
        without = changed(config, **{key: ...})
        if key in needed or key == "num_hidden_layers":
            assert f"missing {key}" in refusal(without).replace("text_config.", "")
        elif key not in ("model_type", "head_dim", "num_key_value_heads"):
            assert Geometry.from_config(without) == Geometry.preset(name)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "config: no architecture is named: model_type is missing"),
        ({"model_type": 5}, "config: no architecture is named: model_type is missing"),
        ({"model_type": "mamba"}, "config: unknown architecture 'mamba': which of its layers"),
        ({"model_type": "llama4_text"}, "known are deepseek_v2, deepseek_v3, gemma2, "),
        ({"model_type": "llava", "text_config": MISTRAL}, "unknown architecture 'llava'"),
        (
            {"model_type": "gemma3", "text_config": {"model_type": "t5"}},
            "config: unknown architecture 't5'",
        ),
        ({"model_type": "gemma3", "text_config": [1]}, "text_config, an object, is missing"),
        (
            {"model_type": "llama"},
            "config: architecture llama: missing num_hidden_layers, num_key_value_heads, "
            "hidden_size, num_attention_heads",
        ),
        (
            {"model_type": "qwen3"},
            "config: architecture qwen3: missing num_hidden_layers, num_key_value_heads, head_dim",
        ),
        (
            changed(CONFIGS["llama-3.1-8b"], hidden_size=4097),
            "missing head_dim: 4,097 is not a multiple of 32 heads",
        ),
        (
            changed(CONFIGS["gpt-oss-20b"], layer_types=[FULL]),
            "layer_types has 1 entry for 24 layers",
        ),
        (
            changed(CONFIGS["gpt-oss-20b"], layer_types=[FULL] * 2, num_hidden_layers=1),
            "layer_types has 2 entries for 1 layer",
        ),
        (
            changed(CONFIGS["gpt-oss-20b"], layer_types=[None] * 24),
            "layer 0 is of type null: known are full_attention",
        ),
        (
            changed(CONFIGS["deepseek-v3"], per_layer_config={"1": {"kv_lora_rank": 5}}),
            "per_layer_config isn't known here for MLA",
        ),
        (changed(CONFIGS["gpt-oss-20b"], layer_types="all"), "layer_types is a list, not 'all'"),
        (
            changed(CONFIGS["gpt-oss-20b"], layer_types=["chunked_attention"] * 24),
            "layer 0 is of type 'chunked_attention': known are full_attention, sliding_attention",
        ),
        (
            changed(CONFIGS["gpt-oss-20b"], layer_types=[LINEAR] * 24),
            "architecture gpt_oss: missing linear_conv_kernel_dim, linear_num_key_heads",
        ),
        (changed(CONFIGS["gpt-oss-20b"], sliding_window=0), "is 1 to 4,294,967,295, not 0"),
        (changed(MISTRAL, num_hidden_layers="32"), "is a whole number, not '32'"),
        (changed(MISTRAL, num_hidden_layers=32.5), "is a whole number, not 32.5"),
        (changed(MISTRAL, num_hidden_layers=True), "is a whole number, not true"),
        (changed(MISTRAL, num_hidden_layers=[1] * 99), "is a whole number, not [1, 1, "),
        (changed(MISTRAL, num_hidden_layers=0), "is 1 to 4,096, not 0"),
        (changed(MISTRAL, num_hidden_layers=10**6), "is 1 to 4,096, not 1000000"),
        (changed(MISTRAL, num_hidden_layers=10**5000), "not a number of more than 64 bits"),
        (changed(MISTRAL, num_key_value_heads=-8), "is 1 to 4,294,967,295, not -8"),
        (
            changed(CONFIGS["qwen3-8b"], use_sliding_window="no"),
            "use_sliding_window is true or false, not 'no'",
        ),
        (
            changed(CONFIGS["qwen3.5-9b"], linear_conv_kernel_dim=1),
            "text_config.linear_conv_kernel_dim is 2 to",
        ),
    ],
)
def test_configs_that_are_refused(config: dict[str, Any], message: str) -> None:
    assert message in refusal(config)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is no JSON file: Expecting value"),
        (b'{"model_type": "llama",', "is no JSON file: Expecting property name"),
        (b"\xff\xfe\x00", "is no JSON file: "),
        (b"[" * 100_000, "is no JSON file: "),
        (b"[1]", "is no config.json: an object is expected, not a list"),
        (b"null", "is no config.json: an object is expected, not null"),
        (b"true", "is no config.json: an object is expected, not true or false"),
        (b"1.5", "is no config.json: an object is expected, not a number"),
        (b'"x"', "is no config.json: an object is expected, not a text"),
        (b"{}", "config.json: no architecture is named: model_type is missing"),
    ],
)
def test_files_that_are_no_configs(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    assert message in refusal(path)
    assert str(path) in refusal(path)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "other.json"):
        with pytest.raises(FileNotFoundError):
            Geometry.from_config(path)
