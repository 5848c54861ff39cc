"""Probes of the kernel: what it ignores, refuses for a moment, takes away or loses."""

from __future__ import annotations

import time
from dataclasses import dataclass

from vmkv import drm, errors
from vmkv.doctor.probe import Outcome, Probe
from vmkv.doctor.workbench import MIB, Workbench, change
from vmkv.drm._address import TIMELINE_MINOR

_TIMELINE_LIMIT_S = 0.5
_BURST = 64
# What programs on a desktop come to need within a second, and no more.
_COMMON_GROWTH_BYTES = 256 * MIB


# ---- the timeline of GEM_VA ------------------------------------------------------------------


def _timeline(bench: Workbench) -> Outcome:
    minor = bench.device.minor
    if minor < TIMELINE_MINOR:
        return Outcome(
            True,
            f"DRM 3.{minor} has none (3.{TIMELINE_MINOR} has)",
            "vmkv commits by submission, and takes GEM_VA's word for nothing",
        )
    buffer, address = bench.memory(2 * MIB), bench.addresses(2 * MIB)
    with bench.device.syncobj() as syncobj:
        begin = time.monotonic()
        va_op, flags, point = bench.device.va_op, "read|write", (syncobj, 1)
        bench.retry(lambda: va_op(buffer, "map", address, 2 * MIB, flags=flags, timeline=point))
        try:
            syncobj.wait(1, _TIMELINE_LIMIT_S, for_submit=True)
        except errors.WaitTimeoutError:
            return Outcome(False, f"not signaled within {_TIMELINE_LIMIT_S * 1e3:.0f} ms")
        return Outcome(True, f"signaled after {(time.monotonic() - begin) * 1e6:,.0f} us")


TIMELINE = Probe(
    "timeline",
    "timeline-ignored",
    "a map that signals a point of a syncobj",
    "maps tell when they are done, also without a submission (commit=bo)",
    "maps never tell when they are done: commit=bo would wait for ever. vmkv commits by submission "
    "(commit=cs) unless told otherwise, which is sound",
    _timeline,
)


# ---- submissions -----------------------------------------------------------------------------


def _submissions(bench: Workbench) -> Outcome:
    for _ in range(_BURST):
        bench.sdma.nop()
        bench.run()
    if bench.retry.refusals:
        times = "once" if bench.retry.refusals == 1 else f"{bench.retry.refusals} times"
        return Outcome(False, f"the kernel had no memory {times}, and had it when asked again")
    return Outcome(True, f"{_BURST} in a row, and all before, were taken at once")


SUBMISSIONS = Probe(
    "submissions",
    "transient-enomem",
    "many submissions, counting those that the kernel refused at first",
    "the kernel takes what it is given",
    "the kernel refuses calls with ENOMEM for a moment. vmkv asks again: no harm but the delay",
    _submissions,
)


# ---- what happens to the card meanwhile ------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """How a card is at one time."""

    evictions: int
    bytes_moved: int
    vram_used: int

    @classmethod
    def of(cls, device: drm.Device) -> Condition:
        """As it is now."""
        return cls(
            device.counter("evictions"),
            device.counter("bytes_moved"),
            device.memory.vram.used,
        )


def pressure_probe(before: Condition) -> Probe:
    """The probe whether others took VRAM since then. Its own memory is given back by now."""

    def run(bench: Workbench) -> Outcome:
        now = Condition.of(bench.device)
        evicted, grown = now.evictions - before.evictions, now.vram_used - before.vram_used
        seen = f"{evicted} evictions, VRAM in use went {change(grown)}"
        return Outcome(not evicted and grown < _COMMON_GROWTH_BYTES, seen)

    return Probe(
        "pressure",
        "vram-stolen",
        "the kernel's counts of evictions and of VRAM in use, over the whole run",
        "nobody else pressed for VRAM meanwhile",
        "other programs take VRAM and the kernel moves buffers out: slow, though nothing is lost. "
        "vmkv takes only what is free; give it a smaller budget, or end those programs",
        run,
    )


def _loss(bench: Workbench) -> Outcome:
    if bench.is_lost():
        return Outcome(False, "the card was reset, and lost what was in its memory")
    if bench.sdma.context.state.reset:
        return Outcome(False, "the card was reset", "the driver had to start the card anew")
    return Outcome(True, "no reset")


LOSS = Probe(
    "loss",
    "device-lost",
    "the kernel's count of lost memory, and the state of the context, over the whole run",
    "the card came through all probes",
    "the card doesn't keep its memory: no cache survives that",
    _loss,
)
