"""Whole states of a cache, read from its file while it goes on.

The cache overwrites the older of two versions of whatever changes, and counts its changes: how a
copy is known to be of one moment is written in the C header of the format. Every copy here is
checked so, and taken again if it isn't, for a second at most.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from functools import cached_property
from operator import is_not
from pathlib import Path

import numpy as np

from vmkv._closing import Closing
from vmkv.published import layout
from vmkv.published.checks import check_bounds
from vmkv.published.events import read_ring
from vmkv.published.file import Header, PublishedFile
from vmkv.published.layout import Array

# How long to wait for a quiet moment.
PATIENCE_SECONDS = 1.0
# Pieces are copied so many pages at a time: enough for speed, few enough to be over soon.
_CHUNK_PAGES = 1 << 12


@dataclass(frozen=True)
class Snapshot:
    """The state of a cache after one of its changes. Arrays are of the C structs of the same names.

    Attributes:
        name: the file's.
        header: what is constant; groups, regions, places: the geometry.
        epoch: number of the change; taken_ns, beat_ns: when it was read and when the cache had last
            changed or stepped, CLOCK_MONOTONIC.
        state: the counters, as in vmkv_stats: one record.
        lives, slots: by slot.
        slabs: by slab; those with 0 bytes don't exist.
        times: histograms by kind of driver call, see `layout.CALLS`.
        pieces: the mappings, in order of `phys`, the number of the first physical page over all
            slabs: slab * header.slab_pages + page in it. None unless asked for.
        events: what happened last, oldest first; None unless asked for.
        settled: whether it is of one moment. False: the cache changed too fast for a second;
            lengths may be those of neighbouring steps, and sums need not fit.
    """

    name: str
    header: Header
    groups: Array
    regions: Array
    places: Array
    epoch: int
    taken_ns: int
    beat_ns: int
    state: Array
    lives: Array
    slots: Array
    slabs: Array
    times: Array
    pieces: Array | None = None
    events: Array | None = None
    settled: bool = True

    def number(self, name: str) -> int:
        """A number of the state."""
        return int(self.state[name])

    @property
    def steps(self) -> int:
        """Steps that have succeeded: the heartbeat."""
        # Changes behind the state's own were steps that mapped nothing.
        return self.number("steps") + self.epoch - self.number("epoch")

    @cached_property
    def open_slots(self) -> Array:
        """Numbers of the slots that have an open sequence."""
        return np.flatnonzero(self.slots["state"] == layout.SLOT_OPEN)

    @cached_property
    def live_bytes_by_slot(self) -> Array:
        """Bytes of the live tokens of each slot's sequence, its states included."""
        lives, opened = self.lives, self.slots["state"] == layout.SLOT_OPEN
        total = np.zeros(len(lives), np.uint64)
        for group in self.groups:
            total += self.live_tokens(group) * group["token_bytes"]
        held = self.slots["mapped_pages"] > 0
        total += np.where(held, np.uint64(self.header.fixed_bytes), np.uint64(0))
        counted: Array = np.where(opened, total, np.uint64(0))
        return counted

    def live_tokens(self, group: Array) -> Array:
        """Tokens of each slot that a group has rows of: a window's pass away."""
        tokens = self.lives["tokens"].astype(np.uint64)
        alive: Array = tokens - np.minimum(self.dead_tokens(group), tokens)
        return alive

    def dead_tokens(self, group: Array) -> Array:
        """Tokens of each slot that a group's window has passed."""
        window = group["window_tokens"]
        previous = self.lives["previous"].astype(np.uint64)
        if not window:
            return np.zeros(len(previous), np.uint64)
        dead: Array = previous - np.minimum(previous, window)
        return dead

    @cached_property
    def starts(self) -> Array:
        """The address that each piece begins at."""
        assert self.pieces is not None
        region = self.pieces["region"]
        pages = self.pieces["page"] * np.uint64(self.header.page_bytes)
        slots = self.pieces["slot"] * self.regions["slot_stride"][region]
        starts: Array = self.regions["base"][region] + slots + pages
        return starts

    @cached_property
    def by_address(self) -> Array:
        """Indexes of the pieces in order of address."""
        return np.argsort(self.starts, kind="stable")

    @property
    def live_bytes(self) -> int:
        """Bytes of all live tokens."""
        return int(self.live_bytes_by_slot.sum())

    @property
    def mapped_bytes(self) -> int:
        """Physical bytes behind the addresses of open sequences."""
        return self.number("mapped_bytes")

    @property
    def waste(self) -> float:
        """The part of the mapped bytes that holds no live token; 0 if nothing is mapped."""
        return max(0.0, 1 - self.live_bytes / self.mapped_bytes) if self.mapped_bytes else 0.0

    @property
    def driver_calls(self) -> int:
        """Driver calls of all kinds."""
        kinds = ("map_calls", "unmap_calls", "fill_calls", "slab_calls")
        return sum(self.number(kind) for kind in kinds)


@dataclass
class _Draft:
    """A snapshot in the making."""

    epoch: int
    beat_ns: int
    state: Array
    lives: Array
    slots: Array
    slabs: Array
    pieces: list[Array] = field(default_factory=list)


class _ConflictError(Exception):
    """Something was overwritten while it was copied."""


class Reader(Closing):
    """Looks into one file again and again, and copies only what has changed. A context manager.

    Attributes:
        file: what it reads.
    """

    def __init__(self, file: PublishedFile) -> None:
        self.file = file
        self._chunks: dict[int, tuple[int, Array]] = {}
        self._joined: tuple[list[Array], Array] | None = None
        self._fitting: Array | None = None
        self._last: Snapshot | None = None
        self._slab_pages = file.header.slab_pages
        self._chunk_slabs = max(1, _CHUNK_PAGES // self._slab_pages)

    @classmethod
    def open(cls, path: str | Path, directory: int | None = None) -> Reader:
        """Open a file; arguments and errors are those of `PublishedFile.open`."""
        return cls(PublishedFile.open(path, directory))

    def close(self) -> None:
        """Close the file. Nothing happens if it is closed already."""
        self.file.close()

    def look(self, *, pieces: bool = False, events: bool = False) -> Snapshot:
        """The state now; if it doesn't hold still for a second, one that isn't `settled`.

        Raises:
            PublishedError: the file was cut short, or tells of what can't be.
        """
        last = self._last
        if last is not None and not events and (last.pieces is not None or not pieces):
            stepped = self._only_stepped(last, pieces)
            if stepped is not None:
                return stepped
        begun, end = self.file.read_epoch()[0], time.monotonic() + PATIENCE_SECONDS
        settled = True
        while True:
            try:
                draft = self._draft(pieces, settled)
                break
            except _ConflictError:
                settled = time.monotonic() < end
            if not settled and self.file.read_epoch()[0] == begun:
                raise self.file.fail("damaged: what it holds was never one state")
        file = self.file
        snapshot = Snapshot(
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
            times=file.read_entries("times")[:, 0],
            pieces=self._join(draft.pieces) if pieces else None,
            events=read_ring(file, int(draft.state["events"])) if events else None,
            settled=settled,
        )
        checked = check_bounds(snapshot, self._fitting)
        self._fitting = snapshot.pieces if checked is snapshot else None
        self._last = checked if settled else None
        return checked

    def _only_stepped(self, last: Snapshot, pieces: bool) -> Snapshot | None:
        """The state now, if nothing but lives has changed since the last look; else None. What is
        large, or many, isn't copied and checked a second time."""
        file = self.file
        epoch, beat_ns = file.read_epoch()
        raw = {name: file.read_entries(name) for name in ("state", "live")}
        if file.read_epoch()[0] != epoch:
            return None
        state, unsure = _newest(raw["state"], epoch)
        lives, unsure_lives = _newest(raw["live"], epoch)
        if unsure or unsure_lives or state[0]["epoch"] != last.state["epoch"]:
            return None
        snapshot = replace(
            last,
            epoch=epoch,
            taken_ns=time.monotonic_ns(),
            beat_ns=beat_ns,
            lives=lives,
            times=file.read_entries("times")[:, 0],
            pieces=last.pieces if pieces else None,
            events=None,
        )
        return check_bounds(snapshot, snapshot.pieces)

    def _join(self, chunks: list[Array]) -> Array:
        """All pieces in one array: the same as last time if none has changed."""
        last = self._joined
        if last is None or len(last[0]) != len(chunks) or any(map(is_not, last[0], chunks)):
            last = self._joined = chunks, _joined(chunks)
        return last[1]

    def steps(self) -> tuple[int, int]:
        """Steps that have succeeded, and when that was read: cheaper than a whole look."""
        for _ in range(1000):
            epoch, _ = self.file.read_epoch()
            state, conflict = _newest(self.file.read_entries("state"), epoch)
            if self.file.read_epoch()[0] == epoch and not conflict:
                break
        return int(state[0]["steps"]) + epoch - int(state[0]["epoch"]), time.monotonic_ns()

    def events_since(self, serial: int) -> tuple[Array, int]:
        """Events after one that is known (0: from the first on), oldest first, and how many more
        serials there were, which were overwritten before anybody saw them."""
        last = self.look().number("events")
        found = read_ring(self.file, last, serial)
        return found, max(0, last - serial - len(np.unique(found["serial"])))

    # ---- one attempt ------------------------------------------------------------------------

    def _draft(self, pieces: bool, strict: bool) -> _Draft:
        """Copy once. strict: raise _ConflictError unless it is whole."""
        file = self.file
        epoch, beat_ns = file.read_epoch()
        raw = {name: file.read_entries(name) for name in ("state", "live")}
        if strict and file.read_epoch()[0] != epoch:
            raise _ConflictError
        raw |= {name: file.read_entries(name) for name in ("slot", "slab")}
        chosen = {}
        for name, entries in raw.items():
            chosen[name], conflict = _newest(entries, epoch)
            if conflict and strict:
                raise _ConflictError
        tables = chosen["live"], chosen["slot"], chosen["slab"]
        draft = _Draft(epoch, beat_ns, chosen["state"][0], *tables)
        if strict and not self._still(draft):
            for name in ("slot", "slab"):
                _check_second(raw[name], file.read_entries(name), epoch)
        if pieces:
            draft.pieces = self._pieces(draft, strict)
        return draft

    def _still(self, draft: _Draft) -> bool:
        """Whether nothing but lives has changed since."""
        newest = self.file.read_entries("state")["epoch"].max()
        return bool(newest == draft.state["epoch"])

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
        raw = self.file.read_entries("piece", first, count)
        which, conflict = _choose(raw, draft.epoch)
        if strict and conflict.any():
            raise _ConflictError
        if strict and not self._still(draft):
            _check_second(raw, self.file.read_entries("piece", first, count), draft.epoch)
        pages = raw["pages"]
        held = np.flatnonzero(np.where(which, pages[:, 1], pages[:, 0]))
        rows = _picked(raw.reshape(-1), 2 * held + which[held])
        if (rows["phys"] // self._slab_pages != (held + first) // self._slab_pages).any():
            if strict:
                raise self.file.fail("damaged: it tells of a mapping of another slab's pages")
            return
        # Within a slab they are in an order of the writer's own.
        rows = _picked(rows, np.argsort(rows["phys"], kind="stable"))
        self._chunks[number] = (draft.epoch if strict else 0, rows)


def _choose(raw: Array, epoch: int) -> tuple[Array, Array]:
    """Which of two versions counts (True: the second), and for which entries neither does."""
    first, second = raw["epoch"][:, 0], raw["epoch"][:, 1]
    limit = np.uint64(epoch)
    first_counts, second_counts = first <= limit, second <= limit
    which = second_counts & (~first_counts | (second > first))
    return which, ~(first_counts | second_counts)


def _newest(raw: Array, epoch: int) -> tuple[Array, bool]:
    """The version of each entry that counts, and whether one was missing."""
    which, conflict = _choose(raw, epoch)
    return _picked(raw.reshape(-1), 2 * np.arange(len(raw)) + which), bool(conflict.any())


def _check_second(raw: Array, again: Array, epoch: int) -> None:
    """A version that has the same epoch in a second copy was not touched by the first.

    Raises:
        _ConflictError: one was.
    """
    which, _ = _choose(raw, epoch)
    index = which.astype(np.intp), np.arange(len(raw))
    if (raw["epoch"].T[index] != again["epoch"].T[index]).any():
        raise _ConflictError


def _joined(chunks: list[Array]) -> Array:
    if not chunks:
        return np.zeros(0, layout.dtype("piece"))
    return np.concatenate([_plain(rows) for rows in chunks]).view(chunks[0].dtype)


def _picked(rows: Array, indexes: Array) -> Array:
    """Some of the rows. Faster than numpy, which copies structs field by field."""
    return _plain(rows)[indexes].view(rows.dtype)


def _plain(rows: Array) -> Array:
    return rows.view(f"V{rows.dtype.itemsize}")
