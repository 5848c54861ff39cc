"""Closing, collecting, forking, and many threads: no way leads to memory that isn't there."""

import gc
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import vmkv
from reach import Rows, reaching, read, write
from support import step
from vmkv import Cache, Device, Geometry, _handle
from vmkv._native import ffi, lib

SMALL = Geometry.full(layers=2, heads=8, head_dim=128)


@pytest.fixture
def device(device_name: str) -> Iterator[Device]:
    with vmkv.open(device_name) as device:
        yield device


@pytest.mark.parametrize(
    ("record", "struct"),
    [
        (vmkv.Stats, "vmkv_stats"),
        (vmkv.CacheInfo, "vmkv_cache_info"),
        (vmkv.DeviceInfo, "vmkv_device_info"),
        (vmkv.Mapping, "vmkv_mapping"),
    ],
)
def test_records_have_the_fields_of_the_c_structs(record: type, struct: str) -> None:
    fields = [name for name, _ in ffi.typeof(f"struct {struct}").fields]
    known = [name for name in fields if name not in ("struct_size", "reserved")]
    assert sorted(record.__dataclass_fields__) == sorted(known)  # type: ignore[attr-defined]


def test_version() -> None:
    assert [int(part) for part in vmkv.__version__.split(".")] >= [0, 1, 0]


def test_a_closed_cache_says_so(device: Device) -> None:
    cache = Cache(device, SMALL, budget="64MiB")
    sequence = cache.open()
    span, batch = sequence.span(), cache.batch([sequence])
    cache.close()
    cache.close()
    assert cache.closed
    assert repr(cache) == "<vmkv.Cache closed>"
    for call in (
        cache.open, cache.stats, cache.shrink, batch.step, sequence.close, sequence.span,
        sequence.mappings, span.numpy,
        lambda: cache.step({sequence: 1}), lambda: cache.step({}), lambda: cache.batch([sequence]),
        lambda: cache.retire(1), lambda: cache.need_bytes(1), lambda: cache.set_budget("1GiB"),
        lambda: cache.info, lambda: cache.ready_tokens, lambda: sequence.tokens,
        lambda: span.live_tokens,
    ):  # fmt: skip
        with pytest.raises(vmkv.ClosedError, match="the cache is closed"):
            call()


def test_a_closed_device_says_so(device_name: str) -> None:
    device = vmkv.open(device_name)
    device.close()
    device.close()
    assert repr(device) == "<vmkv.Device closed>"
    for call in (
        lambda: device.info,
        lambda: device.name,
        lambda: device.copy(0, 4096, 4),
        lambda: device.fill(0, 4),
        lambda: device.wait(0),
        lambda: Cache(device, SMALL, budget="64MiB"),
    ):
        with pytest.raises(vmkv.ClosedError, match="the device is closed"):
            call()


def test_a_device_with_caches_stays_open(device: Device) -> None:
    cache = Cache(device, SMALL, budget="64MiB")
    for _ in range(2):
        with pytest.raises(vmkv.BusyError) as caught:
            device.close()
        assert str(caught.value)
    assert not device.closed
    sequence = cache.open()
    step(cache, {sequence: 10})
    cache.close()
    device.close()
    assert device.closed


def test_closing_does_not_hide_an_error(device_name: str) -> None:
    def fail_with_an_open_cache() -> None:
        with vmkv.open(device_name) as device:
            kept.append(Cache(device, SMALL, budget="64MiB"))
            raise KeyError("why")

    kept: list[Cache] = []
    with pytest.raises(KeyError, match="why"):
        fail_with_an_open_cache()
    kept[0].close()
    kept[0].device.close()


@pytest.mark.parametrize(
    "call",
    [
        lambda batch: batch.step(),
        lambda batch: batch.sequences[0].cache.step({batch.sequences[0]: 10**6}),
        lambda batch: batch.sequences[0].cache.need_bytes(10**6),
        lambda batch: batch.sequences[0].cache.set_budget(1),
        lambda batch: batch.sequences[0].cache.open(slot=0),
    ],
)
def test_a_failed_call_does_not_keep_a_cache_from_closing(
    device: Device, call: Callable[[vmkv.Batch], object]
) -> None:
    """The traceback of an error refers to the frames it came through."""
    cache = Cache(device, SMALL, budget="64MiB")
    batch = cache.batch([cache.open()])
    batch.tokens[:] = 10**6
    with pytest.raises(vmkv.Error) as caught:
        call(batch)
    began = time.monotonic()
    cache.close()
    assert time.monotonic() - began < _handle.CLOSE_TIMEOUT_S / 2
    assert caught.value.__traceback__ is not None


def test_a_cache_that_nobody_refers_to_is_destroyed(device: Device) -> None:
    cache = Cache(device, SMALL, budget="64MiB")
    sequence = cache.open()
    step(cache, {sequence: 1000})
    assert device.info.mappings > 0
    del cache, sequence
    gc.collect()
    assert device.info.mappings == 0
    device.close()


def test_a_device_lives_as_long_as_its_caches(
    device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes = []

    class Library:
        def __getattr__(self, name: str) -> Any:
            return getattr(lib, name)

        def vmkv_device_close(self, pointer: Any) -> int:
            codes.append(lib.vmkv_device_close(pointer))
            return int(codes[-1])

    monkeypatch.setattr("vmkv.device.lib", Library())
    cache = Cache(vmkv.open(device_name), SMALL, budget="64MiB")
    gc.collect()
    sequence = cache.open()
    step(cache, {sequence: 100})
    assert codes == []
    del cache, sequence
    gc.collect()
    assert codes == [0]


def test_arrays_keep_their_cache(device: Device) -> None:
    cache = Cache(device, SMALL, budget="64MiB")
    sequence = cache.open()
    step(cache, {sequence: 100})
    rows, ready = sequence.span().numpy(), cache.ready_tokens
    part = rows[10:20, 3]
    rows[...] = 4
    del cache, sequence, rows
    gc.collect()
    assert (part == 4).all()
    assert ready[0] >= 100
    del ready
    gc.collect()
    assert device.info.mappings > 0
    del part
    gc.collect()
    assert device.info.mappings == 0


def test_a_span_cannot_be_made_where_the_cpu_has_no_access(device: Device) -> None:
    with Cache(device, SMALL, budget="64MiB") as cache:
        sequence = cache.open()
        step(cache, {sequence: 5})
        cache._cpu_addresses = False
        with pytest.raises(vmkv.UnreachableError, match="the CPU can't reach"):
            sequence.span().numpy()


def test_threads_on_one_cache(device: Device) -> None:
    """Each thread its own sequences: contents stay apart, nothing is lost, the books balance."""
    failures: list[BaseException] = []

    def work(number: int) -> None:
        try:
            random = np.random.default_rng(number)
            for turn in range(15):
                with cache.open(prefer="warm" if turn % 2 else "lowest") as sequence:
                    length = 0
                    while length < 900:
                        length = min(900, length + int(random.integers(1, 300)))
                        step(cache, {sequence: length})
                        rows = Rows(sequence.span(1, "v"))
                        assert not (rows.read() != 0).any(axis=(1, 2))[-1]
                        rows.write(number + 1)
                    assert (read(sequence.span(1, "v")) == number + 1).all()
                cache.retire(turn)
                cache.stats()
        except BaseException as error:
            failures.append(error)

    with (
        reaching(device),
        Cache(device, SMALL, budget="64MiB", max_slots=6, max_tokens=900) as cache,
    ):
        threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        stats = cache.stats()
        assert (stats.sequences, stats.mapped_bytes, stats.live_bytes) == (0, 0, 0)


def test_closing_while_other_threads_call(device: Device) -> None:
    """They are told that it is closed; none of them meets a cache that was destroyed."""
    for _ in range(20):
        cache = Cache(device, SMALL, budget="64MiB", max_slots=4, max_tokens=10**5, slot_count=8)
        ends: list[str] = []
        ready = threading.Barrier(5)

        def work(cache: Cache, ready: threading.Barrier, ends: list[str]) -> None:
            sequence = cache.open()
            batch = cache.batch([sequence])
            ready.wait()
            try:
                while True:
                    batch.tokens[0] = min(int(batch.tokens[0]) + 1, 900)
                    batch.step()
                    cache.stats()
            except vmkv.ClosedError as error:
                ends.append(str(error))

        threads = [threading.Thread(target=work, args=(cache, ready, ends)) for _ in range(4)]
        for thread in threads:
            thread.start()
        ready.wait()
        cache.close()
        for thread in threads:
            thread.join(timeout=60)
        assert ends == ["the cache is closed"] * 4
        assert device.info.mappings == 0


def test_closing_from_several_threads(device: Device) -> None:
    """Whoever comes back from close finds it destroyed."""
    cache = Cache(device, SMALL, budget="64MiB")
    step(cache, {cache.open(): 100})
    inside = cache._pointer  # what a call that is inside holds
    threads = [threading.Thread(target=cache.close) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.05)
    assert [thread.is_alive() for thread in threads] == [True] * 3
    assert cache.closed
    assert device.info.mappings > 0
    del inside
    for thread in threads:
        thread.join()
    assert device.info.mappings == 0


def test_close_gives_up_when_a_call_does_not_come_back(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_handle, "CLOSE_TIMEOUT_S", 0.02)
    cache = Cache(device, SMALL, budget="64MiB")
    inside = cache._pointer  # what a call that is inside holds
    with pytest.raises(vmkv.BusyError, match="a call is still at work on the cache") as caught:
        cache.close()
    assert not cache.closed
    assert cache.stats().sequences == 0
    del inside
    cache.close()
    assert cache.closed
    assert caught.value.__traceback__ is not None


def test_after_fork_the_child_lets_go(device: Device) -> None:
    with reaching(device), Cache(device, SMALL, budget="64MiB") as cache:
        sequence = cache.open()
        step(cache, {sequence: 100})
        write(sequence.span(), 6)
        child = os.fork()
        if not child:
            try:
                cache.stats()
            except vmkv.ClosedError:
                del cache, sequence
                gc.collect()
                os._exit(0)
            os._exit(1)
        assert os.waitpid(child, 0)[1] == 0
        assert (read(sequence.span()) == 6).all()
        step(cache, {sequence: 5000})


def test_leaving_without_closing_is_no_error(device_name: str, tmp_path: Path) -> None:
    program = (
        "import threading, vmkv\n"
        f"device = vmkv.open({device_name!r})\n"
        "cache = vmkv.Cache(device, vmkv.Geometry.full(2, 8, 128), budget='64MiB')\n"
        "sequence = cache.open()\n"
        "batch = cache.batch([sequence])\n"
        "rows = sequence.span().numpy() if device.info.cpu_addresses else None\n"
        "def work():\n"
        "    while True:\n"
        "        batch.step()\n"
        "threading.Thread(target=work, daemon=True).start()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_the_text_of_an_error_is_the_handles_own(device: Device) -> None:
    caches: list[Any] = [Cache(device, SMALL, budget="64MiB", max_tokens=n) for n in (100, 200)]
    for cache, limit in zip(caches, ("100", "200"), strict=True):
        with pytest.raises(vmkv.RangeError, match=limit):
            cache.step({cache.open(): 300})
    for cache in caches:
        cache.close()


def test_what_things_are_called(device: Device, device_name: str) -> None:
    assert repr(device) == f"<vmkv.Device {device_name!r}>"
    with Cache(device, SMALL, budget="64MiB") as cache:
        sequence = cache.open(slot=3)
        step(cache, {sequence: 32})
        assert repr(cache) == "<vmkv.Cache of 1 sequences, 256 KiB of 64 MiB mapped>"
        assert repr(sequence) == f"<vmkv.Sequence {sequence.id:#x} in slot 3>"
        span = sequence.span(1, "v")
        assert repr(span) == f"<vmkv.Span group 0 layer 1 tensor 1 of slot 3 at {span.address:#x}>"


def test_what_the_host_device_can_do() -> None:
    with vmkv.open("host") as device:
        info = device.info
        assert (info.cpu_addresses, info.zeroed_slabs, info.asynchronous) == (True, True, False)
        assert info.name == device.name == "host"
        assert info.lost == 0
        assert info.granule_bytes == 4096
