"""Events as a trace in Chrome's JSON format, which Perfetto's UI loads, too.

The form is that of an array, which needs no end: what was written is a trace also if its writer is
killed. Times are in microseconds of CLOCK_MONOTONIC, so traces of other programs on the same
machine that take this clock fit beside it.
"""

from __future__ import annotations

import json
from typing import IO, Any

from vmkv.published.following import Follower, News
from vmkv.published.snapshot import Snapshot

_DRIVER, _CACHE, _SLOTS = 1, 2, 16  # numbers of tracks; slots count from the last on
_OF_DRIVER = ("map", "unmap")


class TraceWriter:
    """Writes the events of one or more caches to an open text file. A process of the trace is a
    cache: it has a track for its driver calls, one for what concerns it as a whole, and one a slot.
    """

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._named: set[tuple[int, int]] = set()
        self._begun = False
        self._open: dict[tuple[int, int], int | None] = {}
        self._calls: dict[int, dict[str, Any]] = {}

    def end(self) -> None:
        """Write what is still held back, and the end. The file stays the caller's."""
        for process in list(self._calls):
            self._flush_call(process)
        self._file.write("\n]\n" if self._begun else "[]\n")

    def add(self, process: int, follower: Follower, news: News) -> None:
        """Write what came. process: a number for the cache, from 1, the same each time."""
        snapshot = news.snapshot
        self._name_cache(process, snapshot)
        if news.lost:
            at = int(news.events[0]["time_ns"]) if len(news.events) else snapshot.taken_ns
            name = f"{news.lost:,} events were overwritten before they were read"
            self._instant(process, _CACHE, name, at, {"events": news.lost})
        for event in news.events:
            self._add_event(process, follower.told(event))
        self._flush_call(process)
        self._count(process, snapshot)
        self._file.flush()

    # ---- what there is in a trace -----------------------------------------------------------

    def _add_event(self, process: int, row: dict[str, Any]) -> None:
        kind, slot, about = row["kind"], row["slot"], _about(row)
        track = _CACHE if slot is None else _SLOTS + slot
        if slot is not None:
            self._name_track(process, track, f"slot {slot}", slot)
        if kind in _OF_DRIVER and row["duration_ns"] is not None:
            self._add_to_call(process, row)
        if kind == "open":
            self._begin(process, track, f"sequence {row['sequence']:#x}", row["time_ns"], about)
        elif kind == "close":
            self._end(process, track, row, about)
        else:
            self._instant(process, track, _title(row), row["time_ns"], about)

    def _add_to_call(self, process: int, row: dict[str, Any]) -> None:
        """Events of one driver call are one slice: they have its end and its duration."""
        key = row["kind"], row["time_ns"], row["duration_ns"]
        call = self._calls.get(process)
        if call is None or call["key"] != key:
            self._flush_call(process)
            call = self._calls[process] = {"key": key, "pieces": 0, "bytes": 0}
        call["pieces"] += max(1, row["regions"])
        call["bytes"] += row["total_bytes"]

    def _flush_call(self, process: int) -> None:
        call = self._calls.pop(process, None)
        if call is None:
            return
        kind, end_ns, duration_ns = call["key"]
        about = {"pieces": call["pieces"], "physical bytes": call["bytes"]}
        self._write(
            {"ph": "X", "name": kind, "cat": "driver", "pid": process, "tid": _DRIVER,
             "ts": _us(end_ns - duration_ns), "dur": _us(duration_ns), "args": about}
        )  # fmt: skip

    def _begin(
        self, process: int, track: int, name: str, time_ns: int, about: dict[str, Any]
    ) -> None:
        if (process, track) in self._open:  # its end was overwritten
            self._write({"ph": "E", "pid": process, "tid": track, "ts": _us(time_ns)})
        self._open[process, track] = None
        self._write(
            {"ph": "B", "name": name, "cat": "sequence", "pid": process, "tid": track,
             "ts": _us(time_ns), "args": about}
        )  # fmt: skip

    def _end(self, process: int, track: int, row: dict[str, Any], about: dict[str, Any]) -> None:
        if (process, track) not in self._open:  # it began before the first event that is told
            self._instant(process, track, "close", row["time_ns"], about)
            return
        del self._open[process, track]
        self._write(
            {"ph": "E", "pid": process, "tid": track, "ts": _us(row["time_ns"]), "args": about}
        )

    def _instant(
        self, process: int, track: int, name: str, time_ns: int, about: dict[str, Any]
    ) -> None:
        self._write(
            {"ph": "i", "s": "t", "name": name, "cat": "memory", "pid": process, "tid": track,
             "ts": _us(time_ns), "args": about}
        )  # fmt: skip

    def _count(self, process: int, snapshot: Snapshot) -> None:
        """How much memory is what, as a chart: all of it is physical."""
        sizes = {name: snapshot.number(f"{name}_bytes") for name in ("warm", "retiring")}
        live = min(snapshot.live_bytes, snapshot.mapped_bytes)
        sizes |= {"live": live, "mapped, not live": snapshot.mapped_bytes - live}
        self._write(
            {"ph": "C", "name": "physical memory, bytes", "pid": process, "tid": _CACHE,
             "ts": _us(snapshot.taken_ns), "args": sizes}
        )  # fmt: skip

    # ---- names ------------------------------------------------------------------------------

    def _name_cache(self, process: int, snapshot: Snapshot) -> None:
        if (process, 0) in self._named:
            return
        self._named.add((process, 0))
        header = snapshot.header
        name = f"{header.program} {header.process.pid}-{header.tag:05x} on {header.device}"
        self._write({"ph": "M", "name": "process_name", "pid": process, "args": {"name": name}})
        self._name_track(process, _DRIVER, "driver calls", -2)
        self._name_track(process, _CACHE, "cache", -1)

    def _name_track(self, process: int, track: int, name: str, order: int) -> None:
        if (process, track) in self._named:
            return
        self._named.add((process, track))
        about: dict[str, dict[str, Any]] = {
            "thread_name": {"name": name},
            "thread_sort_index": {"sort_index": order},
        }
        for key, told in about.items():
            self._write({"ph": "M", "name": key, "pid": process, "tid": track, "args": told})

    def _write(self, entry: dict[str, Any]) -> None:
        self._file.write(",\n" if self._begun else "[\n")
        self._begun = True
        self._file.write(json.dumps(entry, separators=(",", ":")))


def _us(ns: int) -> float:
    return round(ns / 1000, 3)


def _title(row: dict[str, Any]) -> str:
    if row["kind"] == "shortage":
        return f"shortage of {row['missing']}"
    return str(row["kind"]).replace("_", " ")


def _about(row: dict[str, Any]) -> dict[str, Any]:
    """What is shown of an event that is clicked on. Numbers beyond 2^53 are texts: a browser has
    doubles."""
    about: dict[str, Any] = {"step": row["step"], "serial": row["serial"]}
    if row["sequence"] is not None:
        about["sequence"] = f"{row['sequence']:#x}"
    if row["address"] is not None:
        about["virtual address"] = f"{row['address']:#x}"
    if row["kind"] == "shortage":
        about[f"missing {row['missing']}"] = row["bytes"]
    elif row["bytes"]:
        about["physical bytes"] = row["total_bytes"]
    if row["regions"] > 1:
        about["pieces"] = row["regions"]
    for name in ("slab", "group", "layer", "tensor"):
        if row[name] is not None:
            about[name] = row[name]
    return about
