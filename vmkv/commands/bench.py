"""``vmkv bench``: what the library itself costs, against bars."""

from __future__ import annotations

import click
from rich.console import Console
from rich.table import Table

from vmkv import bench
from vmkv.commands.common import device_option, json_option, open_device, print_json


@click.command("bench")
@device_option
@json_option
def command(device: str, as_json: bool) -> None:
    """Measure what vmkv itself costs on a device.

    Time and system calls of steps, growth against the bare driver calls of the same plan, where
    memory lies after prefill and decoding, and bookkeeping at a million pages. Budgets of gigabytes
    are used, but memory is never touched. A figure that misses its bar is shown as such and is no
    failure: bars are meant for a machine that does nothing else.
    """
    with open_device(device) as opened:
        report = bench.measure(opened, progress=lambda text: click.echo(f"{text} ...", err=True))
    if as_json:
        print_json(report.as_json())
    else:
        Console().print(_table(report))


def _table(report: bench.Report) -> Table:
    table = Table(title=f"vmkv bench on {report.device}", title_justify="left")
    table.add_column("what")
    table.add_column("measured", justify="right", no_wrap=True)
    table.add_column("bar", justify="right", no_wrap=True)
    table.add_column("met", no_wrap=True)
    words = {True: "yes", False: "NO", None: ""}
    for figure in report.figures:
        table.add_row(
            figure.text,
            _number(figure.value),
            _bar(figure),
            words[figure.met],
            style=_style(figure),
        )
    return table


def _style(figure: bench.Figure) -> str:
    if figure.bar is None:
        return "dim"
    return "bold red" if figure.met is False else ""


def _bar(figure: bench.Figure) -> str:
    if figure.bar is None:
        return ""
    return f"{'>=' if figure.at_least else '<='} {_number(figure.bar)}"


def _number(value: float | None) -> str:
    if value is None:
        return "unknown"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:,.4f}" if abs(value) < 1 else f"{value:,.2f}"
