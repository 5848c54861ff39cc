"""Geometries, and the models that are known by name."""

import dataclasses
from typing import Any

import pytest

import vmkv
from vmkv import Geometry, Group, Tensor
from vmkv._native import ffi, lib
from vmkv.geometry import row_bytes

KIB, MIB = 2**10, 2**20


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("f32", 4096), ("f16", 2048), ("bf16", 2048), ("f8", 1024), ("q8_0", 1088)],
)
def test_row_bytes(dtype: str, size: int) -> None:
    assert row_bytes(1024, dtype) == size
    assert Tensor("k", 8, 128, dtype).row_bytes == size


def test_row_bytes_of_an_unknown_dtype() -> None:
    with pytest.raises(vmkv.InvalidError, match="unknown dtype 'none': it is one of f32, f16"):
        row_bytes(1024, "none")


# The published figures of these models: growing bytes a token at 16 bits, and what is fixed.
FIGURES: dict[str, tuple[float, float]] = {
    "qwen3-8b": (147456, 0),
    "qwen3-14b": (160 * KIB, 0),
    "qwen3-32b": (256 * KIB, 0),
    "qwen3-30b-a3b": (96 * KIB, 0),
    "llama-3.1-8b": (128 * KIB, 0),
    "llama-3.1-70b": (320 * KIB, 0),
    "gemma-3-27b": (80 * KIB, 416 * MIB),
    "gpt-oss-20b": (24 * KIB, 3 * MIB),
    "gpt-oss-120b": (36 * KIB, 4.5 * MIB),
    "deepseek-v3": (70272, 0),
}


@pytest.mark.parametrize("name", Geometry.presets())
def test_presets_have_the_published_figures(name: str) -> None:
    geometry = Geometry.preset(name)
    assert (geometry.bytes_per_token, geometry.fixed_bytes) == FIGURES[name]


def test_presets_are_those_with_figures() -> None:
    assert set(Geometry.presets()) == set(FIGURES)


@pytest.mark.parametrize(
    ("name", "layers"),
    [("qwen3-8b", 36), ("gemma-3-27b", 62), ("gpt-oss-20b", 24), ("deepseek-v3", 61)],
)
def test_every_layer_of_a_preset_lies_in_one_group(name: str, layers: int) -> None:
    geometry = Geometry.preset(name)
    assert geometry.layers == tuple(range(layers))
    assert sum(len(group.layers) for group in geometry.groups) == layers
    for layer in geometry.layers:
        group, index = geometry.locate(layer)
        assert geometry.groups[group].layers[index] == layer


def test_sliding_layers_of_presets_are_where_the_models_have_them() -> None:
    def policy(name: str, layer: int) -> tuple[str, int]:
        geometry = Geometry.preset(name)
        group = geometry.groups[geometry.locate(layer)[0]]
        return group.policy, group.window_tokens

    gpt_oss = [policy("gpt-oss-20b", layer) for layer in range(4)]
    assert gpt_oss == [("window", 128), ("full", 0)] * 2
    gemma = [policy("gemma-3-27b", layer) for layer in range(7)]
    assert gemma == [("window", 1024)] * 5 + [("full", 0), ("window", 1024)]


def test_preset_in_another_dtype() -> None:
    assert Geometry.preset("qwen3-8b", dtype="q8_0").bytes_per_token == 36 * 2 * 1088
    with pytest.raises(vmkv.InvalidError, match=r"dtype is one of none, f32, .* not 'int3'"):
        Geometry.preset("qwen3-8b", dtype="int3")


def test_preset_names_in_any_case() -> None:
    assert Geometry.preset("Qwen3-8B") == Geometry.preset("qwen3-8b")


def test_an_unknown_model_is_refused_with_close_matches_and_the_list() -> None:
    with pytest.raises(vmkv.InvalidError) as caught:
        Geometry.preset("qwen3-9b")
    message = str(caught.value)
    assert message.startswith("unknown model 'qwen3-9b': did you mean qwen3-8b")
    assert all(name in message for name in Geometry.presets())
    with pytest.raises(vmkv.InvalidError, match="unknown model 'zzz': known are deepseek-v3"):
        Geometry.preset("zzz")


def hybrid() -> Geometry:
    attention = Group("full", (1, 3), (Tensor("k", 2, 16), Tensor("v", 2, 32)))
    state = Tensor("state", dtype="none", row_bytes=5000)
    return Geometry((attention, Group("state", (0, 1, 2), (state,))))


def test_growing_and_fixed_bytes_of_all_policies() -> None:
    assert hybrid().bytes_per_token == 2 * (64 + 128)
    assert hybrid().fixed_bytes == 3 * 5000
    window = Group("window", (0, 1), (Tensor("k", 1, 32),), window_tokens=10, slack_tokens=2)
    assert Geometry((window,)).fixed_bytes == 2 * 64 * 12
    assert Geometry((window,)).bytes_per_token == 0


def test_locate_a_layer_that_two_groups_have() -> None:
    assert hybrid().locate(1) == (0, 0)
    assert hybrid().locate(1, "state") == (1, 1)
    assert hybrid().locate(3) == (0, 1)
    with pytest.raises(vmkv.RangeError, match="no layer 4: there are 4, 0 to 3"):
        hybrid().locate(4)


def test_tensor_by_name_and_by_index() -> None:
    group = hybrid().groups[0]
    assert [group.tensor_index(one) for one in ("k", "v", 0, 1)] == [0, 1, 0, 1]
    for wrong in ("q", 2, -1):
        with pytest.raises(vmkv.RangeError, match=f"no tensor {wrong!r}: this layer has 'k', 'v'"):
            group.tensor_index(wrong)


def test_geometries_are_values() -> None:
    assert Geometry.full(2, 8, 128) == Geometry.full(range(2), 8, 128)
    assert len({Geometry.full(2, 8, 128), Geometry.full(2, 8, 128)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        Geometry.full(2, 8, 128).groups = ()  # type: ignore[misc]


def test_lists_and_ranges_become_tuples() -> None:
    listed: Any = [Group("full", range(2), [Tensor("k", 1, 8)])]  # type: ignore[arg-type]
    geometry = Geometry(listed)
    assert geometry.groups[0].layers == (0, 1)
    assert hash(geometry) == hash(Geometry((Group("full", (0, 1), (Tensor("k", 1, 8),)),)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"name": ""}, "a tensor's name is a text"),
        ({"heads": 0}, "needs heads and head_dim of at least 1"),
        ({"head_dim": 0}, "needs heads and head_dim of at least 1"),
        ({"heads": -1}, "heads of tensor 'k' is 0 to 2\\^32 - 1, not -1"),
        ({"heads": 2**32}, "heads of tensor 'k' is 0 to 2\\^32 - 1"),
        ({"heads": 1.5}, "heads of tensor 'k' is a number, not 1.5"),
        ({"dtype": "f17"}, "dtype is one of none, f32, f16, bf16, f8, q8_0, not 'f17'"),
        ({"dtype": "none"}, "dtype 'none' has row_bytes and no heads or head_dim"),
        ({"dtype": "q8_0", "head_dim": 20}, "q8_0 takes multiples of 32 elements a row, not 40"),
        ({"row_bytes": 63}, "row_bytes 63 is less than the 64 that 2 heads of 16 f16 need"),
        ({"row_bytes": 2**64}, "row_bytes of tensor 'k' is 0 to 2\\^64 - 1"),
    ],
)
def test_tensors_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(vmkv.InvalidError, match=message):
        Tensor(**{"name": "k", "heads": 2, "head_dim": 16, **arguments})


K = Tensor("k", 2, 16)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"policy": "sliding"}, "unknown policy 'sliding': it is one of full, window, state"),
        ({"layers": ()}, "at least one layer and one tensor"),
        ({"tensors": ()}, "at least one layer and one tensor"),
        ({"layers": (0, 0)}, "a layer is in a group twice"),
        ({"layers": (-1,)}, "a layer number is 0 to"),
        ({"tensors": (K, K)}, "two tensors of a group have one name: k, k"),
        ({"policy": "window"}, "a window group needs window_tokens"),
        ({"window_tokens": 5}, "a full group has no window_tokens"),
        ({"slack_tokens": 5}, "a full group has no window_tokens or slack_tokens"),
    ],
)
def test_groups_that_make_no_sense(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(vmkv.InvalidError, match=message):
        Group(**({"policy": "full", "layers": (0, 1), "tensors": (K,)} | arguments))


def test_geometries_that_make_no_sense() -> None:
    with pytest.raises(vmkv.InvalidError, match="at least one group"):
        Geometry(())
    huge = Tensor("state", dtype="none", row_bytes=2**63)
    with pytest.raises(vmkv.SizeError, match="more bytes than 64 bits hold"):
        Geometry((Group("state", (0, 1), (huge,)),))


def test_to_c_says_the_same() -> None:
    window = Group("window", (4, 5, 6), (Tensor("k", 2, 32, "q8_0", 80),), 128, 16)
    pointer, keep = Geometry((*hybrid().groups, window)).to_c()
    assert keep
    assert pointer.struct_size == ffi.sizeof("struct vmkv_geometry")
    assert pointer.group_count == 3
    full, state, last = (pointer.groups[index] for index in range(3))
    assert {group.struct_size for group in (full, state, last)} == {ffi.sizeof("struct vmkv_group")}
    assert [group.policy for group in (full, state, last)] == [
        lib.VMKV_POLICY_FULL, lib.VMKV_POLICY_STATE, lib.VMKV_POLICY_WINDOW,
    ]  # fmt: skip
    assert [group.layers for group in (full, state, last)] == [2, 3, 3]
    assert [group.tensor_count for group in (full, state, last)] == [2, 1, 1]
    assert (last.window_tokens, last.slack_tokens) == (128, 16)
    value = full.tensors[1]
    assert (value.dtype, value.heads, value.head_dim) == (lib.VMKV_DTYPE_F16, 2, 32)
    assert (state.tensors[0].dtype, state.tensors[0].row_bytes) == (lib.VMKV_DTYPE_NONE, 5000)
    assert (last.tensors[0].dtype, last.tensors[0].row_bytes) == (lib.VMKV_DTYPE_Q8_0, 80)
