"""The live view of `vmkv replay` on a terminal: the card, and a line for each agent."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.text import Text

from vmkv.bars import KINDS, draw_bar, mark
from vmkv.recorder import Holding, Recorder, live_bytes, passing_bytes
from vmkv.replay import Report
from vmkv.sizes import human
from vmkv.stats import Stats

_SECONDS_BETWEEN_FRAMES = 0.25
_AGENT_BAR_WIDTH = 16
_LINES_BESIDE_AGENTS = 6


class View:
    """The state of a replay; drawn anew whenever it is printed."""

    def __init__(self, recorder: Recorder, total: int) -> None:
        self.recorder = recorder
        self.total = total
        self.report: Report | None = None
        self._begin_seconds = time.monotonic()

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        stats, report = self.recorder.stats, self.report
        if stats is None or report is None:
            return
        width = options.max_width
        for line in (
            self._head(report),
            *_card(stats, width, options.ascii_only),
            *self._agents(width, console.height - _LINES_BESIDE_AGENTS, options.ascii_only),
        ):
            line.no_wrap, line.overflow = True, "crop"
            yield line

    def _head(self, report: Report) -> Text:
        done = report.requests + report.skipped
        seconds = int(time.monotonic() - self._begin_seconds)
        return Text(
            f"replaying {done:,}/{self.total:,} requests, {human(report.bytes_written)} written, "
            f"{seconds // 60}:{seconds % 60:02}"
        )

    def _agents(self, width: int, most: int, ascii_only: bool) -> Iterator[Text]:
        holdings = self.recorder.holdings
        shown = holdings if len(holdings) <= most else holdings[: max(most - 1, 0)]
        for holding in shown:
            yield self._agent(holding, width, ascii_only)
        if len(shown) < len(holdings):
            yield Text(f"and {len(holdings) - len(shown):,} more agents")

    def _agent(self, holding: Holding, width: int, ascii_only: bool) -> Text:
        size = live_bytes(self.recorder.cache.geometry, holding)
        done = _AGENT_BAR_WIDTH * holding.tokens // max(holding.total_tokens, 1)
        name = f"request {holding.request + 1:,}"
        text = Text(f"{name:<13} ")
        if width >= 56 + _AGENT_BAR_WIDTH:
            text.append(mark("live", ascii_only) * done, KINDS["live"][0])
            text.append(mark("free", ascii_only) * (_AGENT_BAR_WIDTH - done), KINDS["free"][0])
        return text.append(
            f" {holding.tokens:>9,} of {holding.total_tokens:,} tokens, {human(size)}"
        )


def _card(stats: Stats, width: int, ascii_only: bool) -> Iterator[Text]:
    """A bar of the budget, and what its parts are, in as many lines as it takes."""
    sizes = {
        "live": stats.live_bytes,
        "partly filled": stats.mapped_bytes - stats.live_bytes,
        "warm": stats.warm_bytes,
        "retiring": passing_bytes(stats),
    }
    sizes["free"] = max(stats.budget_bytes - sum(sizes.values()), 0)
    yield from draw_bar(sizes, width, ascii_only)


@contextmanager
def show(console: Console, recorder: Recorder, total: int) -> Iterator[Callable[[Report], None]]:
    """Shows a replay of so many requests on a terminal until it is over or fails; then it is gone
    and the terminal as before. Takes what replay() calls after each step."""
    view = View(recorder, total)
    next_seconds = 0.0
    # Frames are drawn between steps, not by a thread beside them: that needs no lock, and leaves
    # nothing behind when an interrupt comes.
    with Live(
        view,
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ) as live:

        def update(report: Report) -> None:
            nonlocal next_seconds
            view.report = report
            now = time.monotonic()
            if now >= next_seconds:
                next_seconds = now + _SECONDS_BETWEEN_FRAMES
                live.refresh()

        yield update
