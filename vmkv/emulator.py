"""An amdgpu kernel driver in this process: cards that aren't there, for tests and measurements.

libdrm is the system's own; its ioctls on an emulated file go to the emulator. No GPU, no /dev, no
root. What a spec can say is in the header vmkv_emulator.h, and in `Emulator`.
"""

from __future__ import annotations

import contextlib
import errno as codes
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from vmkv import drm, errors
from vmkv._handle import Handle, read_text, text_buffer
from vmkv._native import ffi, lib
from vmkv._values import check_count, new_struct, read_struct
from vmkv.drm._base import choice, libdrm

_EVERY = 2**32 - 1


@dataclass(frozen=True)
class Stats:
    """The fields of `struct vmkv_emulator_stats`: what exists now on all files of the card, bytes
    of the heaps, and counts since the card was made."""

    files: int
    buffers: int
    handles: int
    mappings: int
    contexts: int
    buffer_lists: int
    syncobjs: int
    fences: int
    vram_bytes: int
    vram_used_bytes: int
    gtt_bytes: int
    gtt_used_bytes: int
    page_table_bytes: int
    ioctls: int
    refused: int
    submissions: int
    packets: int
    pte_jobs: int
    ptes_written: int
    evictions: int
    moved_bytes: int
    faults: int
    stale_accesses: int
    delayed_maps: int


@dataclass(frozen=True)
class Entry:
    """The fields of `struct vmkv_emulator_entry`: what the page tables say of an address."""

    address: int
    bytes: int
    physical: int
    valid: int
    readable: int
    writable: int
    executable: int
    prt: int
    fragment: int
    handle: int
    offset: int


@dataclass(frozen=True)
class Identity:
    """The fields of `struct vmkv_emulator_identity`: what a bus would tell of the card."""

    vendor_id: int
    device_id: int
    subsystem_vendor_id: int
    subsystem_device_id: int
    revision: int
    drm_minor: int
    vram_bytes: int
    gtt_bytes: int
    pci_slot: str


class Emulator(Handle):
    """An emulated card. A context manager that takes it away, with all files that are open on it.

    Every method may be called from any thread.

    Args:
        spec: MODEL[?name=value&...], such as "gfx1201?vram=16GiB&kernel=6.12". Models are gfx1030,
            gfx1100, gfx1201 and gfx942; kernels 6.1, 6.12 and 7.2.
            `inject=a,b` lets the card have faults that real ones were reported to have; the header
            says what each does: stale-translation, late-visibility (with `late_us=`),
            alias-diverges, vram-stolen, silent-gtt, unmap-ignored, timeline-ignored, device-lost,
            transient-enomem, ioctl:NAME:N:ERRNO.

    >>> with Emulator("gfx1100?vram=8GiB") as card, card.device() as device:
    ...     hex(device.card.device_id), device.memory.vram.total >> 30, card.stats().files
    ('0x744c', 8, 1)

    Attributes:
        spec: what it was made of.

    Raises:
        InvalidError: a malformed spec. HostMemoryError: the machine can't hold the card's memory.
    """

    __slots__ = ("spec",)

    def __init__(self, spec: str = "gfx1201") -> None:
        if "\0" in spec:
            raise errors.InvalidError(f"the spec of a card can't hold a NUL character: {spec!r}")
        self.spec = spec
        super().__init__(lib.vmkv_emulator_destroy)
        text = text_buffer()
        encoded = spec.encode(errors="surrogateescape")
        code = self._create(
            lambda ret: lib.vmkv_emulator_create(encoded, text, len(text), ret),
            "vmkv_emulator",
        )
        if code:
            errors.fail(code, read_text(text))

    def _what(self) -> str:
        return "the emulated card"

    def _read_error(self, text: Any, size: int) -> None:
        lib.vmkv_emulator_error(self._pointer, text, size)

    def open(self) -> int:
        """Open the card's render node: a descriptor of a new DRM file, which `close_file` closes.
        It also goes with the last duplicate that is closed as any other; that is noticed when it
        matters, as when memory is asked for.

        Raises:
            DeviceError: no descriptor is free. UnsupportedError: no libdrm.
        """
        libdrm()
        fd = ffi.new("int *")
        code = lib.vmkv_emulator_attach() or lib.vmkv_emulator_open(self._use(), fd)
        if code:
            self._fail(code)
        return int(fd[0])

    def close_file(self, fd: int) -> None:
        """Close a DRM file with all that it holds, as the last close of a real one does."""
        code = lib.vmkv_emulator_close(check_count("fd", fd, 31))
        if code:
            raise errors.DeviceError(f"descriptor {fd} is of no emulated file", -code)

    @contextlib.contextmanager
    def device(self, *, private: bool = False) -> Iterator[drm.Device]:
        """Open the card as a device on a new file of its own; both are closed at the end.

        libdrm gives a process one device for each card, so a second one shares the first one's file
        and address space, unless it is `private`; see `vmkv.drm.Device.open`."""
        fd = self.open()
        try:
            with drm.Device.open(fd, private=private) as device:
                yield device
        finally:
            self.close_file(fd)

    def identity(self) -> Identity:
        """What a bus would tell of the card."""
        struct = new_struct("vmkv_emulator_identity")
        code = lib.vmkv_emulator_identify(self._use(), struct)
        if code:
            self._fail(code)
        return read_struct(Identity, struct)

    @contextlib.contextmanager
    def served(self, name: str) -> Iterator[None]:
        """While it lasts, programs with the preload library find the card by that name, a socket's
        in the abstract namespace. The card must outlast it.

        Raises:
            DeviceError: the name is taken, or no descriptor is free.
        """
        server = ffi.new("vmkv_emulator_server **")
        code = lib.vmkv_emulator_serve(self._use(), name.encode(), server)
        if code:
            raise errors.DeviceError(f"the emulated card can't be served as {name!r}", -code)
        try:
            yield
        finally:
            lib.vmkv_emulator_serve_end(server[0])

    def stats(self) -> Stats:
        """What exists on the card, and counts."""
        struct = new_struct("vmkv_emulator_stats")
        code = lib.vmkv_emulator_stats(self._use(), struct)
        if code:
            self._fail(code)
        return read_struct(Stats, struct)

    def count(self, ioctl: str, operation: str | None = None) -> int:
        """How often an ioctl was called, such as "GEM_VA"; of GEM_VA, only those with an operation,
        such as "map".

        Raises:
            InvalidError: no such ioctl, or operation.
        """
        number = _EVERY
        if operation is not None:
            number = choice("operation", drm.OPERATIONS, operation)
        ret = ffi.new("uint64_t *")
        code = lib.vmkv_emulator_count(self._use(), ioctl.encode(), number, ret)
        if code == -codes.EINVAL:
            raise errors.InvalidError(f"no ioctl is called {ioctl!r}", -code)
        if code:
            self._fail(code)
        return int(ret[0])

    @staticmethod
    def ioctls() -> list[str]:
        """The names of all ioctls."""
        names: list[str] = []
        while name := lib.vmkv_emulator_ioctl_name(len(names)):
            names.append(ffi.string(name).decode())
        return names

    def counts(self) -> dict[str, int]:
        """How often each ioctl was called, those that were."""
        counts = {name: self.count(name) for name in self.ioctls()}
        return {name: count for name, count in counts.items() if count}

    def fail(self, ioctl: str, error: int, nth: int = 1) -> None:
        """Let the nth call of an ioctl from now on fail with an errno value; nth 0: none."""
        if not 0 < error < 4096:
            raise errors.InvalidError(f"error is {error}: it is a positive errno value")
        code = lib.vmkv_emulator_fail(
            self._use(), ioctl.encode(), check_count("nth", nth, 64), error
        )
        if code == -codes.EINVAL:
            raise errors.InvalidError(f"no ioctl is called {ioctl!r}", -code)
        if code:
            self._fail(code)

    def pause(self) -> None:
        """Let the card start no further job, until `resume`."""
        lib.vmkv_emulator_pause(self._use())

    def resume(self) -> None:
        """Let it run jobs again."""
        lib.vmkv_emulator_resume(self._use())

    @property
    def window(self) -> tuple[int, int] | None:
        """The half-open range of addresses where what is mapped appears in this process too; None
        without identity=1."""
        ends = ffi.new("uint64_t[2]")
        code = lib.vmkv_emulator_window(self._use(), ends, ends + 1)
        if code == -codes.ENOENT:
            return None
        if code:
            self._fail(code)
        return int(ends[0]), int(ends[1])

    @property
    def error(self) -> str:
        """What the card refused last, or what failed on it; "" if nothing did."""
        text = text_buffer()
        lib.vmkv_emulator_error(self._use(), text, len(text))
        return read_text(text)

    @staticmethod
    def walk(fd: int, address: int) -> Entry:
        """What the page tables of a file's address space say of an address, right now.

        Raises:
            DeviceError: the descriptor is of no emulated file.
        """
        struct = new_struct("vmkv_emulator_entry")
        number, where = check_count("fd", fd, 31), check_count("address", address, 64)
        code = lib.vmkv_emulator_walk(number, where, struct)
        if code:
            raise errors.DeviceError(f"walk to {where:#x} of descriptor {number}", -code)
        return read_struct(Entry, struct)

    def close(self) -> None:
        """Take the card away. Nothing happens if that is done already."""
        self._release()

    def __repr__(self) -> str:
        return f"<vmkv.emulator.Emulator {self.spec!r}{' closed' * self.closed}>"
