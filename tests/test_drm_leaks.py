"""vmkv.drm: that nothing is left behind, whether calls work or not."""

import contextlib
import errno
import gc
import os
import random
from collections.abc import Iterator

import pytest

import vmkv
from drm_support import KERNELS, MIB, PAGE, emulated
from support import descriptors
from vmkv import drm
from vmkv.emulator import Emulator, Stats

# Each calls libdrm some twenty times.
ROUNDS = int(os.environ.get("VMKV_TEST_LEAK_ROUNDS", "6000"))

KEPT = ("files", "buffers", "handles", "mappings", "contexts", "buffer_lists", "syncobjs")


def existing(stats: Stats) -> dict[str, int]:
    return {name: getattr(stats, name) for name in KEPT} | {"vram": stats.vram_used_bytes}


@contextlib.contextmanager
def closed_at_end(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def round_trip(device: drm.Device, sdma: drm.Sdma) -> None:
    """Make one of each, use it, and give it back."""
    with (
        device.alloc(16 * PAGE, "gtt") as buffer,
        device.va_alloc(16 * PAGE) as span,
        device.syncobj() as syncobj,
        device.buffer_list([buffer]) as listed,
        device.context() as context,
    ):
        device.map(buffer, span.address, flags="read|write|delay")
        buffer.cpu_map()[0] = 1
        fence = sdma.fill(span.address, PAGE, 7).submit(signals=[syncobj], buffers=listed)
        syncobj.wait()
        assert fence.is_done()
        assert not context.state.reset
        with closed_at_end(syncobj.export()) as fd:
            device.import_syncobj(fd).close()
        with closed_at_end(buffer.export_dmabuf()) as fd:
            device.import_dmabuf(fd).close()
        device.clear(span.address, span.size)


@pytest.mark.parametrize("kernel", KERNELS)
def test_nothing_is_left_of_many_rounds(kernel: str) -> None:
    for card in emulated(kernel):
        with card.device() as device, drm.Sdma(device) as sdma:
            round_trip(device, sdma)
            gc.collect()
            before, files = existing(card.stats()), descriptors()
            for _ in range(ROUNDS // len(KERNELS)):
                round_trip(device, sdma)
            gc.collect()
            assert existing(card.stats()) == before
            assert descriptors() == files
        assert existing(card.stats()) == dict.fromkeys([*KEPT, "vram"], 0)


IOCTLS = (
    "GEM_CREATE", "GEM_VA", "GEM_MMAP", "SYNCOBJ_CREATE", "BO_LIST", "CTX", "CS",
    "PRIME_HANDLE_TO_FD", "PRIME_FD_TO_HANDLE", "SYNCOBJ_HANDLE_TO_FD", "SYNCOBJ_FD_TO_HANDLE",
)  # fmt: skip


def test_nothing_is_left_of_rounds_that_fail(seed: int) -> None:
    rng = random.Random(seed)
    for card in emulated("6.12"):
        with card.device() as device, drm.Sdma(device) as sdma:
            round_trip(device, sdma)
            before, files = existing(card.stats()), descriptors()
            failed = 0
            for _ in range(ROUNDS // 4):
                failed += fails(card, device, sdma, rng.choice(IOCTLS))
            gc.collect()
            assert failed == ROUNDS // 4
            assert existing(card.stats()) == before
            assert descriptors() == files


def fails(card: Emulator, device: drm.Device, sdma: drm.Sdma, ioctl: str) -> bool:
    """Whether a round in which an ioctl fails raises that, with its errno."""
    card.fail(ioctl, errno.EIO)
    try:
        round_trip(device, sdma)
    except vmkv.DeviceError as error:
        sdma.clear()
        return error.errno == errno.EIO
    return False


def test_devices_come_and_go() -> None:
    for card in emulated("6.12"):
        with card.device() as device:
            device.alloc(MIB).close()
        files = descriptors()
        for _ in range(50):
            with card.device() as device:
                device.alloc(MIB).close()
        assert descriptors() == files
        assert card.stats().files == 0
