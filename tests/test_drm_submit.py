"""vmkv.drm: contexts, submissions and what the copy engine does with packets."""

import errno
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import vmkv
from drm_support import MIB, PAGE, Mapped, card, device, kernel, paused
from vmkv import drm
from vmkv._native import lib
from vmkv.drm import packets
from vmkv.emulator import Emulator

__all__ = ["card", "device", "kernel"]

MODELS = {"gfx942": (4, 4), "gfx1030": (5, 2), "gfx1100": (6, 0), "gfx1201": (7, 0)}


@pytest.fixture
def sdma(device: drm.Device) -> Iterator[drm.Sdma]:
    with drm.Sdma(device) as sdma:
        yield sdma


# ---- packets ------------------------------------------------------------------------------------


def test_packets_are_those_of_the_engines() -> None:
    to, source = 0x1_2345_6780, 0xFFFF_8000_0000_1000
    assert packets.nop(3) == [0, 0, 0]
    copied = [1, 0xFFF, 0, 0x1000, 0xFFFF8000, 0x23456780, 1]
    assert packets.copy(to, source, 4096, (7, 0)) == copied
    assert packets.fill(to, 64, 7, (6, 0)) == [0x8000000B, 0x23456780, 1, 7, 63]
    assert packets.write(to, b"abcdefgh") == [2, 0x23456780, 1, 1, 0x64636261, 0x68676665]
    assert packets.write(to, [5]) == [2, 0x23456780, 1, 0, 5]
    assert packets.fence(to, 9, (6, 0)) == [0x30005, 0x23456780, 1, 9]
    assert packets.fence(to, 9, (4, 0)) == [5, 0x23456780, 1, 9]


def test_packets_that_cant_be(device: drm.Device) -> None:
    assert packets.max_bytes((5, 0)) == 4 * MIB
    assert packets.max_bytes((5, 2)) == packets.max_bytes((7, 0)) == 1024 * MIB
    calls: tuple[Callable[[], object], ...] = (
        lambda: packets.copy(0, 0, 4 * MIB + 1, (4, 4)),
        lambda: packets.copy(0, 0, 0, (7, 0)),
        lambda: packets.fill(2, 4, 0, (7, 0)),
        lambda: packets.fill(0, 6, 0, (7, 0)),
        lambda: packets.write(0, b"abc"),
        lambda: packets.write(0, b""),
        lambda: packets.fence(2, 0, (7, 0)),
        lambda: packets.nop(-1),
    )
    for refused in calls:
        with pytest.raises(vmkv.InvalidError):
            refused()
    with pytest.raises(vmkv.RangeError):
        packets.fill(0, 4, 1 << 32, (7, 0))


@pytest.mark.parametrize(("model", "version"), MODELS.items())
def test_each_engine_copies_fills_and_writes(model: str, version: tuple[int, int]) -> None:
    spec = f"{model}?vram=256MiB&gtt=256MiB"
    with Emulator(spec) as card, card.device() as device, drm.Sdma(device, ring=1) as sdma:
        assert sdma.version == version
        with Mapped(device, 16 * MIB) as memory, Mapped(device, 16 * MIB, "gtt") as system:
            sdma.fill(memory.address, 16 * MIB, 0x01020304)
            sdma.write(memory.address + MIB, b"vmkv").nop(5)
            sdma.copy(system.address + 4, memory.address, 16 * MIB - 4)
            sdma.fence(system.address, 77)
            sdma.run(timeout=30)
            words = system.buffer.numpy(np.uint32)
            assert int(words[0]) == 77
            assert words[1 + MIB // 4].tobytes() == b"vmkv"
            assert int((words == 0x01020304).sum()) == 4 * MIB - 2
            del words
        assert card.stats().refused == 0
        assert card.stats().faults == 0


def test_packets_wait_for_room_and_submission(sdma: drm.Sdma, card: Emulator) -> None:
    before = card.stats().packets
    sdma.nop(7)
    assert card.stats().packets == before
    sdma.clear()
    sdma.run()
    sdma.nop(8).run()
    assert card.stats().packets == before + 16  # one and its padding, and these
    sdma.nop(sdma.ib_bytes // 4).run()
    with pytest.raises(vmkv.InvalidError, match=r"there is room for 16384"):
        sdma.nop(sdma.ib_bytes // 4 + 1).submit()
    assert sdma.dwords
    sdma.clear()
    with pytest.raises(vmkv.UnsupportedError, match="no SDMA ring 5"):
        drm.Sdma(sdma.device, ring=5)


def test_more_submissions_than_buffers(device: drm.Device, card: Emulator) -> None:
    with drm.Sdma(device, ib_bytes=PAGE, ibs=2) as sdma, Mapped(device, PAGE, "gtt") as memory:
        for number in range(20):
            sdma.write(memory.address + 4 * number, [number]).submit()
        sdma.run()
        assert memory.buffer.numpy(np.uint32)[:20].tolist() == list(range(20))


def test_an_sdma_that_cant_be_made_leaves_nothing(device: drm.Device, card: Emulator) -> None:
    before = card.stats()
    for ioctl in ("GEM_CREATE", "GEM_VA", "CTX", "GEM_MMAP"):
        card.fail(ioctl, errno.ENOMEM)
        with pytest.raises(vmkv.DeviceMemoryError) as caught:
            drm.Sdma(device)
        assert caught.value.errno == errno.ENOMEM
        after = card.stats()
        assert (after.handles, after.contexts) == (before.handles, before.contexts)
        del caught  # until here what it holds isn't collected
    device.close()


# ---- order --------------------------------------------------------------------------------------


def test_fences_are_reached_in_order(sdma: drm.Sdma, card: Emulator) -> None:
    with paused(card):
        fences = [sdma.submit() for _ in range(3)]
        numbers = [fence.number for fence in fences]
        assert numbers == sorted(set(numbers))
        assert not fences[0].is_done()
        with pytest.raises(vmkv.WaitTimeoutError, match=r"not reached in 0\.01 s") as caught:
            fences[1].wait(0.01)
        assert caught.value.errno == errno.ETIME
        with pytest.raises(vmkv.WaitTimeoutError):
            sdma.device.wait_fences(fences, 0)
    assert sdma.device.wait_fences(fences, 10) == 0
    assert sdma.device.wait_fences(fences[2:], 10, every=False) == 0
    assert all(fence.is_done() for fence in fences)
    with pytest.raises(vmkv.InvalidError, match="no fence"):
        sdma.device.wait_fences([])


def test_submissions_wait_and_signal(device: drm.Device, sdma: drm.Sdma) -> None:
    with (
        drm.Sdma(device, ring=1) as other,
        device.syncobj() as gate,
        device.syncobj() as line,
        device.syncobj() as done,
        Mapped(device, PAGE, "gtt") as memory,
    ):
        gate.signal(1)
        line.signal(5)
        first = sdma.write(memory.address, [1]).submit(
            waits=[(gate, 1), (line, 5)], signals=[done, (line, 6)]
        )
        second = other.write(memory.address, [2]).submit(
            waits=[first, done], signals=[(line, 7), (gate, 2)]
        )
        line.wait(7, 10)
        assert second.is_done()
        assert memory.buffer.numpy(np.uint32)[0] == 2
        assert (line.query(), gate.query()) == (7, 2)


def test_any_of_several_fences(device: drm.Device, sdma: drm.Sdma, card: Emulator) -> None:
    done = sdma.submit()
    done.wait(10)
    with paused(card):
        under_way = sdma.submit()
        assert device.wait_fences([under_way, done], 10, every=False) == 1
        assert device.wait_fences([done, under_way], 10, every=False) == 0


@pytest.mark.parametrize("kind", ["fence", "binary", "point"])
def test_what_is_waited_for_has_to_be_submitted(
    device: drm.Device, sdma: drm.Sdma, kind: str
) -> None:
    with device.syncobj() as empty, device.syncobj() as line:
        sdma.submit(waits=[sdma.submit()], signals=[(line, 1)]).wait(10)
        waits: dict[str, drm.Fence | drm.Syncobj | tuple[drm.Syncobj, int]] = {
            "fence": drm.Fence(sdma.context, "dma", 0, 1000),
            "binary": empty,
            "point": (line, 2),
        }
        with pytest.raises(vmkv.DeviceError, match="submit") as caught:
            sdma.submit(waits=[waits[kind]])
        assert caught.value.errno == errno.EINVAL
        sdma.clear()


def test_a_fence_as_descriptor(device: drm.Device, sdma: drm.Sdma, card: Emulator) -> None:
    with device.syncobj() as two:
        with paused(card):
            fence = sdma.submit()
            file, descriptor = fence.export_sync_file(), fence.export_syncobj()
            two.import_sync_file(file)
            with device.import_syncobj(descriptor) as one:
                assert not one.is_signaled()
                assert not two.is_signaled()
        with device.import_syncobj(descriptor) as one:
            device.wait_syncobjs([one, two], 10)
    os.close(file)
    os.close(descriptor)
    assert repr(fence) == f"<vmkv.drm.Fence {fence.number} on dma ring 0>"


def test_a_user_fence_is_written(device: drm.Device, sdma: drm.Sdma) -> None:
    with device.alloc(PAGE, "gtt") as page, Mapped(device, PAGE, "gtt") as ib:
        fence = sdma.context.submit([(ib.address, 32)], user_fence=(page, 64))
        fence.wait(10)
        page.wait_idle()
        assert int(page.numpy(np.uint64)[8]) == fence.number


# ---- refusals -----------------------------------------------------------------------------------


def test_buffers_that_arent_always_valid_are_listed(device: drm.Device, sdma: drm.Sdma) -> None:
    with Mapped(device, MIB, "gtt", always_valid=False) as memory:
        sdma.fill(memory.address, MIB, 1).run(buffers=[memory.buffer])
        with device.buffer_list([memory.buffer]) as listed:
            sdma.fill(memory.address + 4, 4, 2).run(buffers=listed)
        assert memory.buffer.numpy(np.uint32)[:3].tolist() == [1, 2, 1]


def test_submissions_that_are_refused(device: drm.Device, card: Emulator) -> None:
    with device.context("low") as context, Mapped(device, PAGE, "gtt") as ib:
        for ip, ring in (("dma", 7), ("uvd", 0)):
            with pytest.raises(vmkv.DeviceError, match=f"to {ip} ring {ring}") as caught:
                context.submit([(ib.address, 32)], ip=ip, ring=ring)
            assert caught.value.errno == errno.EINVAL
        with pytest.raises(vmkv.InvalidError, match="engine 'sdma' is none of gfx, compute, dma"):
            context.submit([(ib.address, 32)], ip="sdma")
        card.fail("CS", errno.ENOMEM)
        with pytest.raises(vmkv.DeviceMemoryError, match="submit 1 indirect buffers"):
            context.submit([(ib.address, 32)])
        context.submit([(ib.address, 32)]).wait(10)
        with pytest.raises(vmkv.DeviceError):
            context.submit([])


def test_a_fault_is_told(device: drm.Device, card: Emulator) -> None:
    kernel_tells = device.minor >= 55
    with drm.Sdma(device) as sdma, Mapped(device, PAGE) as memory:
        assert not sdma.context.state.guilty
        assert device.gpuvm_fault is None
        with pytest.raises(vmkv.DeviceError, match=r"wait for <.*ECANCELED") as caught:
            sdma.fill(memory.address + PAGE, 4, 1).run()
        assert caught.value.errno == errno.ECANCELED
        state = sdma.context.state
        assert state.guilty
        assert state.reset
        assert not state.vram_lost
        assert card.stats().faults == 1
        fault = device.gpuvm_fault
        assert (fault is not None) == kernel_tells
        if fault is not None:
            assert fault.address == memory.address + PAGE
            assert fault.status
        with pytest.raises(vmkv.DeviceError, match="submit") as caught:
            sdma.submit()
        assert caught.value.errno == errno.ECANCELED


def test_a_context_has_its_priority(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    with Emulator(f"gfx1201?vram=256MiB&trace={trace}") as card, card.device() as device:
        for priority in ("unset", "very_low", "normal", -512):
            device.context(priority).close()
    lines = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    calls = [line["args"] for line in lines if line["ioctl"] == "CTX"]
    made = [call["priority"] for call in calls if call["op"] == lib.AMDGPU_CTX_OP_ALLOC_CTX]
    assert made == [-2048, -1023, 0, -512]


def test_contexts(device: drm.Device, card: Emulator) -> None:
    for priority in ("unset", "very_low", "normal", -512):
        with device.context(priority):
            assert card.stats().contexts == 1
    card.fail("CTX", errno.EACCES)
    with pytest.raises(vmkv.DeviceError, match="priority very_high") as caught:
        device.context("very_high")
    assert caught.value.errno == errno.EACCES
    with device.context() as context:
        card.fail("CTX", errno.EIO)
        with pytest.raises(vmkv.DeviceError, match="state of a context"):
            _ = context.state
    fence = None
    with drm.Sdma(device) as sdma:
        fence = sdma.submit()
    with pytest.raises(vmkv.ClosedError, match="a context is closed"):
        fence.wait()
