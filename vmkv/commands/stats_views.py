"""What `vmkv stats` shows besides tables: a screen, a picture, metrics, events as they happen."""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import Any, TextIO, TypeVar

import click
from click.shell_completion import CompletionItem
from rich.console import Console

from vmkv import published, stats_live, stats_picture, svg
from vmkv.commands.common import PICTURE, Failure, print_line
from vmkv.published import Found, figures
from vmkv.published.chrome_trace import TraceWriter
from vmkv.published.following import Follower
from vmkv.published.watching import Watched
from vmkv.published.words import duration
from vmkv.sizes import count, human

Command = TypeVar("Command", bound=Callable[..., Any])
_EVENTS_BEFORE = 10
_ADDRESS = re.compile(r"(?:(?P<host>\[[0-9a-fA-F:]+\]|[^:/]+):)?(?P<port>[0-9]{1,5})")
_PATIENCE = 0.8 * stats_live.SLOW_SECONDS
_SECONDS = {"watch": 0.5, "follow": 0.1, "prometheus": 15.0}


@dataclass(frozen=True)
class Views:
    """What was asked for besides tables."""

    watch: bool
    picture: Path | None
    prometheus: str | None
    follow: bool
    trace: Path | None
    interval: float | None
    seconds: float | None

    @property
    def names(self) -> list[str]:
        """The options that say what is shown."""
        told = {
            "--watch": self.watch,
            "--picture": self.picture is not None,
            "--prometheus": self.prometheus is not None,
            "--follow": self.follow,
            "--trace": self.trace is not None,
        }
        return [name for name, given in told.items() if given]


class _Seconds(click.FloatRange):
    """No range of click's keeps out what is no number at all."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        seconds = float(super().convert(value, param, ctx))
        if math.isnan(seconds):
            self.fail(f"{value!r} is no number of seconds.", param, ctx)
        return seconds


def view_options(command: Command) -> Command:
    """Options for the parameter `views`: each is one of its fields."""
    options = [
        click.option("--watch", is_flag=True, help="A live screen: what is where on the card."),
        click.option(
            "--picture", type=PICTURE, help="The same as a picture, to an .svg or .png file."
        ),
        click.option(
            "--follow", is_flag=True, help="Print events of PID as they happen, and the last ten."
        ),
        click.option(
            "--trace",
            type=click.Path(dir_okay=False, writable=True, path_type=Path),
            metavar="FILE",
            help="Write the last events of PID as a trace for Chrome or Perfetto; with --follow or "
            "--for also those that come.",
        ),
        click.option(
            "--prometheus",
            metavar="PORT|FILE",
            help="Serve metrics at http://localhost:PORT/metrics (or ADDRESS:PORT), or write them "
            "to FILE.prom, whole at any moment; once, or each --interval.",
        ),
        click.option(
            "--interval",
            type=_Seconds(0.02, 86400),
            metavar="SECONDS",
            help="Between looks. [default: 0.5 for --watch, 0.1 for --follow and --trace]",
        ),
        click.option(
            "--for",
            "seconds",
            type=_Seconds(0, 86400 * 365),
            metavar="SECONDS",
            help="End then. [default: when interrupted, or when PID has closed its caches]",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def complete_cache(
    context: click.Context, param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """What a shell can complete a PID to: those that share caches, then their caches' names."""
    found = published.find()
    published.close_all(found)
    items = {}
    for one in found:
        if one.pid is not None and one.reader is not None:
            program = one.reader.file.header.program
            items[one.name if "-" in incomplete else str(one.pid)] = program
    return [
        CompletionItem(name, help=program)
        for name, program in items.items()
        if name.startswith(incomplete)
    ]


def check_usage(views: Views, cache: str | None, others: list[str], as_json: bool) -> bool:
    """Whether there is something to be shown here; others are options that show something else."""
    names = views.names
    alone = [name for name in names if not (name == "--follow" and "--trace" in names)]
    if len(alone + others) > 1 and alone:
        raise click.UsageError(f"{alone[0]} and {[*alone, *others][1]} don't go together")
    if as_json and (views.picture is not None or views.prometheus is not None):
        raise click.UsageError(f"--json and {alone[0]} don't go together")
    if cache is None and (views.follow or views.trace is not None):
        raise click.UsageError(f"{names[0]} needs a PID: vmkv stats lists what there is")
    lasting = views.watch or views.follow or views.trace or views.prometheus
    for name, value in (("--interval", views.interval), ("--for", views.seconds)):
        if value is not None and not lasting:
            raise click.UsageError(f"{name} goes with --watch, --follow, --trace or --prometheus")
    return bool(names)


def show(views: Views, watched: Watched, wanted: str, as_json: bool) -> None:
    """Show what was asked for. wanted: PID or PID-TAG as given, "": all caches."""
    if views.picture is not None:
        _draw(watched, views.picture)
    elif views.prometheus is not None:
        _measure(watched, views)
    elif views.watch:
        _watch(watched, views, wanted, as_json)
    else:
        _follow(watched, views, as_json)


# ---- time -------------------------------------------------------------------------------------


def _ticks(views: Views, seconds: float) -> Iterator[None]:
    """Now, and then each interval, until the time is over. An interrupt is a way to end it."""
    interval = views.interval or seconds
    begun = time.monotonic()
    end = float("inf") if views.seconds is None else begun + views.seconds
    due = begun
    while True:
        yield
        # Looks that were late are not made up for.
        due = max(due + interval, time.monotonic())
        if due > end:
            time.sleep(max(0.0, end - time.monotonic()))
            yield
            return
        time.sleep(max(0.0, due - time.monotonic()))


@contextmanager
def _until_interrupted() -> Iterator[None]:
    """Ctrl-C is how one ends what goes on for ever."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("", err=True)


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """What is begun here is done before an interrupt counts."""
    handler = signal.getsignal(signal.SIGINT)
    came: list[tuple[int, FrameType | None]] = []
    if not callable(handler):  # it is ignored
        yield
        return
    signal.signal(signal.SIGINT, lambda *told: came.append(told))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
    if came:
        handler(*came[0])


# ---- a screen and a picture -------------------------------------------------------------------


def _watch(watched: Watched, views: Views, wanted: str, as_json: bool) -> None:
    console = Console(highlight=False)
    screen = console.is_terminal and not console.is_dumb_terminal and not as_json
    sampler = stats_live.Sampler(pieces=screen)
    what = f"process {wanted} to share a cache" if wanted else "caches to be shared"
    waiting = f"Waiting for {what}."
    with _until_interrupted():
        if not screen:
            _watch_lines(watched, views, sampler, None if as_json else waiting)
            return
        with stats_live.Screen(console, waiting) as shown:
            for _ in _ticks(views, _SECONDS["watch"]):
                shown.show(sampler.look(watched.now(_PATIENCE)))


def _watch_lines(
    watched: Watched, views: Views, sampler: stats_live.Sampler, waiting: str | None
) -> None:
    """A line a cache each time, for what is no terminal; JSON if nothing is to be said while there
    are none."""
    had = True
    for _ in _ticks(views, _SECONDS["watch"]):
        rows = sampler.look(watched.now(_PATIENCE))
        if waiting is None:
            caches = [row.figures for row in rows if row.snapshot is not None]
            print_line({"realtime_ns": time.time_ns(), "caches": caches})
            continue
        if had and not rows:
            click.echo(waiting, err=True)
        had = bool(rows)
        for row in rows:
            click.echo(stats_live.plain_line(row))


def _draw(watched: Watched, path: Path) -> None:
    found = watched.now()
    readable = [one for one in found if one.reader is not None]
    problems = [one.problem for one in found if one.reader is None]
    if problems and not readable:
        raise Failure(problems[0])
    rates = figures.measure_rates(one.reader for one in readable if one.reader is not None)
    caches = [
        stats_picture.Cache(
            one.name, one.reader.look(pieces=True), one.condition(), rates.get(one.reader)
        )
        for one in readable
        if one.reader is not None
    ]
    svg.save(stats_picture.draw(caches), path)


# ---- metrics ----------------------------------------------------------------------------------


def _measure(watched: Watched, views: Views) -> None:
    from vmkv.published import prometheus

    assert views.prometheus is not None
    prometheus.require_client()
    where = _ADDRESS.fullmatch(views.prometheus)
    if where is None:
        path = Path(views.prometheus)
        if path.suffix != ".prom":
            raise click.UsageError(
                f"--prometheus {views.prometheus!r} is neither a port nor a file that ends in "
                ".prom, as node_exporter reads them"
            )
        with _until_interrupted():
            for _ in _ticks(views, _SECONDS["prometheus"]):
                prometheus.write_textfile(watched, path)
                if views.interval is None and views.seconds is None:
                    return
        return
    port = int(where["port"])
    if not 0 < port < 1 << 16:
        raise click.UsageError(f"--prometheus {port}: a port is 1 to 65535")
    _serve(watched, views, (where["host"] or "127.0.0.1").strip("[]"), port)


def _serve(watched: Watched, views: Views, host: str, port: int) -> None:
    from prometheus_client import start_http_server

    from vmkv.published import prometheus

    try:
        server, thread = start_http_server(port, host, prometheus.registry(watched))
    except OSError as error:
        raise Failure(f"{host}:{port} can't be listened at: {error.strerror or error}") from None
    shown = f"[{host}]" if ":" in host else host
    click.echo(f"metrics are at http://{shown}:{port}/metrics", err=True)
    try:
        with _until_interrupted():
            if views.seconds is None:
                thread.join()
            else:
                thread.join(views.seconds)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


# ---- events -----------------------------------------------------------------------------------


def _follow(watched: Watched, views: Views, as_json: bool) -> None:
    goes_on = views.follow or views.seconds is not None
    with ExitStack() as stack:
        trace = None
        if views.trace is not None:
            file = stack.enter_context(views.trace.open("w", encoding="utf-8"))
            trace = TraceWriter(file)
            stack.callback(_end, trace, file)
        out = _Events(trace, printed=views.follow, as_json=as_json)
        with _until_interrupted():
            for _ in _ticks(views, _SECONDS["follow"]):
                lives = out.look(watched.now())
                if not lives or not goes_on:
                    break
        if trace is not None and not as_json:
            click.echo(f"{views.trace}: {count(out.events, 'event')}", err=True)


def _end(trace: TraceWriter, file: TextIO) -> None:
    with _uninterrupted():
        trace.end()
        file.flush()


class _Events:
    """Where events go: to stdout, or to a trace, or both."""

    def __init__(self, trace: TraceWriter | None, *, printed: bool, as_json: bool) -> None:
        self._trace, self._printed, self._as_json = trace, printed, as_json
        self._followers: dict[Path, Follower] = {}
        self._last = 1 << 30 if trace is not None else _EVENTS_BEFORE
        self.events = 0

    def look(self, found: list[Found]) -> bool:
        """Everything new; returns whether there can be more."""
        lives = False
        for one in found:
            if one.reader is None:
                raise Failure(one.problem)
            # In this order: what a process did before it died is read after.
            condition = one.condition()
            follower = self._followers.get(one.path)
            if follower is None:
                follower = self._followers[one.path] = Follower(one.reader, self._last)
                if self._printed and not self._as_json:
                    click.echo(_TITLES)
            self._tell(one, follower)
            lives = lives or condition.lives
            if not condition.lives and self._printed:
                click.echo(f"{one.name}: its process is dead", err=True)
        if not found and self._printed:
            click.echo("its caches were closed", err=True)
        return lives

    def _tell(self, one: Found, follower: Follower) -> None:
        news = follower.look()
        if self._trace is not None:
            # With half an entry it can't be loaded; and what is counted is to be in it.
            with _uninterrupted():
                self._trace.add(list(self._followers).index(one.path) + 1, follower, news)
                self.events += len(news.events)
        if not self._printed:
            return
        events = news.events if self._trace is None else news.events[-_EVENTS_BEFORE:]
        if news.lost:
            self._lost(one, news.lost)
        for event in events:
            row = follower.told(event)
            if self._as_json:
                print_line({"cache": one.name, **row})
            else:
                click.echo(_line(row))

    def _lost(self, one: Found, lost: int) -> None:
        if self._as_json:
            print_line({"cache": one.name, "kind": "overwritten", "events": lost})
        else:
            click.echo(f"... {count(lost, 'event')} were overwritten before they could be read")


_TITLES = (
    f"{'time':<15} {'step':>11} {'event':<9} {'slot':>5} {'sequence':<18} "
    f"{'bytes (physical)':>16} {'took':>9}  where (addresses: virtual)"
)


def _line(row: dict[str, Any]) -> str:
    """An event for people."""
    when = datetime.fromtimestamp(row["realtime_ns"] / 1e9).strftime("%H:%M:%S.%f")
    slot = "-" if row["slot"] is None else str(row["slot"])
    seq = "-" if row["sequence"] is None else f"{row['sequence']:#x}"
    size = human(row["total_bytes"]) if row["total_bytes"] and not row["missing"] else "-"
    return (
        f"{when:<15} {row['step']:>11,} {row['kind'].replace('_', ' '):<9} {slot:>5} {seq:<18} "
        f"{size:>16} {duration(row['duration_ns']):>9}  {_where(row)}"
    ).rstrip()


def _where(row: dict[str, Any]) -> str:
    if row["missing"] == "bytes":
        return f"{human(row['bytes'])} are missing (physical)"
    if row["missing"]:
        return f"{row['bytes']:,} {row['missing']} are missing"
    parts = []
    if row["address"] is not None:
        parts.append(f"{row['address']:#x}-{row['address'] + row['bytes']:#x}")
    if row["regions"] > 1:
        parts.append(f"and the same in {row['regions'] - 1:,} more regions")
    if row["slab"] is not None:
        parts.append(f"slab {row['slab']}")
    if row["group"] is not None:
        parts.append(f"group {row['group']}")
    if row["layer"] is not None:
        parts.append(f"layer {row['layer']} {row['tensor']}")
    return ", ".join(parts)
