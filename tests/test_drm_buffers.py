"""vmkv.drm: buffers, and lists of them."""

import errno
import gc
import os

import numpy as np
import pytest

import vmkv
from drm_support import MIB, PAGE, Mapped, card, device, has_private_devices, kernel, paused
from vmkv import drm
from vmkv._native import lib
from vmkv.emulator import Emulator

__all__ = ["card", "device", "kernel"]


def test_a_buffer_tells_what_it_was_made_of(device: drm.Device) -> None:
    with device.alloc(
        3 * MIB, "vram|gtt", alignment=2 * MIB, cpu_access=True, explicit_sync=True
    ) as buffer:
        assert buffer.size == 3 * MIB
        assert buffer.pages == 768
        assert buffer.domain == {"vram", "gtt"}
        assert buffer.flags & lib.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED
        assert buffer.flags & lib.AMDGPU_GEM_CREATE_EXPLICIT_SYNC
        assert not buffer.flags & lib.AMDGPU_GEM_CREATE_VM_ALWAYS_VALID
        assert buffer.alignment == 2 * MIB
        assert repr(buffer) == f"<vmkv.drm.Buffer of {3 * MIB} bytes>"
    assert repr(buffer) == "<vmkv.drm.Buffer closed>"


def test_domains_are_names_or_lists_of_them(device: drm.Device) -> None:
    with device.alloc(PAGE, ("gtt",)) as buffer, device.alloc(PAGE, "vram|gtt") as both:
        assert buffer.domain == {"gtt"}
        assert both.domain == {"vram", "gtt"}


@pytest.mark.parametrize(
    ("size", "domain", "flags", "code"),
    [
        (MIB, "vram", "VRAM_CONTIGUOUS", errno.EINVAL),
        (MIB, "gds|vram", None, errno.EINVAL),
        (10**12, "vram", None, errno.ENOMEM),
        (256 * MIB, "gtt", None, errno.ENOMEM),
    ],
)
def test_refused_allocations(
    device: drm.Device, card: Emulator, size: int, domain: str, flags: str | None, code: int
) -> None:
    bits = getattr(lib, f"AMDGPU_GEM_CREATE_{flags}") if flags else 0
    with pytest.raises(vmkv.DeviceError, match=f"allocate {size} bytes") as caught:
        device.alloc(size, domain, flags=bits)
    assert caught.value.errno == code
    assert isinstance(caught.value, MemoryError) == (code == errno.ENOMEM)
    assert card.stats().handles == 0


def test_a_kernel_that_refuses_is_quoted(device: drm.Device, card: Emulator) -> None:
    card.fail("GEM_CREATE", errno.EIO)
    with pytest.raises(vmkv.DeviceError, match=r"allocate 4096 bytes of vram: .* \(EIO\)"):
        device.alloc(PAGE)
    card.fail("GEM_CREATE", errno.ENOMEM, 2)
    with device.alloc(PAGE), pytest.raises(vmkv.DeviceMemoryError):
        device.alloc(PAGE)


def test_the_cpu_sees_the_memory(device: drm.Device) -> None:
    with device.alloc(2 * PAGE, "gtt") as buffer:
        view = buffer.cpu_map()
        assert len(view) == 2 * PAGE
        assert not any(view)
        view[:4] = b"vmkv"
        words = buffer.numpy(np.uint32)
        assert words.shape == (PAGE // 2,)
        assert int(words[0]) == int.from_bytes(b"vmkv", "little")
        words[1] = 7
        assert view[4] == 7
        del view, words


def test_a_buffer_in_view_stays(device: drm.Device) -> None:
    buffer = device.alloc(PAGE, "gtt")
    one, two = buffer.cpu_map(), buffer.numpy()[10:20]
    with pytest.raises(vmkv.BusyError, match="2 views"):
        buffer.close()
    one.release()
    del one
    with pytest.raises(vmkv.BusyError, match="1 views"):
        buffer.close()
    two[:] = 1
    del two
    buffer.close()


def test_a_view_outlives_the_name_of_its_buffer(device: drm.Device, card: Emulator) -> None:
    view = device.alloc(PAGE, "gtt").cpu_map()
    gc.collect()
    view[0] = 1
    assert card.stats().handles == 1
    with pytest.raises(vmkv.BusyError):
        device.close()
    del view
    gc.collect()
    assert card.stats().handles == 0


def test_memory_that_the_cpu_never_reaches(device: drm.Device, card: Emulator) -> None:
    with device.alloc(PAGE, cpu_access=False) as buffer:
        with pytest.raises(vmkv.DeviceError, match="for the CPU") as caught:
            buffer.cpu_map()
        assert caught.value.errno == errno.EPERM
    with device.alloc(PAGE, "gtt") as buffer:
        card.fail("GEM_MMAP", errno.EIO)
        with pytest.raises(vmkv.DeviceError, match="for the CPU") as caught:
            buffer.cpu_map()
        assert caught.value.errno == errno.EIO


def test_metadata(device: drm.Device, card: Emulator) -> None:
    with device.alloc(PAGE) as buffer:
        assert buffer.metadata == b""
        buffer.metadata = b"a note"
        assert buffer.metadata == b"a note"
        buffer.set_metadata(bytes(range(256)), tiling=5)
        assert buffer.metadata == bytes(range(256))
        with pytest.raises(vmkv.InvalidError, match="257 bytes"):
            buffer.metadata = bytes(257)
        card.fail("GEM_METADATA", errno.EIO)
        with pytest.raises(vmkv.DeviceError, match="set the metadata"):
            buffer.metadata = b""
        card.fail("GEM_METADATA", errno.EIO)
        with pytest.raises(vmkv.DeviceError, match="query"):
            _ = buffer.flags


def test_a_buffer_is_idle_when_its_jobs_are_done(device: drm.Device, card: Emulator) -> None:
    with drm.Sdma(device) as sdma, Mapped(device, MIB, always_valid=False) as memory:
        memory.buffer.wait_idle()
        with paused(card):
            fence = sdma.fill(memory.address, MIB, 1).submit(buffers=[memory.buffer])
            assert not memory.buffer.is_idle()
            with pytest.raises(vmkv.WaitTimeoutError, match=r"in use after 0\.01 s"):
                memory.buffer.wait_idle(0.01)
        memory.buffer.wait_idle()
        assert fence.is_done()


def test_dmabufs(device: drm.Device, card: Emulator) -> None:
    with device.alloc(2 * MIB, "gtt") as buffer:
        fd = buffer.export_dmabuf()
        try:
            with device.import_dmabuf(fd) as again:
                assert again.size == 2 * MIB
                assert again.handle == buffer.handle
                again.numpy()[5] = 9
                assert buffer.numpy()[5] == 9
                gc.collect()
        finally:
            os.close(fd)
        assert card.stats().buffers >= 1
        card.fail("PRIME_HANDLE_TO_FD", errno.EMFILE)
        with pytest.raises(vmkv.DeviceError, match="export a buffer") as caught:
            buffer.export_dmabuf()
        assert caught.value.errno == errno.EMFILE


def test_a_dmabuf_crosses_address_spaces(device: drm.Device, card: Emulator) -> None:
    if not has_private_devices():
        pytest.skip("needs amdgpu_device_initialize2 (libdrm 2.4.121)")
    with card.device(private=True) as other, device.alloc(PAGE, "gtt") as buffer:
        fd = buffer.export_dmabuf()
        with other.import_dmabuf(fd) as there:
            buffer.numpy()[0] = 3
            assert there.numpy()[0] == 3
            gc.collect()
        os.close(fd)


def test_what_cant_be_shared(device: drm.Device) -> None:
    with device.alloc(PAGE, always_valid=True) as buffer:
        with pytest.raises(vmkv.DeviceError, match="export") as caught:
            buffer.export_dmabuf()
        assert caught.value.errno == errno.EPERM
    with open(os.devnull) as file, pytest.raises(vmkv.DeviceError, match="import the dma-buf"):
        device.import_dmabuf(file.fileno())


def test_lists(device: drm.Device, card: Emulator) -> None:
    with device.alloc(PAGE) as one, device.alloc(PAGE) as two:
        with device.buffer_list([one, two], [0, 5]) as both, device.buffer_list([]) as none:
            assert both.id != none.id
            assert card.stats().buffer_lists == 2
        assert card.stats().buffer_lists == 0
        with pytest.raises(vmkv.InvalidError, match="1 priorities for 2 buffers"):
            device.buffer_list([one, two], [1])
        card.fail("BO_LIST", errno.ENOMEM)
        with pytest.raises(vmkv.DeviceMemoryError, match="make a list of 1 buffers"):
            device.buffer_list([one])
    assert card.stats().buffer_lists == 0
