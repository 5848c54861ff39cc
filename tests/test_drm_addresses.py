"""vmkv.drm: ranges of addresses, and GEM_VA with all its operations and flags."""

import errno
from collections.abc import Iterator

import pytest

import vmkv
from drm_support import MIB, PAGE, device, emulated, kernel
from vmkv import drm
from vmkv.emulator import Emulator, Entry

__all__ = ["device", "kernel"]


@pytest.fixture
def card(kernel: str) -> Iterator[Emulator]:
    yield from emulated(kernel, "&vm_update=cpu")


@pytest.fixture
def buffer(device: drm.Device) -> Iterator[drm.Buffer]:
    with device.alloc(4 * MIB, always_valid=True) as buffer:
        yield buffer


def entry(device: drm.Device, address: int) -> Entry:
    return Emulator.walk(device.fd, address)


# ---- ranges -------------------------------------------------------------------------------------


def test_ranges_come_and_go(device: drm.Device) -> None:
    low, high = device.va_bounds()
    with device.va_alloc(1 << 40, alignment=2 * MIB) as one, device.va_alloc(PAGE) as two:
        assert one.address % (2 * MIB) == 0
        assert low <= one.address < one.end <= high
        assert two.address >= one.end or two.end <= one.address
        assert one.end - one.address == one.size == 1 << 40
        assert f"{one.address:#x}" in repr(one)
        with pytest.raises(vmkv.DeviceMemoryError, match=f"at {one.address:#x}") as caught:
            device.va_alloc(PAGE, at=one.address)
        assert caught.value.errno == errno.ENOMEM
    with device.va_alloc(PAGE, at=one.address) as again:
        assert again.address == one.address
    assert "closed" in repr(again)


def test_where_a_range_may_be(device: drm.Device) -> None:
    with device.va_alloc(PAGE, low32=True) as low:
        assert low.end <= 1 << 32
    with device.va_alloc(PAGE, high=True) as high:
        assert high.address >= 0xFFFF_8000_0000_0000
    with device.va_alloc(PAGE, replayable=True) as top, device.va_alloc(PAGE) as bottom:
        assert top.address > bottom.address


def test_ranges_that_make_no_sense(device: drm.Device) -> None:
    with pytest.raises(vmkv.DeviceError, match="reserve") as caught:
        device.va_alloc(PAGE, at=(1 << 33) + 1)
    assert caught.value.errno == errno.EINVAL
    with pytest.raises(vmkv.DeviceMemoryError):
        device.va_alloc(1 << 60)
    with pytest.raises(vmkv.InvalidError, match="size is 0"):
        device.va_alloc(0)
    with pytest.raises(vmkv.InvalidError):
        device.va_alloc(-1)


# ---- operations ---------------------------------------------------------------------------------

AT = 1 << 33


def test_map_and_unmap(device: drm.Device, buffer: drm.Buffer, card: Emulator) -> None:
    device.map(buffer, AT, MIB, 2 * MIB)
    found = entry(device, AT + PAGE)
    assert (found.valid, found.readable, found.writable, found.executable) == (1, 1, 1, 0)
    assert (found.handle, found.offset) == (buffer.handle, 2 * MIB + PAGE)
    assert not entry(device, AT + MIB).valid
    device.unmap(buffer, AT)
    assert not entry(device, AT).valid
    assert [card.count("GEM_VA", name) for name in drm.OPERATIONS] == [1, 1, 0, 0]


def test_size_none_is_all_after_the_offset(device: drm.Device, buffer: drm.Buffer) -> None:
    device.map(buffer, AT, offset=3 * MIB)
    assert entry(device, AT + MIB - PAGE).valid
    assert not entry(device, AT + MIB).valid
    device.replace(buffer, AT, offset=2 * MIB, flags="read")
    assert entry(device, AT + 2 * MIB - PAGE).valid
    assert not entry(device, AT).writable
    device.clear(AT, 2 * MIB)


def test_clear_takes_parts_of_any_buffer(device: drm.Device, buffer: drm.Buffer) -> None:
    device.map(buffer, AT, MIB)
    device.map(buffer, AT + MIB, MIB, MIB)
    device.clear(AT + MIB // 2, MIB)
    device.clear(AT + 100 * MIB, MIB)  # nothing is there
    device.map(buffer, AT + MIB // 2, MIB, 0)
    with pytest.raises(vmkv.DeviceError, match="map") as caught:
        device.map(buffer, AT + MIB, MIB)
    assert caught.value.errno == errno.EINVAL


def test_replace_maps_over_what_is_there(device: drm.Device, buffer: drm.Buffer) -> None:
    device.map(buffer, AT, MIB)
    device.replace(buffer, AT, MIB, 3 * MIB)
    assert entry(device, AT).offset == 3 * MIB


def test_delayed_maps_wait_for_the_next(device: drm.Device, buffer: drm.Buffer) -> None:
    device.map(buffer, AT, MIB, flags="read|write|delay")
    assert not entry(device, AT).valid
    device.map(buffer, AT + MIB, MIB)
    assert entry(device, AT).valid


def test_every_flag_reaches_the_kernel(device: drm.Device, buffer: drm.Buffer) -> None:
    device.map(buffer, AT, PAGE, flags=("read", "execute", "mtype_uc", "noalloc"))
    found = entry(device, AT)
    assert (found.readable, found.writable, found.executable) == (1, 0, 1)
    device.va_op(None, "map", AT + MIB, MIB, 0, "prt")
    found = entry(device, AT + MIB)
    assert (found.valid, found.prt) == (0, 1)
    with pytest.raises(vmkv.DeviceError, match="no buffer") as caught:
        device.va_op(None, "map", AT + 2 * MIB, MIB, 0, "prt|read")
    assert caught.value.errno == errno.EINVAL


@pytest.mark.parametrize(
    ("op", "address", "size", "offset", "code"),
    [
        ("map", PAGE, PAGE, 0, errno.EINVAL),  # below the bottom
        ("map", 1 << 47, PAGE, 0, errno.EINVAL),  # in the hole
        ("map", AT + 1, PAGE, 0, errno.EINVAL),
        ("map", AT, 0, 0, errno.EINVAL),
        ("map", AT, 8 * MIB, 0, errno.EINVAL),  # past the buffer
        ("map", AT, PAGE, 4 * MIB, errno.EINVAL),
        ("unmap", AT, PAGE, 0, errno.ENOENT),
        ("clear", AT, 1, 0, errno.EINVAL),
        ("replace", AT, PAGE, 100, errno.EINVAL),
    ],
)
def test_what_the_kernel_refuses(
    device: drm.Device,
    buffer: drm.Buffer,
    op: str,
    address: int,
    size: int,
    offset: int,
    code: int,
) -> None:
    with pytest.raises(vmkv.DeviceError, match=f"{op} {size:#x} bytes at {address:#x}") as caught:
        device.va_op(buffer, op, address, size, offset, "read" if op != "unmap" else ())
    assert caught.value.errno == code


def test_unknown_names_are_refused(device: drm.Device, buffer: drm.Buffer) -> None:
    with pytest.raises(vmkv.InvalidError, match="operation 'remap' is none of map, unmap"):
        device.va_op(buffer, "remap", AT, PAGE)
    with pytest.raises(vmkv.InvalidError, match="mapping flag 'rw' is none of delay, read"):
        device.map(buffer, AT, PAGE, flags="rw")
    with pytest.raises(vmkv.RangeError, match="address"):
        device.map(buffer, 1 << 64, PAGE)
    with pytest.raises(TypeError, match="size is an integer"):
        device.map(buffer, AT, "4KiB")  # type: ignore[arg-type]


def test_a_refusal_names_the_errno(device: drm.Device, buffer: drm.Buffer, card: Emulator) -> None:
    card.fail("GEM_VA", errno.ENOMEM)
    with pytest.raises(vmkv.DeviceMemoryError, match=r"map 0x1000 bytes at 0x200000000 of <.*ENOM"):
        device.map(buffer, AT, PAGE)


# ---- timelines ----------------------------------------------------------------------------------


def test_a_timeline_says_when_the_page_tables_changed(
    device: drm.Device, buffer: drm.Buffer, kernel: str
) -> None:
    with device.syncobj() as timeline, device.syncobj(signaled=True) as ready:
        if kernel != "7.2":
            with pytest.raises(vmkv.UnsupportedError, match=r"DRM 3\.64") as caught:
                device.va_op(buffer, "map", AT, PAGE, 0, "read", timeline=(timeline, 1))
            assert caught.value.errno == errno.EOPNOTSUPP
            with pytest.raises(vmkv.UnsupportedError):
                device.va_op(buffer, "map", AT, PAGE, 0, "read", waits=[ready])
            return
        device.va_op(buffer, "map", AT, PAGE, 0, "read", timeline=(timeline, 3), waits=[ready])
        timeline.wait(3, 10)
        assert timeline.query() == 3
        assert entry(device, AT).valid
        device.va_op(buffer, "unmap", AT, PAGE, timeline=(timeline, 5))
        timeline.wait(5, 10)
        assert not entry(device, AT).valid
        with device.syncobj() as binary:
            device.va_op(buffer, "map", AT, PAGE, 0, "read", timeline=(binary, 0))
            binary.wait(0, 10)
        device.va_op(None, "clear", AT, PAGE, waits=[ready])
        with pytest.raises(vmkv.DeviceError, match="map") as refused:
            device.va_op(buffer, "map", AT, PAGE, 0, "read|delay", timeline=(timeline, 7))
        assert refused.value.errno == errno.EINVAL
