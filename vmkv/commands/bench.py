"""``vmkv bench``: what the library itself costs, against bars."""

from __future__ import annotations

import shlex

import click
from rich.console import Console
from rich.table import Table

from vmkv import bench, errors
from vmkv import hardware as hardware_bench
from vmkv.commands.common import device_option, json_option, open_device, print_json


@click.command("bench")
@device_option
@click.option(
    "--hardware",
    is_flag=True,
    help="Measure the card and its driver instead, for a table to post. "
    "--device is then amdgpu (the first card; so is auto), a card's path or emulated:gfx1201.",
)
@json_option
def command(device: str, hardware: bool, as_json: bool) -> None:
    """Measure what vmkv itself costs on a device, or, with --hardware, the card and its driver.

    Time, system calls and (on an emulated card) ioctls of steps, growth against the bare driver
    calls of the same plan, where memory lies after prefill and decoding, and bookkeeping of many
    pages. Budgets of gigabytes are used, but memory is never touched. A figure that misses its bar
    is shown as such and is no failure: bars are meant for a machine that does nothing else.

    --hardware: how long the driver takes to map, unmap, remap and clear pieces, how fast the copy
    engine is through them, and what happens when VRAM is nearly full, as Markdown. All memory that
    it takes is its own, and a reserve of VRAM stays free.
    """
    if hardware:
        _measure_hardware(device, as_json)
        return
    with open_device(device, touches=False) as opened:
        report = bench.measure(opened, progress=lambda text: click.echo(f"{text} ...", err=True))
    if as_json:
        print_json(report.as_json())
    else:
        Console().print(_table(report))


def _measure_hardware(device: str, as_json: bool) -> None:
    try:
        with hardware_bench.open_card(device) as card:
            report = _measured(card)
    except errors.InvalidError as error:
        raise click.UsageError(str(error)) from error
    table = hardware_bench.markdown(report)
    if as_json:
        print_json(report.as_json() | {"markdown": table})
    else:
        click.echo(table, nl=False)


def _measured(card: hardware_bench.Card) -> hardware_bench.Report:
    try:
        return hardware_bench.measure(card, lambda text: click.echo(f"{text} ...", err=True))
    except errors.DeviceMemoryError:
        raise
    except errors.DeviceError as error:  # what a sound card doesn't do
        name = shlex.quote("amdgpu" if card.name == "auto" else card.name)
        message = f"{error}. What is wrong with the card: vmkv doctor --device {name}"
        raise type(error)(message, error.errno) from error


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
