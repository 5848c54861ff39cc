"""Memory that the CPU can't reach, read and written through copies of the device's own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import vmkv
from hardware_support import CARDS
from support import needs_libdrm, step
from vmkv import Cache, Device, Geometry
from vmkv._native import lib
from vmkv._values import new_struct
from vmkv.staging import StagedRows, Staging

pytestmark = needs_libdrm

MIB = 1 << 20
SMALL = Geometry.full(layers=2, heads=8, head_dim=128)


@pytest.fixture(params=CARDS)
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    with vmkv.open(str(request.param)) as device:
        yield device


def test_what_is_written_is_read(device: Device) -> None:
    """Also more than its buffer holds at once, more pieces than it remembers, and odd ones."""
    data = np.random.default_rng(1).integers(0, 256, 9 * MIB, np.uint8)
    with Cache(device, SMALL, budget="64MiB") as cache, Staging(device) as staging:
        sequence = cache.open()
        step(cache, {sequence: 5000})
        base = sequence.span().address
        staging.write(base, data)
        assert (staging.read(base, len(data)) == data).all()
        for number in range(100):
            at = 4099 * number + 1
            data[at : at + 77] = number
            staging.write(base + at, data[at : at + 77])
        staging.flush()
        for number in range(100):
            assert (staging.read(base + 4099 * number + 1, 77) == number).all()
        assert (staging.read(base, len(data)) == data).all()


def emulator_of(device: Device) -> Any:
    info = new_struct("vmkv_amdgpu_info")
    assert lib.vmkv_amdgpu_info(device._pointer, info) == 0
    return lib.vmkv_emulator_of(info.drm_fd)


def test_pieces_on_their_way_stay_as_they_are(device: Device) -> None:
    """The card does nothing until all of them are given to it."""
    with Cache(device, SMALL, budget="64MiB") as cache, Staging(device) as staging:
        sequence = cache.open()
        step(cache, {sequence: 100})
        base = sequence.span().address
        lib.vmkv_emulator_pause(emulator_of(device))
        try:
            for number in range(10):
                staging.write(base + 100 * number, np.full(100, number, np.uint8))
        finally:
            lib.vmkv_emulator_resume(emulator_of(device))
        held = staging.read(base, 1000).reshape(10, 100)
        assert (held == np.arange(10)[:, None]).all()


def test_an_error_among_many_pieces_is_told(device: Device) -> None:
    with Cache(device, SMALL, budget="64MiB") as cache, Staging(device) as staging:
        sequence = cache.open()
        step(cache, {sequence: 100})
        base = sequence.span().address

        def write_many() -> None:
            staging.write(base + 32 * MIB, np.ones(100, np.uint8))
            for number in range(200):
                staging.write(base + number, np.ones(1, np.uint8))
            staging.flush()

        with pytest.raises(vmkv.AddressError):
            write_many()


def test_an_address_without_memory_is_told(device: Device) -> None:
    with Cache(device, SMALL, budget="64MiB") as cache, Staging(device) as staging:
        sequence = cache.open()
        step(cache, {sequence: 100})
        past = sequence.span().address + 64 * MIB // 2
        with pytest.raises(vmkv.AddressError):
            staging.read(past, 100)
        staging.write(past, np.ones(100, np.uint8))
        with pytest.raises(vmkv.AddressError):
            staging.flush()
        staging.flush()
        with pytest.raises(vmkv.RangeError, match="tokens 0 to 4000 have no memory"):
            StagedRows(staging, sequence.span(), 0, 4000)


def test_it_gives_back_what_it_took(device: Device) -> None:
    counts = []
    for _ in range(3):
        with Staging(device) as staging:
            staging.close()
        stats = new_struct("vmkv_emulator_stats")
        assert lib.vmkv_emulator_stats(emulator_of(device), stats) == 0
        counts.append((stats.handles, stats.mappings))
    assert counts[1:] == counts[:-1]


def test_another_device_has_none() -> None:
    with (
        vmkv.open("host") as device,
        pytest.raises(vmkv.UnreachableError, match="memory of device host, nor can copies"),
    ):
        Staging(device)
