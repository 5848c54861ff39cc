"""Tables for people, as several commands print them."""

from __future__ import annotations

from collections.abc import Iterable

from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text


def print_whole(console: Console, table: Table) -> None:
    """Figures are not cut off where it is narrow: a terminal breaks the line."""
    width = Measurement.get(console, console.options.update(max_width=1000), table).maximum
    Console(highlight=False, width=max(width, console.width)).print(table)


def facts_table(facts: Iterable[tuple[str | Text, str | Text]]) -> Table:
    """A name and a text in each line; long texts go on in the next one."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    for name, text in facts:
        table.add_row(name, text)
    return table
