"""`vmkv replay`: a trace of requests on a device, with real memory and real bytes."""

from __future__ import annotations

import dataclasses
import heapq
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import vmkv
from vmkv import live, svg
from vmkv.baselines import model_baselines
from vmkv.commands.common import (
    MODEL,
    MODEL_HELP,
    PICTURE,
    SIZE,
    Failure,
    Model,
    device_option,
    json_option,
    open_device,
    print_json,
)
from vmkv.commands.replay_table import print_table
from vmkv.recorder import Recorder
from vmkv.replay import Report, replay
from vmkv.replay_picture import draw
from vmkv.rows import Floor
from vmkv.serving import CHUNK_TOKENS
from vmkv.sizes import human
from vmkv.system import available_bytes
from vmkv.traces import FORMATS, Request, default_trace, read_trace

_DEFAULT_BUDGET_BYTES = 4 << 30
_SECONDS_BETWEEN_LINES = 10.0


@click.command("replay")
@click.argument(
    "trace", required=False, type=click.Path(exists=True, dir_okay=False, path_type=Path)
)
@device_option
@click.option(
    "--model",
    type=MODEL,
    default="qwen3-8b",
    show_default=True,
    help=f"Whose KV cache: {MODEL_HELP}.",
)
@click.option(
    "--budget",
    type=SIZE,
    help="Physical memory for the cache. [default: 4GiB, or half of what is free if that is less]",
)
@click.option(
    "--agents",
    type=click.IntRange(1, 1 << 16),
    default=8,
    show_default=True,
    help="How many requests are served at a time.",
)
@click.option(
    "--page",
    type=SIZE,
    default="64KiB",
    show_default=True,
    help="What is accounted and recycled: a power of two from 4KiB to 2MiB.",
)
@click.option(
    "--layout",
    type=click.Choice(["layer", "token"]),
    default="layer",
    show_default=True,
    help="A range of addresses for each layer and tensor, or all interleaved token by token.",
)
@click.option(
    "--max-tokens",
    type=click.IntRange(1, (1 << 32) - 2),
    default=16384,
    show_default=True,
    help="Longest sequence; longer requests are skipped.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, sys.maxsize),
    default=60,
    show_default=True,
    help="Read this many requests, or sessions, of the trace at most.",
)
@click.option(
    "--format",
    "format_name",
    type=click.Choice(list(FORMATS)),
    help="The format of the trace. [default: its first line tells]",
)
@click.option(
    "--seed",
    type=click.IntRange(0, (1 << 63) - 1),
    default=0,
    show_default=True,
    help="What is written, what is checked, and how far the queue lags follow from it.",
)
@click.option(
    "--picture",
    type=PICTURE,
    help="Draw the card at its fullest and the memory over time, to an .svg or .png file.",
)
@click.option(
    "--floor",
    is_flag=True,
    help="Write the same rows with a plain loop in C, too, to tell how fast writing could be.",
)
@json_option
def command(
    trace: Path | None,
    device: str,
    model: Model,
    budget: int | None,
    agents: int,
    page: int,
    layout: str,
    max_tokens: int,
    limit: int,
    format_name: str | None,
    seed: int,
    picture: Path | None,
    floor: bool,
    as_json: bool,
) -> None:
    """Replay a trace of LLM requests with real memory.

    TRACE is a file as Azure publishes them (CSV: TIMESTAMP, ContextTokens, GeneratedTokens), or
    Mooncake (JSON lines with hash_ids), or TraceLab (CSV or JSON lines: rounds of sessions).
    Without one it is an extract of a code assistant's requests that comes with the package.

    Times are ignored: AGENTS requests are served at a time, in the order of the trace. Prompts
    come in chunks of 512 tokens, then each step adds a token to each sequence. A session keeps its
    sequence between its rounds, for a step for each 20 ms that its tools take. A request is
    admitted when the memory for its prompt and output is sure; one that can never fit is skipped
    and counted. Every row of every token is written to the device's memory through its span; rows
    are read back at random, and attention over spans is compared with attention over plain arrays.
    The exit code is 1 if any check fails.

    Beside it stands what the same requests would make of memory that is reserved for the longest
    context, or half of it, or paged in blocks of 16 tokens: modelled, in arithmetic.

    With --floor, a plain loop in C writes the same rows by turns with the replay: one behind the
    other into newly mapped memory, which grows to what the replay maps at most, and over it again.
    write_ratio is its time to that of the replay's writing. It takes as much memory again.

    The default budget and limit are chosen so that it ends within a minute on two cores.

    \b
    Examples:
      vmkv replay
      vmkv replay --layout token --limit 300
      vmkv replay trace.csv --model llama-3.1-8b --budget 10GB --agents 16 --json
      vmkv replay --agents 16 --picture card.svg
    """
    requests = list(read_trace(trace, format_name, limit))
    geometry = model.geometry()
    with open_device(device) as opened:
        if budget is None:
            budget = _choose_budget(opened)
        with _create_cache(
            opened,
            geometry,
            budget=budget,
            page=page,
            layout=layout,
            max_slots=agents,
            max_tokens=max_tokens,
        ) as cache:
            most_bytes = _most_bytes(cache, requests)
            _refuse_too_much(cache, most_bytes, 2 if floor else 1)
            recorder = Recorder(cache)
            with _show_progress(recorder, len(requests)) as progress:
                report = replay(
                    cache,
                    requests,
                    seed=seed,
                    progress=progress,
                    recorder=recorder,
                    floor=Floor(most_bytes) if floor else None,
                )
    name = trace.name if trace else default_trace().name
    baselines = model_baselines(
        geometry,
        requests,
        agents=report.agents,
        budget_bytes=report.budget_bytes,
        max_tokens=report.max_tokens,
    )
    if as_json:
        figures = dataclasses.asdict(report)
        print_json({"model": model.name, **figures, "modelled": baselines.as_json()})
    else:
        print_table(report, baselines, model.name, name)
    if picture is not None:
        svg.save(draw(recorder, report, model.name, name), picture)
    if report.checks_failed:
        raise Failure(
            f"{report.checks_failed:,} of {report.checks_done:,} checks failed, "
            f"the first: {report.failures[0]}"
        )
    if not report.requests:
        _explain_nothing(report)


def _explain_nothing(report: Report) -> None:
    """Say why no request was completed."""
    if report.starved:
        raise Failure(
            f"no request was completed: {report.starved:,} would fit in the budget, "
            "but the device has too little memory or too few mappings for any of them"
        )
    count, budget = report.skipped, human(report.budget_bytes)
    which = "the only one" if count == 1 else f"none of the {count:,}"
    each = "it" if count == 1 else "each"
    click.echo(
        f"no request was completed: {which} could {'never' if count == 1 else 'ever'} fit, as "
        f"{each} is longer than --max-tokens {report.max_tokens} or needs more than the budget of "
        f"{budget}",
        err=True,
    )


def _create_cache(device: vmkv.Device, geometry: vmkv.Geometry, **options: Any) -> vmkv.Cache:
    try:
        return vmkv.Cache(device, geometry, **options)
    except vmkv.InvalidError as error:
        # The options may be fine, and the process limited (ulimit -v).
        text = _in_options(str(error))
        if isinstance(error, vmkv.SizeError) and "of addresses in one piece" in str(error):
            raise Failure(text) from error
        raise click.UsageError(text) from error


# What the library calls what is given here as options.
_OPTIONS = {
    r"max_slots( or slot_count)?": "--agents",
    r"max_tokens, --agents": "--max-tokens or --agents",
    r"(?<!-)max_tokens": "--max-tokens",
    r"slot_count": "--agents",
    r"page_bytes": "--page",
    r"a budget of": "a --budget of",
    r"the device's granule, (\d+),": r"\1",
}


def _in_options(text: str) -> str:
    """An error of the library, in the words of the command line."""
    for name, option in _OPTIONS.items():
        text = re.sub(name, option, text)
    text = re.sub(r"\b(\d+) (tokens|slots)\b", lambda m: f"{int(m[1]):,} {m[2]}", text)
    # What is left are counts of a few, and bytes.
    return re.sub(r"(?<![\d,^])(\d{4,}|\d+(?= bytes?\b))( bytes?)?(?![\d,])", _in_units, text)


def _in_units(match: re.Match[str]) -> str:
    """A size in exact words: 4.88 KiB would not be what was given."""
    size = int(match[1])
    return human(size) if size % 1024 == 0 or size >= 1 << 20 else f"{size:,} B"


def _choose_budget(device: vmkv.Device) -> int:
    budget = min(_DEFAULT_BUDGET_BYTES, device.info.memory_bytes)
    available = available_bytes()
    if device.info.cpu_addresses and available is not None:
        budget = min(budget, available // 2)
    return budget >> 20 << 20


def _most_bytes(cache: vmkv.Cache, requests: list[Request]) -> int:
    """Memory that a replay may touch."""
    info = cache.info
    totals = [r.total_tokens for r in requests if r.total_tokens <= info.max_tokens]
    largest = heapq.nlargest(info.max_slots, totals)
    needs = sum(cache.need_bytes(total, CHUNK_TOKENS) for total in largest)
    budget, memory = cache.stats().budget_bytes, cache.device.info.memory_bytes
    # As much again can wait for the queue, or be kept warm; the last slab is seldom full.
    return min(budget, memory, 2 * needs + info.slab_bytes)


def _refuse_too_much(cache: vmkv.Cache, most_bytes: int, times: int) -> None:
    """Fail before the system has to kill somebody for the memory that this replay would touch, so
    many times."""
    available = available_bytes()
    if not cache.device.info.cpu_addresses or available is None:
        return
    if times * most_bytes > available:
        raise Failure(
            f"this replay may touch {human(times * most_bytes)}, but {human(available)} of memory "
            f"is free here: give --budget {available * 3 // 4 // times >> 20}MiB or less"
        )


# ---- progress


@contextmanager
def _show_progress(recorder: Recorder, total: int) -> Iterator[Callable[[Report], None]]:
    """How far it is, on stderr: the card on a terminal, else a line now and then."""
    console = Console(stderr=True)
    if console.is_terminal and not console.is_dumb_terminal:
        with live.show(console, recorder, total) as show:
            yield show
    else:
        yield _Lines(total).show


class _Lines:
    def __init__(self, total: int) -> None:
        self.total = total
        self.next_seconds = time.monotonic() + _SECONDS_BETWEEN_LINES

    def show(self, report: Report) -> None:
        now = time.monotonic()
        if now < self.next_seconds:
            return
        self.next_seconds = now + _SECONDS_BETWEEN_LINES
        done = report.requests + report.skipped
        click.echo(
            f"replay: {done:,} of {self.total:,} requests, {human(report.bytes_written)} written",
            err=True,
        )
