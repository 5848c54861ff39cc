"""Memory as bars of letters on a terminal."""

from __future__ import annotations

from collections.abc import Iterator

from rich.text import Text

from vmkv.sizes import human

# Told apart by their shapes too, for those who see no colours. The last is for terminals that show
# ASCII only.
KINDS = {
    "live": ("blue", "█", "#"),
    "partly filled": ("red", "▓", "%"),
    "warm": ("yellow", "▒", "+"),
    "retiring": ("magenta", "░", "-"),
    "free": ("bright_black", "·", "."),
}
_BAR_WIDTH_MAX = 100


def mark(kind: str, ascii_only: bool) -> str:
    """The letter that stands for memory of a kind."""
    return KINDS[kind][2 if ascii_only else 1]


def draw_bar(sizes: dict[str, int], width: int, ascii_only: bool) -> Iterator[Text]:
    """A bar of bytes by their kind, and a legend in as many lines as it takes."""
    total = max(sum(sizes.values()), 1)
    room = min(width, _BAR_WIDTH_MAX)
    bar, start = Text(), 0
    for kind, size in sizes.items():
        first, start = start, start + size
        cells = room * start // total - room * first // total
        bar.append(mark(kind, ascii_only) * cells, KINDS[kind][0])
    yield bar
    line = Text()
    for kind, size in sizes.items():
        name = f"{kind} {human(size)}"
        if line and len(line) + len(name) + 4 > width:
            yield line
            line = Text()
        line.append("  " if line else "")
        line.append(mark(kind, ascii_only), KINDS[kind][0])
        line.append(f" {name}")
    yield line
