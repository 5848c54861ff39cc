"""The rows of a replay: what they hold, where they lie, and the numbers in them."""

from typing import Any

import numpy as np
import pytest

import vmkv
from vmkv.checks import Heads, attention, to_floats
from vmkv.geometry import Geometry, Group, Tensor
from vmkv.replay import replay
from vmkv.rows import LINE, Bank, Contents, Floor, Writer, map_sequence
from vmkv.traces import Request


def test_bank_repeats_after_its_period() -> None:
    bank = Bank("f16", 4096, np.random.default_rng(1))
    for position in (0, 64, bank.period_bytes - 64, bank.period_bytes + 128):
        rows = bank.cut(position, 4, 1024)
        at = position % bank.period_bytes
        assert np.array_equal(
            rows.reshape(-1),
            np.resize(bank.data[: bank.period_bytes], bank.period_bytes + 4096)[at : at + 4096],
        )
        assert np.array_equal(rows, bank.cut(position + bank.period_bytes, 4, 1024))


GEOMETRY = Geometry(
    (
        Group("full", (0, 3), (Tensor("k", 2, 32), Tensor("v", 4, 32, "f32"))),
        Group("window", (1,), (Tensor("k", 2, 32), Tensor("v", 2, 32)), 5000),
        Group("state", (2, 4), (Tensor("s", 8, 100, "f32"), Tensor("conv", 3, 100))),
    )
)


@pytest.mark.parametrize("layout", ["layer", "token"])
def test_written_rows_are_those_expected(device_name: str, layout: str) -> None:
    """In all layers of all tensors, and nothing else: what is mapped beyond stays zero."""
    contents = Contents(GEOMETRY, seed=3, chunk_tokens=512)
    with (
        vmkv.open(device_name) as device,
        vmkv.Cache(device, GEOMETRY, budget="64MiB", page="4KiB", layout=layout) as cache,
        cache.open() as sequence,
    ):
        writer = Writer(map_sequence(contents, sequence, request=7))
        for first, last in ((0, 512), (512, 600), (600, 601), (601, 602)):
            device.wait(cache.step({sequence: last}))
            written = writer.write(first, last)
            states = sum(
                (1 if first else part.layers) * part.tensor.row_bytes
                for part in writer.parts
                if part.is_state
            )
            assert written == (last - first) * cache.info.bytes_per_token + states
        assert len(writer.parts) == 6
        for part in writer.parts:
            for layer in range(part.layers):
                begin, end = (0, 1) if part.is_state else (90, 602)
                assert np.array_equal(
                    part.read(layer, begin, end), part.expected(layer, begin, end)
                )
                if not part.is_state:
                    assert not part.array(layer)[602:603].any()


@pytest.mark.parametrize("layout", ["layer", "token"])
def test_memory_is_there_before_it_is_written(device_name: str, layout: str) -> None:
    """A decoded token that enters a page of the cache takes all of that into the page tables, but
    not where memory was kept warm behind the slot."""
    geometry = Geometry.full(layers=1, heads=2, head_dim=16)  # K and V of 64 bytes
    contents = Contents(geometry, seed=3, chunk_tokens=512)
    page = 64 << 10
    with (
        vmkv.open(device_name) as device,
        vmkv.Cache(
            device, geometry, budget="16MiB", page=page, layout=layout, warm="16MiB"
        ) as cache,
    ):
        if not cache.device.name.startswith("host"):
            pytest.skip("page tables that can be looked at: the host device's only")
        with cache.open() as sequence:
            stride = sequence.span().token_stride
            tokens = page // stride
            writer = Writer(map_sequence(contents, sequence, request=1))
            device.wait(cache.step({sequence: tokens + 1}))
            assert present(sequence.span().address, 2 * page) == set()
            writer.write(tokens, tokens + 1)
            first = page // 4096
            assert present(sequence.span().address, 2 * page) == set(range(first, 2 * first))
            address = sequence.span().address
        cache.retire(0)
        with cache.open(prefer="warm") as sequence:
            assert sequence.span().address == address
            writer = Writer(map_sequence(contents, sequence, request=2))
            device.wait(cache.step({sequence: 1}))
            writer.write(0, 1)
            assert 1 not in present(address, page)


def present(address: int, size: int) -> set[int]:
    """Numbers of the system's pages in a range that the page tables hold."""
    with open("/proc/self/pagemap", "rb", buffering=0) as file:
        file.seek(address // 4096 * 8)
        entries = np.frombuffer(file.read(size // 4096 * 8), np.uint64)
    return {int(i) for i in np.flatnonzero(entries >> np.uint64(63))}


REQUESTS = [Request(i, i + 2, *n) for i, n in enumerate([(600, 5), (1500, 20), (513, 40), (2, 0)])]


class CountingFloor(Floor):
    """Writes at every step."""

    def __init__(self, memory_bytes: int) -> None:
        super().__init__(memory_bytes)
        self.limits: list[int] = []
        self.written: list[int] = []

    def run(self, memory_bytes: int, least_bytes: int = 0) -> None:
        self.limits.append(memory_bytes)
        self.written.append(self._written_bytes)
        super().run(memory_bytes)


@pytest.mark.parametrize("layout", ["layer", "token"])
def test_floor_writes_what_a_replay_writes(device_name: str, layout: str) -> None:
    """All bytes, in as much memory as is mapped, and by turns."""
    floor = CountingFloor(16 << 20)
    options: dict[str, Any] = {"budget": "16MiB", "page": "4KiB", "max_slots": 3, "slab": "2MiB"}
    with (
        vmkv.open(device_name) as device,
        vmkv.Cache(device, GEOMETRY, layout=layout, **options) as cache,
    ):
        report = replay(cache, REQUESTS, floor=floor)
        plain = replay(cache, REQUESTS)
    assert sum(floor.written) == report.bytes_written == plain.bytes_written
    assert max(floor.limits) == report.mapped_bytes_peak
    assert floor.limits[0] < floor.limits[-1]
    assert report.floor_seconds == floor.seconds > 0
    assert report.write_ratio == report.floor_seconds / report.write_seconds
    assert report.failures == []
    assert plain.floor_seconds is plain.write_ratio is None


def make_lines(bank: Any, starts: list[int], row_bytes: int) -> Any:
    lines = np.zeros(len(starts), LINE)
    lines["bank"], lines["period_bytes"] = bank.ctypes.data, 256
    lines["start"], lines["row_bytes"] = starts, row_bytes
    return lines


def test_floor_writes_rows_one_behind_the_other() -> None:
    """Two lines of three rows of 8 bytes; then one of them again, into 64 bytes of the memory: the
    second row of it is the first that doesn't fit any more."""
    bank = np.arange(300, dtype=np.uint8)
    floor = Floor(4096)
    floor.add(make_lines(bank, [10, 255 * 8], 8), 1, 4)
    floor.run(4096, least_bytes=49)
    assert floor.seconds == 0
    floor.run(4096, least_bytes=48)
    assert floor.seconds > 0
    one, two = bank[18:42].tolist(), [*range(24)]
    assert 255 * 8 % 256 == 248
    assert floor._memory[:48].tolist() == one + two
    floor.run(4096)
    floor.add(make_lines(bank, [100], 8), 0, 3)
    floor.run(64)
    assert floor._memory[:64].tolist() == [*range(116, 124), *one[8:], *two, *range(100, 116)]
    assert not floor._memory[64:].any()


def test_floor_refuses_what_does_not_fit() -> None:
    floor = Floor(4096)
    floor.add(make_lines(np.zeros(300, np.uint8), [0], 16), 0, 1)
    with pytest.raises(vmkv.InvalidError, match="too little memory for a row"):
        floor.run(8)


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
