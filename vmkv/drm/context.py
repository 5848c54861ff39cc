"""Contexts: what submits work to a card's engines."""

from __future__ import annotations

import errno as codes
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vmkv import errors
from vmkv._native import ffi, lib
from vmkv._values import check_count, check_index, timeout_ns
from vmkv.drm._base import Part, choice, failure, libdrm
from vmkv.drm.buffer import Buffer, BufferList, list_entries
from vmkv.drm.info import IP_TYPES
from vmkv.drm.syncobj import Syncobj

if TYPE_CHECKING:
    from vmkv.drm.device import Device

PRIORITIES = {
    "unset": lib.AMDGPU_CTX_PRIORITY_UNSET,
    "very_low": lib.AMDGPU_CTX_PRIORITY_VERY_LOW,
    "low": lib.AMDGPU_CTX_PRIORITY_LOW,
    "normal": lib.AMDGPU_CTX_PRIORITY_NORMAL,
    "high": lib.AMDGPU_CTX_PRIORITY_HIGH,
    "very_high": lib.AMDGPU_CTX_PRIORITY_VERY_HIGH,
}

# Of a list of buffers that is part of a submission: it has no number.
_NO_LIST = 0xFFFFFFFF

Signal = Syncobj | tuple[Syncobj, int]


@dataclass(frozen=True)
class ContextState:
    """What happened to a context since it was made.

    Attributes:
        reset: the card, or a queue of it, was reset.
        guilty: this context's work was the reason; it takes no more.
        vram_lost: what was in VRAM is gone.
        flags: all that the kernel says, AMDGPU_CTX_QUERY2_FLAGS_*.
    """

    reset: bool
    guilty: bool
    vram_lost: bool
    flags: int


class Fence:
    """When one submission is done.

    Attributes:
        context, ip, ring: where it was submitted.
        number: counts submissions there.
    """

    __slots__ = ("context", "ip", "number", "ring")

    def __init__(self, context: Context, ip: str, ring: int, number: int) -> None:
        self.context, self.ip, self.ring, self.number = context, ip, ring, number

    def _struct(self) -> Any:
        fence = ffi.new("struct amdgpu_cs_fence *")
        fence.context = self.context._use()
        fence.ip_type, fence.ring, fence.fence = IP_TYPES[self.ip], self.ring, self.number
        return fence

    def wait(self, timeout: float | None = None) -> None:
        """Wait until the submission is done.

        Raises:
            WaitTimeoutError: not in that time. DeviceError: it failed: ECANCELED after a fault,
            ETIME (as WaitTimeoutError) or others after a hang.
        """
        expired = ffi.new("uint32_t *")
        code = libdrm().amdgpu_cs_query_fence_status(
            self._struct(), timeout_ns(timeout), 0, expired
        )
        if code:
            raise failure(code, f"wait for {self}")
        if not expired[0]:
            raise errors.WaitTimeoutError(f"{self}: not reached in {timeout} s", codes.ETIME)

    def is_done(self) -> bool:
        """Whether it is.

        Raises:
            DeviceError: it failed.
        """
        try:
            self.wait(0)
        except errors.WaitTimeoutError:
            return False
        return True

    def _export(self, what: int, name: str) -> int:
        number = ffi.new("uint32_t *")
        device = self.context.device
        code = libdrm().amdgpu_cs_fence_to_handle(device._use(), self._struct(), what, number)
        if code:
            raise failure(code, f"make a {name} of {self}")
        return int(number[0])

    def export_syncobj(self) -> int:
        """A descriptor of a syncobj that holds it, which the caller closes."""
        return self._export(lib.AMDGPU_FENCE_TO_HANDLE_GET_SYNCOBJ_FD, "syncobj")

    def export_sync_file(self) -> int:
        """A descriptor of a sync file of it, which the caller closes."""
        return self._export(lib.AMDGPU_FENCE_TO_HANDLE_GET_SYNC_FILE_FD, "sync file")

    def __repr__(self) -> str:
        return f"<vmkv.drm.Fence {self.number} on {self.ip} ring {self.ring}>"


class Context(Part):
    """A context. Submissions on one ring of it run in order.

    Args:
        device: of which card.
        priority: "very_low" to "very_high" (more than "normal" takes rights), or the kernel's
            number.

    Attributes:
        device: the device.
    """

    __slots__ = ()

    def __init__(self, device: Device, priority: str | int = "normal") -> None:
        number = (
            choice("priority", PRIORITIES, priority)
            if isinstance(priority, str)
            else check_index("priority", priority)
        )
        super().__init__(libdrm().amdgpu_cs_ctx_free, device)
        word = number & 0xFFFFFFFF

        def create(pointer: Any, ret: Any) -> int:
            return int(libdrm().amdgpu_cs_ctx_create2(pointer, word, ret))

        self._make("struct amdgpu_context", f"make a context of priority {priority}", create)

    def _what(self) -> str:
        return "a context"

    @property
    def state(self) -> ContextState:
        """What happened to it."""
        flags = ffi.new("uint64_t *")
        code = libdrm().amdgpu_cs_query_reset_state2(self._use(), flags)
        if code:
            raise failure(code, "query the state of a context")
        found = int(flags[0])
        return ContextState(
            bool(found & lib.AMDGPU_CTX_QUERY2_FLAGS_RESET),
            bool(found & lib.AMDGPU_CTX_QUERY2_FLAGS_GUILTY),
            bool(found & lib.AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST),
            found,
        )

    def submit(
        self,
        ibs: Sequence[tuple[int, int]],
        *,
        ip: str = "dma",
        ring: int = 0,
        waits: Iterable[Fence | Signal] = (),
        signals: Iterable[Signal] = (),
        buffers: Iterable[Buffer] | BufferList = (),
        user_fence: tuple[Buffer, int] | None = None,
    ) -> Fence:
        """Submit indirect buffers to an engine; returns at once.

        Args:
            ibs: (address, bytes) of each; they run in order.
            ip, ring: which engine and which ring of it.
            waits: what has to be reached first: fences, syncobjs, (syncobj, point) pairs.
            signals: what holds the submission's fence: syncobjs or (syncobj, point) pairs.
            buffers: those that are used and aren't always valid, or a list of them.
            user_fence: a buffer of one page, and the offset where the fence's number is written.

        Raises:
            DeviceError: refused: errno says why; ECANCELED: the context is guilty of a reset.
            DeviceMemoryError: the buffers don't fit, or no memory; under pressure that can pass.
        """
        chunks = _Chunks()
        kind, number = choice("engine", IP_TYPES, ip), check_count("ring", ring)
        for address, size in ibs:
            chunks.add(
                lib.AMDGPU_CHUNK_ID_IB,
                "struct drm_amdgpu_cs_chunk_ib",
                [{"va_start": address, "ib_bytes": size, "ip_type": kind, "ring": number}],
            )
        chunks.add_waits(list(waits))
        chunks.add_signals(list(signals))
        listed = 0
        if isinstance(buffers, BufferList):
            listed = buffers.id
        else:
            chunks.add_buffers(buffers)
        if user_fence is not None:
            page, offset = user_fence
            chunks.add(
                lib.AMDGPU_CHUNK_ID_FENCE,
                "struct drm_amdgpu_cs_chunk_fence",
                [{"handle": page.handle, "offset": check_count("offset", offset)}],
            )
        ret = ffi.new("uint64_t *")
        code = libdrm().amdgpu_cs_submit_raw2(
            self.device._use(), self._use(), listed, len(chunks.heads), chunks.array(), ret
        )
        if code:
            raise failure(code, f"submit {len(ibs)} indirect buffers to {ip} ring {number}")
        return Fence(self, ip, number, int(ret[0]))


class _Chunks:
    """The parts of a submission, in the kernel's form."""

    def __init__(self) -> None:
        self.heads: list[list[int]] = []
        self._data: list[Any] = []  # what they point to

    def add(self, number: int, kind: str, records: Sequence[Any]) -> None:
        if not records:
            return
        data = ffi.new(f"{kind}[]", records)
        self._data.append(data)
        dwords = ffi.sizeof(kind) * len(records) // 4
        self.heads.append([number, dwords, int(ffi.cast("uintptr_t", data))])

    def add_waits(self, waits: Sequence[Fence | Signal]) -> None:
        fences = [wait for wait in waits if isinstance(wait, Fence)]
        others = [wait for wait in waits if not isinstance(wait, Fence)]
        dependencies = ffi.new("struct drm_amdgpu_cs_chunk_dep[]", max(len(fences), 1))
        for place, fence in enumerate(fences):
            libdrm().amdgpu_cs_chunk_fence_to_dep(fence._struct(), dependencies + place)
        kind = "struct drm_amdgpu_cs_chunk_dep"
        self.add(lib.AMDGPU_CHUNK_ID_DEPENDENCIES, kind, list(dependencies)[: len(fences)])
        self._add_syncobjs(
            others, lib.AMDGPU_CHUNK_ID_SYNCOBJ_IN, lib.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_WAIT
        )

    def add_signals(self, signals: Sequence[Signal]) -> None:
        self._add_syncobjs(
            signals, lib.AMDGPU_CHUNK_ID_SYNCOBJ_OUT, lib.AMDGPU_CHUNK_ID_SYNCOBJ_TIMELINE_SIGNAL
        )

    def _add_syncobjs(self, items: Sequence[Signal], binary: int, timeline: int) -> None:
        # The kernel takes one kind of chunk or the other. Point 0 is a binary syncobj in both.
        pairs = [(item, 0) if isinstance(item, Syncobj) else item for item in items]
        if not any(point for _, point in pairs):
            records = [{"handle": syncobj.id} for syncobj, _ in pairs]
            self.add(binary, "struct drm_amdgpu_cs_chunk_sem", records)
            return
        points = [
            {"handle": syncobj.id, "point": check_count("point", point, 64)}
            for syncobj, point in pairs
        ]
        self.add(timeline, "struct drm_amdgpu_cs_chunk_syncobj", points)

    def add_buffers(self, buffers: Iterable[Buffer]) -> None:
        entries = list_entries(buffers)
        if not len(entries):
            return
        self._data.append(entries)
        record = {
            "operation": _NO_LIST,
            "list_handle": _NO_LIST,
            "bo_number": len(entries),
            "bo_info_size": ffi.sizeof("struct drm_amdgpu_bo_list_entry"),
            "bo_info_ptr": int(ffi.cast("uintptr_t", entries)),
        }
        self.add(lib.AMDGPU_CHUNK_ID_BO_HANDLES, "struct drm_amdgpu_bo_list_in", [record])

    def array(self) -> Any:
        return ffi.new("struct drm_amdgpu_cs_chunk[]", self.heads)
