"""Syncobjs: what the kernel signals when work is done, binary or with points on a timeline."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from vmkv import errors
from vmkv._native import ffi, lib
from vmkv._values import check_count
from vmkv.drm._base import Numbered, deadline_ns, failure, libdrm

if TYPE_CHECKING:
    from vmkv.drm.device import Device


class Syncobj(Numbered):
    """A syncobj. Made by `Device.syncobj` or `Device.import_syncobj`.

    It is binary (it holds one fence, or none yet) until a point of it is used; points are 1 or
    more and grow. In calls with a point, 0 means the binary one.
    """

    __slots__ = ()

    def __init__(self, device: Device) -> None:
        super().__init__(lib.vmkv_drm_id_destroy, device)

    @classmethod
    def create(cls, device: Device, *, signaled: bool = False) -> Syncobj:
        """Make one, which is signaled at once or holds no fence yet."""
        syncobj = cls(device)
        flags = lib.DRM_SYNCOBJ_CREATE_SIGNALED * signaled

        def create(pointer: Any, ret: Any) -> int:
            return int(libdrm().amdgpu_cs_create_syncobj2(pointer, flags, ret))

        syncobj._number("make a syncobj", libdrm().amdgpu_cs_destroy_syncobj, create)
        return syncobj

    @classmethod
    def import_fd(cls, device: Device, fd: int) -> Syncobj:
        """The syncobj behind a descriptor, which stays the caller's.

        Raises:
            DeviceError: it is no syncobj's (errno EINVAL).
        """
        syncobj = cls(device)
        number = check_count("fd", fd, 31)

        def create(pointer: Any, ret: Any) -> int:
            return int(libdrm().amdgpu_cs_import_syncobj(pointer, number, ret))

        what = f"import a syncobj from descriptor {number}"
        syncobj._number(what, libdrm().amdgpu_cs_destroy_syncobj, create)
        return syncobj

    def _what(self) -> str:
        return "a syncobj"

    def _one(self) -> Any:
        return ffi.new("uint32_t *", self.id)

    def wait(
        self, point: int = 0, timeout: float | None = None, *, for_submit: bool = False
    ) -> None:
        """Wait until it is signaled, or that point of it is. `for_submit`: if it holds no fence yet
        for that, wait for one too.

        Raises:
            WaitTimeoutError: not in that time. DeviceError: it holds no fence yet (errno EINVAL).
        """
        waits = [(self, point)] if point else [self]
        wait_syncobjs(self.device, waits, timeout, for_submit=for_submit)

    def is_signaled(self, point: int = 0) -> bool:
        """Whether a wait would return at once. False if it holds no fence yet."""
        try:
            self.wait(point, 0, for_submit=True)
        except errors.WaitTimeoutError:
            return False
        return True

    def signal(self, point: int = 0) -> None:
        """Signal it now, or a point of it (and all before it)."""
        if point:
            points = ffi.new("uint64_t *", check_count("point", point, 64))
            code = libdrm().amdgpu_cs_syncobj_timeline_signal(
                self.device._use(), self._one(), points, 1
            )
        else:
            code = libdrm().amdgpu_cs_syncobj_signal(self.device._use(), self._one(), 1)
        if code:
            raise failure(code, f"signal {self} at point {point}")

    def reset(self) -> None:
        """Let it hold no fence."""
        code = libdrm().amdgpu_cs_syncobj_reset(self.device._use(), self._one(), 1)
        if code:
            raise failure(code, f"reset {self}")

    def query(self, *, submitted: bool = False) -> int:
        """The greatest point that is reached, or, `submitted`, that has a fence; 0 if it is
        binary."""
        points = ffi.new("uint64_t *")
        if submitted:
            flags = lib.DRM_SYNCOBJ_QUERY_FLAGS_LAST_SUBMITTED
            code = libdrm().amdgpu_cs_syncobj_query2(
                self.device._use(), self._one(), points, 1, flags
            )
        else:
            code = libdrm().amdgpu_cs_syncobj_query(self.device._use(), self._one(), points, 1)
        if code:
            raise failure(code, f"query {self}")
        return int(points[0])

    def export(self) -> int:
        """A descriptor of it, which the caller closes, for other devices and processes."""
        fd = ffi.new("int *")
        code = libdrm().amdgpu_cs_export_syncobj(self.device._use(), self.id, fd)
        if code:
            raise failure(code, f"export {self}")
        return int(fd[0])

    def export_sync_file(self, point: int = 0, *, for_submit: bool = False) -> int:
        """A descriptor of a sync file, which the caller closes: of the fence that it holds now, for
        that point.

        Raises:
            DeviceError: it holds none (errno EINVAL).
        """
        fd, number = ffi.new("int *"), check_count("point", point, 64)
        flags = lib.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT * for_submit
        code = libdrm().amdgpu_cs_syncobj_export_sync_file2(
            self.device._use(), self.id, number, flags, fd
        )
        if code:
            raise failure(code, f"export point {number} of {self} as sync file")
        return int(fd[0])

    def import_sync_file(self, fd: int, point: int = 0) -> None:
        """Hold a sync file's fence, for that point. The descriptor stays the caller's."""
        number, place = check_count("fd", fd, 31), check_count("point", point, 64)
        code = libdrm().amdgpu_cs_syncobj_import_sync_file2(
            self.device._use(), self.id, place, number
        )
        if code:
            raise failure(code, f"import the sync file {number} as point {place} of {self}")

    def transfer(
        self, source: Syncobj, source_point: int = 0, point: int = 0, *, for_submit: bool = False
    ) -> None:
        """Hold the fence that another syncobj of the device holds (for a point), for a point."""
        from_point, to_point = (
            check_count("source_point", source_point, 64),
            check_count("point", point, 64),
        )
        flags = lib.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT * for_submit
        code = libdrm().amdgpu_cs_syncobj_transfer(
            self.device._use(), self.id, to_point, source.id, from_point, flags
        )
        if code:
            raise failure(code, f"transfer point {from_point} of {source} to {self}")

    def __repr__(self) -> str:
        return f"<vmkv.drm.Syncobj {'closed' if self.closed else self.id}>"


def wait_syncobjs(
    device: Device,
    waits: Sequence[Syncobj | tuple[Syncobj, int]],
    timeout: float | None = None,
    *,
    every: bool = True,
    for_submit: bool = False,
) -> int:
    """Wait for several syncobjs or (syncobj, point) pairs, for every one or for any; returns the
    index of one that is signaled (0 if `every`). `for_submit`: where there is no fence yet, wait
    for one too.

    Raises:
        WaitTimeoutError: not within timeout seconds (None: for ever). DeviceError: one holds no
        fence yet (errno EINVAL).
    """
    pairs = [wait if isinstance(wait, tuple) else (wait, 0) for wait in waits]
    if not pairs:
        raise errors.InvalidError("there is no syncobj to wait for")
    handles = ffi.new("uint32_t[]", [syncobj.id for syncobj, _ in pairs])
    points = [check_count("point", point, 64) for _, point in pairs]
    flags = (
        lib.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_ALL * every
        | lib.DRM_SYNCOBJ_WAIT_FLAGS_WAIT_FOR_SUBMIT * for_submit
    )
    first, count, deadline = ffi.new("uint32_t *"), len(pairs), deadline_ns(timeout)
    if any(points):
        code = libdrm().amdgpu_cs_syncobj_timeline_wait(
            device._use(), handles, ffi.new("uint64_t[]", points), count, deadline, flags, first
        )
    else:
        code = libdrm().amdgpu_cs_syncobj_wait(
            device._use(), handles, count, deadline, flags, first
        )
    if code:
        names = ", ".join(f"{syncobj.id}" + f" at {at}" * bool(at) for syncobj, at in pairs[:4])
        some = ", ..." if count > 4 else ""
        raise failure(code, f"wait for syncobj {names}{some}")
    return 0 if every else int(first[0])
