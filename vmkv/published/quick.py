"""The first try of a look, in a few calls of C: it nearly always succeeds, and ten looks a second
are to cost next to nothing. What it can't read is left to `Reader`, which knows what is wrong."""

from __future__ import annotations

from typing import Any

import numpy as np

from vmkv._native import ffi, lib
from vmkv.published import layout
from vmkv.published.file import PublishedFile
from vmkv.published.layout import Array


class QuickLook:
    """Reads what changes and is small.

    Args:
        file: of which; it stays the caller's.
    """

    def __init__(self, file: PublishedFile) -> None:
        self._file = file
        names = ("state", "live", "slot", "slab")
        sections = [file.section(name) for name in names]
        self._room = ffi.new("char[]", max(section.end - section.offset for section in sections))
        self._look = ffi.new("struct vmkv_pick_look *")
        self._look.header_offset = layout.offset("header", "epoch")
        self._look.room = self._room
        self._state = ffi.new("char[]", sections[0].entry_bytes)
        self._sections = ffi.new(
            "struct vmkv_pick_section[]",
            [(one.offset, one.count, one.entry_bytes, ffi.NULL) for one in sections],
        )
        self._sections[0].ret = self._state
        self._fields, self._unpack = layout.fields("state"), layout.packed("state").unpack_from
        self._empty = [(one.count, one.dtype) for one in sections]

    def live(self) -> tuple[int, int, dict[str, int], Array] | None:
        """Epoch, beat, state and lives of one moment; None: another try has to be made."""
        lives, sections = np.empty(*self._empty[1]), self._sections
        self._look.fd = self._file.descriptor
        sections[1].ret = ffi.from_buffer(lives)
        if lib.vmkv_pick_look_live(self._look, sections, sections + 1):
            return None
        state: Any = self._unpack(ffi.buffer(self._state))
        told = dict(zip(self._fields, state, strict=True))
        return self._look.epoch, self._look.beat_ns, told, lives

    def grown(self) -> tuple[Array, Array] | None:
        """Slots and slabs of the state that `live` just gave; None: as there."""
        slots, slabs = np.empty(*self._empty[2]), np.empty(*self._empty[3])
        self._sections[2].ret, self._sections[3].ret = map(ffi.from_buffer, (slots, slabs))
        if lib.vmkv_pick_look_grown(self._look, self._sections, self._sections + 2):
            return None
        return slots, slabs
