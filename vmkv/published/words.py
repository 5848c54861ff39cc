"""What files tell of caches, in words for people."""

from __future__ import annotations

import time
from typing import Any


def printable(text: str) -> str:
    """A text of others for people: what would do something to their terminal is a question mark."""
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def duration(ns: float | None) -> str:
    """A time for people.

    >>> duration(850), duration(12_400), duration(3_000_000_000), duration(7_500_000_000_000)
    ('850 ns', '12.4 us', '3.0 s', '2 h 5 min')
    """
    if ns is None:
        return "-"
    for unit, size in (("ns", 1), ("us", 10**3), ("ms", 10**6)):
        if ns < 1000 * size:
            return f"{ns / size:.0f} {unit}" if size == 1 else f"{ns / size:.1f} {unit}"
    seconds = ns / 1e9
    if seconds < 120:
        return f"{seconds:.1f} s"
    hours, minutes = divmod(int(seconds) // 60, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min"


def condition(row: dict[str, Any]) -> str:
    """How the process is, in a few words."""
    age, told = row["heartbeat_age_ns"], row["condition"]
    if told == "dead":
        since = max(0, time.time_ns() - row["heartbeat_realtime_ns"])
        return f"dead, last heartbeat {duration(since)} ago"
    if told == "stopped":
        return f"not responding, stopped; last heartbeat {duration(age)} ago"
    if told == "unknown":
        return f"unknown, in another pid namespace; last heartbeat {duration(age)} ago"
    if row["steps_per_second"]:
        return "alive"
    return f"alive, idle for {duration(age)}"


def shape(geometry: dict[str, Any]) -> str:
    """A geometry in a few words."""
    parts = []
    for group in geometry["groups"]:
        name = f"{group['layers']} {group['policy']}"
        parts.append(name + (f" {group['window_tokens']}" if group["window_tokens"] else ""))
    return f"{geometry['layout']}: {' + '.join(parts)}"
