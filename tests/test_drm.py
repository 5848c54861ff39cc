"""vmkv.drm: devices, how they are found, shared and adopted, and what they tell."""

import errno
import gc
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vmkv
from drm_support import MIB, MINORS, card, device, has_private_devices, info_number, kernel
from support import descriptors
from vmkv import drm
from vmkv.drm import device as device_module
from vmkv.drm._base import libdrm
from vmkv.emulator import Emulator

__all__ = ["card", "device", "kernel"]


# ---- opening ------------------------------------------------------------------------------------


def test_a_device_tells_its_driver(device: drm.Device, kernel: str) -> None:
    assert device.driver.name == "amdgpu"
    assert (device.driver.major, device.driver.minor) == (3, MINORS[kernel])
    assert (device.major, device.minor) == (3, MINORS[kernel])
    assert f"DRM 3.{MINORS[kernel]}" in repr(device)
    assert device.name


def test_what_isnt_a_node_of_amdgpu_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(vmkv.DeviceNotFoundError, match=r"there is no .*renderD128"):
        drm.Device.open(tmp_path / "renderD128")
    with pytest.raises(vmkv.DeviceNotFoundError, match="/dev/null is no DRM device") as caught:
        drm.Device.open("/dev/null")
    assert caught.value.errno == errno.ENODEV
    with open(os.devnull) as file, pytest.raises(vmkv.DeviceNotFoundError, match="descriptor"):
        drm.Device.open(file.fileno())


def test_a_path_is_opened_and_closed(card: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = card.open()
    opened: list[int] = []

    def open_node(path: str, flags: int) -> int:
        assert (path, flags) == ("/dev/dri/renderD128", os.O_RDWR | os.O_CLOEXEC)
        opened.append(os.dup(fd))
        return opened[-1]

    before = descriptors()
    monkeypatch.setattr(os, "open", open_node)
    with drm.Device.open("/dev/dri/renderD128") as device:
        assert device.fd not in (fd, *opened)
    assert len(opened) == 1
    assert descriptors() == before
    card.close_file(fd)


def test_a_node_of_another_driver(card: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    fd = card.open()
    other = drm.Driver("i915", 1, 6, 0, "", "")
    monkeypatch.setattr(device_module, "driver_of", lambda _: other)
    with pytest.raises(vmkv.DeviceNotFoundError, match="is of the driver 'i915', not one of am"):
        drm.Device.open(fd)
    card.close_file(fd)


def test_a_node_of_others_names_its_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = tmp_path / "renderD128"
    node.touch()
    node.chmod(0o660)

    def refuse(path: str, flags: int) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(vmkv.DeviceError, match=r"for the group .*-rw-rw----") as caught:
        drm.Device.open(str(node))
    assert caught.value.errno == errno.EACCES


def test_render_nodes_come_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_module, "_NODES", tmp_path)
    assert drm.render_nodes() == []
    for name in ("renderD1000", "renderD128", "renderD129", "card0", "by-path"):
        (tmp_path / name).touch()
    numbers = [path.rpartition("renderD")[2] for path in drm.render_nodes()]
    assert numbers == ["128", "129", "1000"]
    with pytest.raises(vmkv.DeviceNotFoundError, match="no render node of amdgpu"):
        drm.Device.open()
    monkeypatch.setattr(device_module, "_NODES", tmp_path / "none")
    assert drm.render_nodes() == []


def test_a_process_has_one_device_for_a_card(card: Emulator) -> None:
    with card.device() as one, card.device() as two:
        assert one.address == two.address
        with Emulator("gfx1100?vram=256MiB") as other, other.device() as third:
            assert third.address != one.address
            assert third.card.device_id != one.card.device_id


def test_a_private_device_has_an_address_space_of_its_own(card: Emulator) -> None:
    if not has_private_devices():
        with (
            pytest.raises(vmkv.UnsupportedError, match=r"2\.4\.121") as caught,
            card.device(private=True),
        ):
            pass
        assert caught.value.errno == errno.ENOSYS
        return
    with card.device() as one, card.device(private=True) as two:
        assert one.address != two.address
        with one.alloc(MIB) as here, two.alloc(MIB) as there:
            one.map(here, 1 << 32)
            two.map(there, 1 << 32)


def test_initializing_can_fail(card: Emulator) -> None:
    fd = card.open()
    for nth in (1, 2, 3):
        card.fail("INFO", errno.EIO, nth)
        with pytest.raises(vmkv.DeviceError, match=f"initialize descriptor {fd}: "):
            drm.Device.open(fd)
    drm.Device.open(fd).close()
    card.close_file(fd)


# ---- adopting -----------------------------------------------------------------------------------


def test_an_adopted_device_is_the_same_and_stays_its_owners(device: drm.Device) -> None:
    with drm.Device.adopt(device.address) as adopted:
        assert adopted.address == device.address
        assert adopted.fd == device.fd
        assert (adopted.major, adopted.minor) == (device.major, device.minor)
        with adopted.alloc(MIB) as buffer:
            device.map(buffer, 1 << 32)
    assert adopted.closed
    assert device.memory.vram.total == 256 * MIB


def test_no_device_lies_at_address_0() -> None:
    with pytest.raises(vmkv.InvalidError):
        drm.Device.adopt(0)
    with pytest.raises(vmkv.InvalidError):
        drm.Device.adopt(-1)


ANOTHER_COPY = """
import ctypes, errno, sys
import vmkv
from vmkv import drm
from vmkv.emulator import Emulator

drm.driver_of(0)  # loads libdrm; the other way round the copy would be taken for it
copy = ctypes.CDLL(sys.argv[1])
with Emulator("gfx1201?vram=256MiB") as card:
    fd = card.open()
    major, minor = ctypes.c_uint32(), ctypes.c_uint32()
    handle = ctypes.c_void_p()
    refs = [ctypes.byref(value) for value in (major, minor, handle)]
    assert copy.amdgpu_device_initialize(fd, *refs) == 0
    with drm.Device.open(fd) as device:
        assert device.address != handle.value
        drm.Device.adopt(device.address).close()
        try:
            drm.Device.adopt(handle.value)
        except vmkv.UnsupportedError as error:
            print(errno.errorcode[error.errno], error)
"""


def test_a_device_of_another_copy_of_libdrm_is_refused(tmp_path: Path) -> None:
    libdrm()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    loaded = {line.split()[-1] for line in maps if "libdrm_amdgpu.so" in line}
    assert len(loaded) == 1
    copy = tmp_path / "libdrm_amdgpu-bundled.so"
    copy.write_bytes(Path(loaded.pop()).read_bytes())
    command = [sys.executable, "-c", ANOTHER_COPY, str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("EXDEV")
    assert "another copy of libdrm_amdgpu" in done.stdout


# ---- closing ------------------------------------------------------------------------------------


def test_a_device_with_parts_stays_open(device: drm.Device) -> None:
    buffer, syncobj = device.alloc(MIB), device.syncobj()
    with pytest.raises(vmkv.BusyError, match="2 things of the device are open: a buffer, a sync"):
        device.close()
    assert not device.closed
    buffer.close()
    syncobj.close()
    syncobj.close()
    device.close()
    device.close()
    assert device.closed


def test_what_is_collected_is_given_back(device: drm.Device, card: Emulator) -> None:
    before = card.stats()
    device.alloc(MIB)
    device.syncobj()
    device.context()
    device.va_alloc(MIB, at=1 << 33)
    gc.collect()
    after = card.stats()
    assert (after.handles, after.syncobjs, after.contexts) == (
        before.handles,
        before.syncobjs,
        before.contexts,
    )
    device.va_alloc(MIB, at=1 << 33).close()


def test_what_is_closed_says_so(card: Emulator) -> None:
    with card.device() as device:
        buffer, syncobj, context = device.alloc(MIB), device.syncobj(), device.context()
        for part in (buffer, syncobj, context):
            part.close()
        with pytest.raises(vmkv.ClosedError, match="a buffer is closed"):
            buffer.cpu_map()
        with pytest.raises(vmkv.ClosedError, match="a buffer is closed"):
            device.map(buffer, 1 << 32)
        with pytest.raises(vmkv.ClosedError, match="a syncobj is closed"):
            syncobj.signal()
        with pytest.raises(vmkv.ClosedError, match="a context is closed"):
            context.submit([(1 << 32, 32)])
    with pytest.raises(vmkv.ClosedError, match="the DRM device is closed"):
        device.alloc(MIB)
    with pytest.raises(vmkv.ClosedError):
        _ = device.memory
    assert repr(device) == "<vmkv.drm.Device closed>"


def test_an_error_in_the_block_is_what_is_heard_of(card: Emulator) -> None:
    fd = card.open()
    device = drm.Device.open(fd)
    buffer = device.alloc(MIB)
    with pytest.raises(KeyError), device:
        raise KeyError
    assert not device.closed
    buffer.close()
    device.close()
    card.close_file(fd)


# ---- what it tells ------------------------------------------------------------------------------


def test_the_card_tells_what_it_is(device: drm.Device, kernel: str) -> None:
    card = device.card
    assert (card.family, card.wave_front_size, card.pte_fragment_size) == (152, 32, 2 * MIB)
    assert card.virtual_address_alignment == card.gart_page_size == 4096
    assert card.virtual_address_max == 1 << 47
    assert card.high_va_max == (0xFFFF_FFFF_FFE0_0000 if kernel == "6.1" else 0xFFFF_FFFF_FFBF_0000)
    assert (card.mall_size != 0) == (kernel != "6.1")


def test_memory_is_counted(device: drm.Device) -> None:
    before = device.memory
    assert before.vram.total == before.gtt.total == 256 * MIB
    assert before.vram.max_allocation == before.vram.usable * 3 // 4
    with device.alloc(32 * MIB), device.alloc(16 * MIB, "gtt"):
        after = device.memory
        assert after.vram.used - before.vram.used == 32 * MIB
        assert after.gtt.used - before.gtt.used == 16 * MIB
        assert device.counter("vram_usage") == after.vram.used
        assert device.counter("gtt_usage") == after.gtt.used
        size, used, longest = device.heap("gtt")
        assert used == after.gtt.used
        assert longest <= size
        assert device.heap("vram", visible=True)[0] > 0
    for _ in range(1000):  # newer kernels wipe it first
        if device.memory == before:
            break
        time.sleep(0.01)
    assert device.memory == before


@pytest.mark.parametrize("name", drm.COUNTERS)
def test_every_counter_answers(device: drm.Device, name: str) -> None:
    assert device.counter(name) >= 0


def test_engines(device: drm.Device, kernel: str) -> None:
    dma, gfx = device.hw_ip("dma"), device.hw_ip("gfx")
    assert dma is not None
    assert gfx is not None
    assert (dma.name, dma.version_major, dma.ring_count) == ("dma", 7, 2)
    assert gfx.version_major == 12
    assert dma.ib_start_alignment == 256
    assert device.hw_ip("uvd") is None
    assert device.hw_ip("vpe") is None


def test_registers_and_raw_queries(device: drm.Device) -> None:
    assert device.registers(0x263E) == [0x08200545]
    size = device.query(info_number("DEV_INFO"), 4)
    assert int.from_bytes(size, "little") == device.card.device_id
    assert device.vram_lost_counter == 0
    with pytest.raises(vmkv.DeviceError, match=r"INFO query 0xff: .*\(EINVAL\)") as caught:
        device.query(0xFF, 8)
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(vmkv.DeviceError, match="read 1 registers from 0x1 on"):
        device.registers(1)


def test_unknown_names_are_refused(device: drm.Device) -> None:
    for refused in (
        lambda: device.counter("temper"),
        lambda: device.hw_ip("sdma"),
        lambda: device.heap("cpu"),
        lambda: device.alloc(1, "ram"),
        lambda: device.context("urgent"),
    ):
        with pytest.raises(vmkv.InvalidError, match="is none of"):
            refused()


def test_a_vmid_can_be_kept(device: drm.Device, card: Emulator) -> None:
    before = card.count("VM")
    device.reserve_vmid()
    device.unreserve_vmid()
    assert card.count("VM") == before + 2


def test_a_refused_query_says_which(device: drm.Device, card: Emulator) -> None:
    card.fail("INFO", errno.EIO)
    with pytest.raises(vmkv.DeviceError, match=r"INFO MEMORY: Input/output error \(EIO\)"):
        _ = device.memory
    card.fail("INFO", errno.ENODEV)
    with pytest.raises(vmkv.DeviceLostError):
        _ = device.card
    card.fail("VM", errno.EINVAL)
    with pytest.raises(vmkv.DeviceError, match="reserve a VMID"):
        device.reserve_vmid()


def test_an_interrupt_keeps_no_device_open(
    device: drm.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even while its traceback is at hand, which holds on to what the calls in it had."""

    def interrupted(of: object, ret: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("vmkv._handle.CLOSE_TIMEOUT_S", 0.0)
    part = drm.Syncobj(device)
    with pytest.raises(KeyboardInterrupt) as raised:
        part._make("struct vmkv_drm_id", "make it", interrupted)
    assert raised.tb is not None
    device.close()
    assert device.closed
