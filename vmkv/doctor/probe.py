"""What a probe is, and what comes of one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from vmkv.doctor.workbench import Workbench


@dataclass(frozen=True)
class Outcome:
    """What a probe saw.

    Attributes:
        passed: whether that is right; None: it couldn't be tried.
        seen: in words.
        meaning: what it means, where that isn't what the probe says for passed or failed.
        fatal: whether no other probe can be tried on such a card.
        harmless: of a probe that couldn't be tried: whether nothing depends on what it would have
            seen.
    """

    passed: bool | None
    seen: str
    meaning: str = ""
    fatal: bool = False
    harmless: bool = False


@dataclass(frozen=True)
class Probe:
    """Something to try on a card.

    Attributes:
        name: of the probe.
        fault: what a card has that fails it.
        tried: what is tried, in words.
        sound, broken: what it means that it passed, or failed, in words.
        run: tries it.
    """

    name: str
    fault: str
    tried: str
    sound: str
    broken: str
    run: Callable[[Workbench], Outcome]

    def finding(self, outcome: Outcome) -> Finding:
        """What comes of an outcome."""
        meaning = outcome.meaning
        if not meaning and outcome.passed is not None:
            meaning = self.sound if outcome.passed else self.broken
        return Finding(
            self.name,
            self.fault,
            self.tried,
            outcome.passed,
            outcome.seen,
            meaning or "nothing is known of it",
            outcome.harmless,
        )


@dataclass(frozen=True)
class Finding:
    """What came of a probe.

    Attributes:
        name, fault, tried: the probe's.
        passed: whether the card passed; None: it couldn't be tried.
        seen, meaning: in words.
        harmless: it couldn't be tried, and nothing depends on it.
    """

    name: str
    fault: str
    tried: str
    passed: bool | None
    seen: str
    meaning: str
    harmless: bool = False

    @property
    def failed(self) -> bool:
        """Whether the card has the fault."""
        return self.passed is False

    def as_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)
