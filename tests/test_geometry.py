"""Geometries: groups of layers and their tensors."""

import dataclasses
from typing import Any

import pytest

import vmkv
from vmkv import Geometry, Group, Tensor
from vmkv._native import ffi, lib
from vmkv.geometry import row_bytes


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
