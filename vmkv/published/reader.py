"""Whole states of a cache, read from its file while it goes on.

The cache overwrites the older of two versions of whatever changes, and counts its changes: how a
copy is known to be of one moment is written in the C header of the format. Every copy here is
checked so, and taken again if it isn't, for a second at most.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from operator import is_not
from pathlib import Path
from typing import Any

import numpy as np

from vmkv._closing import Closing
from vmkv.published import layout
from vmkv.published.checks import check_bounds
from vmkv.published.events import read_ring
from vmkv.published.file import Copy, PublishedFile
from vmkv.published.layout import Array
from vmkv.published.processes import Condition, Observed
from vmkv.published.quick import QuickLook
from vmkv.published.snapshot import Known, Snapshot
from vmkv.published.versions import is_same, mappings, newest, only, plain

# How long to wait for a quiet moment.
PATIENCE_SECONDS = 1.0
# Pieces are copied so many pages at a time: enough for speed, few enough to be over soon.
_CHUNK_PAGES = 1 << 12
_NO_CHANGE = "damaged: its counters are of no change that was whole"
# Any epoch but that of a version which is being written.
_WRITTEN = (1 << 64) - 2


@dataclass
class _Draft:
    """A snapshot in the making. grown: whether more than lives is another than the last time."""

    epoch: int
    beat_ns: int
    state: dict[str, int]
    lives: Array
    slots: Array
    slabs: Array
    times: Array
    grown: bool = True
    pieces: Array | None = None


_Live = tuple[int, int, dict[str, int], Array]


class _ConflictError(Exception):
    """Something was overwritten while it was copied."""


class Reader(Closing):
    """Looks into one file again and again, and copies only what has changed. A context manager.

    Attributes:
        file: what it reads.
        quick: makes the first try of a look; None: no such try is made.
    """

    def __init__(self, file: PublishedFile) -> None:
        self.file = file
        self.quick: QuickLook | None = QuickLook(file)
        self._process = Observed(file.header.process)
        self._chunks: dict[int, tuple[int, Array]] = {}
        self._joined: tuple[list[Array], Array] | None = None
        self._fitting: Array | None = None
        self._last: Snapshot | None = None
        self._of_geometry: dict[str, Any] = {}
        self._slab_pages = file.header.slab_pages
        self._chunk_slabs = max(1, _CHUNK_PAGES // self._slab_pages)

    @classmethod
    def open(cls, path: str | Path, directory: int | None = None) -> Reader:
        """Open a file; arguments and errors are those of `PublishedFile.open`."""
        return cls(PublishedFile.open(path, directory))

    def close(self) -> None:
        """Close its files. Nothing happens if they are closed already."""
        self._process.close()
        self.file.close()

    def condition(self) -> Condition:
        """How the cache's process is now."""
        return self._process.condition()

    def look(self, *, pieces: bool = False, events: bool = False) -> Snapshot:
        """The state now; if it doesn't hold still for a second, one that isn't `settled`.

        Raises:
            PublishedError: the file was cut short, or tells of what can't be.
        """
        last, quick = self._last, self.quick.live() if self.quick is not None else None
        epoch, beat_ns = quick[:2] if quick is not None else self.file.read_epoch()
        known = last is not None and not events and (last.pieces is not None or not pieces)
        if last is not None and known and last.epoch == epoch:
            self.file.check_size()
            shown = last.pieces if pieces else None
            now_ns = time.monotonic_ns()
            return replace(last, taken_ns=now_ns, beat_ns=beat_ns, pieces=shown)
        draft, settled = self._patiently(pieces, epoch, quick)
        snapshot = self._snapshot(draft, events, settled)
        checked = check_bounds(snapshot, self._fitting, grown=draft.grown)
        if pieces:
            self._fitting = snapshot.pieces if checked is snapshot else None
        self._last = (replace(checked, events=None) if events else checked) if settled else None
        return checked

    def _patiently(self, pieces: bool, begun: int, quick: _Live | None) -> tuple[_Draft, bool]:
        """A draft, and whether it is of one moment. begun: the epoch before."""
        settled, end = True, time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                return self._draft(pieces, settled, quick), settled
            except _ConflictError:
                settled, quick = time.monotonic() < end, None
            over = time.monotonic() > end + PATIENCE_SECONDS
            if not settled and (over or self.file.read_epoch()[0] == begun):
                raise self.file.fail("damaged: what it holds was never one state")

    def _snapshot(self, draft: _Draft, events: bool, settled: bool) -> Snapshot:
        file, last = self.file, self._last
        growth = last.known.growth if last is not None and not draft.grown else {}
        return Snapshot(
            name=file.name,
            header=file.header,
            groups=file.groups,
            regions=file.regions,
            places=file.places,
            epoch=draft.epoch,
            taken_ns=time.monotonic_ns(),
            beat_ns=draft.beat_ns,
            state=draft.state,
            lives=draft.lives,
            slots=draft.slots,
            slabs=draft.slabs,
            times=draft.times,
            pieces=draft.pieces,
            events=read_ring(file, draft.state["events"]) if events else None,
            settled=settled,
            known=Known(self._of_geometry, growth),
        )

    def _join(self, chunks: list[Array]) -> Array:
        """All pieces in one array: the same as last time if none has changed."""
        last = self._joined
        if last is None or len(last[0]) != len(chunks) or any(map(is_not, last[0], chunks)):
            last = self._joined = chunks, _joined(chunks)
        return last[1]

    def steps(self) -> tuple[int, int]:
        """Steps that have succeeded, and when that was read: cheaper than a whole look."""
        end, begun = time.monotonic() + PATIENCE_SECONDS, self.file.read_epoch()[0]
        while True:
            epoch, _ = self.file.read_epoch()
            state = only(self.file.copy_entries("state"), epoch)
            still, over = self.file.read_epoch()[0] == epoch, time.monotonic() > end
            # With no moment's rest in a second, it is a step or two out at most.
            if state is not None and (still or over):
                return state["steps"] + epoch - state["epoch"], time.monotonic_ns()
            if over or (still and epoch == begun):
                raise self.file.fail(_NO_CHANGE)

    def events_since(self, serial: int) -> tuple[Array, int]:
        """Events after one that is known (0: from the first on), oldest first, and how many more
        serials there were, which were overwritten before anybody saw them."""
        last = self.look().number("events")
        found = read_ring(self.file, last, serial)
        return found, max(0, last - serial - len(np.unique(found["serial"])))

    # ---- one attempt ------------------------------------------------------------------------

    def _draft(self, pieces: bool, strict: bool, quick: _Live | None) -> _Draft:
        """Copy once. strict: raise _ConflictError unless it is whole. quick: what is copied."""
        last = self._last
        epoch, beat_ns, state, found = quick or self._live(strict)
        if strict and last is not None and last.state["epoch"] == state["epoch"]:
            # Nothing else has changed: what is large, or many, isn't copied a second time.
            same = last.slots, last.slabs, last.times, False, last.pieces
            draft = _Draft(epoch, beat_ns, last.state, found, *same)
        else:
            tables = self.quick.grown() if self.quick is not None and quick else None
            slots, slabs = tables or self._tables(epoch, state["epoch"], strict)
            times = self.file.read_entries("times")
            draft = _Draft(epoch, beat_ns, state, found, slots, slabs, times)
        if not pieces:
            draft.pieces = None
        elif draft.pieces is None:
            draft.pieces = self._join(self._pieces(draft, strict))
        return draft

    def _live(self, strict: bool) -> _Live:
        """Epoch, beat, state and lives."""
        file = self.file
        epoch, beat_ns = file.read_epoch()
        states, lives = file.copy("state", "live")
        if strict and file.read_epoch()[0] != epoch:
            raise _ConflictError
        state = only(states, epoch)
        if state is None and not strict and file.read_epoch()[0] == epoch:
            raise file.fail(_NO_CHANGE)
        if state is None:
            raise _ConflictError
        return epoch, beat_ns, state, _newest(lives, epoch, strict)

    def _tables(self, epoch: int, state_epoch: int, strict: bool) -> tuple[Array, Array]:
        """Slots and slabs."""
        slots, slabs = (_newest(copy, epoch, strict) for copy in self.file.copy("slot", "slab"))
        if strict and not self._still(state_epoch):
            for rows, copy in zip((slots, slabs), self.file.copy("slot", "slab"), strict=True):
                if not is_same(rows, _newest(copy, epoch, strict)):
                    raise _ConflictError
        return slots, slabs

    def _still(self, state_epoch: int) -> bool:
        """Whether nothing but lives has changed since."""
        now = only(self.file.copy_entries("state"), _WRITTEN)
        return now is not None and now["epoch"] == state_epoch

    def _pieces(self, draft: _Draft, strict: bool) -> list[Array]:
        slabs = draft.slabs
        held = np.flatnonzero(slabs["bytes"])
        # A slab that is gone has no pieces, and its last ones are not to come back with another.
        numbers = np.unique(held // self._chunk_slabs)
        for number in set(self._chunks) - set(numbers.tolist()):
            del self._chunks[number]
        found = []
        for number in numbers.tolist():
            first = number * self._chunk_slabs
            changed = int(slabs["epoch"][first : first + self._chunk_slabs].max())
            if number not in self._chunks or changed > self._chunks[number][0]:
                self._copy_chunk(number, draft, strict)
            if number in self._chunks:
                found.append(self._chunks[number][1])
        return found

    def _copy_chunk(self, number: int, draft: _Draft, strict: bool) -> None:
        per_chunk = self._chunk_slabs * self._slab_pages
        first = number * per_chunk
        # A raised budget can have slabs that there is no room for in the file: state.left_out.
        count = max(0, min(per_chunk, self.file.section("piece").count - first))
        first = min(first, self.file.section("piece").count)
        copy = self.file.copy_entries("piece", first, count)
        rows, conflict = mappings(copy, self.file.header, first, draft.epoch)
        if strict and conflict:
            raise _ConflictError
        if strict and not self._still(draft.state["epoch"]):
            copy = self.file.copy_entries("piece", first, count)
            again, conflict = mappings(copy, self.file.header, first, draft.epoch)
            if conflict or not is_same(rows, again):
                raise _ConflictError
        self._chunks[number] = (draft.epoch if strict else 0, rows)


def _newest(copy: Copy, epoch: int, strict: bool) -> Array:
    found, conflict = newest(copy, epoch)
    if conflict and strict:
        raise _ConflictError
    return found


def _joined(chunks: list[Array]) -> Array:
    if not chunks:
        return np.zeros(0, layout.MAPPING)
    return np.concatenate([plain(rows) for rows in chunks]).view(chunks[0].dtype)
