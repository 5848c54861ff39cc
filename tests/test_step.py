"""Steps, batches, sequences as keys, and what bad input is told."""

import errno
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vmkv
from support import reached, reuses_addresses, step
from vmkv import Cache, Device, Geometry, Sequence

SMALL = Geometry.full(layers=2, heads=8, head_dim=128)


@pytest.fixture
def device(device_name: str) -> Iterator[Device]:
    with vmkv.open(device_name) as device:
        yield device


@pytest.fixture
def cache(device: Device) -> Iterator[Cache]:
    with Cache(device, SMALL, budget="256MiB", max_slots=16, max_tokens=1000) as cache:
        yield cache


def test_sequences_are_keys(cache: Cache) -> None:
    one, two = cache.open(), cache.open()
    lengths = {one: 1, two: 2}
    twin = Sequence(cache, one.id)
    assert twin == one
    assert hash(twin) == hash(one)
    assert lengths[twin] == 1
    assert one != two
    assert one != one.id
    assert len({one, twin, two}) == 2


def test_an_id_is_never_used_again(cache: Cache) -> None:
    seen = set()
    for number in range(100):
        sequence = cache.open()
        assert sequence.slot == (0 if reuses_addresses(cache.device) else number)
        assert sequence not in seen
        seen.add(sequence)
        sequence.close()


def test_a_step_takes_a_mapping_and_is_absolute(cache: Cache) -> None:
    one, two = cache.open(), cache.open()
    step(cache, {one: 10, two: np.uint32(20)})
    step(cache, {one: 10})
    step(cache, {})
    assert (one.tokens, two.tokens) == (10, 20)


def test_a_batch_is_reused(cache: Cache) -> None:
    sequences = [cache.open() for _ in range(5)]
    step(cache, {sequences[1]: 7})
    batch = cache.batch(iter(sequences))
    assert batch.sequences == tuple(sequences)
    assert batch.tokens.tolist() == [0, 7, 0, 0, 0]
    assert batch.tokens.dtype == np.uint32
    array = batch.tokens
    batch.tokens[:] = 40
    reached(cache, batch.step())
    batch.tokens += 1
    reached(cache, batch.step(busy_until=3))
    assert batch.tokens is array
    batch.tokens = [50, 51, 52, 53, 54]
    reached(cache, batch.step())
    assert batch.tokens is array
    assert [sequence.tokens for sequence in sequences] == [50, 51, 52, 53, 54]
    assert cache.stats().steps == 4


def test_an_empty_batch(cache: Cache) -> None:
    batch = cache.batch([])
    assert batch.tokens.shape == (0,)
    batch.tokens = []
    reached(cache, batch.step())


@pytest.mark.parametrize(
    ("values", "kind", "message"),
    [
        ([1, 2, 3], vmkv.InvalidError, "tokens takes 2 integers"),
        ([[1], [2]], vmkv.InvalidError, "tokens takes 2 integers"),
        ([1.5, 2], vmkv.InvalidError, "tokens takes 2 integers"),
        ([1, -2], vmkv.InvalidError, "a length in tokens is -2: it can't be negative"),
        ([1, 2**32], vmkv.RangeError, "a length in tokens is 4294967296"),
    ],
)
def test_lengths_that_a_batch_refuses(
    cache: Cache, values: Any, kind: type[Exception], message: str
) -> None:
    batch = cache.batch([cache.open(), cache.open()])
    batch.tokens = [3, 4]
    with pytest.raises(kind, match=message):
        batch.tokens = values
    assert batch.tokens.tolist() == [3, 4]


def test_a_batch_tells_a_shortage_by_sequence(device: Device) -> None:
    with Cache(device, SMALL, budget=8 * 65536, warm="off") as cache:
        batch = cache.batch([cache.open(), cache.open()])
        batch.tokens = [32, 65]
        with pytest.raises(vmkv.Shortage) as caught:
            batch.step()
        assert caught.value.seq_needed_bytes == (4 * 65536, 12 * 65536)
        batch.tokens = [32, 32]
        reached(cache, batch.step())


def test_a_length_of_zero_needs_nothing(device: Device) -> None:
    state = vmkv.Tensor("state", dtype="none", row_bytes=65536)
    geometry = Geometry((*SMALL.groups, vmkv.Group("state", (2,), (state,))))
    with Cache(device, geometry, budget=8 * 65536) as cache:
        with pytest.raises(vmkv.Shortage) as caught:
            cache.step({cache.open(): 0, cache.open(): 64})
        assert caught.value.needed == 9 * 65536
        assert caught.value.seq_needed_bytes == (0, 9 * 65536)


def test_a_sequence_twice(cache: Cache) -> None:
    sequence = cache.open()
    with pytest.raises(vmkv.InvalidError, match="in the batch twice"):
        cache.batch([sequence, sequence])


def test_a_sequence_twice_in_c(cache: Cache) -> None:
    sequence, other = cache.open(), cache.open()
    batch = cache.batch([sequence, other])
    batch._ids[1] = sequence.id
    batch.tokens = [5, 6]
    with pytest.raises(vmkv.InvalidError) as caught:
        batch.step()
    assert caught.value.errno == errno.EINVAL
    assert str(caught.value)
    assert sequence.tokens == 0


def test_lengths_outside_their_range(cache: Cache) -> None:
    one, two = cache.open(), cache.open()
    step(cache, {one: 100, two: 100})
    bad: list[tuple[Any, type[Exception], str]] = [
        (99, vmkv.InvalidError, "99"),
        (1001, vmkv.RangeError, "1001.*1000"),
        (2**32 - 1, vmkv.RangeError, "1000"),
        (2**32, vmkv.RangeError, "a length in tokens is 4294967296: it is at most"),
        (-1, vmkv.InvalidError, "a length in tokens is -1: it can't be negative"),
        (10.5, TypeError, "a length in tokens is an integer, not 10.5"),
        ("10", TypeError, "a length in tokens is an integer, not '10'"),
    ]
    for tokens, kind, message in bad:
        with pytest.raises(kind, match=message) as caught:
            cache.step({two: 200, one: tokens})
        assert "\n" not in str(caught.value)
        assert (one.tokens, two.tokens) == (100, 100)


@pytest.mark.parametrize(
    ("value", "kind"),
    [(-1, vmkv.InvalidError), (2**64, vmkv.RangeError), (1.5, TypeError), ("x", TypeError)],
)
def test_busy_until_outside_its_range(cache: Cache, value: Any, kind: type[Exception]) -> None:
    sequence = cache.open()
    for call in (
        lambda: cache.step({sequence: 1}, value),
        lambda: cache.batch([sequence]).step(value),
        lambda: sequence.close(value),
    ):
        with pytest.raises(kind, match="busy_until is"):
            call()
    with pytest.raises(kind, match="completed is"):
        cache.retire(value)
    assert sequence.tokens == 0


def test_a_closed_sequence_is_stale(cache: Cache) -> None:
    sequence = cache.open()
    batch, span = cache.batch([sequence]), sequence.span()
    step(cache, {sequence: 5})
    sequence.close()
    again = cache.open()
    assert (again.slot == sequence.slot) == reuses_addresses(cache.device)
    for call in (
        sequence.close,
        sequence.span,
        sequence.mappings,
        span.numpy,
        batch.step,
        lambda: sequence.tokens,
        lambda: span.shape,
        lambda: cache.step({sequence: 6}),
        lambda: cache.batch([sequence]),
    ):
        with pytest.raises(vmkv.StaleError) as caught:
            call()
        assert not isinstance(caught.value, vmkv.ClosedError)
        assert str(caught.value)
    assert again.tokens == 0


def test_another_caches_sequence_is_refused(device: Device, cache: Cache) -> None:
    with Cache(device, SMALL, budget="64MiB") as other:
        mine, foreign = cache.open(), other.open()
        with pytest.raises(vmkv.StaleError, match="belongs to another cache"):
            cache.step({mine: 5, foreign: 5})
        with pytest.raises(vmkv.StaleError, match="belongs to another cache"):
            cache.batch([foreign])
        with pytest.raises(vmkv.StaleError):
            Sequence(cache, foreign.id)
        for never in (0, 1, 2**64 - 1):
            with pytest.raises(vmkv.StaleError):
                Sequence(cache, never)
        assert (mine.tokens, foreign.tokens) == (0, 0)
        with pytest.raises(TypeError, match="a step takes sequences, not 7"):
            cache.step({7: 5})  # type: ignore[dict-item]


def test_a_sequence_closes_itself_once(cache: Cache) -> None:
    with cache.open() as sequence:
        assert cache.stats().sequences == 1
    assert cache.stats().sequences == 0
    with cache.open() as sequence:
        sequence.close(busy_until=5)
    assert cache.stats().sequences == 0
    with cache.open():
        cache.close()


def test_layers_and_tensors_that_are_not_there(cache: Cache) -> None:
    sequence = cache.open()
    calls: list[tuple[tuple[Any, ...], str]] = [
        ((2,), "no layer 2: there are 2, 0 to 1"),
        ((-1,), "no layer -1"),
        ((0, "q"), "no tensor 'q': this layer has 'k', 'v'"),
        ((0, 2), "no tensor 2"),
        ((2, 0, 0), "no layer 2 in group 0: it has 2, from 0"),
        ((-1, 0, 0), "no layer -1 in group 0"),
        ((0, 0, 1), "no group 1: there are 1, from 0"),
        ((0, 0, -1), "no group -1"),
    ]
    for arguments, message in calls:
        for call in (sequence.span, sequence.mappings):
            with pytest.raises(vmkv.RangeError, match=message):
                call(*arguments)


def test_need_bytes_outside_its_range(cache: Cache) -> None:
    with pytest.raises(vmkv.RangeError):
        cache.need_bytes(1001)
    with pytest.raises(vmkv.InvalidError, match="tokens is -1"):
        cache.need_bytes(-1)


BAD_OPTIONS: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"budget": "lots"}, vmkv.InvalidError, "budget 'lots' is not a size"),
    ({"budget": 0}, vmkv.InvalidError, "budget is at least 1 byte"),
    ({"budget": -1}, vmkv.InvalidError, "budget is -1"),
    ({"budget": "16EiB"}, vmkv.SizeError, "budget"),
    ({"budget": 4 * 65536 - 1}, vmkv.InvalidError, "budget"),
    ({"page": "48KiB"}, vmkv.InvalidError, "power of two"),
    ({"page": "2KiB"}, vmkv.InvalidError, "granule"),
    ({"page": "4MiB"}, vmkv.InvalidError, "page"),
    ({"page": 0}, vmkv.InvalidError, "page is at least 1 byte"),
    ({"slab": "3MiB"}, vmkv.InvalidError, "slab"),
    ({"slab": 0}, vmkv.InvalidError, "slab is at least 1 byte"),
    ({"layout": "megacache"}, vmkv.InvalidError, "unknown layout 'megacache'"),
    ({"max_slots": 0}, vmkv.InvalidError, "max_slots is at least 1"),
    ({"max_slots": -1}, vmkv.InvalidError, "max_slots is -1"),
    ({"max_slots": 2**19 + 1}, vmkv.InvalidError, "max_slots"),
    ({"max_slots": 2**32}, vmkv.RangeError, "max_slots"),
    ({"max_slots": 1.5}, TypeError, "max_slots is an integer, not 1.5"),
    ({"slot_count": 7}, vmkv.InvalidError, "slot_count"),
    ({"slot_count": 0}, vmkv.InvalidError, "slot_count is at least 1"),
    ({"max_tokens": 0}, vmkv.InvalidError, "max_tokens is at least 1"),
    ({"max_tokens": 2**32}, vmkv.RangeError, "max_tokens"),
    ({"read_align_tokens": 0}, vmkv.InvalidError, "read_align_tokens is at least 1"),
    ({"mapping_max": 0}, vmkv.InvalidError, "mapping_max is at least 1 byte"),
    ({"warm": "hot"}, vmkv.InvalidError, "warm 'hot' is not a size"),
    ({"max_tokens": 2**31, "max_slots": 2**19}, vmkv.SizeError, "slots|addresses|bytes"),
]


@pytest.mark.parametrize(("options", "kind", "message"), BAD_OPTIONS, ids=str)
def test_bad_options(
    device: Device, options: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message) as caught:
        Cache(device, SMALL, **({"budget": "64MiB"} | options))
    assert str(caught.value)
    assert "\n" not in str(caught.value)
    # Nothing of it is left behind.
    assert device.info.mappings == 0


def test_a_cache_takes_a_device_and_a_geometry(device: Device) -> None:
    with pytest.raises(TypeError, match=r"device is what vmkv\.open returned, not 'host'"):
        Cache("host", SMALL, budget="64MiB")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="geometry is a Geometry such as"):
        Cache(device, "qwen3-8b", budget="64MiB")  # type: ignore[arg-type]


def test_sizes_that_overflow(device: Device) -> None:
    row = vmkv.Tensor("x", dtype="none", row_bytes=2**62)
    geometry = Geometry((vmkv.Group("full", (0,), (row,)),))
    with pytest.raises(vmkv.SizeError) as caught:
        Cache(device, geometry, budget="15EiB")
    assert str(caught.value)


@pytest.mark.parametrize("prefer", ["highest", "slot", ""])
def test_unknown_preferences(cache: Cache, prefer: str) -> None:
    with pytest.raises(vmkv.InvalidError, match="unknown prefer"):
        cache.open(prefer=prefer)


@pytest.mark.parametrize("name", ["nonesuch", "amdgpu9", "hostess", ""])
def test_unknown_devices(name: str) -> None:
    with pytest.raises(vmkv.Error) as caught:
        vmkv.open(name)
    assert isinstance(caught.value, vmkv.DeviceNotFoundError | vmkv.InvalidError)
    assert str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "name", ["host?speed=9", "host?memory=lots", "host?max_mappings=-1", "ho\0st"]
)
def test_malformed_device_names(name: str) -> None:
    with pytest.raises(vmkv.InvalidError) as caught:
        vmkv.open(name)
    assert str(caught.value)


def test_a_device_name_is_text() -> None:
    with pytest.raises(TypeError, match="a device's name is a text"):
        vmkv.open(3)  # type: ignore[arg-type]
