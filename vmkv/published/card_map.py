"""Where a cache's physical memory is and what for: slab by slab, for screens and pictures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from vmkv.published import layout
from vmkv.published.layout import Array
from vmkv.published.snapshot import Snapshot

# All of it is physical memory. "empty" is mapped, but holds no live token; "untaken" is no slab.
KINDS = ("live", "empty", "warm", "passing", "free", "untaken")
_PASSING = (layout.PIECE_RETIRING, layout.PIECE_UNMAPPING)


def live_bytes_by_piece(snapshot: Snapshot) -> Array:
    """Bytes of live rows behind each piece, of a snapshot that was taken with its pieces."""
    assert snapshot.pieces is not None
    pieces, header = snapshot.pieces, snapshot.header
    page_bytes = np.int64(header.page_bytes)
    begin = pieces["page"].astype(np.int64) * page_bytes
    end = begin + pieces["pages"].astype(np.int64) * page_bytes
    tokens = snapshot.lives["tokens"].astype(np.int64)
    total = np.zeros(len(pieces), np.int64)
    for number, region in enumerate(snapshot.regions):
        group, token_bytes = snapshot.groups[int(region["group"])], np.int64(region["token_bytes"])
        chosen = np.flatnonzero(
            (pieces["region"] == number) & (pieces["state"] == layout.PIECE_MAPPED)
        )
        if not token_bytes:  # a state
            most = np.minimum(end[chosen], np.int64(region["fixed_bytes"]))
            total[chosen] = np.maximum(most - begin[chosen], 0)
            continue
        slots = pieces["slot"][chosen]
        dead = np.minimum(snapshot.dead_tokens(group).astype(np.int64), tokens)
        first = np.maximum(begin[chosen], dead[slots] * token_bytes)
        last = np.minimum(end[chosen], tokens[slots] * token_bytes)
        total[chosen] = np.maximum(last - first, 0)
    return total


@dataclass(frozen=True)
class CardMap:
    """Slabs in rows, and what cells are: in a mixed one something that is in it.

    Attributes:
        slabs_per_row, cell_bytes: how much physical memory a row and a cell stand for.
        first_slabs: the first slab of each row.
        cells: numbers of KINDS, of shape (rows, columns).
    """

    slabs_per_row: int
    cell_bytes: float
    first_slabs: list[int]
    cells: Array

    @classmethod
    def of(cls, snapshot: Snapshot, columns: int, rows_max: int) -> CardMap:
        """A map of so many cells at most; of a snapshot that was taken with its pieces."""
        header = snapshot.header
        slabs = _slabs_of_budget(snapshot)
        per_row = max(1, -(-slabs // max(rows_max, 1)))
        rows = -(-slabs // per_row)
        columns = max(1, min(columns, per_row * header.slab_pages))
        row_pages = per_row * header.slab_pages
        # A cell may end within a page: what is in it is told by its part of it.
        edges = (np.arange(rows * columns + 1) * (row_pages / columns)).astype(np.float64)
        amounts = np.diff(_amounts(snapshot, edges), axis=1)
        return cls(
            slabs_per_row=per_row,
            cell_bytes=row_pages * header.page_bytes / columns,
            first_slabs=[row * per_row for row in range(rows)],
            cells=_chosen(amounts.reshape(len(KINDS), rows, columns)),
        )


def _chosen(amounts: Array) -> Array:
    """A kind for each cell, of shape (rows, columns): what a mixed cell doesn't show is made up for
    in the next ones of its row, so that as much of a row is of a kind as of the memory."""
    owed = np.zeros(amounts.shape[:2])
    cells = np.zeros(amounts.shape[1:], np.intp)
    size, rows = amounts.sum(axis=0), np.arange(amounts.shape[1])
    for column in range(amounts.shape[2]):
        owed += amounts[:, :, column]
        # What isn't in a cell at all isn't shown there, however much of it is owed.
        kind = np.where(amounts[:, :, column] > 0, owed, -np.inf).argmax(axis=0)
        owed[kind, rows] -= size[:, column]
        cells[:, column] = kind
    return cells


def _slabs_of_budget(snapshot: Snapshot) -> int:
    """Slabs that there are, or that there can be."""
    held = np.flatnonzero(snapshot.slabs["bytes"])
    last = int(held[-1]) + 1 if len(held) else 0
    whole = -(-snapshot.number("budget_bytes") // snapshot.header.slab_bytes)
    return max(1, last, min(whole, len(snapshot.slabs)))


def _amounts(snapshot: Snapshot, edges: Array) -> Array:
    """Pages of each kind below each edge, which are in pages: of shape (kinds, edges)."""
    pieces, header = snapshot.pieces, snapshot.header
    assert pieces is not None
    pages = pieces["pages"].astype(np.float64)
    state = pieces["state"]
    live = live_bytes_by_piece(snapshot) / header.page_bytes
    parts = {
        "live": live,
        "empty": np.where(state == layout.PIECE_MAPPED, pages - live, 0.0),
        "warm": np.where(state == layout.PIECE_WARM, pages, 0.0),
        "passing": np.where(np.isin(state, _PASSING), pages, 0.0),
    }
    # Before each edge begin so many pieces; the last of them may reach beyond it.
    begun = np.searchsorted(pieces["phys"], edges, "left")
    last = np.maximum(begun - 1, 0)
    inside = np.ones(len(edges))
    if len(pieces):
        behind = edges - pieces["phys"][last].astype(np.float64)
        inside = np.clip(behind / np.maximum(pages[last], 1.0), 0.0, 1.0)
    told = [_below(part, begun, last, inside) for part in parts.values()]
    sizes = snapshot.slabs["bytes"].astype(np.float64) / header.page_bytes
    starts = np.arange(len(sizes)) * np.float64(header.slab_pages)
    slab = np.minimum((edges // header.slab_pages).astype(np.intp), max(len(sizes) - 1, 0))
    before = np.concatenate([[0.0], np.cumsum(sizes)])
    held = before[slab] + np.clip(edges - starts[slab], 0.0, sizes[slab])
    return np.stack([*told, held - sum(told), edges - held])


def _below(part: Array, begun: Array, last: Array, inside: Array) -> Array:
    sums = np.concatenate([[0.0], np.cumsum(part)])
    if not len(part):
        return np.zeros(len(begun))
    below: Array = np.where(begun > 0, sums[last] + part[last] * inside, 0.0)
    return below


def sizes_of(snapshot: Snapshot) -> dict[str, int]:
    """Physical bytes of each kind but the last two, which are one: what isn't used of the budget.
    Of a snapshot that was taken in any way."""
    live = min(snapshot.live_bytes, snapshot.mapped_bytes)
    sizes = {
        "live": live,
        "empty": snapshot.mapped_bytes - live,
        "warm": snapshot.number("warm_bytes"),
        "passing": sum(
            snapshot.number(f"{name}_bytes")
            for name in ("retiring", "unmapping", "zeroing", "held")
        ),
    }
    sizes["free"] = max(snapshot.number("budget_bytes") - sum(sizes.values()), 0)
    return sizes
