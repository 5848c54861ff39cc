"""Figures of caches as Prometheus scrapes them; needs prometheus-client, the extra `metrics`.

Names end in their base unit, and counters in _total. Bytes are physical, but for the one whose name
says virtual.
"""

from __future__ import annotations

import importlib.util
import os
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vmkv.errors import Error, InvalidError
from vmkv.published import figures, layout
from vmkv.published.found import Found
from vmkv.published.processes import Condition
from vmkv.published.snapshot import Snapshot
from vmkv.published.watching import Watched

if TYPE_CHECKING:
    from prometheus_client.core import Metric

_LABELS = ("pid", "cache", "device")
# Histograms go from 256 ns to 17 s, whatever was measured: series that come and go are no use.
_FIRST_BUCKET, _END_BUCKET = 7, 34


class _Figure(NamedTuple):
    """One number of a cache: its name in Prometheus, in ours, and what it is."""

    name: str
    source: str
    help: str


_GAUGES = (
    _Figure("budget_bytes", "budget_bytes", "Physical memory that the cache may hold."),
    _Figure("slab_bytes", "slab_bytes", "Physical memory that it holds, in slabs."),
    _Figure("reserved_virtual_bytes", "reserved_bytes", "Addresses that are reserved: virtual."),
    _Figure("live_bytes", "live_bytes", "Physical memory with rows of live tokens."),
    _Figure("shared_bytes", "shared_bytes",
            "Physical memory with more than one reference, once each."),
    _Figure("tables_bytes", "table_bytes", "Host memory of the cache's own tables."),
    _Figure("sequences", "sequences", "Open sequences."),
    _Figure("mappings", "mappings", "Mappings in the page tables."),
    _Figure("slabs", "slabs", "Slabs that are held."),
    _Figure("device_lost", "device_lost", "1 if the device is lost."),
)  # fmt: skip
_COUNTERS = (
    _Figure("steps", "steps", "Steps that have succeeded."),
    _Figure("growing_steps", "growing_steps", "Steps that mapped something."),
    _Figure("shortages", "shortages", "Steps that were refused for want of memory."),
    _Figure("mapped_pages", "mapped_pages", "Pages that were mapped, over all time."),
)
# These add up to vmkv_slab_bytes.
_STATES = ("mapped", "warm", "retiring", "unmapping", "zeroing", "held", "free_clean", "free_dirty")
_CALLS = ("map", "unmap", "fill", "slab", "failed")


def require_client() -> None:
    """See to it that prometheus-client is there.

    Raises:
        InvalidError: it isn't.
    """
    if importlib.util.find_spec("prometheus_client") is None:
        raise InvalidError("--prometheus needs prometheus-client: install vmkv[metrics]")


class Collector:
    """What a registry of prometheus-client asks: each time it looks anew."""

    def __init__(self, watched: Watched) -> None:
        self._watched = watched
        self._lock = threading.Lock()  # scrapes come in threads of their own, readers have none

    def describe(self) -> list[Metric]:
        """Nothing: what there is is found out when it is asked for."""
        return []

    def collect(self) -> Iterator[Metric]:
        """All metrics of all caches."""
        told = _Families()
        with self._lock:
            for one in self._watched.now():
                self._add(told, one)
        yield from told.all()

    def _add(self, told: _Families, one: Found) -> None:
        condition = one.condition()
        if one.reader is None:
            told.unreadable += 1
            return
        header = one.reader.file.header
        labels = [str(header.process.pid), one.name, header.device]
        told.add_condition(labels, header, condition)
        if condition is Condition.DEAD:
            return  # its memory is gone: no sum should have it
        try:
            snapshot = one.reader.look()
        except (Error, OSError):
            told.unreadable += 1
            return
        told.add(labels, snapshot, condition)


class _Families:
    """Metrics, filled cache by cache."""

    def __init__(self) -> None:
        from prometheus_client.core import (
            CounterMetricFamily,
            GaugeMetricFamily,
            HistogramMetricFamily,
            InfoMetricFamily,
        )

        self.unreadable = 0
        self._gauge = GaugeMetricFamily
        self.up = GaugeMetricFamily(
            "vmkv_up", "1 if the process of the cache lives, 0 if it is dead.", labels=_LABELS
        )
        self.stopped = GaugeMetricFamily(
            "vmkv_stopped", "1 if the process is stopped, by SIGSTOP say.", labels=_LABELS
        )
        self.info = InfoMetricFamily("vmkv_cache", "What the cache is.", labels=_LABELS)
        self.gauges = {
            figure: GaugeMetricFamily(f"vmkv_{figure.name}", figure.help, labels=_LABELS)
            for figure in _GAUGES
        }
        self.counters = {
            figure: CounterMetricFamily(f"vmkv_{figure.name}", figure.help, labels=_LABELS)
            for figure in _COUNTERS
        }
        self.memory = GaugeMetricFamily(
            "vmkv_memory_bytes",
            "Physical memory by what it is; all states together are vmkv_slab_bytes.",
            labels=(*_LABELS, "state"),
        )
        self.calls = CounterMetricFamily(
            "vmkv_driver_calls",
            "Driver calls by kind, one a range; those that failed are among their kind, too.",
            labels=(*_LABELS, "call"),
        )
        self.beat = GaugeMetricFamily(
            "vmkv_heartbeat_timestamp_seconds",
            "When the cache last changed or stepped, since the epoch.",
            labels=_LABELS,
        )
        self.times = HistogramMetricFamily(
            "vmkv_driver_call_duration_seconds",
            "How long it took to map, unmap or fill what goes together: all calls of a step, say.",
            labels=(*_LABELS, "call"),
        )

    def add_condition(self, labels: list[str], header: Any, condition: Condition) -> None:
        self.up.add_metric(labels, int(condition.lives))
        self.stopped.add_metric(labels, int(condition is Condition.STOPPED))
        about = {
            "program": header.program,
            "driver": header.driver,
            "pci_id": header.pci_id,
            "layout": header.layout,
            "page_bytes": str(header.page_bytes),
        }
        self.info.add_metric(labels, about)

    def add(self, labels: list[str], snapshot: Snapshot, condition: Condition) -> None:
        row = figures.of_cache(snapshot, condition)
        for figure, gauge in self.gauges.items():
            gauge.add_metric(labels, float(row[figure.source]))
        for figure, counter in self.counters.items():
            counter.add_metric(labels, float(row[figure.source]))
        for state in _STATES:
            self.memory.add_metric([*labels, state], float(row[f"{state}_bytes"]))
        for call in _CALLS:
            self.calls.add_metric([*labels, call], float(row[f"{call}_calls"]))
        self.beat.add_metric(labels, row["heartbeat_realtime_ns"] / 1e9)
        for call, record in figures.calls(snapshot):
            self.times.add_metric([*labels, call], _buckets(record), int(record["sum_ns"]) / 1e9)

    def all(self) -> Iterator[Metric]:
        yield from (self.up, self.stopped, self.info)
        yield from self.gauges.values()
        yield from self.counters.values()
        yield from (self.memory, self.calls, self.beat, self.times)
        yield self._gauge(
            "vmkv_unreadable_files",
            "Files that look like a cache's and can't be read.",
            value=self.unreadable,
        )


def _buckets(record: layout.Array) -> list[tuple[str, float]]:
    """Cumulated counts by upper bound. Ours exclude it, and Prometheus's include it."""
    sums = np.cumsum(record["buckets"])
    bounds = [
        (repr((2 << index) / 1e9), float(sums[index]))
        for index in range(_FIRST_BUCKET, _END_BUCKET)
    ]
    return [*bounds, ("+Inf", float(sums[-1]))]


def registry(watched: Watched) -> Any:
    """A registry that looks at caches whenever it is asked."""
    from prometheus_client import CollectorRegistry

    made = CollectorRegistry(auto_describe=False)
    made.register(Collector(watched))
    return made


def write_textfile(watched: Watched, path: Path) -> None:
    """Write all metrics to a file, for node_exporter's textfile collector: it sees the old file or
    the new one, never a part.

    Raises:
        OSError: it can't be written.
    """
    from prometheus_client import generate_latest

    text = generate_latest(registry(watched))
    try:
        descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    except OSError as error:
        error.filename = str(path)
        raise
    try:
        with open(descriptor, "wb") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)  # the collector is another user
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise
