"""Addresses: ranges of them, and what is mapped there."""

from __future__ import annotations

import errno as codes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from vmkv import errors
from vmkv._native import ffi, lib
from vmkv._values import check_count
from vmkv.drm._base import Names, Object, Part, bits, choice, failure, libdrm

if TYPE_CHECKING:
    from vmkv.drm.buffer import Buffer
    from vmkv.drm.device import Device
    from vmkv.drm.syncobj import Syncobj

OPERATIONS = {
    "map": lib.AMDGPU_VA_OP_MAP,
    "unmap": lib.AMDGPU_VA_OP_UNMAP,
    "clear": lib.AMDGPU_VA_OP_CLEAR,
    "replace": lib.AMDGPU_VA_OP_REPLACE,
}

MAPPING_FLAGS = {
    "delay": lib.AMDGPU_VM_DELAY_UPDATE,
    "read": lib.AMDGPU_VM_PAGE_READABLE,
    "write": lib.AMDGPU_VM_PAGE_WRITEABLE,
    "execute": lib.AMDGPU_VM_PAGE_EXECUTABLE,
    "prt": lib.AMDGPU_VM_PAGE_PRT,
    "noalloc": lib.AMDGPU_VM_PAGE_NOALLOC,
    "mtype_nc": lib.AMDGPU_VM_MTYPE_NC,
    "mtype_wc": lib.AMDGPU_VM_MTYPE_WC,
    "mtype_cc": lib.AMDGPU_VM_MTYPE_CC,
    "mtype_uc": lib.AMDGPU_VM_MTYPE_UC,
    "mtype_rw": lib.AMDGPU_VM_MTYPE_RW,
}

# The first version of the kernel's interface whose GEM_VA takes syncobjs. Older ones ignore them.
TIMELINE_MINOR = 64


class VaRange(Part):
    """Addresses that libdrm's manager gave away, with nothing behind them. Closing gives them back;
    what is mapped there stays mapped.

    Args:
        device: whose address space.
        size: bytes.
        alignment: of the address; 0: a page.
        at: the address that it has to be; 0: any.
        high: from the upper half of the address space, if the card has one.
        low32: from the lowest 4 GiB of its half.
        replayable: from the top down.

    Attributes:
        address, size: where it lies, and its bytes.

    Raises:
        DeviceError: `at` isn't aligned (errno EINVAL). DeviceMemoryError: the addresses are taken,
        or used up.
    """

    __slots__ = ("address", "size")

    def __init__(
        self,
        device: Device,
        size: int,
        *,
        alignment: int = 0,
        at: int = 0,
        high: bool = False,
        low32: bool = False,
        replayable: bool = False,
    ) -> None:
        self.size = check_count("size", size, 64)
        align, required = check_count("alignment", alignment, 64), check_count("at", at, 64)
        flags = (
            lib.AMDGPU_VA_RANGE_HIGH * high
            | lib.AMDGPU_VA_RANGE_32_BIT * low32
            | lib.AMDGPU_VA_RANGE_REPLAYABLE * replayable
        )
        if not self.size:
            raise errors.InvalidError("size is 0: a range has at least one byte")
        super().__init__(libdrm().amdgpu_va_range_free, device)
        address = ffi.new("uint64_t *")

        def allocate(pointer: Any, ret: Any) -> int:
            return int(
                libdrm().amdgpu_va_range_alloc(
                    pointer,
                    lib.amdgpu_gpu_va_range_general,
                    self.size,
                    align,
                    required,
                    address,
                    ret,
                    flags,
                )
            )

        where = f" at {required:#x}" if required else ""
        self._make("struct amdgpu_va", f"reserve {self.size} bytes of addresses{where}", allocate)
        self.address = int(address[0])

    @property
    def end(self) -> int:
        """The first address behind it."""
        return self.address + self.size

    def _what(self) -> str:
        return "a range of addresses"

    def __repr__(self) -> str:
        if self.closed:
            return "<vmkv.drm.VaRange closed>"
        return f"<vmkv.drm.VaRange {self.address:#x} to {self.end:#x}>"


class Addresses(Object):
    """What a device does with its address space."""

    __slots__ = ("minor",)

    minor: int

    @property
    def fd(self) -> int:
        """libdrm's descriptor of the DRM file. It stays libdrm's."""
        return int(libdrm().amdgpu_device_get_fd(self._use()))

    def va_bounds(self) -> tuple[int, int]:
        """The addresses that libdrm's manager has: half-open, without the high ones."""
        bounds = ffi.new("uint64_t[2]")
        code = libdrm().amdgpu_va_range_query(
            self._use(), lib.amdgpu_gpu_va_range_general, bounds, bounds + 1
        )
        if code:
            raise failure(code, "query the range of addresses")
        return int(bounds[0]), int(bounds[1])

    def va_op(
        self,
        buffer: Buffer | None,
        op: str,
        address: int,
        size: int,
        offset: int = 0,
        flags: Names = (),
        *,
        timeline: tuple[Syncobj, int] | None = None,
        waits: Iterable[Syncobj] = (),
    ) -> None:
        """One GEM_VA ioctl. What is checked, and when entries of the page tables change, is up to
        the kernel.

        Args:
            buffer: what to map or unmap; None with "clear" and with "prt".
            op: "map", "unmap" (the whole mapping that begins at address), "clear" (all that is
                mapped in the range; what reaches beyond it is split) or "replace" (clear and map).
            address, size, offset: bytes; offset is where in the buffer.
            flags: of "delay", "read", "write", "execute", "prt", "noalloc" and the mtypes; the
                names are in `vmkv.drm.MAPPING_FLAGS`.
            timeline: a syncobj and the point of it (0: it is binary) that is signaled when the page
                tables have changed.
            waits: syncobjs to wait for first.

        Raises:
            DeviceError: refused: errno says why. UnsupportedError: timeline or waits, and the
            kernel (before DRM 3.64) would ignore them.
        """
        number = choice("operation", OPERATIONS, op)
        bitmask = bits("mapping flag", MAPPING_FLAGS, flags)
        where, length = check_count("address", address, 64), check_count("size", size, 64)
        start = check_count("offset", offset, 64)
        handles = [syncobj.id for syncobj in waits]
        if timeline or handles:
            code = self._va_op_synced(
                buffer, number, where, length, start, bitmask, timeline, handles
            )
        else:
            code = libdrm().amdgpu_bo_va_op_raw(
                self._use(),
                buffer._use() if buffer is not None else ffi.NULL,
                start,
                length,
                where,
                bitmask,
                number,
            )
        if code:
            raise failure(code, f"{op} {length:#x} bytes at {where:#x} of {buffer or 'no buffer'}")

    def _va_op_synced(
        self,
        buffer: Buffer | None,
        number: int,
        address: int,
        size: int,
        offset: int,
        flags: int,
        timeline: tuple[Syncobj, int] | None,
        handles: list[int],
    ) -> int:
        """The same with syncobjs. libdrm has that from 2.4.125 on; the kernel takes it anyway."""
        if self.minor < TIMELINE_MINOR:
            message = (
                f"GEM_VA takes syncobjs from DRM 3.{TIMELINE_MINOR} on; this is 3.{self.minor}"
            )
            raise errors.UnsupportedError(message, codes.EOPNOTSUPP)
        array = ffi.new("uint32_t[]", handles or [0])
        va = ffi.new("struct drm_amdgpu_gem_va *")
        va.handle = buffer.handle if buffer is not None else 0
        va.operation, va.flags = number, flags
        va.va_address, va.offset_in_bo, va.map_size = address, offset, size
        if timeline is not None:
            va.vm_timeline_syncobj_out = timeline[0].id
            va.vm_timeline_point = check_count("point", timeline[1], 64)
        va.num_syncobj_handles = len(handles)
        va.input_fence_syncobj_handles = int(ffi.cast("uintptr_t", array)) if handles else 0
        return int(
            libdrm().drmCommandWriteRead(self.fd, lib.DRM_AMDGPU_GEM_VA, va, ffi.sizeof(va[0]))
        )

    def map(
        self,
        buffer: Buffer,
        address: int,
        size: int | None = None,
        offset: int = 0,
        flags: Names = "read|write",
    ) -> None:
        """Map size bytes of a buffer (None: all after offset) at an address; see `va_op`."""
        length = buffer.size - offset if size is None else size
        self.va_op(buffer, "map", address, length, offset, flags)

    def unmap(self, buffer: Buffer, address: int, size: int = 0, flags: Names = ()) -> None:
        """Take away the buffer's mapping that begins at exactly that address, whole; see `va_op`.
        The kernel doesn't look at the size but for its bounds."""
        self.va_op(buffer, "unmap", address, size, 0, flags)

    def clear(self, address: int, size: int, flags: Names = ()) -> None:
        """Take away all that is mapped in a range; see `va_op`."""
        self.va_op(None, "clear", address, size, 0, flags)

    def replace(
        self,
        buffer: Buffer,
        address: int,
        size: int | None = None,
        offset: int = 0,
        flags: Names = "read|write",
    ) -> None:
        """Map in place of whatever is there; see `va_op`."""
        length = buffer.size - offset if size is None else size
        self.va_op(buffer, "replace", address, length, offset, flags)
