"""Devices: a DRM file of a card, with an address space of its own."""

from __future__ import annotations

import errno as codes
import grp
import os
import stat
import weakref
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from vmkv import errors
from vmkv._native import ffi, lib
from vmkv._values import check_count, read_struct, timeout_ns
from vmkv.drm import info
from vmkv.drm._address import Addresses, VaRange
from vmkv.drm._base import Names, Part, choice, failure, libdrm, optional
from vmkv.drm.buffer import Buffer, BufferList
from vmkv.drm.context import Context, Fence
from vmkv.drm.syncobj import Syncobj, wait_syncobjs

# What sysfs and /dev call nodes that need no rights on the display.
_NODES = Path("/dev/dri")


def render_nodes() -> list[str]:
    """Paths of the render nodes of this machine, of whatever driver, in order of their numbers.

    Raises:
        DeviceError: no right to look for them (errno EACCES).
    """
    if not _NODES.is_dir():
        return []
    try:
        found = [path for path in _NODES.iterdir() if path.name.removeprefix("renderD").isdigit()]
    except PermissionError:
        message = f"no right to look into {_NODES}"
        raise errors.DeviceError(message, codes.EACCES) from None
    return [str(path) for path in sorted(found, key=lambda path: int(path.name[7:]))]


def driver_of(fd: int) -> info.Driver | None:
    """Which driver a file descriptor belongs to; None if it isn't of DRM."""
    version = libdrm().drmGetVersion(fd)
    if not version:
        return None
    try:
        return info.read_driver(version)
    finally:
        libdrm().drmFreeVersion(version)


class Device(Addresses):
    """A card, through one DRM file. Made by `Device.open` or `Device.adopt`.

    Buffers, ranges, contexts and so on of a device have to be closed before it.

    Attributes:
        major, minor: version of the kernel's interface: `minor` says what it can do.
    """

    __slots__ = ("_parts", "major")

    def __init__(self, destroy: Any) -> None:
        super().__init__(destroy)
        self._parts: set[weakref.ref[Part]] = set()
        self.major = self.minor = 0

    @classmethod
    def open(
        cls, node: str | os.PathLike[str] | int | None = None, *, private: bool = False
    ) -> Device:
        """Open a card: a path such as "/dev/dri/renderD128", a descriptor of an open node, which
        stays the caller's, or None for the first render node of amdgpu.

        libdrm gives the whole process one device for each card, with one address space; HIP and
        RADV use it too, if they load the same libdrm. `private` asks for one that isn't shared; it
        has the address space of the descriptor's file.

        Raises:
            DeviceNotFoundError: no such node, or none of amdgpu. DeviceError: no right to open it
            (errno EACCES), or the driver refused. UnsupportedError: private with libdrm before
            2.4.121; no libdrm.
        """
        if isinstance(node, int):
            return cls._initialize(check_count("node", node, 31), f"descriptor {node}", private)
        path = os.fspath(node) if node is not None else _first_node()
        fd = _open_node(path)
        try:
            return cls._initialize(fd, path, private)
        finally:
            os.close(fd)  # libdrm has a duplicate

    @classmethod
    def _initialize(cls, fd: int, name: str, private: bool) -> Device:
        driver = driver_of(fd)
        # libdrm takes for granted that it is a node that answers.
        if driver is None or driver.name != "amdgpu":
            found = f"of the driver {driver.name!r}" if driver else "no DRM device"
            raise errors.DeviceNotFoundError(f"{name} is {found}, not one of amdgpu", codes.ENODEV)
        device = cls(libdrm().amdgpu_device_deinitialize)
        version = ffi.new("uint32_t[2]")
        major, minor = version, version + 1

        def initialize(ret: Any) -> int:
            if private:
                function = optional("amdgpu_device_initialize2")
                return int(function(fd, False, major, minor, ret))
            return int(libdrm().amdgpu_device_initialize(fd, major, minor, ret))

        code = device._create(initialize, "struct amdgpu_device")
        if code:
            raise failure(code, f"initialize {name}")
        device.major, device.minor = version
        return device

    @classmethod
    def adopt(cls, address: int) -> Device:
        """Use a device that somebody else made in this process: `address` is the value of the
        amdgpu_device_handle. It stays theirs, and has to live as long as the adopted one; closing
        that doesn't end it. It must be a handle of the same loaded libdrm.

        Raises:
            UnsupportedError: another copy of libdrm is loaded too, and the handle seems to be of
            that one (errno EXDEV). DeviceError: it has no descriptor of a DRM device.
        """
        pointer = ffi.cast("amdgpu_device_handle", check_count("address", address, 64))
        if not pointer:
            raise errors.InvalidError("the address of a device isn't 0")
        code = lib.vmkv_libdrm_check_device(libdrm(), pointer)
        if code == -codes.EXDEV:
            message = f"the device at {address:#x} may be of another copy of libdrm_amdgpu"
            raise errors.UnsupportedError(message, codes.EXDEV)
        if code:
            raise failure(code, f"adopt the device at {address:#x}")
        device = cls(lib.vmkv_drm_device_leave)

        def lend(ret: Any) -> int:
            ret[0] = pointer
            return 0

        device._create(lend, "struct amdgpu_device")
        driver = device.driver
        device.major, device.minor = driver.major, driver.minor
        return device

    def _what(self) -> str:
        return "the DRM device"

    def _open_parts(self) -> list[Part]:
        parts = [known() for known in tuple(self._parts)]
        return [part for part in parts if part is not None and not part.closed]

    def _end(self) -> int:
        return -codes.EBUSY if self._open_parts() else super()._end()

    def _refuse(self, code: int) -> NoReturn:
        parts = self._open_parts()
        if code == -codes.EBUSY and parts:
            names = sorted({part._what() for part in parts})
            some = ", ".join(names[:3]) + (", ..." if len(names) > 3 else "")
            raise errors.BusyError(f"{len(parts)} things of the device are open: {some}", -code)
        super()._refuse(code)

    @property
    def address(self) -> int:
        """The value of libdrm's handle, as `Device.adopt` and C code take it."""
        return int(ffi.cast("uintptr_t", self._use()))

    @property
    def name(self) -> str:
        """What the card is called in shops, as far as libdrm knows it."""
        text = libdrm().amdgpu_get_marketing_name(self._use())
        return ffi.string(text).decode(errors="replace") if text else ""

    @property
    def driver(self) -> info.Driver:
        """The kernel's driver and its version."""
        driver = driver_of(self.fd)
        if driver is None:
            raise errors.DeviceLostError("the DRM file doesn't answer any more", codes.ENODEV)
        return driver

    # ---- INFO --------------------------------------------------------------------------------

    def query(self, number: int, size: int) -> bytes:
        """The answer to any INFO query (AMDGPU_INFO_*) that takes no arguments, as bytes. What is
        asked for beyond what the kernel knows is zero.

        Raises:
            DeviceError: the kernel doesn't know it (errno EINVAL).
        """
        answer = ffi.new("char[]", check_count("size", size))
        self._query(number, answer, size, f"INFO query {number:#x}")
        return bytes(ffi.buffer(answer))

    def _query(self, number: int, answer: Any, size: int, what: str) -> None:
        code = libdrm().amdgpu_query_info(self._use(), number, size, answer)
        if code:
            raise failure(code, what)

    @property
    def card(self) -> info.CardInfo:
        """What the card is."""
        answer = ffi.new("struct drm_amdgpu_info_device *")
        self._query(lib.AMDGPU_INFO_DEV_INFO, answer, ffi.sizeof(answer[0]), "INFO DEV_INFO")
        return read_struct(info.CardInfo, answer)

    @property
    def memory(self) -> info.Memory:
        """The heaps, and how full they are."""
        answer = ffi.new("struct drm_amdgpu_memory_info *")
        self._query(lib.AMDGPU_INFO_MEMORY, answer, ffi.sizeof(answer[0]), "INFO MEMORY")
        return info.read_memory(answer)

    def counter(self, name: str) -> int:
        """One of the kernel's counters: "evictions", "bytes_moved", "vram_usage", "gtt_usage", ...;
        all are in `vmkv.drm.COUNTERS`."""
        number, answer = choice("counter", info.COUNTERS, name), ffi.new("uint64_t *")
        self._query(number, answer, 8, f"INFO {name}")
        return int(answer[0])

    @property
    def vram_lost_counter(self) -> int:
        """How often the card lost what was in its memory."""
        answer = ffi.new("uint32_t *")
        self._query(lib.AMDGPU_INFO_VRAM_LOST_COUNTER, answer, 4, "INFO VRAM_LOST_COUNTER")
        return int(answer[0])

    @property
    def gpuvm_fault(self) -> info.Fault | None:
        """The last fault; None if there was none, or the kernel (before DRM 3.55) doesn't tell."""
        answer = ffi.new("struct drm_amdgpu_info_gpuvm_fault *")
        try:
            self._query(lib.AMDGPU_INFO_GPUVM_FAULT, answer, ffi.sizeof(answer[0]), "INFO fault")
        except errors.DeviceError as error:
            if error.errno == codes.EINVAL:
                return None
            raise
        if not answer.status:
            return None
        return info.Fault(answer.addr, answer.status, answer.vmhub)

    def heap(self, domain: str, *, visible: bool = False) -> tuple[int, int, int]:
        """Size, use and longest allocation of "vram" or "gtt" in bytes, as amdgpu_query_heap_info
        tells them; `visible`: of the part that the CPU reaches."""
        if domain not in ("vram", "gtt"):
            raise errors.InvalidError(f"heap {domain!r} is none of vram, gtt")
        answer = ffi.new("struct amdgpu_heap_info *")
        flags = lib.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED if visible else 0
        code = libdrm().amdgpu_query_heap_info(self._use(), info.DOMAINS[domain], flags, answer)
        if code:
            raise failure(code, f"query the heap {domain}")
        return answer.heap_size, answer.heap_usage, answer.max_allocation

    def hw_ip(self, name: str) -> info.HwIp | None:
        """An engine: "gfx", "compute", "dma", ...; None if the card has none of it, or the kernel
        doesn't know of such."""
        number = choice("engine", info.IP_TYPES, name)
        count = ffi.new("uint32_t *")
        code = libdrm().amdgpu_query_hw_ip_count(self._use(), number, count)
        if code == -codes.EINVAL:
            return None
        if code:
            raise failure(code, f"INFO HW_IP_COUNT of {name}")
        if not count[0]:
            return None
        answer = ffi.new("struct drm_amdgpu_info_hw_ip *")
        code = libdrm().amdgpu_query_hw_ip_info(self._use(), number, 0, answer)
        if code:
            raise failure(code, f"INFO HW_IP_INFO of {name}")
        return info.read_hw_ip(name, answer)

    def registers(self, dword_offset: int, count: int = 1, instance: int = 0xFFFFFFFF) -> list[int]:
        """Values of the card's registers, as far as the kernel lets user space read them."""
        offset = check_count("dword_offset", dword_offset)
        number, of = check_count("count", count, 16), check_count("instance", instance)
        values = ffi.new("uint32_t[]", max(number, 1))
        code = libdrm().amdgpu_read_mm_registers(self._use(), offset, number, of, 0, values)
        if code:
            raise failure(code, f"read {number} registers from {offset:#x} on")
        return list(values)

    # ---- what it makes -------------------------------------------------------------------------

    def alloc(
        self,
        size: int,
        domain: Names = "vram",
        *,
        alignment: int = 0,
        always_valid: bool = False,
        cpu_access: bool | None = None,
        cleared: bool = False,
        write_combined: bool = False,
        explicit_sync: bool = False,
        flags: int = 0,
    ) -> Buffer:
        """Allocate a buffer; see `Buffer.alloc`."""
        return Buffer.alloc(
            self,
            size,
            domain,
            alignment=alignment,
            always_valid=always_valid,
            cpu_access=cpu_access,
            cleared=cleared,
            write_combined=write_combined,
            explicit_sync=explicit_sync,
            flags=flags,
        )

    def import_dmabuf(self, fd: int) -> Buffer:
        """A buffer of another device or process, from a dma-buf; see `Buffer.import_dmabuf`."""
        return Buffer.import_dmabuf(self, fd)

    def buffer_list(self, buffers: Iterable[Buffer], priorities: Iterable[int] = ()) -> BufferList:
        """Buffers that submissions name together; see `BufferList`."""
        return BufferList(self, buffers, priorities)

    def va_alloc(
        self,
        size: int,
        *,
        alignment: int = 0,
        at: int = 0,
        high: bool = False,
        low32: bool = False,
        replayable: bool = False,
    ) -> VaRange:
        """Take addresses from libdrm's manager; see `VaRange`."""
        return VaRange(
            self, size, alignment=alignment, at=at, high=high, low32=low32, replayable=replayable
        )

    def context(self, priority: str | int = "normal") -> Context:
        """Make a context for submissions; see `Context`."""
        return Context(self, priority)

    def syncobj(self, *, signaled: bool = False) -> Syncobj:
        """Make a syncobj; see `Syncobj`."""
        return Syncobj.create(self, signaled=signaled)

    def import_syncobj(self, fd: int) -> Syncobj:
        """The syncobj behind a descriptor from `Syncobj.export`, maybe another process's."""
        return Syncobj.import_fd(self, fd)

    def wait_syncobjs(
        self,
        waits: Sequence[Syncobj | tuple[Syncobj, int]],
        timeout: float | None = None,
        *,
        every: bool = True,
        for_submit: bool = False,
    ) -> int:
        """Wait for several syncobjs, or points of them; see `vmkv.drm.wait_syncobjs`."""
        return wait_syncobjs(self, waits, timeout, every=every, for_submit=for_submit)

    def wait_fences(
        self, fences: Sequence[Fence], timeout: float | None = None, *, every: bool = True
    ) -> int:
        """Wait for every one of several fences, or for any; returns the index of one that is
        reached (0 if `every`).

        Raises:
            WaitTimeoutError: not in that time.
        """
        if not fences:
            raise errors.InvalidError("there is no fence to wait for")
        array = ffi.new("struct amdgpu_cs_fence[]", [fence._struct()[0] for fence in fences])
        status, first = ffi.new("uint32_t *"), ffi.new("uint32_t *")
        code = libdrm().amdgpu_cs_wait_fences(
            array, len(fences), every, timeout_ns(timeout), status, first
        )
        if code:
            raise failure(code, f"wait for {len(fences)} fences")
        if not status[0]:
            message = f"{len(fences)} fences: not reached in {timeout} s"
            raise errors.WaitTimeoutError(message, codes.ETIME)
        return 0 if every else int(first[0])

    def reserve_vmid(self) -> None:
        """Keep a VMID of the card for this address space; `unreserve_vmid` gives it back."""
        code = libdrm().amdgpu_vm_reserve_vmid(self._use(), 0)
        if code:
            raise failure(code, "reserve a VMID")

    def unreserve_vmid(self) -> None:
        """Give back what `reserve_vmid` kept."""
        code = libdrm().amdgpu_vm_unreserve_vmid(self._use(), 0)
        if code:
            raise failure(code, "give back a VMID")

    def __repr__(self) -> str:
        if self.closed:
            return "<vmkv.drm.Device closed>"
        return f"<vmkv.drm.Device {self.name!r}, DRM {self.major}.{self.minor}>"


def _first_node() -> str:
    nodes = render_nodes()
    for path in nodes:
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError:
            continue  # told below if there is no other
        try:
            driver = driver_of(fd)
        finally:
            os.close(fd)
        if driver and driver.name == "amdgpu":
            return path
    for path in nodes:
        os.close(_open_node(path))
    raise errors.DeviceNotFoundError("this machine has no render node of amdgpu", codes.ENODEV)


def _open_node(path: str) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except PermissionError as error:
        status = os.stat(path)
        owner = f"it is for the group {group_of(status)} ({stat.filemode(status.st_mode)})"
        message = f"no right to open {path}: {owner}"
        raise errors.DeviceError(message, error.errno) from None
    except (FileNotFoundError, NotADirectoryError) as error:
        raise errors.DeviceNotFoundError(f"there is no {path}", error.errno) from None
    except OSError as error:
        raise errors.DeviceError(f"open {path}: {error.strerror}", error.errno) from None


def group_of(status: os.stat_result) -> str:
    """The group that a node is for."""
    try:
        return grp.getgrgid(status.st_gid).gr_name
    except KeyError:
        return str(status.st_gid)
