"""Buffers: memory of the card, or of the system for it."""

from __future__ import annotations

import errno as codes
import mmap
import weakref
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from vmkv import errors
from vmkv._native import ffi, lib
from vmkv._values import check_count, timeout_ns
from vmkv.drm._base import Names, Numbered, Part, bits, failure, libdrm
from vmkv.drm.info import DOMAINS

if TYPE_CHECKING:
    from vmkv.drm.device import Device

_METADATA_BYTES = 256


class Buffer(Part):
    """A buffer. Made by `Device.alloc` or `Device.import_dmabuf`.

    Closing it frees it: its mappings go, and its memory when the last job that may use it is done.

    Attributes:
        size: bytes, as asked for; the kernel rounds up to pages.
    """

    __slots__ = ("_views", "size")

    def __init__(self, device: Device) -> None:
        super().__init__(libdrm().amdgpu_bo_free, device)
        self.size = 0
        self._views: dict[int, weakref.ref[Any]] = {}

    @classmethod
    def alloc(
        cls,
        device: Device,
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
        """Allocate a buffer.

        Args:
            device: of which card.
            size: bytes.
            domain: where it may be: "vram", "gtt" or "vram|gtt"; others are in
                `vmkv.drm.DOMAINS`. A buffer for VRAM can be moved to GTT.
            alignment: of its place in VRAM, a power of two.
            always_valid: it needn't be listed in submissions, and can't be exported.
            cpu_access: True: in the part of VRAM that the CPU reaches. False: the CPU never will.
            cleared: it reads as zero.
            write_combined: for GTT: the CPU only writes.
            explicit_sync: submissions don't wait for others that use it.
            flags: more bits, AMDGPU_GEM_CREATE_*.

        Raises:
            DeviceMemoryError: not enough memory. DeviceError: flags that the kernel doesn't take
            (errno EINVAL).
        """
        names = domain if isinstance(domain, str) else "|".join(domain)
        buffer = cls(device)
        buffer.size = check_count("size", size, 64)
        request = ffi.new("struct amdgpu_bo_alloc_request *")
        request.alloc_size = buffer.size
        request.phys_alignment = check_count("alignment", alignment, 64)
        request.preferred_heap = bits("domain", DOMAINS, names)
        request.flags = (
            check_count("flags", flags, 64)
            | lib.AMDGPU_GEM_CREATE_VM_ALWAYS_VALID * always_valid
            | lib.AMDGPU_GEM_CREATE_CPU_ACCESS_REQUIRED * (cpu_access is True)
            | lib.AMDGPU_GEM_CREATE_NO_CPU_ACCESS * (cpu_access is False)
            | lib.AMDGPU_GEM_CREATE_VRAM_CLEARED * cleared
            | lib.AMDGPU_GEM_CREATE_CPU_GTT_USWC * write_combined
            | lib.AMDGPU_GEM_CREATE_EXPLICIT_SYNC * explicit_sync
        )
        what = f"allocate {buffer.size} bytes of {names}"
        buffer._make(
            "struct amdgpu_bo", what, lambda of, ret: libdrm().amdgpu_bo_alloc(of, request, ret)
        )
        return buffer

    @classmethod
    def import_dmabuf(cls, device: Device, fd: int) -> Buffer:
        """The buffer behind a dma-buf, whose descriptor stays the caller's.

        Raises:
            DeviceError: not a dma-buf that the card can use.
        """
        buffer = cls(device)
        number = check_count("fd", fd, 31)
        result = ffi.new("struct amdgpu_bo_import_result *")

        def take(pointer: Any, ret: Any) -> int:
            kind = lib.amdgpu_bo_handle_type_dma_buf_fd
            code: int = libdrm().amdgpu_bo_import(pointer, kind, number, result)
            ret[0] = result.buf_handle
            return code

        buffer._make("struct amdgpu_bo", f"import the dma-buf {number}", take)
        buffer.size = int(result.alloc_size)
        return buffer

    def _what(self) -> str:
        return "a buffer"

    def _end(self) -> int:
        return -codes.EBUSY if self._open_views() else super()._end()

    def _open_views(self) -> int:
        return sum(view() is not None for view in tuple(self._views.values()))

    def _refuse(self, code: int) -> NoReturn:
        views = self._open_views()
        if code == -codes.EBUSY and views:
            message = f"{views} views of the buffer's memory are in use: drop them first"
            raise errors.BusyError(message, -code)
        super()._refuse(code)

    @property
    def handle(self) -> int:
        """The number that the kernel knows it by in the device's file (its GEM handle), as lists of
        buffers take it."""
        handle = ffi.new("uint32_t *")
        kind = lib.amdgpu_bo_handle_type_kms
        code = libdrm().amdgpu_bo_export(self._use(), kind, handle)
        if code:
            raise failure(code, "tell the handle of a buffer")
        return int(handle[0])

    def export_dmabuf(self) -> int:
        """A descriptor of a dma-buf, which the caller closes: for other devices and processes.

        Raises:
            DeviceError: it is always valid (errno EPERM).
        """
        fd = ffi.new("uint32_t *")
        kind = lib.amdgpu_bo_handle_type_dma_buf_fd
        code = libdrm().amdgpu_bo_export(self._use(), kind, fd)
        if code:
            raise failure(code, "export a buffer as dma-buf")
        return int(fd[0])

    def cpu_map(self) -> memoryview:
        """The buffer's bytes, as the CPU sees them: writable, valid until the view and everything
        made of it is gone. While there is a view the buffer can't be closed.

        Raises:
            DeviceError: the CPU can't reach it.
        """
        address = ffi.new("void **")
        pointer = self._use()
        try:
            code = libdrm().amdgpu_bo_cpu_map(pointer, address)
            if code:
                raise failure(code, f"map {self} for the CPU")
            raw = ffi.cast("amdgpu_bo_handle", int(ffi.cast("uintptr_t", pointer)))
            end = partial(lib.vmkv_drm_view_end, libdrm(), raw)
            end.needs = self  # type: ignore[attr-defined]
            # Unmaps the buffer when its last user is gone.
            owner = ffi.gc(ffi.cast("char *", address[0]), end)
            forget = partial(self._views.pop, id(owner))
            self._views[id(owner)] = weakref.ref(owner, forget)
        finally:
            del pointer
        return memoryview(ffi.buffer(owner, self.size))

    def numpy(self, dtype: npt.DTypeLike = np.uint8) -> npt.NDArray[Any]:
        """The same as an array, of whole elements as far as they fit; see `cpu_map`."""
        kind = np.dtype(dtype)
        return np.frombuffer(self.cpu_map(), kind, count=self.size // kind.itemsize)

    def wait_idle(self, timeout: float | None = None) -> None:
        """Wait until no job uses it any more.

        Raises:
            WaitTimeoutError: one does, after timeout seconds.
        """
        busy = ffi.new("bool *")
        code = libdrm().amdgpu_bo_wait_for_idle(self._use(), timeout_ns(timeout), busy)
        if code:
            raise failure(code, f"wait for {self}")
        if busy[0]:
            raise errors.WaitTimeoutError(f"{self} is in use after {timeout} s", codes.ETIME)

    def is_idle(self) -> bool:
        """Whether no job uses it."""
        try:
            self.wait_idle(0)
        except errors.WaitTimeoutError:
            return False
        return True

    def _query(self) -> Any:
        answer = ffi.new("struct amdgpu_bo_info *")
        code = libdrm().amdgpu_bo_query_info(self._use(), answer)
        if code:
            raise failure(code, f"query {self}")
        return answer

    @property
    def domain(self) -> frozenset[str]:
        """Where it may be, by names."""
        heap = self._query().preferred_heap
        return frozenset(name for name, bit in DOMAINS.items() if heap & bit)

    @property
    def flags(self) -> int:
        """What it was made with, AMDGPU_GEM_CREATE_*."""
        return int(self._query().alloc_flags)

    @property
    def alignment(self) -> int:
        """Of its place in VRAM, as the kernel tells it."""
        return int(self._query().phys_alignment)

    @property
    def metadata(self) -> bytes:
        """What somebody left with it for whoever imports it."""
        answer = self._query()
        data = bytes(ffi.buffer(answer.metadata.umd_metadata))
        return data[: answer.metadata.size_metadata]

    @metadata.setter
    def metadata(self, data: bytes) -> None:
        self.set_metadata(data)

    def set_metadata(self, data: bytes, *, tiling: int = 0, flags: int = 0) -> None:
        """Leave up to 256 bytes, and the kernel's description of tiling, for whoever imports it."""
        if len(data) > _METADATA_BYTES:
            raise errors.InvalidError(f"{len(data)} bytes of metadata: at most {_METADATA_BYTES}")
        metadata = ffi.new("struct amdgpu_bo_metadata *")
        metadata.flags = check_count("flags", flags, 64)
        metadata.tiling_info = check_count("tiling", tiling, 64)
        metadata.size_metadata = len(data)
        ffi.memmove(metadata.umd_metadata, data, len(data))
        code = libdrm().amdgpu_bo_set_metadata(self._use(), metadata)
        if code:
            raise failure(code, f"set the metadata of {self}")

    @property
    def pages(self) -> int:
        """Its size in pages of 4 KiB."""
        return -(-self.size // mmap.PAGESIZE)

    def __repr__(self) -> str:
        return f"<vmkv.drm.Buffer {'closed' if self.closed else f'of {self.size} bytes'}>"


class BufferList(Numbered):
    """Buffers that submissions name together. The kernel looks at the list as it was made; the
    buffers may be closed.

    Args:
        device: of which file the buffers are.
        buffers: the buffers.
        priorities: 0 to 31 for each: which to keep in VRAM first. None given: 0.

    Attributes:
        device: the device.
    """

    __slots__ = ()

    def __init__(
        self, device: Device, buffers: Iterable[Buffer], priorities: Iterable[int] = ()
    ) -> None:
        super().__init__(lib.vmkv_drm_id_destroy, device)
        entries = list_entries(buffers, priorities)

        def create(pointer: Any, ret: Any) -> int:
            return int(libdrm().amdgpu_bo_list_create_raw(pointer, len(entries), entries, ret))

        destroy = libdrm().amdgpu_bo_list_destroy_raw
        self._number(f"make a list of {len(entries)} buffers", destroy, create)

    def _what(self) -> str:
        return "a list of buffers"


def list_entries(buffers: Iterable[Buffer], priorities: Iterable[int] = ()) -> Any:
    """An array of `struct drm_amdgpu_bo_list_entry`."""
    handles, numbers = [buffer.handle for buffer in buffers], list(priorities)
    if numbers and len(numbers) != len(handles):
        message = f"{len(numbers)} priorities for {len(handles)} buffers"
        raise errors.InvalidError(message)
    pairs = zip(handles, numbers or [0] * len(handles), strict=True)
    return ffi.new("struct drm_amdgpu_bo_list_entry[]", [[*pair] for pair in pairs])
