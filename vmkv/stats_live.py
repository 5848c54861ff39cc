"""The live view of `vmkv stats --watch`: for each cache its card, and what is where on it."""

from __future__ import annotations

import textwrap
import time
from collections.abc import Iterator
from dataclasses import replace
from types import TracebackType
from typing import Any, NamedTuple

from rich.console import Console
from rich.text import Text

from vmkv.bars import KINDS, draw_bar, mark
from vmkv.published import Condition, Found, PublishedError, Snapshot, figures
from vmkv.published.card_map import KINDS as MAP_KINDS
from vmkv.published.card_map import CardMap, sizes_of
from vmkv.published.words import condition, duration
from vmkv.sizes import count, human

# What the kinds of a map are called beside the bar; what is no slab yet is left blank.
_NAMES = {
    "live": "live",
    "empty": "partly filled",
    "warm": "warm",
    "passing": "retiring",
    "free": "free",
}
_MAP_WIDTH_MAX = 128
_TITLE_WIDTH = 64
_SEQUENCES_MAX = 16
_SECONDS_UNTIL_ANEW = 3.0
# Mappings, processes, the kernel and the directories are looked at so often at most, however often
# the figures are.
SLOW_SECONDS = 0.5


class Mapped:
    """A snapshot that was taken with its mappings, and its map, which is drawn once for each size.

    Attributes:
        taken: when, by time.monotonic.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.taken = time.monotonic()
        self._snapshot = snapshot
        self._sizes: tuple[int, int, bool] | None = None
        self._lines: list[Text] = []

    def lines(self, width: int, rows: int, ascii_only: bool) -> list[Text]:
        """The map in so many columns and lines."""
        sizes = width, rows, ascii_only
        if self._sizes != sizes:
            self._sizes, self._lines = sizes, list(_map(self._snapshot, *sizes))
        return self._lines


class Row(NamedTuple):
    """A cache as it is shown: figures and snapshot, or what is wrong with its file. mapped: as of
    the last look at its mappings, if there was one."""

    name: str
    problem: str
    figures: dict[str, Any]
    snapshot: Snapshot | None
    mapped: Mapped | None = None


class _Slow(NamedTuple):
    """What is not looked at each time. at: when it was, by time.monotonic."""

    at: float
    condition: Condition
    kernel_side: dict[str, Any] | None
    judged: figures.Judged


class Sampler:
    """Looks at caches again and again, and knows what changed between.

    Args:
        pieces: whether mappings are looked at, too: twice a second, as there are many.
    """

    def __init__(self, *, pieces: bool = True) -> None:
        self._pieces = pieces
        self._before: dict[str, tuple[int, int]] = {}
        self._slow: dict[str, _Slow] = {}
        self._mapped: dict[str, Mapped] = {}

    def look(self, found: list[Found]) -> list[Row]:
        """A row for each file."""
        rows = [self._row(one) for one in found]
        for known in (self._before, self._slow, self._mapped):
            for name in set(known) - {row.name for row in rows}:
                del known[name]
        return rows

    def _row(self, one: Found) -> Row:
        if one.reader is None:
            return Row(one.name, one.problem, {}, None)
        mapped = self._mapped.get(one.name)
        # What comes each half second is there when it is due, were it late the last time.
        age = time.monotonic() - mapped.taken if mapped is not None else SLOW_SECONDS
        due = self._pieces and age > 0.8 * SLOW_SECONDS
        try:
            snapshot = one.reader.look(pieces=due)
        except (PublishedError, OSError) as error:
            return Row(one.name, str(error), {}, None)
        if due:
            mapped = self._mapped[one.name] = Mapped(snapshot)
        slow = self._slow_of(one, snapshot)
        rate = self._rate(one.name, snapshot) if slow.condition is Condition.ALIVE else None
        row = figures.of_cache(
            snapshot, slow.condition, rate, kernel_side=slow.kernel_side, judged=slow.judged
        )
        return Row(one.name, "", row, snapshot, mapped)

    def _slow_of(self, one: Found, snapshot: Snapshot) -> _Slow:
        """What is looked at twice a second at most."""
        now, slow = time.monotonic(), self._slow.get(one.name)
        if slow is not None and now - slow.at < 0.8 * SLOW_SECONDS:
            return slow
        # All mappings are not checked against each other each time.
        judged = figures.judge(replace(snapshot, pieces=None))
        side = figures.of_kernel(snapshot)
        slow = self._slow[one.name] = _Slow(now, one.condition(), side, judged)
        return slow

    def _rate(self, name: str, snapshot: Snapshot) -> float | None:
        """Steps a second since the last look."""
        steps, now_ns = snapshot.steps, snapshot.taken_ns
        before = self._before.get(name)
        self._before[name] = steps, now_ns
        if before is None or now_ns <= before[1]:
            return None
        return max(0.0, (steps - before[0]) * 1e9 / (now_ns - before[1]))


class Screen:
    """A terminal's whole screen, until it is closed: then it is as before. A context manager.

    Only lines that have changed are written: to draw all of it anew each time, as rich does, takes
    several times as long as to look at the caches.

    Args:
        waiting: what is said while there are none.
    """

    def __init__(self, console: Console, waiting: str) -> None:
        self._console, self._waiting = console, waiting
        self._screen = console.screen()
        self._size = (0, 0)
        self._seconds = 0.0
        self._shown: list[Text] = []

    def __enter__(self) -> Screen:
        self._screen.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._screen.__exit__(kind, error, traceback)

    def show(self, rows: list[Row]) -> None:
        """Show rows, as far as there is room."""
        width, height = self._console.size
        lines = list(frame(rows, self._waiting, width, height, self._console.options.ascii_only))
        written = []
        # Who stopped it may have written over it before it went on.
        begun, self._seconds = self._seconds, time.monotonic()
        if (width, height) != self._size or self._seconds - begun > _SECONDS_UNTIL_ANEW:
            self._size, self._shown = (width, height), []
            written.append("\x1b[2J")
        for number, line in enumerate(lines):
            line.truncate(width, overflow="crop")
            if number >= len(self._shown) or line != self._shown[number]:
                written.append(f"\x1b[{number + 1};1H{self._drawn(line)}\x1b[K")
        if len(lines) < len(self._shown):
            written.append(f"\x1b[{len(lines) + 1};1H\x1b[J")
        self._shown = lines
        self._console.file.write("".join(written))
        self._console.file.flush()

    def _drawn(self, line: Text) -> str:
        if not line.spans and not line.style:
            return line.plain
        with self._console.capture() as captured:
            self._console.print(line, end="", soft_wrap=True)
        return captured.get()


def frame(rows: list[Row], waiting: str, width: int, height: int, ascii_only: bool) -> list[Text]:
    """Lines that fit in so many columns and lines."""
    clock = time.strftime("%H:%M:%S")
    title, tail = f"vmkv stats, {clock}: {count(len(rows), 'cache')}.", " Ctrl-C ends it."
    lines = [Text(title + tail if len(title + tail) <= width else title)]
    if not rows:
        lines.append(Text(waiting))
    share = max(0, (height - 1) // max(len(rows), 1))
    for row in rows:
        lines += _cache(row, width, share, ascii_only)
    return lines[: max(height, 1)]


def _cache(row: Row, width: int, height: int, ascii_only: bool) -> Iterator[Text]:
    """One cache, in so many lines or fewer."""
    snapshot, told = row.snapshot, row.figures
    if snapshot is None:
        yield Text(f"{row.name}: {row.problem.removeprefix(row.name + '.kv: ')}", "bold")
        return
    head = f"{row.name}: {told['program']} on {told['device']}: {condition(told)}"
    lines = [Text(text, "bold") for text in _wrapped(head, width)]
    sizes = {_NAMES[kind]: size for kind, size in sizes_of(snapshot).items()}
    lines += draw_bar(sizes, width, ascii_only)
    lines += [Text(part) for text in _numbers(told) for part in _wrapped(text, width)]
    room = height - len(lines) - 1
    sequences = _sequences(snapshot, width, min(_SEQUENCES_MAX, room // 3))
    if row.mapped is not None and room - len(sequences) > 1:
        lines += row.mapped.lines(width, room - len(sequences) - 1, ascii_only)
    lines += sequences
    yield from lines[: max(height, 1)]


def _wrapped(text: str, width: int) -> list[str]:
    """Lines of a text, as which bytes it tells of must not be cut off."""
    return textwrap.wrap(text, max(width, 8), subsequent_indent="  ") or [text]


def _numbers(told: dict[str, Any]) -> Iterator[str]:
    rate = told["steps_per_second"]
    yield (
        f"budget {human(told['budget_bytes'])} and all above: physical; reserved "
        f"{human(told['reserved_bytes'])} of addresses: virtual"
    )
    steps = f"{told['steps']:,} steps" + ("" if rate is None else f", {rate:,.0f} a second")
    times = f"p50 {duration(told['map_p50_ns'])}, p99 {duration(told['map_p99_ns'])}"
    yield (
        f"{count(told['sequences'], 'sequence')}, {steps}, {count(told['shortages'], 'shortage')}, "
        f"{count(told['driver_calls'], 'driver call')}, map {times}"
    )


def _map(snapshot: Snapshot, width: int, rows: int, ascii_only: bool) -> Iterator[Text]:
    """A row is a slab or some of them, a letter a part of it."""
    label, titles = 6, 1 if width > _TITLE_WIDTH else 2
    if width < 2 * label or rows <= titles:
        return
    columns = min(width - label, _MAP_WIDTH_MAX)
    card = CardMap.of(snapshot, columns, rows - titles)
    each = "slab" if card.slabs_per_row == 1 else f"{card.slabs_per_row} slabs"
    cell = human(round(card.cell_bytes))
    title = f"each row {each}, each letter {cell} of physical memory:"
    yield from map(Text, _wrapped(title, width)[:titles])
    for first, cells in zip(card.first_slabs, card.cells.tolist(), strict=True):
        yield _map_row(first, cells, ascii_only)


def _map_row(first: int, cells: list[int], ascii_only: bool) -> Text:
    text = Text(f"{first:>5} ")
    begin = 0
    for end in range(1, len(cells) + 1):
        if end < len(cells) and cells[end] == cells[begin]:
            continue
        kind = MAP_KINDS[cells[begin]]
        if kind == "untaken":
            text.append(" " * (end - begin))
        else:
            name = _NAMES[kind]
            text.append(mark(name, ascii_only) * (end - begin), KINDS[name][0])
        begin = end
    return text


def _sequences(snapshot: Snapshot, width: int, most: int) -> list[Text]:
    """The open sequences with the most memory, and as many columns of them as fit."""
    opened = snapshot.open_slots
    if most < 3 or not len(opened):
        return []
    pages = snapshot.slots["mapped_pages"][opened]
    order = opened[pages.argsort(kind="stable")[::-1]][: most - 2].tolist()
    page_bytes, live = snapshot.header.page_bytes, snapshot.live_bytes_by_slot
    mapped = [int(snapshot.slots["mapped_pages"][slot]) * page_bytes for slot in order]
    columns = [
        ("slot", 7, [str(slot) for slot in order]),
        ("tokens", 12, [f"{int(snapshot.lives['tokens'][slot]):,}" for slot in order]),
        ("live", 12, [human(int(live[slot])) for slot in order]),
        ("mapped", 12, [human(size) for size in mapped]),
        ("last step", 12, [f"{int(snapshot.lives['step'][slot]):,}" for slot in order]),
    ]
    while len(columns) > 1 and sum(room + 1 for _, room, _ in columns) > width:
        columns.pop()
    more = len(opened) - len(order)
    about = "live and mapped: physical" + (f"; {more:,} more open" if more else "")
    lines = [about, " ".join(f"{title:>{room}}" for title, room, _ in columns)]
    for number in range(len(order)):
        lines.append(" ".join(f"{cells[number]:>{room}}" for _, room, cells in columns))
    return [Text(line) for line in lines]


def plain_line(row: Row) -> str:
    """A cache in one line, for what is no terminal."""
    told, clock = row.figures, time.strftime("%H:%M:%S")
    if row.snapshot is None:
        return f"{clock} {row.name}: {row.problem}"
    rate = told["steps_per_second"]
    return (
        f"{clock} {row.name}: live {human(told['live_bytes'])}, mapped "
        f"{human(told['mapped_bytes'])}, warm {human(told['warm_bytes'])}, retiring "
        f"{human(told['retiring_bytes'])} of {human(told['budget_bytes'])} (physical); "
        f"{count(told['sequences'], 'sequence')}, {told['steps']:,} steps"
        + ("" if rate is None else f", {rate:,.0f} a second")
        + f", {count(told['shortages'], 'shortage')}; {condition(told)}"
    )
