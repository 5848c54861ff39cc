"""Figures of a snapshot by name, as `vmkv stats --json` has them: bytes, nanoseconds, counts.

Physical and virtual bytes never go into one figure: `reserved_bytes`, `start` and `end` are
virtual, all other bytes are physical.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import asdict
from itertools import accumulate
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from vmkv.published import kernel, layout
from vmkv.published.attribution import tensor_name
from vmkv.published.checks import contradictions
from vmkv.published.layout import Array
from vmkv.published.processes import Condition
from vmkv.published.reader import Reader
from vmkv.published.snapshot import Snapshot

_BYTES = tuple(
    f"{name}_bytes"
    for name in (
        "budget", "slab", "mapped", "shared", "warm", "retiring", "unmapping", "zeroing", "held",
        "free_clean", "free_dirty", "table",
    )
)  # fmt: skip
_COUNTS = (
    "sequences", "mappings", "slabs", "growing_steps", "shortages", "mapped_pages", "map_calls",
    "unmap_calls", "fill_calls", "slab_calls", "failed_calls", "mapped_bytes_peak",
    "live_bytes_peak", "slab_bytes_peak", "mappings_peak",
)  # fmt: skip
_OF_STATE = (*_BYTES, *_COUNTS, "left_out")
_numbers_of = itemgetter(*_OF_STATE)


def measure_rates(readers: Iterable[Reader], seconds: float = 0.25) -> dict[Reader, float]:
    """Steps a second of each cache, over that time."""
    before = {reader: reader.steps() for reader in readers}
    if before:
        time.sleep(seconds)
    rates = {}
    for reader, (steps, then_ns) in before.items():
        now_steps, now_ns = reader.steps()
        rates[reader] = (now_steps - steps) * 1e9 / max(1, now_ns - then_ns)
    return rates


class Judged(NamedTuple):
    """What takes longest of a row: how long driver calls took by quantile, and contradictions."""

    quantiles: dict[str, int | None]
    problems: list[str]


def judge(snapshot: Snapshot) -> Judged:
    """Work it out."""
    quantiles = snapshot.of_growth("quantiles", lambda: _quantiles(snapshot))
    return Judged(quantiles, contradictions(snapshot))


def of_cache(
    snapshot: Snapshot,
    condition: Condition,
    steps_per_second: float | None = None,
    *,
    kernel_side: dict[str, Any] | None = None,
    judged: Judged | None = None,
) -> dict[str, Any]:
    """A cache in one line's worth of figures.

    Args:
        snapshot: taken in any way.
        condition: its process's.
        steps_per_second: as measured; None: it wasn't.
        kernel_side: what `of_kernel` says.
        judged: of this snapshot or one just before; None: it is judged now.
    """
    lives, live = condition.lives, snapshot.live_bytes
    row: dict[str, Any] = snapshot.of_geometry("row", lambda: _blank(snapshot)).copy()
    row.update(zip(_OF_STATE, _numbers_of(snapshot.state), strict=True))
    judged = judged or judge(snapshot)
    row.update(judged.quantiles)
    steps, age_ns = snapshot.steps, max(0, snapshot.taken_ns - snapshot.beat_ns)
    row["alive"], row["condition"] = lives, condition.value
    row["responding"] = condition is Condition.ALIVE
    row["heartbeat"] = row["steps"] = steps
    row["heartbeat_age_ns"] = age_ns if condition is not Condition.DEAD else None
    row["heartbeat_realtime_ns"] = _realtime_ns(snapshot)
    row["steps_per_second"] = steps_per_second if lives else None
    row["live_bytes"], row["waste"] = live, snapshot.waste
    row["driver_calls"] = snapshot.driver_calls
    row["device_lost"] = snapshot.number("lost") != 0
    row["settled"], row["problems"] = snapshot.settled, judged.problems
    row["kernel"] = kernel_side if lives else None
    return row


def _blank(snapshot: Snapshot) -> dict[str, Any]:
    """What is constant of a row, and its names in their order."""
    header = snapshot.header
    row: dict[str, Any] = {
        "pid": header.process.pid,
        "cache": f"{header.process.pid}-{header.tag:05x}",
        "alive": None,
        "condition": None,
        "responding": None,
        "program": header.program,
        "device": header.device,
        "driver": header.driver,
        "pci_id": header.pci_id or None,
        "safe_modes": list(header.safe_modes),
        "created_realtime_ns": header.created_realtime_ns,
        "heartbeat": None,
        "heartbeat_age_ns": None,
        "heartbeat_realtime_ns": None,
        "steps": None,
        "steps_per_second": None,
        "geometry": geometry(snapshot),
    }
    row |= dict.fromkeys(_BYTES)
    row |= {"reserved_bytes": header.reserved_bytes, "live_bytes": None, "waste": None}
    return row | {"driver_calls": None} | dict.fromkeys(_COUNTS)


def _quantiles(snapshot: Snapshot) -> dict[str, int | None]:
    return {
        f"{call}_p{percent}_ns": quantile_ns(record, percent / 100)
        for call, record in calls(snapshot)
        for percent in (50, 99)
    }


def _realtime_ns(snapshot: Snapshot) -> int:
    """When the last change or step was, by the calendar."""
    header = snapshot.header
    return header.created_realtime_ns + max(0, snapshot.beat_ns - header.created_ns)


def geometry(snapshot: Snapshot) -> dict[str, Any]:
    """What the cache was made for."""
    header = snapshot.header
    groups = []
    for group in snapshot.groups:
        count = int(group["tensors"])
        groups.append(
            {
                "policy": layout.POLICIES[int(group["policy"])],
                "layers": int(group["layers"]),
                "tensors": [tensor_name(group, tensor) for tensor in range(min(count, 64))],
                "token_bytes": int(group["token_bytes"]),
                "window_tokens": int(group["window_tokens"]) or None,
            }
        )
    return {
        "layout": header.layout,
        "page_bytes": header.page_bytes,
        "whole_slab_bytes": header.slab_bytes,
        "bytes_per_token": header.bytes_per_token,
        "fixed_bytes": header.fixed_bytes,
        "max_tokens": header.max_tokens,
        "max_slots": header.max_slots,
        "slot_count": header.slot_count,
        "groups": groups,
    }


def of_kernel(snapshot: Snapshot) -> dict[str, Any] | None:
    """The kernel's figures of the process and the card, and what of them doesn't fit ours; None
    where there are none: no card, an emulated one, or a process that isn't ours to look at."""
    header = snapshot.header
    if header.driver != "amdgpu" or not header.pci_id:
        return None
    client = kernel.read_client(header.process.pid, header.pci_id)
    card = kernel.read_card(header.pci_id)
    if client is None and card is None:
        return None
    held = snapshot.number("slab_bytes")
    return {
        "process": asdict(client) if client else None,
        "card": asdict(card) if card else None,
        "difference": kernel.difference(held, client) if client else "",
    }


# ---- sequences and slabs ----------------------------------------------------------------------


def of_sequences(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The open sequences, by slot; of a snapshot that was taken with its pieces."""
    page_bytes, steps = snapshot.header.page_bytes, snapshot.steps
    live, dead = snapshot.live_bytes_by_slot, dead_bytes_by_slot(snapshot)
    rows = []
    for slot in snapshot.open_slots.tolist():
        record, length = snapshot.slots[slot], snapshot.lives[slot]
        mapped = int(record["mapped_pages"]) * page_bytes
        rows.append(
            {
                "sequence": int(record["seq"]),
                "slot": slot,
                "live_tokens": int(length["tokens"]),
                "mapped_tokens": int(record["mapped_tokens"]),
                "ready_tokens": int(record["ready_tokens"]),
                "live_bytes": int(live[slot]),
                "mapped_bytes": mapped,
                "tail_waste_bytes": max(0, mapped - int(live[slot]) - int(dead[slot])),
                "dead_mapped_bytes": int(dead[slot]),
                "ahead_bytes": int(record["warm_pages"]) * page_bytes,
                "retiring_bytes": int(record["retiring_pages"]) * page_bytes,
                "mappings": int(record["pieces"]),
                "last_step": int(length["step"]),
                "steps_since": max(0, steps - int(length["step"])),
                "opened_ns": int(record["opened_ns"]),
                "grown_ns": int(record["grown_ns"]) or None,
            }
        )
    return rows


def dead_bytes_by_slot(snapshot: Snapshot) -> Array:
    """Bytes that are mapped behind tokens which a window has passed: a mapping goes only whole."""
    assert snapshot.pieces is not None
    header, total = snapshot.header, np.zeros(snapshot.header.slot_count, np.float64)
    for number, region in enumerate(snapshot.regions):
        group = snapshot.groups[int(region["group"])]
        if not group["window_tokens"]:
            continue
        dead = snapshot.dead_tokens(group) * region["token_bytes"]
        rows = snapshot.pieces[
            (snapshot.pieces["region"] == number)
            & (snapshot.pieces["state"] == layout.PIECE_MAPPED)
        ]
        begin = rows["page"] * np.uint64(header.page_bytes)
        end = begin + rows["pages"] * np.uint64(header.page_bytes)
        passed = np.minimum(end, dead[rows["slot"]])
        passed -= np.minimum(begin, passed)
        total += np.bincount(rows["slot"], passed.astype(np.float64), header.slot_count)
    return total.astype(np.uint64)


def of_slabs(snapshot: Snapshot) -> list[dict[str, Any]]:
    """The slabs, by number."""
    page_bytes = snapshot.header.page_bytes
    rows = []
    for number in np.flatnonzero(snapshot.slabs["bytes"]).tolist():
        slab = snapshot.slabs[number]
        states = {
            f"{name}_bytes": int(slab[f"{name}_pages"]) * page_bytes
            for name in ("mapped", "warm", "retiring", "unmapping")
        }
        size = int(slab["bytes"])
        rows.append(
            {
                "slab": number,
                "bytes": size,
                "alias": int(slab["alias"]) or None,
                **states,
                "other_bytes": max(0, size - sum(states.values())),
                "full": sum(states.values()) / size,
                "mappings": int(slab["pieces"]),
            }
        )
    return rows


def of_runs(snapshot: Snapshot) -> list[dict[str, Any]]:
    """How long stretches are that are contiguous both in addresses and in memory, whatever number
    of mappings they are made of: counts by power of two. Of a snapshot taken with its pieces."""
    assert snapshot.pieces is not None
    order = snapshot.by_address
    if not len(order):
        return []
    page_bytes = snapshot.header.page_bytes
    start, first = snapshot.starts[order], snapshot.pieces["phys"][order].astype(np.int64)
    pages = snapshot.pieces["pages"][order].astype(np.int64)
    slot = snapshot.pieces["slot"][order]
    begins = np.ones(len(order), bool)
    begins[1:] = (
        (slot[1:] != slot[:-1])
        | (start[1:] != start[:-1] + pages[:-1].astype(np.uint64) * np.uint64(page_bytes))
        | (first[1:] != first[:-1] + pages[:-1])
    )
    sizes = np.add.reduceat(pages, np.flatnonzero(begins)) * page_bytes
    power = np.frexp(sizes.astype(np.float64))[1] - 1
    return [
        {
            "from_bytes": 1 << int(one),
            "to_bytes": 2 << int(one),
            "runs": int((power == one).sum()),
            "bytes": int(sizes[power == one].sum()),
        }
        for one in np.unique(power)
    ]


# ---- times ------------------------------------------------------------------------------------


def calls(snapshot: Snapshot) -> list[tuple[str, Array]]:
    """The histogram of each kind of driver call."""
    return [(name, snapshot.times[number]) for number, name in layout.CALLS.items()]


def of_times(snapshot: Snapshot) -> dict[str, Any]:
    """How long driver calls took."""
    found = {}
    for name, record in calls(snapshot):
        buckets = record["buckets"]
        found[name] = {
            "calls": int(buckets.sum()),
            "ranges": int(record["ranges"]),
            "sum_ns": int(record["sum_ns"]),
            "max_ns": int(record["max_ns"]),
            "p50_ns": quantile_ns(record, 0.5),
            "p99_ns": quantile_ns(record, 0.99),
            "buckets": [
                {
                    "from_ns": 1 << index if index else 0,
                    "to_ns": 2 << index,
                    "calls": int(buckets[index]),
                }
                for index in np.flatnonzero(buckets).tolist()
            ],
        }
    return found


def quantile_ns(record: Array, fraction: float) -> int | None:
    """So much of the calls took at most that long; within its power of two it is interpolated. None
    if there were none."""
    # Not by numpy: of so few numbers that takes longer.
    buckets: list[int] = record["buckets"].tolist()
    wanted = fraction * sum(buckets)
    if not wanted:
        return None
    index = next(index for index, calls in enumerate(accumulate(buckets)) if calls >= wanted)
    below = sum(buckets[:index])
    inside = (wanted - below) / buckets[index]
    low = float(1 << index) if index else 0.0
    longest = int(record["max_ns"]) or 2 << index
    return min(int(low + inside * ((2 << index) - low)), longest)
