"""The rows of a replay: what they hold, where they lie, and the numbers in them."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import vmkv
from vmkv.checks import Heads, attention, to_floats
from vmkv.geometry import Geometry, Group, Tensor
from vmkv.rows import Bank, map_layers


def test_layers_are_written_at_once_where_they_are_even(device_name: str) -> None:
    tensors = (Tensor("k", 2, 32), Tensor("v", 2, 32))
    geometry = Geometry((Group("full", (1, 3), tensors), Group("window", (0, 2), tensors, 100)))
    with (
        vmkv.open(device_name) as device,
        vmkv.Cache(device, geometry, budget="16MiB", page="4KiB") as cache,
        cache.open() as sequence,
    ):
        for group in (0, 1):
            spans = [sequence.span(layer, "v", group) for layer in (0, 1)]
            [(first, block)] = map_layers(spans)
            assert first == 0
            for layer, span in enumerate(spans):
                assert block[layer].ctypes.data == span.address
                assert block[layer].strides == (span.token_stride, 1)


def test_uneven_layers() -> None:
    memory = np.zeros(1000, np.uint8)
    cache = SimpleNamespace()
    spans: Any = [
        SimpleNamespace(
            address=memory.ctypes.data + offset,
            token_stride=16,
            row_bytes=16,
            reserved_tokens=4,
            sequence=SimpleNamespace(cache=cache),
        )
        for offset in (0, 128, 640)
    ]
    blocks = map_layers(spans)
    assert [first for first, _ in blocks] == [0, 1, 2]
    for _, block in blocks:
        assert block.shape == (1, 4, 16)
        block[:] += 1
    assert [int(memory[i : i + 64].sum()) for i in (0, 128, 640)] == [64, 64, 64]
    assert memory.sum() == 3 * 64
    assert len(map_layers(spans[:2])) == 1


def test_bank_repeats_after_its_period() -> None:
    bank = Bank("f16", 4096, np.random.default_rng(1))
    for position in (0, 64, bank.period_bytes - 64, bank.period_bytes + 128):
        rows = bank.cut(position, 4, 1024)
        again = bank.gather(position + np.arange(4) * 1024, 1024)
        assert np.array_equal(rows, again)
        assert np.array_equal(rows, bank.cut(position + bank.period_bytes, 4, 1024))


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "q8_0", "f8", "none"])
def test_contents_are_numbers(dtype: str) -> None:
    bank = Bank(dtype, 34 * 64, np.random.default_rng(1))
    floats = to_floats(bank.cut(7 * bank.unit_bytes, 2, 34 * 32), dtype)
    assert floats.dtype == np.float32
    assert np.isfinite(floats).all()
    assert floats.std() > 0.5
    assert np.abs(floats).max() <= 2.04


def test_to_floats() -> None:
    numbers = np.array([[1.5, -0.25], [0, 2]], np.float32)
    assert np.array_equal(to_floats(numbers.view(np.uint8), "f32"), numbers)
    assert np.array_equal(to_floats(numbers.astype(np.float16).view(np.uint8), "f16"), numbers)
    bf16 = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    assert np.array_equal(to_floats(bf16.view(np.uint8), "bf16"), numbers)
    block = np.concatenate(
        [np.array([0.5], np.float16).view(np.uint8), np.arange(32, dtype=np.uint8)]
    )
    assert np.array_equal(to_floats(block[None], "q8_0"), np.arange(32, dtype=np.float32)[None] / 2)


def test_heads() -> None:
    assert Heads.of(Tensor("k", 8, 128)) == Heads(8, 256, "f16")
    assert Heads.of(Tensor("k", 8, 64, "q8_0")) == Heads(8, 68, "q8_0")
    assert Heads.of(Tensor("k", 4, 16, "q8_0")) == Heads(1, 68, "q8_0")
    assert Heads.of(Tensor("k", dtype="none", row_bytes=100)) == Heads(1, 100, "none")
    assert Heads.of(Tensor("k", 2, 32, "f32", row_bytes=258)).count == 0
    rows = np.arange(16, dtype=np.float32).reshape(2, 8)
    heads = Heads.of(Tensor("k", 2, 4, "f32"))
    assert heads.floats(rows.view(np.uint8), 1).tolist() == [[4, 5, 6, 7], [12, 13, 14, 15]]


def test_attention() -> None:
    """Against the definition in float64."""
    rng = np.random.default_rng(1)
    query, keys, values = (rng.standard_normal(shape) for shape in ((16,), (50, 16), (50, 8)))
    weights = np.exp(keys @ query / 4)
    expected = (weights / weights.sum()) @ values
    found = attention(*(array.astype(np.float32) for array in (query, keys, values)))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, expected, rtol=1e-4)


def test_seed_changes_contents() -> None:
    banks = [Bank("f16", 1000, np.random.default_rng(seed)) for seed in (1, 1, 2)]
    assert np.array_equal(banks[0].data, banks[1].data)
    assert not np.array_equal(banks[0].data, banks[2].data)
