"""From what the probes found to what may be done with a card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from vmkv.doctor.probe import Finding
from vmkv.doctor.workbench import LATE_LIMIT_S

# What makes up for a fault. The order is that in which they are named.
SAFE_MODES = {
    "stale-translation": "never-reuse-addresses",
    "late-visibility": "wait-after-map",
    "alias-diverges": "no-alias",
}

# What the device copes with by itself, or doesn't use unless it is asked to.
HANDLED = frozenset(
    {"silent-gtt", "transient-enomem", "vram-stolen", "timeline-ignored", "hole-faults"}
)

# To wait longer than was seen: the next mapping may be later still.
_WAIT_FACTOR = 2
_WAIT_LEAST_US = 4000


@dataclass(frozen=True)
class Verdict:
    """Whether a card may be used, and how.

    Attributes:
        trusted: in the safe modes.
        safe_modes: in which vmkv has to run on it.
        wait_us: how long to wait after a map, with "wait-after-map"; else 0.
        refusals: why it may not be used: what was found, then what couldn't be tried.
        notes: probes that failed, or couldn't be tried, and change nothing: the device copes with
            what they find.
    """

    trusted: bool
    safe_modes: tuple[str, ...] = ()
    wait_us: int = 0
    refusals: tuple[Finding, ...] = ()
    notes: tuple[Finding, ...] = ()

    @property
    def faults(self) -> frozenset[str]:
        """What was found wrong, whatever follows."""
        found = {finding.fault for finding in (*self.refusals, *self.notes) if finding.failed}
        made_up = {fault for fault, mode in SAFE_MODES.items() if mode in self.safe_modes}
        return frozenset(found | made_up)


def judge(findings: Sequence[Finding], late_us: int) -> Verdict:
    """What follows from findings; late_us as the workbench measured it. What wasn't tried proves
    nothing, so it is a reason to refuse, unless nothing depends on it."""
    failed = [finding for finding in findings if finding.passed is not True]
    faults = {finding.fault for finding in failed if finding.failed}
    modes = [mode for fault, mode in SAFE_MODES.items() if fault in faults]
    notes = tuple(f for f in failed if (f.failed and f.fault in HANDLED) or f.harmless)
    coped = {*HANDLED, *SAFE_MODES}
    refusals = [f for f in failed if not f.harmless and not (f.failed and f.fault in coped)]
    refusals.sort(key=lambda finding: not finding.failed)  # what was seen comes first
    wait_us = 0
    if "wait-after-map" in modes:
        wait_us = max(_WAIT_FACTOR * late_us, _WAIT_LEAST_US)
        if late_us >= LATE_LIMIT_S * 1e6:
            refusals = [f for f in failed if f.fault == "late-visibility"] + refusals
    return Verdict(not refusals, tuple(modes), wait_us, tuple(refusals), notes)
