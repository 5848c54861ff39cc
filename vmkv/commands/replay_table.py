"""What `vmkv replay` prints for people."""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.table import Table

from vmkv.baselines import Baseline, Baselines
from vmkv.commands.printing import print_whole
from vmkv.plan import BLOCK_TOKENS
from vmkv.replay import Report
from vmkv.sizes import human


def print_table(report: Report, baselines: Baselines, model: str, trace: str) -> None:
    """Print to stdout what came of a replay and of its baselines."""
    console = Console(highlight=False)
    console.print(
        f"{trace} on {report.device}: {model}, {report.layout} layout, "
        f"pages of {human(report.page_bytes)}",
        style="bold",
        markup=False,
    )
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column()
    for row in _rows(report):
        table.add_row(*row)
    console.print(table)
    console.print()
    print_whole(console, _comparison(report, baselines))
    console.print("* modelled: the same requests by the same rules; no memory was touched")
    console.print()
    console.print(conclude(report, baselines), markup=False)


def _rows(report: Report) -> Iterator[tuple[str, str, str]]:
    yield "requests", f"{report.requests:,}", "completed"
    if report.rounds > report.requests:
        yield "", f"{report.rounds:,}", "rounds of them: sessions stay between rounds"
    if report.cuts:
        yield "", f"{report.cuts:,}", "times the context of one was cut"
    yield "", f"{report.skipped:,}", "skipped: they could never fit"
    yield "", f"{report.shortages:,}", "delayed because memory did not fit"
    if report.preempted:
        yield "", f"{report.preempted:,}", "times one had to begin anew"
    yield "agents", f"{report.admitted_peak:,}", f"at once at most, of {report.agents:,}"
    yield "memory", human(report.budget_bytes), "budget"
    yield "", human(report.mapped_bytes_peak), "mapped at most"
    yield "", human(report.live_bytes_peak), "live at most: rows of tokens that exist"
    yield "addresses", human(report.reserved_bytes), "reserved (no memory)"
    yield "waste", _percent(report.waste_mean, 2), "of mapped memory, mean over steps"
    yield "", _percent(report.waste_p99, 2), "99th percentile"
    yield "", _percent(report.waste_max, 2), "at most"
    yield "steps", f"{report.steps:,}", f"{report.tokens_written:,} tokens"
    if report.idle_steps:
        yield "", f"{report.idle_steps:,}", "of them passed over: all waited for tools"
    if report.shareable_tokens:
        yield (
            "shareable",
            f"{report.shareable_tokens:,}",
            "tokens of prompts: earlier ones began alike",
        )
        yield "", f"{report.active_shareable_tokens:,}", "of them: one then served did"
    yield "driver", f"{report.driver_calls:,}", "calls"
    yield "", f"{report.mappings:,}", "mappings made"
    yield "", f"{report.mappings_peak:,}", "mappings at once at most"
    rate = report.bytes_written / max(report.write_seconds, 1e-9)
    yield "written", human(report.bytes_written), f"at {human(int(rate))}/s"
    if report.write_ratio is not None:
        yield "", f"{report.write_ratio:.2f}", "of the speed of a plain loop in C (see --floor)"
    yield "time", f"{report.total_seconds:.1f} s", "in all"
    yield "checks", f"{report.checks_done:,}", "done"
    if report.checks_copied:
        yield "", f"{report.checks_copied:,}", "of them by the card's copy engine"
    yield "", f"{report.checks_failed:,}", "failed"


def _percent(fraction: float | None, digits: int) -> str:
    return "-" if fraction is None else f"{fraction:.{digits}%}"


def _comparison(report: Report, baselines: Baselines) -> Table:
    """vmkv and the baselines, a line each."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="")
    table.add_column("")
    for title in ("agents", "done", "skipped", "delayed", "peak", "waste"):
        table.add_column(title, justify="right")

    def add(name: str, counts: Report | Baseline, peak_bytes: int) -> None:
        table.add_row(
            name,
            f"{counts.admitted_peak:,}",
            f"{counts.requests:,}",
            f"{counts.skipped:,}",
            f"{counts.shortages:,}",
            human(peak_bytes),
            _percent(counts.waste_mean, 1),
        )

    for baseline in baselines.contiguous:
        add(f"reserve {baseline.tokens:,} *", baseline, baseline.bytes_peak)
    add(f"paged by {BLOCK_TOKENS} *", baselines.paged, baselines.paged.bytes_peak)
    add("vmkv", report, report.mapped_bytes_peak)
    return table


def conclude(report: Report, baselines: Baselines) -> str:
    """What it all comes to, in plain words."""
    if not report.requests:
        return "No request was served: none fits the budget and the longest context."
    longest, shorter = baselines.contiguous
    limit = " (all that were asked for)" if report.admitted_peak == report.agents else ""
    told = [
        f"With vmkv {_agents(report.admitted_peak)} at once had room in "
        f"{human(report.budget_bytes)}{limit}, in flat ranges for "
        f"{report.max_tokens:,} tokens each.",
        f"Reserving memory for all {longest.tokens:,} tokens of each has room for "
        f"{_agents(longest.admitted_peak)}{_unused(longest)}; reserving for {shorter.tokens:,} has "
        f"room for {_agents(shorter.admitted_peak)}{_refused(report, shorter)}.",
    ]
    if longest.admitted_peak >= report.admitted_peak:
        told.append(
            "Memory was not what limits here: more --agents or a smaller --budget tell them apart."
        )
    paged = baselines.paged.waste_mean
    beside = "" if paged is None else f" (paging: {_little(paged)})"
    unused = _little(report.waste_mean or 0.0)
    told.append(f"vmkv takes memory as agents grow: {unused} of it was unused on average{beside}.")
    return " ".join(told)


def _agents(count: int) -> str:
    return {0: "no agent", 1: "1 agent"}.get(count, f"{count:,} agents")


def _little(fraction: float) -> str:
    return "less than 0.1%" if 0 < fraction < 0.0005 else f"{fraction:.1%}"


def _unused(baseline: Baseline) -> str:
    waste = baseline.waste_mean
    return "" if waste is None or not baseline.requests else f", and {waste:.0%} of it stays unused"


def _refused(report: Report, baseline: Baseline) -> str:
    """Requests that only this baseline can't serve."""
    count = baseline.skipped - report.skipped
    if count <= 0:
        return ""
    return f", but {count:,} {'request is' if count == 1 else 'requests are'} too long for that"
