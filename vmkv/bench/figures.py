"""What a measurement gives: figures, and a report of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

MODEL = "qwen3-8b"
BUDGET = "10GB"
PROMPT_TOKENS = 3000
CHUNK_TOKENS = 512


@dataclass(frozen=True)
class Figure:
    """One number. `value` is None where it could not be measured; `bar` is None where there is
    nothing to reach."""

    key: str
    value: float | None
    text: str
    bar: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None if there is none, or nothing was measured."""
        if self.bar is None or self.value is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar


@dataclass(frozen=True)
class Report:
    """All figures of a device. `plans` are the ioctls of what was counted, by name; empty on a
    device whose ioctls nobody counts."""

    device: str
    figures: tuple[Figure, ...]
    plans: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @property
    def ioctls(self) -> dict[str, int]:
        """The ioctls of all plans together, without those of floors."""
        total: dict[str, int] = {}
        for plan, counts in self.plans.items():
            for name, count in counts.items() if plan != "growth_floor" else ():
                total[name] = total.get(name, 0) + count
        return total

    def as_json(self) -> dict[str, Any]:
        """The figures by key, with `bars` and `met` for those that have a bar, and `unknown`, which
        says of those without a value why."""
        barred = [figure for figure in self.figures if figure.bar is not None]
        return {
            "device": self.device,
            **{figure.key: figure.value for figure in self.figures},
            "ioctls": self.ioctls or None,
            "ioctls_by_plan": self.plans or None,
            "bars": {figure.key: figure.bar for figure in barred},
            "met": {figure.key: figure.met for figure in barred},
            "unknown": {figure.key: figure.text for figure in self.figures if figure.value is None},
        }
