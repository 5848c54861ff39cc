"""Figures of a card as Markdown, to be posted as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from vmkv.hardware.bandwidth import ROUNDS
from vmkv.hardware.residency import WRITTEN_BYTES_EMULATED, Residency
from vmkv.sizes import human

if TYPE_CHECKING:
    from vmkv.hardware import Report

_STOPPED = {
    "reserve": "the reserve was reached",
    "evictions": "evictions began",
    "refused": "the kernel refused more",
    "outside VRAM": "a buffer landed outside VRAM",
    "time": "it took too long",
}


def markdown(report: Report) -> str:
    """The whole report. On an emulated card the title and the header of each table say so."""
    facts = report.facts
    mark = "emulated" if facts.emulated else ""
    title = f"### vmkv bench --hardware: {facts.card}"
    if facts.emulated:
        title += " (the numbers say nothing about a card)"
    parts = [
        title,
        _table(mark, ("what", "value"), _facts(report)),
        f"Changes of the page tables: {mark or 'measured'}, microseconds, p50 / p99 / max of "
        f"{_samples(report)}. *call*: until the ioctls had returned; *done*: until the fence said "
        "so. cs: GEM_VA with DELAY and one CS; bo: GEM_VA without DELAY, fence: "
        f"{_by_buffer(report)}. A remap is an unmap and a map of other memory at once.",
        _table(mark, ("change", "piece", "commit", "call, us", "done, us"), _latencies(report)),
        f"The copy engine (SDMA), {mark or 'measured'}, on memory that is mapped in pieces, in an "
        f"order drawn by lot: 10^9 bytes written a second, median of {ROUNDS}.",
        _table(mark, ("pieces", "range", "fill, GB/s", "copy, GB/s"), _bandwidths(report)),
        f"VRAM, {mark or 'measured'}, filled with buffers of our own, but for a reserve.",
        _table(mark, ("what", "value"), _residency(report.residency, mark)),
    ]
    return "\n\n".join(parts) + "\n"


def _table(mark: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """The first column to the left, all others to the right."""
    first = f"{mark}: {header[0]}" if mark else header[0]
    lines = [[first, *header[1:]], ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _facts(report: Report) -> list[tuple[str, str]]:
    facts = report.facts
    return [
        ("card", f"{facts.card}, {facts.device_id}"),
        ("family", facts.family),
        ("VRAM", human(facts.vram_bytes)),
        ("resizable BAR", "yes" if facts.resizable_bar else "no"),
        ("kernel", facts.kernel),
        ("DRM", facts.drm),
        ("libdrm", facts.libdrm),
        ("vmkv", facts.vmkv),
        ("date (UTC)", facts.date),
        ("device", f"`{facts.device}`"),
        ("the run took", f"{report.seconds:.0f} s"),
        ("calls without memory at first, asked again", f"{report.refusals:,}"),
    ]


def _samples(report: Report) -> str:
    counts = sorted({one.samples for one in report.latencies})
    return " or ".join(map(str, counts))


def _by_buffer(report: Report) -> str:
    fences = {one.fence for one in report.latencies if one.commit == "bo"}
    return ", ".join(sorted(fences)) or "none"


def _latencies(report: Report) -> list[tuple[str, ...]]:
    return [
        (
            one.change,
            human(one.piece_bytes),
            one.commit,
            *(
                f"{_us(times.p50)} / {_us(times.p99)} / {_us(times.max)}"
                for times in (one.call_us, one.done_us)
            ),
        )
        for one in report.latencies
    ]


def _us(value: float) -> str:
    return f"{value:.1f}" if value < 100 else f"{value:.0f}"


def _bandwidths(report: Report) -> list[tuple[str, ...]]:
    rates = {(one.what, one.fragment_bytes): one for one in report.bandwidths}
    return [
        (
            human(fragment_bytes),
            human(rates["fill", fragment_bytes].range_bytes),
            _rate(rates["fill", fragment_bytes].bytes_per_second),
            _rate(rates["copy", fragment_bytes].bytes_per_second),
        )
        for fragment_bytes in sorted({one.fragment_bytes for one in report.bandwidths})
    ]


def _rate(value: float | None) -> str:
    if value is None:
        return "unknown"
    return f"{value / 1e9:.1f}" if value >= 1e9 else f"{value / 1e9:.3f}"


def _speed(value: float | None) -> str:
    rate = _rate(value)
    return rate if value is None else f"{rate} GB/s"


def _residency(found: Residency, mark: str) -> list[tuple[str, str]]:
    allocate = found.allocate_s_per_gib
    how = f", {human(WRITTEN_BYTES_EMULATED)} of each" if mark else ""
    return [
        ("VRAM that programs can have", human(found.usable_bytes)),
        ("of it used before, by all programs", human(found.used_before_bytes)),
        ("filled with our buffers", human(found.filled_bytes)),
        ("reserve left free", human(found.reserve_bytes)),
        ("why it ended", _STOPPED[found.stopped]),
        ("used with all our buffers", human(found.used_peak_bytes)),
        ("used after giving them back", human(found.used_after_bytes)),
        ("to allocate a GiB", "unknown" if allocate is None else f"{allocate * 1000:.1f} ms"),
        (f"mapped and written when new{how}", _speed(found.write_bytes_per_second)),
        (f"written again when full{how}", _speed(found.rewrite_bytes_per_second)),
        ("our buffers outside VRAM", str(found.outside_vram)),
        ("evictions meanwhile, of all programs", str(found.evictions)),
        ("bytes moved meanwhile, of all programs", human(found.moved_bytes)),
    ]
