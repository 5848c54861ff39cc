"""Caches through the Python API: contents, addresses, accounting."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vmkv
from reach import Rows, reaching, read, write
from support import reuses_addresses, settle, step
from vmkv import Cache, Device, Geometry, Group, Sequence, Tensor

PAGE = 65536
LAYOUTS = pytest.mark.parametrize("layout", ["layer", "token"])

# 2,048 bytes a row: 32 tokens a page.
SMALL = Geometry.full(layers=2, heads=8, head_dim=128)
K, V = Tensor("k", 8, 128), Tensor("v", 8, 128)


@pytest.fixture
def device(device_name: str) -> Iterator[Device]:
    with vmkv.open(device_name) as device, reaching(device):
        yield device


def pattern(
    shape: tuple[int, ...], dtype: np.dtype[Any], seed: int | list[int]
) -> npt.NDArray[Any]:
    """Bytes that are nowhere else, in a given shape."""
    count = int(np.prod(shape)) * dtype.itemsize
    raw = np.random.default_rng(seed).integers(1, 256, count, dtype=np.uint8)
    return raw.view(dtype).reshape(shape)


def spans(sequence: Sequence) -> list[vmkv.Span]:
    groups = sequence.cache.geometry.groups
    return [
        sequence.span(layer, tensor, group=number)
        for number, group in enumerate(groups)
        for layer in range(len(group.layers))
        for tensor in range(len(group.tensors))
    ]


def same(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> bool:
    """Whether the bytes are the same: NaN is no obstacle."""
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


GEOMETRIES = {
    "k and v": SMALL,
    "k larger than v": Geometry((Group("full", (0, 1), (K, Tensor("v", 2, 64))),)),
    "one latent": Geometry((Group("full", range(3), (Tensor("latent", 1, 576),)),)),  # type: ignore[arg-type]
    "q8_0": Geometry.full(2, 8, 128, dtype="q8_0"),
    "bf16": Geometry.full(2, 8, 128, dtype="bf16"),
    "f8": Geometry.full(2, 8, 128, dtype="f8"),
    "f32": Geometry.full(2, 8, 128, dtype="f32"),
    "padded rows": Geometry((Group("full", (0,), (Tensor("k", 3, 40, "f16", 256), V)),)),
    "opaque rows": Geometry((Group("full", (0,), (Tensor("x", dtype="none", row_bytes=100),)),)),
    "full and window": Geometry(
        (Group("full", (1, 3), (K, V)), Group("window", (0, 2), (K, V), window_tokens=5000))
    ),
    "full and state": Geometry(
        (
            Group("full", (1,), (K, V)),
            Group("state", (0, 2), (Tensor("state", dtype="none", row_bytes=300_000),)),
        )
    ),
}


@LAYOUTS
@pytest.mark.parametrize("geometry", GEOMETRIES.values(), ids=GEOMETRIES.keys())
def test_contents_survive_growth(device: Device, geometry: Geometry, layout: str) -> None:
    lengths = (1, 31, 33, 600, 601, 1700)
    with Cache(device, geometry, budget="1GiB", layout=layout, max_tokens=2000) as cache:
        sequences = [cache.open() for _ in range(3)]
        expected: dict[tuple[int, int], npt.NDArray[Any]] = {}
        before = 0
        for length in lengths:
            # In turn, so that their memory interleaves.
            for number, sequence in enumerate(sequences):
                step(cache, {sequence: length})
                for index, span in enumerate(spans(sequence)):
                    state = geometry.groups[span.group].policy == "state"
                    if state and before:
                        continue
                    rows = Rows(span) if state else Rows(span, before)
                    fresh = rows.read()
                    assert not np.ascontiguousarray(fresh).view(np.uint8).any()
                    data = pattern(fresh.shape, fresh.dtype, [number, index, before])
                    rows.write(data)
                    old = expected.get((number, index))
                    expected[number, index] = data if old is None else np.concatenate([old, data])
            before = length
        for number, sequence in enumerate(sequences):
            for index, span in enumerate(spans(sequence)):
                assert same(read(span), expected[number, index]), span


@LAYOUTS
@pytest.mark.parametrize(
    ("name", "dtype", "shape"),
    [
        ("k and v", "float16", (100, 8, 128)),
        ("f32", "float32", (100, 8, 128)),
        ("bf16", "uint16", (100, 8, 128)),
        ("f8", "uint8", (100, 8, 128)),
        ("q8_0", "uint8", (100, 1088)),
        ("one latent", "float16", (100, 1, 576)),
        ("padded rows", "float16", (100, 3, 40)),
        ("opaque rows", "uint8", (100, 100)),
    ],
)
def test_what_a_span_looks_like(
    device: Device, layout: str, name: str, dtype: str, shape: tuple[int, ...]
) -> None:
    geometry = GEOMETRIES[name]
    with Cache(device, geometry, budget="1GiB", layout=layout, max_tokens=200) as cache:
        sequence = cache.open()
        step(cache, {sequence: 100})
        for span in spans(sequence):
            tensor = geometry.groups[0].tensors[span.tensor]
            assert span.row_bytes == tensor.row_bytes
            stride = tensor.row_bytes if layout == "layer" else geometry.bytes_per_token
            assert span.token_stride == stride
        span = sequence.span()
        assert span.dtype == np.dtype(dtype)
        assert span.shape == shape
        if device.info.cpu_addresses:
            view = span.numpy()
            assert (view.shape, view.dtype) == (shape, np.dtype(dtype))
            assert view.strides == span.strides
            assert view.ctypes.data == span.address
        assert (span.live_tokens, span.first_token) == (100, 0)
        assert 100 <= span.mapped_tokens <= span.reserved_tokens
        assert span.reserved_tokens >= 200


@LAYOUTS
def test_addresses_are_affine_and_never_change(device: Device, layout: str) -> None:
    with Cache(device, SMALL, budget="1GiB", layout=layout, max_tokens=3000) as cache:
        sequences = [cache.open() for _ in range(8)]
        assert [sequence.slot for sequence in sequences] == list(range(8))
        first = {span.address: span for span in spans(sequences[0])}
        assert len(first) == 4
        placed = {sequence: [span.address for span in spans(sequence)] for sequence in sequences}
        for length in (1, 700, 3000):
            step(cache, dict.fromkeys(sequences, length))
            for sequence in sequences:
                for span, base in zip(spans(sequence), first.values(), strict=True):
                    assert span.slot_stride % (2 << 20) == 0
                    assert span.address == base.address + sequence.slot * span.slot_stride
                assert [span.address for span in spans(sequence)] == placed[sequence]


def test_layer_is_the_models_number_unless_a_group_is_named(device: Device) -> None:
    with Cache(device, GEOMETRIES["full and window"], budget="1GiB") as cache:
        sequence = cache.open()
        assert sequence.span(3, "v").address == sequence.span(1, 1, group=0).address
        assert sequence.span(2, "k").address == sequence.span(1, 0, group=1).address
        span = sequence.span(2, "v")
        assert (span.group, span.layer, span.tensor) == (1, 1, 1)


def test_several_slots_as_one_batch_for_a_kernel(device: Device) -> None:
    """Base and two strides describe all sequences of one length to an unmodified kernel."""
    with Cache(device, SMALL, budget="1GiB", max_tokens=100) as cache:
        sequences = [cache.open() for _ in range(4)]
        step(cache, dict.fromkeys(sequences, 50))
        for number, sequence in enumerate(sequences):
            sequence.span(1, "v").numpy()[...] = number
        span = sequences[0].span(1, "v")
        one = span.numpy()
        batch = np.lib.stride_tricks.as_strided(
            one, (4, *one.shape), (span.slot_stride, *one.strides)
        )
        assert [set(np.unique(rows)) for rows in batch] == [{0}, {1}, {2}, {3}]


@LAYOUTS
def test_a_window_trims_by_itself_and_keeps_what_it_must(device: Device, layout: str) -> None:
    window, chunk = 100, 50
    group = Group("window", (0, 1), (K, V), window_tokens=window, slack_tokens=10)
    geometry = Geometry((group,))
    options: dict[str, Any] = {"layout": layout, "max_tokens": 5000, "page": "4KiB"}
    with Cache(device, geometry, budget="64MiB", window_mapping_max="4KiB", **options) as cache:
        sequence = cache.open()
        span = sequence.span(1, "v")
        for length in range(chunk, 5001, chunk):
            step(cache, {sequence: length})
            write(span, pattern((chunk, 8, 128), span.dtype, length), length - chunk)
            # Queries of this step look back from where it began.
            least = max(0, length - chunk - window - 10)
            assert span.first_token <= least
            assert span.live_tokens == length
            assert span.mapped_tokens >= length
            kept = pattern((chunk, 8, 128), span.dtype, max(chunk, length - window))
            begin = max(0, length - window - chunk)
            assert same(read(span, begin, begin + chunk), kept)
        assert span.first_token >= 5000 - 2 * chunk - window - 10 - 64
        if device.info.cpu_addresses:
            with pytest.raises(vmkv.RangeError, match="tokens 0 to 10 have no memory"):
                span.numpy(0, 10)
        live_bytes = (5000 - span.first_token) * geometry.groups[0].token_bytes
        assert live_bytes <= cache.stats().mapped_bytes <= live_bytes + 4 * 2 * 8192


def test_pieces_of_windows_have_their_own_limit(device: Device) -> None:
    geometry = Geometry((*SMALL.groups, Group("window", (2,), (K, V), window_tokens=1000)))
    with Cache(device, geometry, budget="64MiB", page="4KiB", window_mapping_max="8KiB") as cache:
        sequence = cache.open()
        step(cache, {sequence: 500})
        assert max(mapping.bytes for mapping in sequence.mappings(2)) == 8192
        assert max(mapping.bytes for mapping in sequence.mappings(1)) > 8192


def test_a_state_is_fixed_and_comes_with_the_first_step(device: Device) -> None:
    matrix = Tensor("state", 4, 100, "f32")
    geometry = Geometry((Group("full", (1,), (K, V)), Group("state", (0, 2), (matrix,))))
    with Cache(device, geometry, budget="1GiB") as cache:
        sequence = cache.open()
        span = sequence.span(2, "state")
        assert (span.mapped_tokens, span.token_stride, span.reserved_tokens) == (0, 0, 1)
        if device.info.cpu_addresses:
            with pytest.raises(vmkv.RangeError, match="comes with the first step"):
                span.numpy()
        step(cache, {sequence: 1})
        assert span.shape == (4, 100)
        assert span.mapped_tokens == 1
        assert span.strides == (400, 4)
        fresh = read(span)
        assert fresh.shape == (4, 100)
        assert fresh.dtype == np.float32
        assert not fresh.any()
        write(span, 7)
        step(cache, {sequence: 5000})
        assert (read(span) == 7).all()
        if device.info.cpu_addresses:
            with pytest.raises(vmkv.RangeError, match="no tokens to choose from"):
                span.numpy(0, 1)


def test_an_opaque_state_is_bytes(device: Device) -> None:
    with Cache(device, GEOMETRIES["full and state"], budget="1GiB") as cache:
        sequence = cache.open()
        step(cache, {sequence: 1})
        assert read(sequence.span(0)).shape == (300_000,)
        assert sequence.span(0).dtype == np.uint8


def test_memory_is_there_up_to_the_read_alignment(device: Device) -> None:
    options: dict[str, Any] = {"page": "4KiB", "max_tokens": 1000}
    with Cache(device, SMALL, budget="1GiB", read_align_tokens=256, **options) as cache:
        sequence = cache.open()
        span = sequence.span()
        for length, mapped in ((1, 256), (256, 256), (257, 512), (1000, 1024)):
            step(cache, {sequence: length})
            assert span.mapped_tokens == mapped
            assert span.shape[0] == length
            assert not read(span, 0, mapped).any()
        assert cache.info.read_align_tokens == 256


def test_rows_without_memory_are_refused(device: Device) -> None:
    with Cache(device, SMALL, budget="1GiB", max_tokens=1000) as cache:
        sequence = cache.open()
        span = sequence.span()
        assert span.numpy().shape == (0, 8, 128)
        step(cache, {sequence: 40})
        mapped = span.mapped_tokens
        assert span.numpy(0, mapped).shape == (mapped, 8, 128)
        for first, last in ((0, mapped + 1), (-1, 10), (10, 9), (mapped + 1, mapped + 1)):
            with pytest.raises(vmkv.RangeError, match="have no memory: that is there for 0 to"):
                span.numpy(first, last)


@pytest.mark.parametrize("warm", [None, "off"])
@LAYOUTS
def test_anothers_memory_reads_as_zero(device: Device, layout: str, warm: str | None) -> None:
    with Cache(device, SMALL, budget="256MiB", warm=warm, layout=layout) as cache:
        for length in (5000, 3000, 7000):
            with cache.open(prefer="warm", expected_tokens=length) as sequence:
                step(cache, {sequence: length})
                for span in spans(sequence):
                    assert not read(span).any()
                    write(span, np.nan)
            settle(cache)  # so that the next one gets it
            stays = warm is None and reuses_addresses(device)
            assert bool(cache.stats().warm_bytes) == stays


def test_zeroing_can_be_turned_off(device: Device) -> None:
    with Cache(device, SMALL, budget="64MiB", zero=False) as cache:
        with cache.open() as sequence:
            step(cache, {sequence: 100})
            write(sequence.span(), 3)
        again = cache.open()
        step(cache, {again: 100})
        assert cache.stats().fill_calls == 0


def test_warm_slots_are_taken_by_who_fits_best(device: Device) -> None:
    if not reuses_addresses(device):
        pytest.skip("needs slots that are used again")
    with Cache(device, SMALL, budget="64MiB", warm="32MiB") as cache:
        short, long = cache.open(slot=5), cache.open(slot=6)
        step(cache, {short: 100, long: 2000})
        long.close()
        short.close()
        warm = cache.stats().warm_bytes
        assert warm > 0
        assert cache.open(prefer="warm", expected_tokens=90).slot == 5
        sequence = cache.open(prefer="warm", expected_tokens=2000)
        assert sequence.slot == 6
        calls = cache.stats().map_calls
        step(cache, {sequence: 2000})
        assert cache.stats().map_calls == calls
        assert cache.open().slot == 0


def test_a_slot_can_be_chosen(device: Device) -> None:
    with Cache(device, SMALL, budget="64MiB", max_slots=4, slot_count=6) as cache:
        assert cache.open(slot=3).slot == 3
        with pytest.raises(vmkv.BusyError):
            cache.open(slot=3)
        with pytest.raises(vmkv.InvalidError):
            cache.open(slot=6)
        assert [cache.open().slot for _ in range(3)] == [0, 1, 2]


def test_too_many_sequences(device: Device) -> None:
    with Cache(device, SMALL, budget="64MiB", max_slots=2) as cache:
        sequences = [cache.open(), cache.open()]
        with pytest.raises(vmkv.Shortage) as caught:
            cache.open()
        assert (caught.value.kind, caught.value.needed, caught.value.missing) == ("slots", 1, 1)
        assert "2" in str(caught.value)
        sequences[0].close()
        cache.open()


def test_a_shortage_of_memory_tells_its_numbers_and_changes_nothing(device: Device) -> None:
    # 2 layers x 2 tensors: 4 pages for every 32 tokens.
    with Cache(device, SMALL, budget=12 * PAGE, warm="off") as cache:
        one, two = cache.open(), cache.open()
        step(cache, {one: 32, two: 32})
        write(one.span(), 5)
        before = cache.stats()
        with pytest.raises(vmkv.Shortage) as caught:
            cache.step({one: 64, two: 65})
        error = caught.value
        assert error.kind == "bytes"
        assert error.needed == 12 * PAGE
        assert error.missing == 8 * PAGE
        assert error.seq_needed_bytes == (4 * PAGE, 8 * PAGE)
        assert error.retiring_bytes == 0
        assert "768 KiB more is needed, 512 KiB of it is missing" in str(error)
        after = cache.stats()
        assert after.shortages == before.shortages + 1
        assert after.mapped_bytes == before.mapped_bytes
        assert after.live_bytes == before.live_bytes
        assert (one.tokens, two.tokens) == (32, 32)
        assert (read(one.span()) == 5).all()
        step(cache, {one: 64})


def test_a_shortage_says_what_retiring_would_free(device: Device) -> None:
    with Cache(device, SMALL, budget=8 * PAGE, warm="off") as cache:
        one, two = cache.open(), cache.open()
        step(cache, {one: 32, two: 32}, busy_until=7)
        one.close(busy_until=9)
        three = cache.open()
        assert three.slot != one.slot
        with pytest.raises(vmkv.Shortage) as caught:
            cache.step({three: 1})
        assert (caught.value.retiring_bytes, caught.value.retiring_until) == (4 * PAGE, 9)
        assert "256 KiB comes free with retire(9)" in str(caught.value)
        cache.retire(8)
        with pytest.raises(vmkv.Shortage):
            cache.step({three: 1})
        cache.retire(9)
        settle(cache)
        step(cache, {three: 1})
        assert not read(three.span()).any()


def test_a_shortage_of_mappings_is_its_own_kind() -> None:
    """On host alone: no other device takes a bound on mappings as an option."""
    with vmkv.open("host?max_mappings=40") as device:
        assert device.info.max_mappings == 40
        with Cache(device, SMALL, budget="1GiB", max_slots=32) as cache:
            sequences = [cache.open() for _ in range(32)]

            def grow_in_turn() -> None:
                for length in range(32, 3200, 32):
                    for sequence in sequences:
                        cache.step({sequence: length})

            with pytest.raises(vmkv.Shortage) as caught:
                grow_in_turn()
            assert caught.value.kind == "mappings"
            assert caught.value.missing > 0
            assert str(caught.value).startswith("too few mappings")
            sequences[0].close()


@LAYOUTS
def test_accounting_and_waste(device: Device, layout: str) -> None:
    with Cache(device, SMALL, budget="1GiB", layout=layout) as cache:
        sequence = cache.open()
        step(cache, {sequence: 3000})
        stats = cache.stats()
        assert stats.live_bytes == 3000 * SMALL.bytes_per_token
        pages = 4 * -(-3000 * 2048 // PAGE) if layout == "layer" else -(-3000 * 8192 // PAGE)
        assert stats.mapped_bytes == pages * PAGE
        assert stats.waste == 1 - stats.live_bytes / stats.mapped_bytes
        assert stats.mapped_bytes == cache.need_bytes(3000)
        assert stats.sequences == 1
        assert stats.slab_bytes == sum(
            (
                stats.mapped_bytes, stats.warm_bytes, stats.retiring_bytes, stats.unmapping_bytes,
                stats.zeroing_bytes, stats.held_bytes, stats.free_clean_bytes,
                stats.free_dirty_bytes,
            )
        )  # fmt: skip
        sequence.close(busy_until=3)
        stats = cache.stats()
        assert (stats.retiring_bytes, stats.mapped_bytes) == (pages * PAGE, 0)
        assert stats.waste == 0


@LAYOUTS
def test_mappings_cover_a_span(device: Device, layout: str) -> None:
    with Cache(device, SMALL, budget="1GiB", layout=layout) as cache:
        sequence = cache.open()
        assert sequence.mappings() == []
        for length in (100, 1000, 9000):
            step(cache, {sequence: length})
        span = sequence.span(1, "v")
        mappings = sequence.mappings(1, "v")
        assert mappings[0].address <= span.address
        end = mappings[0].address
        for mapping in mappings:
            assert mapping.address == end
            assert mapping.bytes % PAGE == 0
            end += mapping.bytes
        assert end >= span.address + 8999 * span.token_stride + span.row_bytes


def test_many_mappings_are_all_told(device: Device) -> None:
    options: dict[str, Any] = {"page": "4KiB", "mapping_max": "4KiB", "max_tokens": 2000}
    with Cache(device, Geometry.full(1, 8, 128), budget="1GiB", **options) as cache:
        sequence = cache.open()
        step(cache, {sequence: 2000})
        mappings = sequence.mappings()
        assert len(mappings) == 1000
        assert {mapping.bytes for mapping in mappings} == {4096}


def test_memory_goes_back_to_the_system(device: Device) -> None:
    with Cache(device, SMALL, budget="256MiB", slab="2MiB", warm="128MiB") as cache:
        with cache.open() as sequence:
            step(cache, {sequence: 10000})
            held = cache.stats().slab_bytes
            assert cache.shrink() < held
            assert (cache.stats().mapped_bytes, sequence.tokens) == (4 * 313 * PAGE, 10000)
        held = cache.stats().slab_bytes
        assert held > 0
        settle(cache)
        assert cache.shrink(keep="4MiB") == held - (4 << 20)
        assert cache.shrink() == 4 << 20
        assert cache.stats().slab_bytes == 0


def test_the_budget_can_change(device: Device) -> None:
    with Cache(device, SMALL, budget=8 * PAGE, warm="off") as cache:
        sequence = cache.open()
        step(cache, {sequence: 64})
        with pytest.raises(vmkv.Shortage):
            cache.step({sequence: 65})
        cache.set_budget("1MiB")
        step(cache, {sequence: 65})
        cache.set_budget(4 * PAGE)
        assert cache.stats().budget_bytes == 4 * PAGE
        assert read(sequence.span()).shape[0] == 65
        with pytest.raises(vmkv.Shortage):
            cache.step({sequence: 97})
        with pytest.raises(vmkv.InvalidError):
            cache.set_budget(3 * PAGE)
        assert cache.stats().budget_bytes == 4 * PAGE


def test_ready_tokens_show_what_slots_may_use(device: Device) -> None:
    with Cache(device, SMALL, budget="64MiB", max_slots=4, slot_count=10) as cache:
        ready = cache.ready_tokens
        assert (ready.shape, ready.flags.writeable) == ((10,), False)
        assert ready.dtype == np.uint32
        sequence = cache.open(slot=2)
        assert not ready.any()
        step(cache, {sequence: 33})
        assert ready[2] == 64
        assert ready.sum() == 64
        sequence.close(busy_until=1)
        assert not ready.any()


def test_several_caches_and_devices(device_name: str) -> None:
    with (
        vmkv.open(device_name) as first,
        vmkv.open(device_name) as second,
        reaching(first),
        reaching(second),
    ):
        caches = [
            Cache(device, geometry, budget="64MiB", layout=layout)
            for device in (first, second)
            for geometry in (SMALL, GEOMETRIES["q8_0"])
            for layout in ("layer", "token")
        ]
        sequences = [cache.open() for cache in caches]
        assert len({sequence.id for sequence in sequences}) == len(sequences)
        for number, sequence in enumerate(sequences):
            step(sequence.cache, {sequence: 100 + number})
            for span in spans(sequence):
                write(span, number)
        for number, sequence in enumerate(sequences):
            for span in spans(sequence):
                assert span.shape[0] == 100 + number
                assert (read(span) == number).all()
        for cache in caches:
            cache.close()


def test_copy_and_fill_by_address(device: Device) -> None:
    with Cache(device, SMALL, budget="64MiB") as cache:
        one, two = cache.open(), cache.open()
        step(cache, {one: 64, two: 64})
        source, target = one.span(1, "k"), two.span(0, "v")
        assert device.fill(source.address, 64 * 2048, 0x3C003C00) == 0
        assert (read(source) == 1).all()
        point = device.copy(target.address, source.address, 32 * 2048, wait=False)
        device.wait(point)
        device.wait(0, timeout=0)
        device.wait(0, timeout=float("inf"))
        assert (read(target, 0, 32) == 1).all()
        assert not read(target, 32).any()
        with pytest.raises(vmkv.InvalidError):
            device.fill(source.address + 1, 4)
        with pytest.raises(vmkv.InvalidError):
            device.copy(source.address, source.address + 4, 100)
        with pytest.raises(vmkv.InvalidError, match="nbytes is -4"):
            device.fill(source.address, -4)
        with pytest.raises(vmkv.RangeError, match="value is 4294967296"):
            device.fill(source.address, 4, 2**32)
        with pytest.raises(vmkv.InvalidError, match="timeout is -1"):
            device.wait(0, timeout=-1)


def test_an_address_without_memory_is_told(device: Device) -> None:
    with Cache(device, SMALL, budget="64MiB") as cache:
        sequence = cache.open()
        step(cache, {sequence: 64})
        span = sequence.span(1, "k")
        with pytest.raises(vmkv.AddressError):
            device.copy(span.address, span.address + (1 << 20), 4096)


def test_share_is_true_false_or_none(
    device: vmkv.Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.delenv("VMKV_STATS", raising=False)
    for share, files in ((None, 0), (False, 0), (True, 1)):
        with vmkv.Cache(device, vmkv.Geometry.preset("qwen3-8b"), budget="100MB", share=share):
            assert len(list(tmp_path.glob("vmkv/*.kv"))) == files
    with pytest.raises(TypeError, match="share is True, False or None"):
        vmkv.Cache(device, vmkv.Geometry.preset("qwen3-8b"), budget="100MB", share=1)  # type: ignore[arg-type]
