"""The admission chart of `vmkv plan`: bars of agents, by scheme or by card."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from vmkv.plan import Card, Plan, Scheme
from vmkv.sizes import count, human, human_decimal
from vmkv.svg import Drawing, Line, Rect, Text, text_width

_WIDTH = 760.0
_MARGIN = 28.0
_COLORS = ("vermilion", "orange", "sky", "blue")  # of the schemes, in a plan's order
_NOTE = (
    "All of it is physical memory. A contiguous scheme reserves it when an agent starts; paged and "
    "vmkv take it as the agent grows. Contiguous and paged are modelled, at their best."
)


class _Bar(NamedTuple):
    value: int
    color: str
    about: str
    label: str = ""  # to the left of it
    beside: str = ""  # in a column at the right


class _Rows(NamedTuple):
    """Where bars are, and how far they reach."""

    left: float
    right: float
    most: int
    height: float
    size: float  # of the numbers at the ends of bars

    def x(self, value: int) -> float:
        room = self.right - self.left - text_width(f"{self.most:,}", self.size) - 8
        return self.left + room * value / max(self.most, 1)


def draw(plan: Plan, model: str, cards: Sequence[Card] = (), weights_bytes: int = 0) -> Drawing:
    """How many agents each scheme admits: to each of the cards, or without cards to the plan's
    budget. model and weights_bytes are for the text."""
    return _draw_cards(plan, model, cards, weights_bytes) if cards else _draw_schemes(plan, model)


def _draw_schemes(plan: Plan, model: str) -> Drawing:
    demand = plan.demand
    bars = [
        _Bar(
            scheme.admitted,
            color,
            _about(scheme),
            scheme.name,
            f"{human_decimal(scheme.reserved_bytes)} for {demand.agents:,}, "
            f"{scheme.wasted_percent} wasted"
            if scheme.long_enough
            else "too short for the average",
        )
        for scheme, color in zip(plan.schemes, _COLORS, strict=True)
    ]
    title = f"Agents that {human_decimal(plan.budget_bytes)} of memory admits"
    drawing = Drawing(_WIDTH, 0, title, _describe([("", bars)]))
    y = _head(drawing, plan, model)
    left = _MARGIN + max(text_width(bar.label, 14) for bar in bars) + 10
    right = _WIDTH - _MARGIN - max(text_width(bar.beside, 12) for bar in bars) - 16
    rows = _Rows(left, right, max(demand.agents, *(bar.value for bar in bars)), 28, 14)
    y = _groups(drawing, rows, [("", [bar]) for bar in bars], y, demand.agents)
    return _foot(drawing, y)


def _draw_cards(plan: Plan, model: str, cards: Sequence[Card], weights_bytes: int) -> Drawing:
    groups = [
        (
            human(card.card_bytes),
            [
                _Bar(scheme.admitted, color, f"{human(card.card_bytes)} card, {_about(scheme)}")
                for scheme, color in zip(card.schemes, _COLORS, strict=True)
            ],
        )
        for card in cards
    ]
    title = "Agents that a card admits"
    if weights_bytes:
        title += f" besides {human_decimal(weights_bytes)} of weights"
    drawing = Drawing(_WIDTH, 0, title, _describe(groups))
    y = _head(drawing, plan, model)
    names = [scheme.name for scheme in plan.schemes]
    y = drawing.legend(_MARGIN, y, list(zip(_COLORS, names, strict=True))) + 6
    most = max(bar.value for _, bars in groups for bar in bars)
    rows = _Rows(_MARGIN + 56, _WIDTH - _MARGIN, max(most, plan.demand.agents), 12, 10)
    return _foot(drawing, _groups(drawing, rows, groups, y, plan.demand.agents))


def _about(scheme: Scheme) -> str:
    agents = count(scheme.admitted, "agent")
    return f"{scheme.name}: {agents} of {human_decimal(scheme.agent_bytes)}"


def _describe(groups: Sequence[tuple[str, Sequence[_Bar]]]) -> str:
    """The bars in words."""
    return "; ".join(bar.about for _, bars in groups for bar in bars) + "."


def _head(drawing: Drawing, plan: Plan, model: str) -> float:
    demand = plan.demand
    drawing.add(Text(_MARGIN, 42, drawing.title, 20, bold=True))
    text = (
        f"{model}{': ' if model else ''}{plan.per_token}; agents of "
        f"{count(demand.average_tokens, 'token')} on average, {demand.context_tokens:,} at most. "
        f"vmkv: {plan.options.layout} layout, pages of {human(plan.options.page_bytes)}."
    )
    return drawing.paragraph(_MARGIN, 66, text, size=13, fill="muted") + 10


def _groups(
    drawing: Drawing,
    rows: _Rows,
    groups: Sequence[tuple[str, Sequence[_Bar]]],
    y: float,
    asked: int,
) -> float:
    """Groups of bars below each other. The line of those that were asked for runs in the gaps
    between them, where no number is."""
    x, gap = rows.x(asked), 12.0
    label = f"{asked:,} asked for"
    middle = min(x, _WIDTH - _MARGIN - text_width(label, 11) / 2)
    drawing.add(Text(middle, y + 2, label, 11, "muted", "middle"))
    y += 6
    for label, bars in groups:
        drawing.add(Line(x, y + 2, x, y + gap - 3, "muted", 1.5))
        y += gap
        top = y
        for bar in bars:
            _bar(drawing, rows, bar, y)
            y += rows.height
        drawing.add(Line(rows.left, top - 2, rows.left, y + 2, "ink", 1.5))
        if label:
            middle_y = (top + y) / 2 + 5
            drawing.add(Text(rows.left - 10, middle_y, label, 14, anchor="end"))
    drawing.add(Line(x, y + 2, x, y + gap - 3, "muted", 1.5))
    return y + gap


def _bar(drawing: Drawing, rows: _Rows, bar: _Bar, y: float) -> None:
    end = rows.x(bar.value)
    base = y + rows.height / 2 + 0.36 * rows.size
    if bar.value:
        drawing.add(
            Rect(rows.left, y, end - rows.left, rows.height - 1, bar.color, "ink", bar.about)
        )
    drawing.add(Text(end + 6, base, f"{bar.value:,}", rows.size, bold=True))
    if bar.label:
        drawing.add(Text(rows.left - 10, base, bar.label, 14, anchor="end"))
    if bar.beside:
        drawing.add(Text(rows.right + 16, base, bar.beside, 12, "muted"))


def _foot(drawing: Drawing, y: float) -> Drawing:
    y = drawing.paragraph(_MARGIN, y + 26, _NOTE, size=11, fill="muted")
    drawing.height = round(y + 8)
    return drawing
