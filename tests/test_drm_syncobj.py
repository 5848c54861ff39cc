"""vmkv.drm: syncobjs, binary and with points."""

import errno
import os
import threading
import time
from collections.abc import Callable

import pytest

import vmkv
from drm_support import card, device, has_private_devices, kernel, paused
from vmkv import drm
from vmkv.emulator import Emulator

__all__ = ["card", "device", "kernel"]


def test_a_binary_syncobj(device: drm.Device) -> None:
    with device.syncobj() as syncobj, device.syncobj(signaled=True) as done:
        assert syncobj.id != done.id
        done.wait()
        assert done.is_signaled()
        assert not syncobj.is_signaled()
        with pytest.raises(vmkv.DeviceError, match=f"wait for syncobj {syncobj.id}") as caught:
            syncobj.wait(0, 0)  # it holds no fence
        assert caught.value.errno == errno.EINVAL
        syncobj.signal()
        syncobj.wait(0, 0)
        assert syncobj.query() == 0
        syncobj.reset()
        assert not syncobj.is_signaled()
        assert repr(syncobj) == f"<vmkv.drm.Syncobj {syncobj.id}>"
    assert repr(syncobj) == "<vmkv.drm.Syncobj closed>"


def test_points_on_a_timeline(device: drm.Device) -> None:
    with device.syncobj() as timeline:
        timeline.signal(4)
        assert timeline.query() == timeline.query(submitted=True) == 4
        timeline.wait(3)
        timeline.wait(4, 0)
        assert not timeline.is_signaled(5)
        begun = time.monotonic()
        with pytest.raises(vmkv.WaitTimeoutError, match="at 5") as caught:
            timeline.wait(5, 0.05, for_submit=True)
        assert time.monotonic() - begun >= 0.05
        assert caught.value.errno == errno.ETIME
        timeline.signal(9)
        assert timeline.is_signaled(5)


def test_submitted_points_arent_reached_yet(device: drm.Device, card: Emulator) -> None:
    with drm.Sdma(device) as sdma, device.syncobj() as line:
        line.signal(2)
        with paused(card):
            sdma.submit(signals=[(line, 5)])
            assert (line.query(), line.query(submitted=True)) == (2, 5)
        line.wait(5, 10)
        assert line.query() == 5


def test_a_wait_for_what_comes_later(device: drm.Device) -> None:
    signalled = []

    with device.syncobj() as syncobj:

        def signal() -> None:
            signalled.append(True)
            syncobj.signal()

        thread = threading.Timer(0.05, signal)
        thread.start()
        syncobj.wait(0, 10, for_submit=True)
        assert signalled
        thread.join()


def test_several_at_once(device: drm.Device) -> None:
    with device.syncobj() as one, device.syncobj(signaled=True) as two, device.syncobj() as line:
        line.signal(2)
        assert device.wait_syncobjs([one, two], 0, every=False, for_submit=True) == 1
        with pytest.raises(vmkv.WaitTimeoutError):
            device.wait_syncobjs([one, two], 0, for_submit=True)
        assert device.wait_syncobjs([two, (line, 1), (line, 2)], 0) == 0
        assert device.wait_syncobjs([(line, 3), (line, 2)], 0, every=False, for_submit=True) == 1
        with pytest.raises(vmkv.InvalidError, match="no syncobj"):
            device.wait_syncobjs([])
        with pytest.raises(vmkv.InvalidError, match="timeout"):
            one.wait(0, -1)


def test_a_descriptor_is_the_same_syncobj(device: drm.Device) -> None:
    with device.syncobj() as syncobj:
        fd = syncobj.export()
        with device.import_syncobj(fd) as same:
            assert same.id != syncobj.id
            same.signal()
            assert syncobj.is_signaled()
        os.close(fd)
    with open(os.devnull) as file, pytest.raises(vmkv.DeviceError, match="import a sync") as caught:
        device.import_syncobj(file.fileno())
    assert caught.value.errno == errno.EINVAL


def test_a_descriptor_crosses_address_spaces(device: drm.Device, card: Emulator) -> None:
    if not has_private_devices():
        pytest.skip("needs amdgpu_device_initialize2 (libdrm 2.4.121)")
    with card.device(private=True) as other, device.syncobj() as syncobj:
        fd = syncobj.export()
        with other.import_syncobj(fd) as same:
            same.signal()
        os.close(fd)
        assert syncobj.is_signaled()


def test_sync_files_hold_a_fence(device: drm.Device) -> None:
    with device.syncobj(signaled=True) as done, device.syncobj() as other:
        fd = done.export_sync_file()
        other.import_sync_file(fd)
        assert other.is_signaled()
        other.reset()
        other.import_sync_file(fd, 6)
        assert other.query() == 6
        os.close(fd)
        at = other.export_sync_file(6)
        done.reset()
        done.import_sync_file(at)
        os.close(at)
        assert done.is_signaled()
        done.reset()
        with pytest.raises(vmkv.DeviceError, match="as sync file") as caught:
            done.export_sync_file()
        assert caught.value.errno == errno.EINVAL
        with open(os.devnull) as file, pytest.raises(vmkv.DeviceError, match="import the sync f"):
            done.import_sync_file(file.fileno())


def test_a_fence_can_be_handed_on(device: drm.Device) -> None:
    with device.syncobj() as line, device.syncobj() as binary:
        line.signal(3)
        binary.transfer(line, 3)
        assert binary.is_signaled()
        line.transfer(binary, point=8)
        assert line.query() == 8
        with device.syncobj() as empty, pytest.raises(vmkv.DeviceError, match="transfer"):
            line.transfer(empty, point=9)


@pytest.mark.parametrize(
    ("ioctl", "what"),
    [
        ("SYNCOBJ_CREATE", "make a syncobj"),
        ("SYNCOBJ_SIGNAL", "signal"),
        ("SYNCOBJ_TIMELINE_SIGNAL", "at point 1"),
        ("SYNCOBJ_RESET", "reset"),
        ("SYNCOBJ_QUERY", "query"),
        ("SYNCOBJ_WAIT", "wait for syncobj"),
        ("SYNCOBJ_TIMELINE_WAIT", "wait for syncobj"),
        ("SYNCOBJ_HANDLE_TO_FD", "export"),
        ("SYNCOBJ_FD_TO_HANDLE", "import a syncobj"),
        ("SYNCOBJ_TRANSFER", "transfer"),
    ],
)
def test_refusals_say_what_was_asked(
    device: drm.Device, card: Emulator, ioctl: str, what: str
) -> None:
    with device.syncobj(signaled=True) as syncobj:
        calls: dict[str, Callable[[], object]] = {
            "SYNCOBJ_CREATE": device.syncobj,
            "SYNCOBJ_SIGNAL": syncobj.signal,
            "SYNCOBJ_TIMELINE_SIGNAL": lambda: syncobj.signal(1),
            "SYNCOBJ_RESET": syncobj.reset,
            "SYNCOBJ_QUERY": syncobj.query,
            "SYNCOBJ_WAIT": syncobj.wait,
            "SYNCOBJ_TIMELINE_WAIT": lambda: syncobj.wait(1),
            "SYNCOBJ_HANDLE_TO_FD": syncobj.export,
            "SYNCOBJ_FD_TO_HANDLE": lambda: device.import_syncobj(0),
            "SYNCOBJ_TRANSFER": lambda: syncobj.transfer(syncobj),
        }
        for code in (errno.EPERM, errno.EIO):  # -1 is EPERM's number, and what ioctl returns
            card.fail(ioctl, code)
            with pytest.raises(vmkv.DeviceError, match=what) as caught:
                calls[ioctl]()
            assert caught.value.errno == code


def test_one_that_isnt_destroyed_stays_open(device: drm.Device, card: Emulator) -> None:
    syncobj = device.syncobj()
    card.fail("SYNCOBJ_DESTROY", errno.EIO)
    with pytest.raises(vmkv.DeviceError, match="close a syncobj"):
        syncobj.close()
    assert not syncobj.closed
    syncobj.close()
    assert card.stats().syncobjs == 0
