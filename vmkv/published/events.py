"""What happened last in a cache: the ring of its events."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from vmkv.published import layout
from vmkv.published.layout import Array

if TYPE_CHECKING:
    from vmkv.published.file import PublishedFile


# So many events at most: as many as the ring has entries, each about as many pieces as a model has.
_SPREAD = 1 << 20


def read_ring(file: PublishedFile, last: int, since: int = 0, *, spread: bool = True) -> Array:
    """Events with serials in (since, last], oldest first: an array of the C struct. Those that were
    overwritten already are not among them.

    Args:
        file: what to read.
        last: state.events of the snapshot that they are to be of.
        since: the last one that is known already.
        spread: whether what happened alike in several regions is an event for each of them.
    """
    count = min(last - since, layout.EVENTS)
    if count <= 0:
        return np.zeros(0, layout.dtype("event"))
    first = _copy(file, last, count)
    # What was overwritten meanwhile has another serial in the second copy: only that can be torn.
    second = _copy(file, last, count)
    wanted = np.arange(last - count + 1, last + 1, dtype=np.uint64)
    whole: Array = first[(first["serial"] == wanted) & (second["serial"] == wanted)]
    return _spread(whole, file.regions) if spread else whole


def _spread(events: Array, regions: Array) -> Array:
    """An event a piece: what happened alike in several regions is one in the ring."""
    first = events["region"].astype(np.int64)
    counts = np.maximum(events["regions"].astype(np.int64), 1)
    # Of a region that there isn't nothing more can be told.
    counts = np.where(first + counts <= len(regions), counts, 1)
    newest = np.cumsum(counts[::-1])[::-1] <= _SPREAD
    events, counts = events[newest], counts[newest]
    spread: Array = np.repeat(events, counts)
    ends = np.cumsum(counts)
    more = np.arange(len(spread)) - np.repeat(ends - counts, counts)
    several = np.flatnonzero(more)
    before = regions[spread["region"][several]]
    spread["region"][several] += more[several].astype(np.uint32)
    after = regions[spread["region"][several]]
    spread["address"][several] += (after["base"] - before["base"]) + spread["slot"][several] * (
        after["slot_stride"] - before["slot_stride"]
    )
    return spread


def _copy(file: PublishedFile, last: int, count: int) -> Array:
    """The entries that serials (last - count, last] belong at, in this order."""
    begin = (last - count) % layout.EVENTS
    head = min(count, layout.EVENTS - begin)
    parts = [file.read_entries("event", begin, head)]
    if count > head:
        parts.append(file.read_entries("event", 0, count - head))
    return np.concatenate(parts)


def describe(event: Array) -> dict[str, object]:
    """An event as JSON has it: bytes, nanoseconds, null for what it doesn't tell."""
    slot, region, duration = int(event["slot"]), int(event["region"]), int(event["duration_ns"])
    nothing = 0xFFFFFFFF
    return {
        "serial": int(event["serial"]),
        "time_ns": int(event["time_ns"]),
        "kind": layout.EVENT_KINDS.get(int(event["kind"]), "unknown"),
        "step": int(event["step"]),
        "sequence": int(event["seq"]) or None,
        "slot": None if slot == nothing else slot,
        "region": None if region == nothing else region,
        "address": int(event["address"]) or None,
        "bytes": int(event["bytes"]),
        "duration_ns": duration or None,
    }
