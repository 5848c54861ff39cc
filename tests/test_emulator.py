"""vmkv.emulator: emulated cards from Python."""

import errno
from pathlib import Path

import pytest

import vmkv
from drm_support import MIB, PAGE, Mapped
from vmkv import drm
from vmkv.emulator import Emulator


@pytest.mark.parametrize(
    "spec",
    ["", "gfx9000", "gfx1201?vram", "gfx1201?vram=x", "gfx1201?kernel=5.4", "a?b=c"],
)
def test_malformed_specs(spec: str) -> None:
    with pytest.raises(vmkv.InvalidError) as caught:
        Emulator(spec)
    assert caught.value.errno == errno.EINVAL
    assert str(caught.value)
    assert "\n" not in str(caught.value)


def test_counts_and_stats() -> None:
    with Emulator("gfx1201?vram=256MiB") as card:
        assert card.counts() == {}
        with card.device() as device, device.alloc(MIB) as buffer:
            assert card.count("GEM_CREATE") == 1
            device.map(buffer, 1 << 33)
            device.clear(1 << 33, MIB)
            assert card.count("GEM_VA") == 2
            assert card.count("GEM_VA", "map") == card.count("GEM_VA", "clear") == 1
            assert card.counts()["GEM_VA"] == 2
            stats = card.stats()
            assert (stats.files, stats.handles, stats.vram_bytes) == (1, 1, 256 * MIB)
            assert stats.ioctls == sum(card.counts().values())
        assert card.stats().files == 0
        for refused in (
            lambda: card.count("GEM_NOTHING"),
            lambda: card.count("GEM_VA", "remap"),
            lambda: card.fail("GEM_NOTHING", errno.EIO),
            lambda: card.fail("GEM_VA", 0),
        ):
            with pytest.raises(vmkv.InvalidError):
                refused()
    assert len(set(card.ioctls())) == len(card.ioctls()) > 20


def test_an_ordered_failure_comes_once_at_its_call() -> None:
    with Emulator("gfx1201?vram=256MiB") as card, card.device() as device:
        card.fail("GEM_CREATE", errno.ENOSPC, 2)
        with device.alloc(PAGE):
            with pytest.raises(vmkv.DeviceError) as caught:
                device.alloc(PAGE)
            assert caught.value.errno == errno.ENOSPC
        card.fail("GEM_CREATE", errno.EIO)
        card.fail("GEM_CREATE", errno.EIO, 0)
        device.alloc(PAGE).close()


def test_a_window_shows_the_memory_at_its_own_addresses() -> None:
    with Emulator("gfx1201?vram=256MiB&identity=1&window=1GiB") as card, card.device() as device:
        assert card.window is not None
        begin, end = card.window
        assert end - begin == 1 << 30
        with (
            drm.Sdma(device) as sdma,
            device.alloc(MIB, always_valid=True) as buffer,
            device.va_alloc(MIB, at=begin),
        ):
            device.map(buffer, begin)
            sdma.fill(begin, MIB, 0x2A2A2A2A).run()
            from vmkv._native import ffi

            assert bytes(ffi.buffer(ffi.cast("char *", begin), 3)) == b"***"
            device.unmap(buffer, begin)
    with Emulator("gfx1201?vram=256MiB") as card:
        assert card.window is None


def test_what_the_page_tables_say() -> None:
    with Emulator("gfx1201?vram=256MiB&vm_update=cpu") as card, card.device() as device:
        with Mapped(device, 4 * MIB) as memory:
            entry = card.walk(device.fd, memory.address + 5)
            assert (entry.valid, entry.bytes, entry.offset) == (1, 2 * MIB, 0)
            assert entry.address == memory.address
            assert entry.handle == memory.buffer.handle
        assert not card.walk(device.fd, memory.address).valid
        with open("/dev/null") as file, pytest.raises(vmkv.DeviceError, match="walk"):
            card.walk(file.fileno(), 0)


def test_a_trace_has_a_line_for_each_ioctl(tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    with Emulator(f"gfx1201?vram=256MiB&trace={trace}") as card:
        with card.device() as device:
            device.alloc(PAGE).close()
        count = card.stats().ioctls
    assert len(trace.read_text(encoding="utf-8").splitlines()) == count


def test_the_last_refusal_is_told() -> None:
    with Emulator("gfx1201?vram=256MiB") as card, card.device() as device:
        assert card.error == ""
        with drm.Sdma(device) as sdma:
            sdma.dwords += [0xFF]
            with pytest.raises(vmkv.DeviceError):
                sdma.run()
        assert "SDMA packet" in card.error
        assert card.stats().refused == 1


def test_a_closed_card() -> None:
    card = Emulator("gfx1201?vram=256MiB")
    fd = card.open()
    card.close_file(fd)
    with pytest.raises(vmkv.DeviceError, match="no emulated file"):
        card.close_file(fd)
    card.close()
    card.close()
    assert repr(card) == "<vmkv.emulator.Emulator 'gfx1201?vram=256MiB' closed>"
    for call in (card.stats, card.open, card.pause, card.resume, lambda: card.count("GEM_VA")):
        with pytest.raises(vmkv.ClosedError, match="the emulated card is closed"):
            call()


def test_a_device_whose_card_is_gone_is_lost() -> None:
    card = Emulator("gfx1201?vram=256MiB")
    fd = card.open()
    with drm.Device.open(fd) as device:
        card.close()
        with pytest.raises(vmkv.DeviceLostError) as caught:
            device.alloc(PAGE)
        assert caught.value.errno == errno.ENODEV
