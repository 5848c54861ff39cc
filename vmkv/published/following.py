"""Events of a cache as they happen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vmkv._native import ffi
from vmkv.published.attribution import Places
from vmkv.published.events import describe, read_ring
from vmkv.published.layout import Array
from vmkv.published.reader import Reader
from vmkv.published.snapshot import Snapshot

SHORTAGES = {
    number: name.removeprefix("VMKV_SHORTAGE_").lower()
    for number, name in ffi.typeof("enum vmkv_shortage_kind").elements.items()
}


@dataclass(frozen=True)
class News:
    """What came since the last look.

    Attributes:
        snapshot: the state that the events lead to.
        lost: how many events were overwritten before they could be read: all before the others, as
            far as can be told.
        events: the others, oldest first: an array of the C struct.
    """

    snapshot: Snapshot
    lost: int
    events: Array


class Follower:
    """Reads each event of a cache once.

    Args:
        reader: of its file; it stays the caller's.
        last: how many of the events that are there already are read, too.
    """

    def __init__(self, reader: Reader, last: int = 0) -> None:
        self._reader, self._last = reader, last
        self._serial: int | None = None
        self._places: Places | None = None

    def look(self) -> News:
        """Everything new; errors are those of `Reader.look`."""
        snapshot = self._reader.look()
        newest = snapshot.number("events")
        if self._serial is None:
            self._serial = max(0, newest - self._last)
            # Those of before that are overwritten already are no loss to somebody who begins now.
            events = self._read(newest)
            lost = 0
        else:
            events = self._read(newest)
            lost = max(0, newest - self._serial - len(events))
        self._serial = max(self._serial, newest)
        if self._places is None:
            self._places = Places(snapshot)
        return News(snapshot, lost, events)

    def _read(self, newest: int) -> Array:
        assert self._serial is not None
        return read_ring(self._reader.file, newest, self._serial, spread=False)

    def told(self, event: Array) -> dict[str, Any]:
        """An event that `look` gave, as `events.describe` tells it and more: `realtime_ns` when it
        was by the calendar; `regions`, in how many places it happened to a piece, and their
        `total_bytes`; `slab`; `group`, `layer` and `tensor`, None where there is no single one; of
        a shortage `missing`: what there was too little of."""
        assert self._places is not None
        row: dict[str, Any] = describe(event)
        header, region, pieces = self._reader.file.header, row["region"], int(event["regions"])
        row["realtime_ns"] = header.created_realtime_ns + row["time_ns"] - header.created_ns
        row |= {"regions": pieces, "total_bytes": row["bytes"] * max(1, pieces)}
        row |= {"slab": None, "group": None, "layer": None, "tensor": None, "missing": None}
        if row["kind"] == "shortage":
            row["missing"], row["region"] = SHORTAGES.get(int(event["region"]), "unknown"), None
        elif row["kind"] in ("slab", "slab_gone"):
            row["slab"], row["region"] = region, None
        elif region is not None and 0 < pieces <= len(self._places.regions) - region:
            groups = self._places.regions["group"][region : region + pieces]
            row["group"] = int(groups[0]) if (groups == groups[0]).all() else None
            if pieces == 1:
                row["layer"], row["tensor"] = self._places.only(region)
        return row
