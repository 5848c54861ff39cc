"""The models that are known by name, against their published configs and figures."""

import pytest

import vmkv
from published import CONFIGS
from vmkv import Geometry, Tensor

KIB, MIB = 2**10, 2**20

# Bytes that a token adds, and fixed bytes, at 16 bits; a state is of 32 bits. By hand, and as
# published: layers x (keys and values) x KV heads x width x 2 bytes (x window).
STATE_BYTES = 32 * 128 * 128 * 4 + (2 * 16 * 128 + 32 * 128) * (4 - 1) * 4
FIGURES: dict[str, tuple[tuple[float, float], tuple[float, float]]] = {
    "deepseek-v3": ((61 * (512 + 64) * 2, 0), (70_272, 0)),
    "gemma-3-27b": (
        (10 * 2 * 16 * 128 * 2, 52 * 2 * 16 * 128 * 2 * 1024),
        (80 * KIB, 416 * MIB),
    ),
    "gemma-4-31b": (
        (10 * 2 * 4 * 512 * 2, 50 * 2 * 16 * 256 * 2 * 1024),
        (80 * KIB, 800 * MIB),
    ),
    "gpt-oss-20b": ((12 * 2 * 8 * 64 * 2, 12 * 2 * 8 * 64 * 2 * 128), (24 * KIB, 3 * MIB)),
    "gpt-oss-120b": ((18 * 2 * 8 * 64 * 2, 18 * 2 * 8 * 64 * 2 * 128), (36 * KIB, 4.5 * MIB)),
    "llama-3.1-8b": ((32 * 2 * 8 * 128 * 2, 0), (128 * KIB, 0)),
    "llama-3.1-70b": ((80 * 2 * 8 * 128 * 2, 0), (320 * KIB, 0)),
    "qwen3-8b": ((36 * 2 * 8 * 128 * 2, 0), (147_456, 0)),
    "qwen3-14b": ((40 * 2 * 8 * 128 * 2, 0), (160 * KIB, 0)),
    "qwen3-30b-a3b": ((48 * 2 * 4 * 128 * 2, 0), (96 * KIB, 0)),
    "qwen3-32b": ((64 * 2 * 8 * 128 * 2, 0), (256 * KIB, 0)),
    # Of the state it is published only that it is about 50 MiB.
    "qwen3.5-9b": ((8 * 2 * 4 * 256 * 2, 24 * STATE_BYTES), (32 * KIB, 50.25 * MIB)),
    "qwen3.5-35b-a3b": ((10 * 2 * 2 * 256 * 2, 30 * STATE_BYTES), (20 * KIB, 62.8125 * MIB)),
    "qwen3.6-35b-a3b": ((10 * 2 * 2 * 256 * 2, 30 * STATE_BYTES), (20 * KIB, 62.8125 * MIB)),
}


def test_every_preset_has_a_config_and_figures() -> None:
    assert set(Geometry.presets()) == set(CONFIGS) == set(FIGURES)


@pytest.mark.parametrize("name", Geometry.presets())
def test_presets_are_what_the_published_configs_say(name: str) -> None:
    assert Geometry.preset(name) == Geometry.from_config(CONFIGS[name])


@pytest.mark.parametrize("name", Geometry.presets())
def test_presets_have_the_published_figures(name: str) -> None:
    geometry = Geometry.preset(name)
    by_hand, published = FIGURES[name]
    assert (geometry.bytes_per_token, geometry.fixed_bytes) == by_hand == published


@pytest.mark.parametrize("name", Geometry.presets())
def test_every_layer_of_a_preset_lies_in_one_group(name: str) -> None:
    geometry = Geometry.preset(name)
    config = CONFIGS[name]
    layers = config.get("text_config", config)["num_hidden_layers"]
    assert geometry.layers == tuple(range(layers))
    assert sum(len(group.layers) for group in geometry.groups) == layers
    for layer in geometry.layers:
        group, index = geometry.locate(layer)
        assert geometry.groups[group].layers[index] == layer


def policy(name: str, layer: int) -> tuple[str, int]:
    geometry = Geometry.preset(name)
    group = geometry.groups[geometry.locate(layer)[0]]
    return group.policy, group.window_tokens


def test_layers_of_presets_are_where_the_models_have_them() -> None:
    gpt_oss = [policy("gpt-oss-20b", layer) for layer in range(4)]
    assert gpt_oss == [("window", 128), ("full", 0)] * 2
    for gemma in ("gemma-3-27b", "gemma-4-31b"):
        first = [policy(gemma, layer) for layer in range(7)]
        assert first == [("window", 1024)] * 5 + [("full", 0), ("window", 1024)]
    assert [policy("gemma-3-27b", layer)[0] for layer in (59, 60, 61)] == ["full"] + ["window"] * 2
    assert policy("gemma-4-31b", 59) == ("full", 0)
    for hybrid, layers in (("qwen3.5-9b", 32), ("qwen3.6-35b-a3b", 40)):
        kinds = [policy(hybrid, layer)[0] for layer in range(layers)]
        assert kinds == (["state"] * 3 + ["full"]) * (layers // 4)


def test_the_state_of_linear_attention() -> None:
    """The last three inputs of the convolution, and a matrix for each value head."""
    state = Geometry.preset("qwen3.5-9b").groups[1]
    assert state.tensors == (
        Tensor("conv", heads=8192, head_dim=3, dtype="f32"),
        Tensor("recurrent", heads=32, head_dim=128 * 128, dtype="f32"),
    )
    assert [tensor.row_bytes for tensor in state.tensors] == [96 * KIB, 2 * MIB]


def test_preset_in_another_dtype() -> None:
    q8 = Geometry.preset("qwen3-8b", dtype="q8_0")
    assert q8.bytes_per_token == 36 * 2 * 1088
    mixed = Geometry.preset("qwen3-8b", dtype="q8_0", v_dtype="f16")
    assert mixed.bytes_per_token == 36 * (1088 + 2048)
    assert Geometry.preset("deepseek-v3", "q8_0", v_dtype="f16").bytes_per_token == 61 * 18 * 34
    halved = Geometry.preset("qwen3.5-9b", state_dtype="bf16")
    assert (halved.bytes_per_token, halved.fixed_bytes) == (32 * KIB, 24 * STATE_BYTES / 2)
    with pytest.raises(vmkv.InvalidError, match=r"dtype is one of none, f32, .* not 'int3'"):
        Geometry.preset("qwen3-8b", dtype="int3")


def test_preset_names_in_any_case() -> None:
    assert Geometry.preset("Qwen3-8B") == Geometry.preset("qwen3-8b")


def test_an_unknown_model_is_refused_with_close_matches_and_the_list() -> None:
    with pytest.raises(vmkv.InvalidError) as caught:
        Geometry.preset("qwen3-9b")
    message = str(caught.value)
    assert message.startswith("unknown model 'qwen3-9b': did you mean qwen3.5-9b or qwen3-8b?")
    assert all(name in message for name in Geometry.presets())
    with pytest.raises(vmkv.InvalidError, match="unknown model 'zzz': known are deepseek-v3"):
        Geometry.preset("zzz")
