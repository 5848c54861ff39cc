"""The picture of `vmkv stats --picture`: what a cache holds of the card, and what is where."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

from vmkv.published import Condition, Snapshot, figures
from vmkv.published.card_map import KINDS, CardMap, sizes_of
from vmkv.published.words import condition, shape
from vmkv.sizes import count, human
from vmkv.svg import Drawing, Line, Rect, Text, text_width

_WIDTH = 760.0
_MARGIN = 28.0
_RIGHT = _WIDTH - _MARGIN
_BAR_HEIGHT = 36.0
_MAP_LEFT = _MARGIN + 64
_COLUMNS = 320
_ROWS_MAX = 48
_SEQUENCES_NAMED = 24
_NAMES_ACROSS = 3

_COLORS = {
    "live": "blue",
    "empty": "vermilion",
    "warm": "orange",
    "passing": "sky",
    "free": "paper",
}
_NAMES = {
    "live": "live: rows of tokens",
    "empty": "mapped but empty",
    "warm": "warm: kept mapped for the next sequence",
    "passing": "on its way back",
    "free": "free",
}


class Cache(NamedTuple):
    """What is drawn: a snapshot with pieces, how its process is, and its steps a second."""

    name: str
    snapshot: Snapshot
    condition: Condition
    steps_per_second: float | None


def draw(caches: list[Cache]) -> Drawing:
    """Caches below each other."""
    drawing = Drawing(_WIDTH, 0, "What is where in GPU memory", "")
    if len(caches) == 1:
        drawing.title = f"What cache {caches[0].name} has in memory"
    y, about = 18.0, []
    for name, snapshot, told, rate in caches:
        row = figures.of_cache(snapshot, told, rate)
        y = _draw_cache(drawing, name, snapshot, row, y + 24)
        about.append(_summary(name, row))
    if not caches:
        drawing.add(Text(_MARGIN, y + 24, "No caches are shared.", 20, bold=True))
        y += 40
    when = time.strftime("%Y-%m-%d %H:%M:%S")
    note = f"Sizes are of physical memory, except of addresses, which are virtual. {when}"
    y = drawing.paragraph(_MARGIN, y + 20, note, size=11, fill="muted")
    drawing.about = " ".join(about) or "No caches are shared."
    drawing.height = round(y + 8)
    return drawing


def _summary(name: str, row: dict[str, Any]) -> str:
    return (
        f"{name}: {human(row['live_bytes'])} live of {human(row['mapped_bytes'])} mapped, budget "
        f"{human(row['budget_bytes'])}, all physical; {human(row['reserved_bytes'])} of addresses "
        "reserved, virtual."
    )


def _draw_cache(
    drawing: Drawing, name: str, snapshot: Snapshot, row: dict[str, Any], y: float
) -> float:
    drawing.add(Text(_MARGIN, y, f"{name}: {row['program']} on {row['device']}", 18, bold=True))
    sizes = sizes_of(snapshot)
    text = (
        f"{condition(row)[0].upper()}{condition(row)[1:]}. {shape(row['geometry'])} layers, pages "
        f"of {human(row['geometry']['page_bytes'])}; {count(row['sequences'], 'sequence')}, "
        f"{count(row['steps'], 'step')}, {count(row['shortages'], 'shortage')}. Reserved: "
        f"{human(row['reserved_bytes'])} of addresses (virtual)."
    )
    y = drawing.paragraph(_MARGIN, y + 22, text, size=12, fill="muted") + 8
    used = [kind for kind in _NAMES if kind == "free" or sizes[kind]]
    y = drawing.legend(_MARGIN, y, [(_COLORS[kind], _NAMES[kind]) for kind in used])
    y = _draw_bar(drawing, sizes, row["budget_bytes"], y + 6)
    y = _draw_map(drawing, snapshot, y + 18)
    return _name_sequences(drawing, snapshot, y + 26)


def _draw_bar(drawing: Drawing, sizes: dict[str, int], budget: int, y: float) -> float:
    """The budget as a bar, and its parts in numbers below."""
    total = max(sum(sizes.values()), 1)
    drawing.add(Text(_MARGIN, y, "The budget", 13, bold=True))
    drawing.add(Text(_RIGHT, y, f"{human(budget)} (physical)", 12, anchor="end"))
    y, start = y + 8, 0
    for kind, size in sizes.items():
        left = _MARGIN + (_RIGHT - _MARGIN) * start / total
        start += size
        width = _MARGIN + (_RIGHT - _MARGIN) * start / total - left
        if width >= 0.01:
            outline = "ink" if width > 2 else ""
            about = f"{human(size)} {_NAMES[kind].split(':')[0]}"
            drawing.add(Rect(left, y, width, _BAR_HEIGHT, _COLORS[kind], outline, about))
    parts = [f"{_NAMES[kind].split(':')[0]} {human(size)}" for kind, size in sizes.items() if size]
    return drawing.paragraph(_MARGIN, y + _BAR_HEIGHT + 18, ", ".join(parts), size=12)


def _draw_map(drawing: Drawing, snapshot: Snapshot, y: float) -> float:
    """Slabs below each other, from their first byte to their last."""
    card = CardMap.of(snapshot, _COLUMNS, _ROWS_MAX)
    each = "a slab" if card.slabs_per_row == 1 else f"{card.slabs_per_row} slabs"
    drawing.add(Text(_MARGIN, y, "What is where", 13, bold=True))
    text = f"each row {each} of {human(snapshot.header.slab_bytes)} (physical)"
    drawing.add(Text(_RIGHT, y, text, 12, anchor="end"))
    rows = len(card.first_slabs)
    pitch = max(7.0, min(22.0, 240 / rows))
    height, y = pitch - 2, y + 10
    for number, (first, cells) in enumerate(zip(card.first_slabs, card.cells, strict=True)):
        top = y + number * pitch
        _draw_cells(drawing, first, cells.tolist(), top, height)
        if pitch >= 14 or number % -(-14 // int(pitch)) == 0:
            label = f"slab {first}"
            drawing.add(Text(_MAP_LEFT - 8, top + height / 2 + 4, label, 11, "muted", "end"))
    y += rows * pitch
    return y


def _draw_cells(drawing: Drawing, slab: int, cells: list[int], top: float, height: float) -> None:
    """A row: cells of a kind beside each other are one rectangle."""
    width, begin = (_RIGHT - _MAP_LEFT) / len(cells), 0
    right = _MAP_LEFT
    for end in range(1, len(cells) + 1):
        if end < len(cells) and cells[end] == cells[begin]:
            continue
        kind, left = KINDS[cells[begin]], _MAP_LEFT + begin * width
        begin = end
        if kind == "untaken":
            continue
        right = _MAP_LEFT + end * width
        if kind != "free":
            about = f"from slab {slab} on: {_NAMES[kind].split(':')[0]}"
            drawing.add(Rect(left, top, right - left, height, _COLORS[kind], "", about))
    if right > _MAP_LEFT:  # the outline of what is taken from the card
        for edge in (top, top + height):
            drawing.add(Line(_MAP_LEFT, edge, right, edge, "muted", 0.5))
        for edge in (_MAP_LEFT, right):
            drawing.add(Line(edge, top, edge, top + height, "muted", 0.5))


def _name_sequences(drawing: Drawing, snapshot: Snapshot, y: float) -> float:
    """The open sequences by slot, in columns."""
    opened = snapshot.open_slots.tolist()
    page_bytes = snapshot.header.page_bytes
    lines = [
        f"slot {slot}: {int(snapshot.lives['tokens'][slot]):,} tokens, "
        f"{human(int(snapshot.slots['mapped_pages'][slot]) * page_bytes)} mapped"
        for slot in opened[:_SEQUENCES_NAMED]
    ]
    if len(opened) > len(lines):
        lines[-1] = f"and {len(opened) - len(lines) + 1:,} more"
    across, column = _NAMES_ACROSS, (_RIGHT - _MARGIN) / _NAMES_ACROSS
    if any(text_width(line, 11) > column for line in lines):
        across, column = 2, (_RIGHT - _MARGIN) / 2
    rows = -(-len(lines) // across)
    for index, line in enumerate(lines):
        x = _MARGIN + index // rows * column
        drawing.add(Text(x, y + index % rows * 17, line, 11, "muted"))
    return y + rows * 17
