"""`vmkv replay`: a trace of requests on a device, with real memory and real bytes."""

from __future__ import annotations

import dataclasses
import heapq
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
            _refuse_too_much(cache, requests, budget)
            recorder = Recorder(cache)
            with _show_progress(recorder, len(requests)) as progress:
                report = replay(cache, requests, seed=seed, progress=progress, recorder=recorder)
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
    click.echo(
        f"no request was completed: none of the {report.skipped:,} could ever fit, "
        f"as each is longer than --max-tokens {report.max_tokens} "
        f"or needs more than the budget of {human(report.budget_bytes)}",
        err=True,
    )


def _create_cache(device: vmkv.Device, geometry: vmkv.Geometry, **options: Any) -> vmkv.Cache:
    try:
        return vmkv.Cache(device, geometry, **options)
    except vmkv.InvalidError as error:
        # The options may be fine, and the process limited (ulimit -v).
        if isinstance(error, vmkv.SizeError) and "of addresses in one piece" in str(error):
            raise
        raise click.UsageError(str(error)) from error


def _choose_budget(device: vmkv.Device) -> int:
    budget = min(_DEFAULT_BUDGET_BYTES, device.info.memory_bytes)
    available = available_bytes()
    if device.info.cpu_addresses and available is not None:
        budget = min(budget, available // 2)
    return budget >> 20 << 20


def _refuse_too_much(cache: vmkv.Cache, requests: list[Request], budget: int) -> None:
    """Fail before the system has to kill somebody for the memory that this replay would touch."""
    available = available_bytes()
    if not cache.device.info.cpu_addresses or available is None:
        return
    info = cache.info
    totals = [r.total_tokens for r in requests if r.total_tokens <= info.max_tokens]
    largest = heapq.nlargest(info.max_slots, totals)
    needs = sum(cache.need_bytes(total, CHUNK_TOKENS) for total in largest)
    # As much again can wait for the queue, or be kept warm; the last slab is seldom full.
    most = min(budget, cache.device.info.memory_bytes, 2 * needs + info.slab_bytes)
    if most > available:
        raise Failure(
            f"this replay may touch {human(most)}, but {human(available)} of memory is free here: "
            f"give --budget {available * 3 // 4 >> 20}MiB or less"
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
