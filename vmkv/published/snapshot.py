"""The state of a cache at one moment, as it was read from its file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeVar

import numpy as np

from vmkv.published import layout
from vmkv.published.file import Header
from vmkv.published.layout import Array
from vmkv.published.versions import add_up, equal

Result = TypeVar("Result")


class Known(NamedTuple):
    """What was worked out of a snapshot and is the same in later ones, by name."""

    geometry: dict[str, Any]
    growth: dict[str, Any]


def _once(known: dict[str, Any], name: str, work_out: Callable[[], Result]) -> Result:
    if name not in known:
        known[name] = work_out()
    found: Result = known[name]
    return found


@dataclass(frozen=True)
class Snapshot:
    """The state of a cache after one of its changes. Arrays are of the C structs of the same names.

    Attributes:
        name: the file's.
        header: what is constant; groups, regions, places: the geometry.
        epoch: number of the change; taken_ns, beat_ns: when it was read and when the cache had last
            changed or stepped, CLOCK_MONOTONIC.
        state: the counters, as in vmkv_stats, by name.
        lives, slots: by slot.
        slabs: by slab; those with 0 bytes don't exist.
        times: histograms by kind of driver call, see `layout.CALLS`.
        pieces: the mappings, in order of `phys`, the number of the first physical page over all
            slabs: slab * header.slab_pages + page in it. None unless asked for.
        events: what happened last, oldest first; None unless asked for.
        settled: whether it is of one moment. False: the cache changed too fast for a second;
            lengths may be those of neighbouring steps, and sums need not fit.
        known: see of_geometry and of_growth.
    """

    name: str
    header: Header
    groups: Array
    regions: Array
    places: Array
    epoch: int
    taken_ns: int
    beat_ns: int
    state: dict[str, int]
    lives: Array
    slots: Array
    slabs: Array
    times: Array
    pieces: Array | None = None
    events: Array | None = None
    settled: bool = True
    known: Known = field(default_factory=lambda: Known({}, {}), repr=False, compare=False)

    def of_geometry(self, name: str, work_out: Callable[[], Result]) -> Result:
        """What follows from the header and the geometry: worked out once for all snapshots of a
        reader."""
        return _once(self.known.geometry, name, work_out)

    def of_growth(self, name: str, work_out: Callable[[], Result]) -> Result:
        """What follows from all but the lives: worked out once for all snapshots between which the
        cache only stepped."""
        return _once(self.known.growth, name, work_out)

    def number(self, name: str) -> int:
        """A number of the state."""
        return self.state[name]

    @property
    def steps(self) -> int:
        """Steps that have succeeded: the heartbeat."""
        # Changes behind the state's own were steps that mapped nothing.
        return self.number("steps") + self.epoch - self.number("epoch")

    @property
    def open_slots(self) -> Array:
        """Numbers of the slots that have an open sequence."""
        return self.of_growth("open", lambda: equal(self.slots, "state", layout.SLOT_OPEN))

    @property
    def _fixed_bytes(self) -> int:
        """Bytes of the states of all open sequences."""
        if not self.header.fixed_bytes:
            return 0
        (pages,) = add_up(self.slots, "mapped_pages", at=self.open_slots)
        return pages.nonzero * self.header.fixed_bytes

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

    @cached_property
    def live_bytes(self) -> int:
        """Bytes of all live tokens."""
        # As live_bytes_by_slot, but far cheaper: it is asked for ten times a second.
        opened, total = self.open_slots, self._fixed_bytes
        (tokens,) = add_up(self.lives, "tokens", at=opened)
        total += tokens.sum * self._row_bytes(windows=False)
        if self._row_bytes(windows=True):
            for group in self.groups[self.groups["window_tokens"] > 0]:
                alive = self.live_tokens(group)[opened]
                total += int(alive.sum(dtype=np.uint64)) * int(group["token_bytes"])
        return total

    def _row_bytes(self, *, windows: bool) -> int:
        """Bytes of a token in all groups with a window, or without."""

        def work_out() -> int:
            chosen = (self.groups["window_tokens"] > 0) == windows
            return int(self.groups["token_bytes"][chosen].sum(dtype=np.uint64))

        return self.of_geometry(f"row bytes, windows {windows}", work_out)

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
