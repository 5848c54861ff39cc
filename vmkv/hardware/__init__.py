"""What `vmkv bench --hardware` measures: an amdgpu card and its driver, without vmkv's manager.

Through `vmkv.drm` alone. All memory and addresses are its own, and go back at the end. On an
emulated card the same code runs, and its figures say nothing about a card.
"""

from __future__ import annotations

import errno as codes
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from vmkv import drm, errors
from vmkv.hardware.bandwidth import FRAGMENTS, IB_BYTES, Bandwidth, Ranges
from vmkv.hardware.card import MIB, Addresses, Card, Facts, facts, free_vram, open_card
from vmkv.hardware.pieces import COMMITS, CYCLES, PIECES, Latency, Pieces
from vmkv.hardware.residency import Residency, fill_vram
from vmkv.hardware.table import markdown
from vmkv.sizes import human

__all__ = ["Card", "Report", "markdown", "measure", "open_card"]

# Free VRAM without which nothing is tried.
LEAST_BYTES = 192 * MIB

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """All figures, and where they are from. `refusals`: how often the kernel had no memory for a
    call and was asked again, which is in the times."""

    facts: Facts
    latencies: tuple[Latency, ...]
    bandwidths: tuple[Bandwidth, ...]
    residency: Residency
    refusals: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """The same as plain values."""
        return asdict(self)


def measure(card: Card, progress: Progress = lambda text: None, *, cycles: int = CYCLES) -> Report:
    """Measure everything; calls progress with the name of each part as it begins.

    Raises:
        DeviceMemoryError: too little of its memory is free. UnsupportedError: the card has no SDMA
        ring. DeviceError: the kernel refused something, or a fence wasn't reached.
    """
    begin = time.monotonic()
    free = free_vram(card.device)
    if free < LEAST_BYTES:
        lacking = human(LEAST_BYTES - free)
        message = f"{human(LEAST_BYTES)} of free VRAM are needed, {lacking} more than there is"
        raise errors.DeviceMemoryError(message, codes.ENOSPC)
    latencies: list[Latency] = []
    bandwidths: list[Bandwidth] = []
    # Addresses go last: memory behind them is gone by then.
    with (
        Addresses(card.device) as addresses,
        card.patience(lambda: drm.Sdma(card.device, ib_bytes=IB_BYTES)) as sdma,
    ):
        with Pieces(card.device, addresses, card.patience) as pieces:
            for commit in COMMITS:
                for piece_bytes in PIECES:
                    progress(f"changes of {human(piece_bytes)}, commit {commit}")
                    latencies += pieces.measure(commit, piece_bytes, cycles)
        with Ranges(card, sdma, addresses) as ranges:
            for fragment_bytes in FRAGMENTS:
                progress(f"fill and copy through {human(fragment_bytes)} fragments")
                bandwidths += ranges.measure(fragment_bytes)
        progress("VRAM filled, but for a reserve")
        residency = fill_vram(card, sdma, addresses)
    return Report(
        facts(card),
        tuple(latencies),
        tuple(bandwidths),
        residency,
        card.patience.refusals,
        time.monotonic() - begin,
    )
