"""What `vmkv bench` measures: the library's own cost, against bars.

Counts are exact, and where it can be a time is a ratio to something else in the same run. No
measurement touches the memory that it maps, so gigabytes of budget take no RAM on devices whose
memory is made when it is touched.
"""

from __future__ import annotations

import errno as codes
import time
from collections.abc import Callable, Sequence

from vmkv import errors
from vmkv.bench.figures import Figure, Report
from vmkv.bench.ioctls import Counter, Counts, lives
from vmkv.bench.places import chunked, decode, prefill, scale, tables
from vmkv.bench.publish import publish
from vmkv.bench.races import growth
from vmkv.bench.steps import no_growth
from vmkv.device import Device

__all__ = [
    "Figure",
    "Report",
    "chunked",
    "decode",
    "growth",
    "lives",
    "measure",
    "no_growth",
    "prefill",
    "publish",
    "scale",
    "tables",
]

Progress = Callable[[str], None]


def measure(device: Device, progress: Progress = lambda text: None) -> Report:
    """Measure everything on a device; calls progress with the name of each part as it begins.

    A part that the device's memory is too small for gives its first figure without a value."""
    plans: dict[str, Counts] = {}
    # An emulated card lists mappings in an array: a million single ones take it minutes.
    small_pages = 100_000 if Counter(device).able else 1_000_000
    parts: Sequence[tuple[str, str, Callable[[], list[Figure]]]] = (
        ("steps that map nothing", "no_growth_ns_per_sequence", lambda: no_growth(device)),
        ("ioctls", "prefill_gem_va_per_span", lambda: lives(device, plans)),
        ("growth against bare driver calls", "growth_ratio", lambda: growth(device, plans)),
        ("sharing", "shared_growth_ratio", lambda: publish(device)),
        ("prefill", "mappings_per_span", lambda: prefill(device)),
        ("prefill by chunks", "chunked_mappings_per_span", lambda: chunked(device)),
        (
            "decoding, 64 agents",
            "mean_run_pages",
            lambda: decode(device, 64, 1000, "mean_run_pages", 16),
        ),
        (
            "decoding, 80 agents",
            "mean_run_pages_80_agents",
            lambda: decode(device, 80, 800, "mean_run_pages_80_agents", None),
        ),
        ("tables", "table_bytes_per_page", lambda: tables(device, small_pages)),
        ("scale", "scale_ratio", lambda: scale(device)),
    )
    begin = time.monotonic()
    figures: list[Figure] = []
    for name, key, part in parts:
        progress(name)
        try:
            figures += part()
        except errors.Error as error:
            if error.errno != codes.ENOSPC:
                raise
            text = f"{name}: the device has too little memory or mappings ({error})"
            figures.append(Figure(key, None, text))
    figures.append(Figure("seconds", time.monotonic() - begin, "the whole run, s", 60))
    return Report(device.name, tuple(figures), plans)
