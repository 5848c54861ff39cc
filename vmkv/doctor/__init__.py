"""Proving a card before trusting it: what `vmkv doctor` and `vmkv.open(..., safety="auto")` do.

Cards and drivers were reported that read a new mapping as zero for a while, keep the old page
behind an address that was remapped, or put memory elsewhere than it was asked for. Probes look for
each, with buffers of their own; what follows is a safe mode that makes up for it, or a refusal.

>>> from vmkv import doctor
>>> report = doctor.examine("emulated:gfx1100")
>>> report.trusted, report.verdict.safe_modes
(True, ())
>>> [finding.name for finding in report.findings if not finding.passed]
[]
"""

from vmkv.doctor.examination import Report, examine
from vmkv.doctor.machine import Card, Libdrm, Machine, Node, look
from vmkv.doctor.probe import Finding
from vmkv.doctor.verdict import SAFE_MODES, Verdict

__all__ = [
    "SAFE_MODES",
    "Card",
    "Finding",
    "Libdrm",
    "Machine",
    "Node",
    "Report",
    "Verdict",
    "examine",
    "look",
]
