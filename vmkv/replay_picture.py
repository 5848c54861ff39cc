"""The picture of `vmkv replay`: who held what when most memory was live, beside what other schemes
would have taken for the same agents, and the memory over time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from vmkv.plan import BLOCK_TOKENS, contiguous_bytes, paged_bytes, short_tokens
from vmkv.recorder import Moment, Recorder, Sample, Share, passing_bytes
from vmkv.replay import Report
from vmkv.serving import CHUNK_TOKENS
from vmkv.sizes import human
from vmkv.svg import Area, Drawing, Line, Rect, Text, text_width

_WIDTH = 760.0
_MARGIN = 28.0
_RIGHT = _WIDTH - _MARGIN
_BAR_HEIGHT = 36.0
_CHART_HEIGHT = 180.0
_CHART_LEFT = _MARGIN + 64
_AGENTS_NAMED = 24
_NAMES_ACROSS = 3
_OVERFLOW = 1.25  # how far bars reach at most, in budgets

_COLORS = {
    "live": "blue",
    "empty": "vermilion",
    "warm": "orange",
    "passing": "sky",
    "free": "paper",
    "misfit": "paper",
}
_NAMES = {
    "live": "live: rows of tokens",
    "empty": "taken but empty",
    "warm": "warm: kept mapped for the next agent",
    "passing": "on its way back",
    "free": "free",
}
_STACKED = ("live", "empty", "warm", "passing")  # in the chart, from below
_NOTE = (
    "All of it is physical memory. Measured: what vmkv mapped. Modelled: what a contiguous "
    "reservation for the longest sequence, and blocks of {block} tokens, would take at their best "
    "for the same agents at the same moment; dashed: agents that don't fit."
)


class Piece(NamedTuple):
    """A part of a bar. owner is the number of the agent, from 1, or 0."""

    kind: str
    bytes: int
    owner: int = 0


@dataclass(frozen=True)
class Bar:
    """What a scheme makes of the budget, from left to right.

    Attributes:
        name: of the scheme.
        summary: the numbers, in words.
        pieces: with those of agents that don't fit, which are of the kind "misfit" and begin where
            memory is left that is too little for the next.
    """

    name: str
    summary: str
    pieces: tuple[Piece, ...]

    def sum_bytes(self, *kinds: str) -> int:
        """Of all pieces of these kinds."""
        return sum(piece.bytes for piece in self.pieces if piece.kind in kinds)


def draw(recorder: Recorder, report: Report, model: str, trace: str) -> Drawing:
    """The card and the chart. model and trace are names, for the text."""
    moment = recorder.peak
    drawing = Drawing(_WIDTH, 0, "The card when most memory was live", "")
    drawing.add(Text(_MARGIN, 42, drawing.title, 20, bold=True))
    setting = (
        f"{trace} on {report.device}: {model}, {report.layout} layout, "
        f"pages of {human(report.page_bytes)}"
    )
    if moment is None:
        drawing.about = f"{setting}. No request was served."
        y = drawing.paragraph(_MARGIN, 66, drawing.about, size=13, fill="muted")
        drawing.height = round(y + 8)
        return drawing
    tokens = sum(share.tokens for share in moment.shares)
    text = (
        f"{setting}. Step {moment.step:,} of {report.steps:,}: {_agents(len(moment.shares))}, "
        f"{tokens:,} tokens."
    )
    y = drawing.paragraph(_MARGIN, 66, text, size=13, fill="muted") + 8
    bars = make_bars(recorder, report, moment)
    y = _legend(drawing, bars, recorder.samples, y)
    y = _draw_bars(drawing, bars, moment.stats.budget_bytes, y)
    y = _name_agents(drawing, moment, y + 24)
    y = _draw_chart(drawing, recorder, moment, y + 26)
    note = _NOTE.format(block=BLOCK_TOKENS)
    y = drawing.paragraph(_MARGIN, y + 22, note, size=11, fill="muted")
    drawing.about = f"{text} {'; '.join(f'{bar.name}: {bar.summary}' for bar in bars)}."
    drawing.height = round(y + 8)
    return drawing


def _agents(count: int) -> str:
    return f"{count:,} agent" if count == 1 else f"{count:,} agents"


# ---- bars


def make_bars(recorder: Recorder, report: Report, moment: Moment) -> list[Bar]:
    """Contiguous, paged, and what was measured."""
    geometry = recorder.cache.geometry
    cap = short_tokens(report.max_tokens)
    return [
        _model(
            f"reserve {cap} tokens (modelled)",
            moment,
            lambda _: contiguous_bytes(geometry, report.max_tokens, CHUNK_TOKENS),
        ),
        _model(
            f"blocks of {BLOCK_TOKENS} tokens (modelled)",
            moment,
            lambda share: paged_bytes(geometry, share.tokens, max(share.chunk_tokens, 1)),
        ),
        _measure(moment),
    ]


def _model(name: str, moment: Moment, taken_bytes: Callable[[Share], int]) -> Bar:
    """taken_bytes is what the scheme takes for an agent."""
    budget, pieces, used, fitting, live = moment.stats.budget_bytes, [], 0, 0, 0
    for owner, share in enumerate(moment.shares, 1):
        size = taken_bytes(share)
        if used + size > budget or fitting < owner - 1:
            pieces.append(Piece("misfit", size, owner))
            continue
        # vmkv keeps a token more of a window than there has to be.
        rows = min(share.live_bytes, size)
        fitting, used, live = owner, used + size, live + rows
        pieces.append(Piece("live", rows, owner))
        pieces.append(Piece("empty", size - rows, owner))
    count, total = len(moment.shares), sum(piece.bytes for piece in pieces)
    if fitting == count:
        pieces.append(Piece("free", budget - used))
        summary = _taken(used, live)
    else:
        summary = (
            f"{_agents(count)} would take {human(total)}: {fitting:,} fit{'s' * (fitting == 1)}"
        )
    return Bar(name, summary, tuple(pieces))


def _measure(moment: Moment) -> Bar:
    stats = moment.stats
    pieces = []
    for owner, share in enumerate(moment.shares, 1):
        pieces.append(Piece("live", share.live_bytes, owner))
        pieces.append(Piece("empty", share.mapped_bytes - share.live_bytes, owner))
    passing = passing_bytes(stats)
    pieces.append(Piece("warm", stats.warm_bytes))
    pieces.append(Piece("passing", passing))
    free = stats.budget_bytes - stats.mapped_bytes - stats.warm_bytes - passing
    pieces.append(Piece("free", free))
    return Bar("vmkv (measured)", _taken(stats.mapped_bytes, stats.live_bytes), tuple(pieces))


def _taken(taken: int, live: int) -> str:
    wasted = 1 - live / taken if taken else 0.0
    return f"takes {human(taken)}, of which {wasted:.1%} is empty"


def _legend(drawing: Drawing, bars: Sequence[Bar], samples: Sequence[Sample], y: float) -> float:
    """Of what there is in the bars or in the chart."""
    kinds = {piece.kind for bar in bars for piece in bar.pieces if piece.bytes}
    kinds |= {kind for kind in _STACKED if any(_part(sample, kind) for sample in samples)}
    entries = [(_COLORS[kind], name) for kind, name in _NAMES.items() if kind in kinds]
    return drawing.legend(_MARGIN, y, entries) + 6


def _draw_bars(drawing: Drawing, bars: Sequence[Bar], budget: int, y: float) -> float:
    """Bars below each other, with the line of the budget in the gaps between them where no text
    is."""
    longest = max(sum(piece.bytes for piece in bar.pieces if piece.kind != "free") for bar in bars)
    extent = min(max(longest, budget), int(_OVERFLOW * budget))
    per_byte = (_RIGHT - _MARGIN) / extent
    edge = _MARGIN + budget * per_byte
    label = f"budget {human(budget)}"
    drawing.add(Text(edge, y + 4, label, 12, "muted", "end"))
    y += 10
    for bar in bars:
        drawing.add(Text(_MARGIN, y + 14, bar.name, 13, bold=True))
        drawing.add(Text(_RIGHT, y + 14, bar.summary, 12, anchor="end"))
        y += 21
        _draw_bar(drawing, bar, per_byte, y)
        drawing.add(Line(edge, y - 1, edge, y + _BAR_HEIGHT + 6, "ink", 2))
        y += _BAR_HEIGHT + 14
    return y - 14


def _draw_bar(drawing: Drawing, bar: Bar, per_byte: float, y: float) -> None:
    start = 0
    texts: list[Text] = []
    for piece in bar.pieces:
        left = _MARGIN + start * per_byte
        start += piece.bytes
        right = min(_MARGIN + start * per_byte, _RIGHT)
        width = right - left
        if width < 0.01:
            continue
        # The outlines of very narrow pieces would hide them.
        outline = "ink" if width > 2 else ""
        color, misfit = _COLORS[piece.kind], piece.kind == "misfit"
        drawing.add(Rect(left, y, width, _BAR_HEIGHT, color, outline, _about(piece), dashed=misfit))
        number, middle = f"{piece.owner}", (left + right) / 2
        if piece.kind in ("live", "misfit") and width > text_width(number, 12) + 6:
            ink = "muted" if misfit else "paper"
            texts.append(Text(middle, y + _BAR_HEIGHT / 2 + 4, number, 12, ink, "middle", True))
    drawing.add(*texts)


def _about(piece: Piece) -> str:
    owner = f"agent {piece.owner}: " if piece.owner else ""
    kind = "does not fit" if piece.kind == "misfit" else _NAMES[piece.kind].split(":")[0]
    return f"{owner}{human(piece.bytes)} {kind}"


def _name_agents(drawing: Drawing, moment: Moment, y: float) -> float:
    """The agents by their numbers, in columns."""
    shares = moment.shares[:_AGENTS_NAMED]
    lines = [
        f"{owner}: {share.tokens:,} tokens, {human(share.live_bytes)}"
        for owner, share in enumerate(shares, 1)
    ]
    if len(moment.shares) > len(shares):
        lines[-1] = f"and {len(moment.shares) - len(shares) + 1:,} more"
    across = _NAMES_ACROSS
    rows = -(-len(lines) // across)
    for index, line in enumerate(lines):
        x = _MARGIN + index // rows * (_RIGHT - _MARGIN) / across
        drawing.add(Text(x, y + index % rows * 17, line, 11, "muted"))
    return y + rows * 17


# ---- chart


class _Scales(NamedTuple):
    """Where the chart is: from step 1 to the last, and from no memory to the budget."""

    top: float
    steps: int
    budget: int

    def x(self, step: int) -> float:
        return _CHART_LEFT + (_RIGHT - _CHART_LEFT) * (step - 1) / max(self.steps - 1, 1)

    def y(self, size: int) -> float:
        return self.top + _CHART_HEIGHT * (1 - size / self.budget)


def _draw_chart(drawing: Drawing, recorder: Recorder, moment: Moment, y: float) -> float:
    drawing.add(Text(_MARGIN, y, "Memory over time", 16, bold=True))
    scales = _Scales(y + 30, recorder.steps, moment.stats.budget_bytes)
    peak = scales.x(moment.step)
    label = f"most live: step {moment.step:,}"
    half = text_width(label, 11) / 2
    middle = min(max(peak, _CHART_LEFT + half), _RIGHT - half)
    drawing.add(Text(middle, y + 20, label, 11, "muted", "middle"))
    for kind, area in _areas(recorder.samples, scales):
        drawing.add(Area(area, _COLORS[kind], _NAMES[kind]))
    drawing.add(Line(peak, scales.top - 6, peak, scales.top + _CHART_HEIGHT, "ink"))
    _draw_axes(drawing, scales)
    y = scales.top + _CHART_HEIGHT + 18
    if recorder.stride > 1:
        text = f"Of every {recorder.stride:,} steps the one with the most live memory is shown."
        y = drawing.paragraph(_MARGIN, y + 18, text, size=11, fill="muted") - 15
    return y


def _areas(
    samples: Sequence[Sample], scales: _Scales
) -> Iterator[tuple[str, tuple[tuple[float, float], ...]]]:
    """On top of each other."""
    below = [0] * len(samples)
    for kind in _STACKED:
        above = [low + _part(sample, kind) for low, sample in zip(below, samples, strict=True)]
        if above == below:
            continue
        low_line = _line(samples, below, scales)
        yield kind, (*_line(samples, above, scales), *reversed(low_line))
        below = above


def _part(sample: Sample, kind: str) -> int:
    if kind == "empty":
        return sample.mapped_bytes - sample.live_bytes
    return int(getattr(sample, f"{kind}_bytes"))


def _line(
    samples: Sequence[Sample], sizes: Sequence[int], scales: _Scales
) -> list[tuple[float, float]]:
    """From one edge of the chart to the other, even if there is only one step."""
    points = [(scales.x(s.step), scales.y(size)) for s, size in zip(samples, sizes, strict=True)]
    return [(_CHART_LEFT, points[0][1]), *points, (_RIGHT, points[-1][1])]


def _draw_axes(drawing: Drawing, scales: _Scales) -> None:
    bottom = scales.top + _CHART_HEIGHT
    drawing.add(
        Line(_CHART_LEFT, scales.top, _RIGHT, scales.top, "ink", 2),
        Line(_CHART_LEFT, bottom, _RIGHT, bottom, "ink", 1.5),
        Line(_CHART_LEFT, scales.top, _CHART_LEFT, bottom, "ink", 1.5),
        Text(_CHART_LEFT - 8, scales.top + 4, human(scales.budget), 11, anchor="end"),
        Text(_CHART_LEFT - 8, bottom + 4, "0", 11, anchor="end"),
    )
    drawing.add(Text(_CHART_LEFT - 8, scales.top - 10, "budget", 11, "muted", "end"))
    step = 1 << max((scales.budget // 3).bit_length() - 1, 0)
    for size in range(step, scales.budget, step):
        y = scales.y(size)
        if y - scales.top > 16:
            drawing.add(
                Line(_CHART_LEFT - 4, y, _CHART_LEFT, y, "ink", 1),
                Text(_CHART_LEFT - 8, y + 4, human(size), 11, anchor="end"),
            )
    every = _round_up(scales.steps / 6)
    last = _RIGHT - text_width(f"step {scales.steps:,}", 11) - 10
    for number in range(every, scales.steps, every):
        x, label = scales.x(number), f"{number:,}"
        if x + text_width(label, 11) / 2 < last:
            drawing.add(
                Line(x, bottom, x, bottom + 4, "ink", 1),
                Text(x, bottom + 16, label, 11, anchor="middle"),
            )
    drawing.add(Text(_RIGHT, bottom + 16, f"step {scales.steps:,}", 11, anchor="end"))


def _round_up(number: float) -> int:
    """To 1, 2 or 5 times a power of ten.

    >>> [_round_up(number) for number in (0.4, 3.0, 60.0, 124.0)]
    [1, 5, 100, 200]
    """
    power = 1
    while True:
        for factor in (1, 2, 5):
            if factor * power >= number:
                return factor * power
        power *= 10
