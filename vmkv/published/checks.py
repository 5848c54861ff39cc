"""What holds in every state of a cache, as the C header of the format says it. A file that says
otherwise is damaged, or its writer has a fault."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from vmkv.published import layout
from vmkv.published.file import PublishedError
from vmkv.published.layout import Array
from vmkv.published.versions import add_up

if TYPE_CHECKING:
    from vmkv.published.snapshot import Snapshot

_STATES = {
    "mapped": layout.PIECE_MAPPED,
    "warm": layout.PIECE_WARM,
    "retiring": layout.PIECE_RETIRING,
    "unmapping": layout.PIECE_UNMAPPING,
}


def check_bounds(
    snapshot: Snapshot, fitting: Array | None = None, *, grown: bool = True
) -> Snapshot:
    """Make sure that every number can be used to compute with: slots, regions, pages and slabs that
    exist. Of a state that isn't settled, what doesn't fit is left out.

    Args:
        snapshot: as it was copied.
        fitting: pieces that have been checked before, together with slabs that have not changed.
        grown: whether there is more to check than lives and pieces.

    Raises:
        PublishedError: a settled state tells of something that can't exist.
    """
    if grown:
        _check_tables(snapshot)
    if add_up(snapshot.lives, "tokens")[0].most > snapshot.header.max_tokens:
        most = snapshot.header.max_tokens
        raise _damaged(snapshot, f"a sequence of more than {most:,} tokens")
    if snapshot.pieces is None or snapshot.pieces is fitting:
        return snapshot
    fits = _pieces_fit(snapshot, snapshot.pieces)
    if fits.all():
        return snapshot
    if snapshot.settled:
        wrong = int(snapshot.pieces["phys"][np.flatnonzero(~fits)[0]])
        raise _damaged(snapshot, f"a mapping at page {wrong:,} that can't be")
    return replace(snapshot, pieces=snapshot.pieces[fits])


def _check_tables(snapshot: Snapshot) -> None:
    header, (sizes,) = snapshot.header, add_up(snapshot.slabs, "bytes")
    if sizes.most > header.slab_bytes or sizes.bits & (header.page_bytes - 1):
        raise _damaged(snapshot, "a slab that is longer than slabs are, or of no whole pages")
    if add_up(snapshot.slots, "state")[0].most > max(layout.SLOT_STATES):
        raise _damaged(snapshot, "a slot in a state that there isn't")
    if snapshot.number("steps") > snapshot.number("epoch"):
        raise _damaged(snapshot, "more steps than changes")


def _pieces_fit(snapshot: Snapshot, pieces: Array) -> Array:
    header = snapshot.header
    fits: Array = (pieces["slot"] < header.slot_count) & (pieces["region"] < len(snapshot.regions))
    fits &= (pieces["state"] > 0) & (pieces["state"] <= max(layout.PIECE_STATES))
    fits &= pieces["pages"] > 0
    strides = snapshot.regions["slot_stride"] // np.uint64(header.page_bytes)
    region = np.where(fits, pieces["region"], 0)
    end = pieces["page"].astype(np.uint64) + pieces["pages"]
    fits &= end <= strides[region]
    slab = pieces["phys"] // np.uint64(header.slab_pages)
    end = pieces["phys"] % np.uint64(header.slab_pages) + pieces["pages"]
    held = snapshot.slabs["bytes"][slab] // np.uint64(header.page_bytes)
    fits &= end <= held
    return fits


def contradictions(snapshot: Snapshot) -> list[str]:
    """What of a settled state doesn't fit together, a line each; nothing if all is well."""
    if not snapshot.settled:
        return []
    # Only this can change while all else stands still.
    found = snapshot.of_growth("contradictions", lambda: _of_counts(snapshot)).copy()
    if snapshot.epoch == snapshot.number("epoch"):
        found += _compare("live bytes", snapshot.live_bytes, snapshot.number("live_bytes"))
    if snapshot.pieces is not None and not snapshot.number("left_out"):
        found += _of_overlaps(snapshot)
        found += _of_pieces(snapshot)
        found += _of_lives(snapshot)
    return found


def _compare(what: str, ours: int, told: int) -> list[str]:
    return [] if ours == told else [f"{what}: {told:,} in all, {ours:,} counted"]


def _of_counts(snapshot: Snapshot) -> list[str]:
    number, (sizes,) = snapshot.number, add_up(snapshot.slabs, "bytes")
    held = [f"{name}_bytes" for name in (*_STATES, "zeroing", "held", "free_clean", "free_dirty")]
    found = [
        *_compare("open sequences", len(snapshot.open_slots), number("sequences")),
        *_compare("slabs", sizes.nonzero, number("slabs")),
        *_compare("slab bytes", sizes.sum, number("slab_bytes")),
        *_compare("bytes by state", sum(map(number, held)), number("slab_bytes")),
    ]
    if not number("left_out"):
        for what, table in (("slots", snapshot.slots), ("slabs", snapshot.slabs)):
            sums = add_up(table, *(f"{name}_pages" for name in _STATES))
            for name, pages in zip(_STATES, sums, strict=True):
                ours = pages.sum * snapshot.header.page_bytes
                found += _compare(f"{name} bytes of {what}", ours, number(f"{name}_bytes"))
    return found


def _of_overlaps(snapshot: Snapshot) -> list[str]:
    pieces = _pieces(snapshot)
    first, found = pieces["phys"].astype(np.uint64), []
    if (first[:-1] + pieces["pages"][:-1] > first[1:]).any():
        found.append("a physical page belongs to two mappings")
    order = snapshot.by_address
    begin = snapshot.starts[order]
    end = begin + pieces["pages"][order] * np.uint64(snapshot.header.page_bytes)
    if (end[:-1] > begin[1:]).any():
        found.append("an address belongs to two mappings")
    return found


def _of_pieces(snapshot: Snapshot) -> list[str]:
    """Sums of pieces by slot and by slab against what slots and slabs say."""
    header = snapshot.header
    pieces, found = _pieces(snapshot), []
    for what, table in (("slots", snapshot.slots), ("slabs", snapshot.slabs)):
        told = int(table["pieces"].astype(np.uint64).sum())
        if told != len(pieces):
            found.append(f"mappings of {what}: {told:,} in all, {len(pieces):,} counted")
    for name, state in _STATES.items():
        mine = pieces["state"] == state
        pages = pieces["pages"][mine].astype(np.float64)
        for what, numbers, table in (
            ("slot", pieces["slot"][mine], snapshot.slots),
            ("slab", pieces["phys"][mine] // header.slab_pages, snapshot.slabs),
        ):
            sums = np.bincount(numbers, pages, len(table)).astype(np.uint64)
            wrong = np.flatnonzero(sums != table[f"{name}_pages"])
            if len(wrong):
                index = int(wrong[0])
                found.append(
                    f"{name} pages of {what} {index}: {int(table[f'{name}_pages'][index]):,} in "
                    f"all, {int(sums[index]):,} counted"
                )
    return found


def _of_lives(snapshot: Snapshot) -> list[str]:
    """An open slot has memory for its live tokens, but for what its window has passed."""
    pieces = _pieces(snapshot)
    opened = snapshot.open_slots
    low, high = _needed_pages(snapshot, opened)
    # Slots are numbered among the open ones: there can be a million others.
    number = np.full(snapshot.header.slot_count, -1, np.int64)
    number[opened] = np.arange(len(opened))
    rows = pieces[pieces["state"] == layout.PIECE_MAPPED]
    rows = rows[number[rows["slot"]] >= 0]
    span = rows["region"].astype(np.int64) * len(opened) + number[rows["slot"]]
    begin = np.maximum(rows["page"].astype(np.int64), low.ravel()[span])
    end = np.minimum(rows["page"].astype(np.int64) + rows["pages"], high.ravel()[span])
    covered = np.maximum(end - begin, 0).astype(np.float64)
    sums = np.bincount(span, covered, low.size).reshape(low.shape)
    wrong = np.flatnonzero((sums < high - low).any(axis=0))
    if not len(wrong):
        return []
    slot = int(opened[wrong[0]])
    tokens = int(snapshot.lives["tokens"][slot])
    return [f"slot {slot} has no memory for some of its {tokens:,} live tokens"]


def _needed_pages(snapshot: Snapshot, opened: Array) -> tuple[Array, Array]:
    """Of each region and open slot: pages [low, high) of the span hold live tokens."""
    page_bytes = np.uint64(snapshot.header.page_bytes)
    tokens = snapshot.lives["tokens"][opened].astype(np.uint64)
    low = np.zeros((len(snapshot.regions), len(opened)), np.int64)
    high = np.zeros_like(low)
    for number, region in enumerate(snapshot.regions):
        dead = snapshot.dead_tokens(snapshot.groups[int(region["group"])])[opened]
        size = tokens * region["token_bytes"]
        if not region["token_bytes"]:  # a state: all of it, from the first step on
            size = np.where(tokens > 0, region["fixed_bytes"], np.uint64(0))
        low[number] = np.minimum(dead * region["token_bytes"], size) // page_bytes
        high[number] = (size + page_bytes - np.uint64(1)) // page_bytes
    return low, high


def _pieces(snapshot: Snapshot) -> Array:
    assert snapshot.pieces is not None
    return snapshot.pieces


def _damaged(snapshot: Snapshot, what: str) -> PublishedError:
    return PublishedError(f"{snapshot.name}: damaged: it tells of {what}")
