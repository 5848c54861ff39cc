"""``vmkv stats``: caches from outside: running, hung or dead."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import click

from vmkv import published
from vmkv.commands import stats_tables as tables
from vmkv.commands import stats_views
from vmkv.commands.common import EXIT_FAILURE, Failure, json_option, print_json
from vmkv.published import Condition, Found, Snapshot, figures
from vmkv.published.events import describe
from vmkv.published.watching import Watched

_NONE = (
    "No caches are shared by processes of this user. An engine shares its cache with share=True, "
    "or VMKV_STATS=1 in its environment."
)


@click.command("stats")
@click.argument("cache", metavar="[PID]", required=False, shell_complete=stats_views.complete_cache)
@click.option("--maps", is_flag=True, help="Every mapping, as /proc/PID/maps has a process's.")
@click.option(
    "--seq",
    metavar="N",
    help="With --maps: of this sequence alone; its number, or that of its slot.",
)
@click.option(
    "--layer",
    type=click.IntRange(min=0),
    metavar="L",
    help="With --maps: of this layer alone, counted from 0 within its group.",
)
@click.option(
    "--address",
    metavar="0x...",
    help="What an address is or was last: sequence, layer, tensor, token, and what happened there.",
)
@json_option
@click.option("--bytes", "exact", is_flag=True, help="Print exact bytes in tables.")
@click.option("--reap", is_flag=True, help="Remove what dead processes left, and nothing else.")
@stats_views.view_options
@click.pass_context
def command(
    context: click.Context,
    /,
    cache: str | None,
    maps: bool,
    seq: str | None,
    layer: int | None,
    address: str | None,
    as_json: bool,
    exact: bool,
    reap: bool,
    **views: Any,
) -> None:
    """Look into the caches of this user's processes, whether they run, hang or are dead.

    Without PID: a line for each cache that is shared. With it: its sequences, slabs, run lengths
    and times of driver calls. If a process has several caches, PID-TAG as shown names one of them.

    A process that is stopped is shown as not responding, with the age of its heartbeat, which is
    the count of steps. What a dead one left is shown until it is removed by --reap, or when this
    user's next cache is shared.

    What is shared are lengths, addresses and times, never contents: neither tokens nor what is in
    the cache's memory. Only the user that runs the engine can read it.

    Bytes are physical, except where a title says virtual: reserved addresses.

    \b
    Exit code: 0  it was shown; there may be none
               1  no such process, sequence or address; a file that can't be read
               2  wrong usage
    """
    _check_usage(cache, maps, seq, layer, address, reap)
    if _show_view(
        stats_views.Views(**views),
        cache,
        {"--maps": maps, "--address": address, "--reap": reap, "--bytes": exact},
        as_json,
    ):
        return
    if reap:
        _reap(as_json)
        return
    printer = tables.Printer(exact=exact)
    if cache is None:
        _list(context, printer, as_json)
        return
    found = _named(cache)
    try:
        if address is not None:
            _show_address(printer, found, _address(address), as_json)
        elif maps:
            _show_maps(printer, found, seq, layer, as_json)
        else:
            _show(context, printer, found, as_json)
    finally:
        published.close_all(found)


def _check_usage(
    cache: str | None,
    maps: bool,
    seq: str | None,
    layer: int | None,
    address: str | None,
    reap: bool,
) -> None:
    if reap and (cache or maps or address):
        raise click.UsageError("--reap is for all processes, and stands alone")
    if cache is None and (maps or address):
        name = "--maps" if maps else "--address"
        raise click.UsageError(f"{name} needs a PID: vmkv stats lists what there is")
    if maps and address:
        raise click.UsageError("--maps and --address don't go together")
    if not maps and (seq is not None or layer is not None):
        name = "--seq" if seq is not None else "--layer"
        raise click.UsageError(f"{name} goes with --maps")


def _show_view(
    views: stats_views.Views, cache: str | None, others: dict[str, Any], as_json: bool
) -> bool:
    """Show something else than tables, if that was asked for."""
    if not stats_views.check_usage(
        views, cache, [name for name, on in others.items() if on], as_json
    ):
        return False
    pid, name = None, ""
    if cache is not None:
        found = _named(cache)
        pid, name = found[0].pid, cache if "-" in cache else ""
        published.close_all(found)
    with Watched(pid, name) as watched:
        stats_views.show(views, watched, cache or "", as_json)
    return True


def _number(text: str, what: str) -> int:
    try:
        value = int(text, 16 if text.lower().startswith("0x") else 10)
    except ValueError:
        value = -1
    if not 0 <= value < 1 << 64:
        raise click.UsageError(f"{what} {text!r} is no number such as 5 or 0x7f0000000000")
    return value


def _address(text: str) -> int:
    """An address as a fault message has it: hexadecimal, with or without 0x."""
    return _number(text if text.lower().startswith("0x") else f"0x{text}", "the address")


# ---- all of them ------------------------------------------------------------------------------


def _list(context: click.Context, printer: tables.Printer, as_json: bool) -> None:
    found = published.find()
    try:
        rows = _rows(found)
    finally:
        published.close_all(found)
    broken = [(one, problem) for one, _, problem in rows if problem]
    if as_json:
        caches = [row for _, row, _ in rows if row is not None]
        errors = [{"file": str(one.path), "error": problem} for one, problem in broken]
        print_json({"caches": caches, "errors": errors})
    elif not rows:
        click.echo(_NONE)
    else:
        printer.caches([(one.name, row, problem) for one, row, problem in rows])
    if broken:
        context.exit(EXIT_FAILURE)


Row = tuple[Found, dict[str, Any] | None, str]


def _rows(found: list[Found]) -> list[Row]:
    """Figures of each file, or what is wrong with it."""
    may_step = (Condition.ALIVE, Condition.UNKNOWN)
    living = [one.reader for one in found if one.reader and one.condition() in may_step]
    rates = figures.measure_rates(_readable(living))
    rows: list[Row] = []
    for one in found:
        if one.reader is None:
            rows.append((one, None, one.problem))
            continue
        try:
            snapshot = one.reader.look()
            row = _row(one, snapshot, rates.get(one.reader))
        except (published.PublishedError, OSError) as error:
            rows.append((one, None, str(error)))
        else:
            rows.append((one, row, ""))
    return rows


def _row(one: Found, snapshot: Snapshot, rate: float | None) -> dict[str, Any]:
    side = figures.of_kernel(snapshot)
    return figures.of_cache(snapshot, one.condition(), rate, kernel_side=side)


def _readable(readers: list[published.Reader]) -> list[published.Reader]:
    """Those whose steps can be read; what is wrong with the others is told later."""
    good = []
    for reader in readers:
        try:
            reader.steps()
        except published.PublishedError:
            continue
        good.append(reader)
    return good


def _reap(as_json: bool) -> None:
    removed, kept = published.reap()
    if as_json:
        print_json({"removed": [str(path) for path in removed], "kept": [str(p) for p in kept]})
        return
    for path in removed:
        click.echo(f"removed {path}")
    for path in kept:
        click.echo(f"kept {path}: it can't be read, and its process lives", err=True)
    if not removed:
        click.echo("Nothing was left by dead processes.")


# ---- one of them ------------------------------------------------------------------------------


def _named(text: str) -> list[Found]:
    """The readable files of a process, or the one of them that was named."""
    pid, _, tag = text.partition("-")
    if not (pid.isascii() and pid.isdigit()) or len(pid) > 10:
        raise click.UsageError(f"{text!r} is no PID, and no PID-TAG as vmkv stats shows it")
    found = published.find()
    wanted = [one for one in found if one.pid == int(pid) and (not tag or one.name == text)]
    published.close_all([one for one in found if one not in wanted])
    good = [one for one in wanted if one.reader is not None]
    if good:
        return good
    if wanted:
        raise Failure(wanted[0].problem)
    there = [one.name for one in found if one.pid is not None]
    what = f"there are {', '.join(there)}" if there else "no process of this user shares one"
    raise Failure(f"process {text} shares no cache: {what}")


def _looks(found: list[Found], **what: bool) -> list[tuple[Found, Snapshot]]:
    return [(one, one.reader.look(**what)) for one in found if one.reader is not None]


def _show(
    context: click.Context, printer: tables.Printer, found: list[Found], as_json: bool
) -> None:
    rates = figures.measure_rates(
        [one.reader for one in found if one.reader and one.condition() is Condition.ALIVE]
    )
    shown = []
    for one, snapshot in _looks(found, pieces=True):
        assert one.reader is not None
        row = _row(one, snapshot, rates.get(one.reader))
        shown.append((row, tables.Details.of(snapshot)))
    if as_json:
        print_json(_details_as_json(shown))
    else:
        for row, details in shown:
            printer.cache(row, details)
    problems = [problem for row, _ in shown for problem in row["problems"]]
    if problems:
        click.echo(f"Error: the file contradicts itself: {'; '.join(problems)}", err=True)
        context.exit(EXIT_FAILURE)


def _details_as_json(shown: list[tuple[dict[str, Any], tables.Details]]) -> dict[str, Any]:
    """All caches of the process together; each row says which one it is of."""
    told: dict[str, Any] = {"caches": [], "sequences": [], "slabs": []}
    for row, details in shown:
        told["caches"].append({**row, "runs": details.runs, "times": details.times})
        for name in ("sequences", "slabs"):
            told[name] += [{"cache": row["cache"], **one} for one in getattr(details, name)]
    return {"pid": shown[0][0]["pid"], **told}


def _show_maps(
    printer: tables.Printer, found: list[Found], seq: str | None, layer: int | None, as_json: bool
) -> None:
    wanted = None if seq is None else _number(seq, "the sequence")
    lists, known = [], []
    for one, snapshot in _looks(found, pieces=True):
        _check_layer(snapshot, layer)
        slot = None if wanted is None else _slot_of(snapshot, wanted)
        known += [f"{int(snapshot.slots['seq'][n]):#x} in slot {n}" for n in snapshot.open_slots]
        if wanted is None or slot is not None:
            lists.append((one, list(published.mappings(snapshot, slot=slot, layer=layer))))
    if not lists:
        some = ", ".join(known[:16]) + (" and more" if len(known) > 16 else "")
        what = f"there are {some}" if known else "none is open"
        raise Failure(f"sequence {seq} is not there: {what}")
    if as_json:
        rows = [{"cache": one.name, **asdict(row)} for one, maps in lists for row in maps]
        print_json({"pid": found[0].pid, "mappings": rows})
        return
    for one, maps in lists:
        printer.maps(one.name if len(lists) > 1 else "", maps)


def _slot_of(snapshot: Snapshot, number: int) -> int | None:
    """The slot of a sequence by its number, or by the slot's own: those are less than any
    sequence's."""
    if number < snapshot.header.slot_count:
        return number if number in snapshot.open_slots else None
    for slot in snapshot.open_slots.tolist():
        if int(snapshot.slots["seq"][slot]) == number:
            return int(slot)
    return None


def _check_layer(snapshot: Snapshot, layer: int | None) -> None:
    most = max(int(group["layers"]) for group in snapshot.groups)
    if layer is not None and layer >= most:
        raise Failure(f"layer {layer} is not there: layers are 0 to {most - 1}")


def _show_address(printer: tables.Printer, found: list[Found], address: int, as_json: bool) -> None:
    there = []
    for one, snapshot in _looks(found, pieces=True, events=True):
        spot = published.locate(snapshot, address)
        if spot is not None:
            events = [describe(event) for event in published.events_at(snapshot, spot)]
            if as_json:
                print_json({"cache": one.name, **asdict(spot), "events": events})
            else:
                printer.spot(one.name, snapshot, spot, events)
            return
        there += [f"{begin:#x}-{end:#x}" for begin, end in published.windows(snapshot)]
    some = ", ".join(there[:8]) + (" and more" if len(there) > 8 else "")
    raise Failure(f"address {address:#x} is in no window of process {found[0].pid}: {some}")
