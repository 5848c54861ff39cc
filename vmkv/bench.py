"""What `vmkv bench` measures: the library's own cost, against bars.

Counts are exact, and where it can be a time is a ratio to something else in the same run. No
measurement touches the memory that it maps, so gigabytes of budget take no RAM on devices whose
memory is made when it is touched.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from vmkv import errors
from vmkv.cache import Cache
from vmkv.device import Device
from vmkv.geometry import Geometry, Group, Tensor
from vmkv.loads import (
    Array,
    Floor,
    Load,
    Plan,
    Times,
    chunks,
    floor_for,
    in_turn,
    plan_of,
    together,
)

MODEL = "qwen3-8b"
BUDGET = "10GB"
PROMPT_TOKENS = 3000
CHUNK_TOKENS = 512

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Figure:
    """One number. `value` is None where it could not be measured; `bar` is None where there is
    nothing to reach."""

    key: str
    value: float | None
    text: str
    bar: float | None = None
    at_least: bool = False

    @property
    def met(self) -> bool | None:
        """Whether the bar is met; None if there is none, or nothing was measured."""
        if self.bar is None or self.value is None:
            return None
        return self.value >= self.bar if self.at_least else self.value <= self.bar


@dataclass(frozen=True)
class Report:
    device: str
    figures: tuple[Figure, ...]

    def as_json(self) -> dict[str, Any]:
        """The figures by key, with `bars` and `met` for those that have a bar."""
        barred = [figure for figure in self.figures if figure.bar is not None]
        return {
            "device": self.device,
            **{figure.key: figure.value for figure in self.figures},
            "bars": {figure.key: figure.bar for figure in barred},
            "met": {figure.key: figure.met for figure in barred},
        }


# ---- steps that map nothing ------------------------------------------------------------------


def no_growth(device: Device, agents: int = 64, rounds: int = 4) -> list[Figure]:
    """Steps within memory that is there already: each advances all sequences by a token."""
    per_step: list[Times] = []
    python_us: list[float] = []
    batch = 32
    for _ in range(rounds):
        # Memory for 1,024 tokens comes with the first step, so that 1,023 more need none.
        with Cache(
            device,
            Geometry.preset(MODEL),
            budget=BUDGET,
            max_slots=agents,
            max_tokens=2048,
            read_align_tokens=1024,
            zero=False,
            warm="off",
        ) as cache:
            load = Load(cache, agents)
            load.run(together(agents, [1]))
            grown = cache.stats().growing_steps
            per_step.append(load.run(together(agents, range(2, 514)), batch))
            python_us += _python_steps(cache, load, first=514, last=960)
            idle = load.count_syscalls(together(agents, range(961, 1024)))
            if cache.stats().growing_steps != grown:
                raise errors.Error("the steps that should map nothing mapped something")
            before = cache.stats()
            growing = load.count_syscalls(in_turn(1, [1025]))
            pieces = cache.stats().map_calls - before.map_calls
    ns = np.concatenate(per_step) / (batch * agents)
    return [
        Figure(
            "no_growth_ns_per_sequence",
            float(np.median(ns)),
            f"ns a sequence in C, {agents} sequences a step (median of {len(ns)} batches)",
            10,
        ),
        Figure("no_growth_ns_per_sequence_best", float(ns.min()), "the same, the best batch"),
        Figure("no_growth_syscalls", idle, "system calls of 63 such steps, seen by ptrace", 0),
        Figure("growth_syscalls", growing, "for comparison: those of a step that grows ..."),
        Figure("growth_syscalls_pieces", pieces, "... by so many pieces"),
        Figure(
            "python_step_us",
            float(np.median(python_us)),
            f"us a step of {agents} sequences from Python, `tokens += 1` included",
            3,
        ),
    ]


def _python_steps(cache: Cache, load: Load, first: int, last: int) -> list[float]:
    """Microseconds of steps through a batch, from length `first` to `last`."""
    batch = cache.batch(load.sequences)
    tokens = batch.tokens
    tokens[:] = first - 1
    step = batch.step
    times = []
    repeat = 16
    for _ in range((last - first + 1) // repeat):
        begin = time.perf_counter_ns()
        for _ in range(repeat):
            tokens += 1
            step()
        times.append((time.perf_counter_ns() - begin) / repeat / 1000)
    return times


# ---- growth against the bare driver calls ----------------------------------------------------


@dataclass(frozen=True)
class Race:
    """The same growth through vmkv_step and as bare calls: the time of each step, in ns.

    A step does the same work each time, and what else the machine does only adds to it. So the
    times are each step's shortest of many runs, on either side.
    """

    plan: Plan
    ours: Times
    floor: Times

    def ratio(self, first: int = 0, last: int | None = None) -> float:
        """Over the steps [first, last)."""
        return float(self.ours[first:last].sum() / self.floor[first:last].sum())


def race(device: Device, floor: Floor, agents: int, script: Array, pairs: int) -> Race:
    """Run a script through vmkv_step and the calls of its plan bare, by turns."""
    most = int(script["tokens"].max())
    with _serving_cache(device, agents, max_tokens=most) as recorded:
        load = Load(recorded, agents)
        plan = plan_of(load, load.record(script, max_pieces=1 << 16), len(script))
        if len(plan.pieces) != recorded.stats().map_calls:
            raise errors.Error("the recorded pieces are not the driver calls that were made")

    def ours() -> Times:
        with _serving_cache(device, agents, max_tokens=most) as timed:
            times = Load(timed, agents).run(script)
            if timed.stats().map_calls != len(plan.pieces):
                raise errors.Error("the same growth did not make the same driver calls")
            return times

    sides: tuple[Callable[[], Times], ...] = (ours, lambda: floor(plan))
    best = [side() for side in sides]
    for pair in range(1, pairs):
        # By turns who begins: the first may find the machine in another state.
        for side in (0, 1) if pair % 2 else (1, 0):
            np.minimum(best[side], sides[side](), out=best[side])
    return Race(plan, *best)


def growth(
    device: Device,
    agents: int = 8,
    tokens: int = PROMPT_TOKENS,
    decoded: int = 512,
    many: int = 64,
    pairs: int = 81,
) -> list[Figure]:
    """Prefill in one step each, then decode together; and the first token of many agents at once,
    where every span begins."""
    floor = floor_for(device)
    if floor is None:
        text = "there is no floor for this kind of device yet"
        return [Figure("growth_ratio", None, text, 1.10)]
    script = np.concatenate(
        [in_turn(agents, [tokens]), together(agents, range(tokens + 1, tokens + decoded + 1))]
    )
    mixed = race(device, floor, agents, script, pairs)
    first = race(device, floor, many, together(many, [1]), max(pairs // 4, 1))
    pieces = len(mixed.plan.pieces)
    text = (
        f"time of growing to that of the bare driver calls: {agents} prefills of {tokens:,} tokens,"
        f" {decoded} decoded by all"
    )
    return [
        Figure("growth_ratio", mixed.ratio(), text, 1.10),
        Figure("growth_ratio_prefill", mixed.ratio(last=agents), "the same, prefills alone"),
        Figure("growth_ratio_decode", mixed.ratio(first=agents), "the same, decoding alone"),
        Figure("growth_ratio_first", first.ratio(), f"the same, first token of {many} in one step"),
        Figure("growth_pieces", pieces, "pieces mapped by that growth (without the last) ..."),
        Figure("growth_slabs", mixed.plan.slabs, "... out of so many slabs"),
        Figure("growth_ns_per_piece", float(mixed.ours.sum()) / pieces, "ns a piece with vmkv ..."),
        Figure("growth_floor_ns_per_piece", float(mixed.floor.sum()) / pieces, "... and bare"),
    ]


# ---- where memory lies -----------------------------------------------------------------------


def _serving_cache(device: Device, agents: int, **options: Any) -> Cache:
    """A cache as an engine would make it, whose memory is never touched."""
    return Cache(
        device,
        Geometry.preset(MODEL),
        **{
            "budget": BUDGET,
            "max_slots": agents,
            "max_tokens": 16_000,
            "zero": False,
            "warm": "off",
            **options,
        },
    )


def prefill(device: Device, agents: int = 8, tokens: int = PROMPT_TOKENS) -> list[Figure]:
    """Whole prompts in one step each."""
    admitted = 0
    with _serving_cache(device, agents) as cache:
        load = Load(cache, agents)
        for sequence in load.sequences:
            try:
                cache.step({sequence: tokens})
            except errors.Shortage:
                if admitted == 0:
                    raise
                break
            admitted += 1
        stats = cache.stats()
        layout = load.look()
        page_bytes = cache.info.page_bytes
    with _serving_cache(device, agents, layout="token") as cache:
        load = Load(cache, admitted)
        load.run(in_turn(admitted, [tokens]))
        token_layout = load.look()
    pages = stats.mapped_bytes // page_bytes
    what = f"a prefill of {tokens:,} tokens in one step"
    return [
        Figure("mappings_per_span", layout.mappings_max, f"most mappings a span: {what}", 4),
        Figure(
            "token_mappings_per_sequence",
            token_layout.mappings_max,
            f"token layout, most mappings a sequence: {what}",
            16,
        ),
        Figure("prefill_pages", pages // admitted, f"pages: {what}"),
        Figure(
            "agents_admitted",
            admitted,
            f"agents of {tokens:,} tokens admitted in {BUDGET}",
            agents,
            at_least=True,
        ),
        Figure("waste", stats.waste, "share of mapped bytes that is not live, then", 0.01),
        Figure(
            "table_bytes_per_page_64kib",
            stats.table_bytes / pages,
            "bytes of tables a mapped page, then",
            24,
        ),
    ]


def chunked(device: Device, agents: int = 8, tokens: int = PROMPT_TOKENS) -> list[Figure]:
    """Prompts that grow in turn, by chunks."""
    script = in_turn(agents, chunks(tokens, CHUNK_TOKENS))
    layouts = {}
    for name in ("layer", "token"):
        with _serving_cache(device, agents, layout=name) as cache:
            load = Load(cache, agents)
            load.run(script)
            layouts[name] = load.look()
    what = f"{agents} agents in turn by {CHUNK_TOKENS} to {tokens:,} tokens"
    layer, token = layouts["layer"], layouts["token"]
    return [
        Figure("chunked_mappings_per_span", layer.mappings_max, f"most mappings a span: {what}", 6),
        Figure("chunked_runs_per_span", layer.runs_max, f"most runs a span: {what}", 4),
        Figure(
            "chunked_token_mappings_per_sequence",
            token.mappings_max,
            f"token layout, most mappings a sequence: {what}",
            24,
        ),
    ]


def decode(device: Device, agents: int, tokens: int, key: str, bar: float | None) -> list[Figure]:
    """Sequences that grow in turn, a token each."""
    with _serving_cache(device, agents, max_tokens=tokens) as cache:
        load = Load(cache, agents)
        load.run(in_turn(agents, range(1, tokens + 1)), batch=agents)
        layout = load.look()
        stats = cache.stats()
        pages = layout.bytes // cache.info.page_bytes
    what = f"{agents} agents decoding in turn for {tokens:,} tokens in {BUDGET}"
    return [
        Figure(key, pages / layout.runs, f"mean run of pages: {what}", bar, at_least=True),
        Figure(
            f"table_bytes_per_page_decode_{agents}",
            stats.table_bytes / pages,
            "bytes of tables a mapped page, then",
            24,
        ),
    ]


# ---- scale -----------------------------------------------------------------------------------


def tables(device: Device, pages: int = 1_000_000, agents: int = 8) -> list[Figure]:
    """Bookkeeping for many small pages: mapped one by one, which takes most, and in long pieces."""
    geometry = Geometry.preset(MODEL)
    group = geometry.groups[0]
    spans = len(group.layers) * len(group.tensors)
    page_tokens = 4096 // group.tensors[0].row_bytes
    tokens = -(-pages // (spans * agents)) * page_tokens

    def per_page(lengths: Iterable[int]) -> float:
        with _serving_cache(
            device, agents, page="4KiB", max_tokens=tokens, budget=2 * pages * 4096
        ) as cache:
            Load(cache, agents).run(in_turn(agents, lengths))
            stats = cache.stats()
            if stats.mapped_bytes < pages * 4096:
                raise errors.Error("fewer pages were mapped than were meant to be")
            return stats.table_bytes / (stats.mapped_bytes // 4096)

    what = f"bytes of tables a mapped page, {pages:,} pages of 4 KiB mapped"
    single = per_page(range(page_tokens, tokens + 1, page_tokens))
    return [
        Figure("table_bytes_per_page", single, f"{what} one by one", 24),
        Figure("table_bytes_per_page_long", per_page([tokens]), f"{what} in long pieces", 24),
    ]


def scale(
    device: Device, small: int = 10_000, big: int = 1_000_000, agents: int = 64, rounds: int = 40
) -> list[Figure]:
    """A step that maps one page, in a cache that holds few pages and in one that holds many, by
    turns."""
    # One row is one page and there is one span, so that nothing but the manager differs.
    row = Tensor(name="kv", heads=0, head_dim=0, dtype="none", row_bytes=4096)
    geometry = Geometry(groups=(Group(policy="full", layers=(0,), tensors=(row,)),))
    options: dict[str, Any] = {
        "budget": 2 * big * 4096,
        "page": "4KiB",
        "max_slots": agents,
        "zero": False,
        "warm": "off",
        "max_tokens": -(-big // agents) + rounds,
    }
    held = [-(-pages // agents) for pages in (small, big)]
    times: list[list[float]] = [[], []]
    with Cache(device, geometry, **options) as first, Cache(device, geometry, **options) as second:
        loads = [Load(first, agents), Load(second, agents)]
        for load, tokens in zip(loads, held, strict=True):
            load.run(in_turn(agents, [tokens]))
        for grown in range(1, rounds + 1):
            for load, tokens, ns in zip(loads, held, times, strict=True):
                ns.append(float(np.median(load.run(in_turn(agents, [tokens + grown])))))
    few, many = np.array(times)
    return [
        Figure(
            "scale_ratio",
            float(np.median(many / few)),
            f"a step that maps one page: time with {held[1] * agents:,} pages held to that with "
            f"{held[0] * agents:,} (median of {rounds} pairs)",
            1.3,
        ),
        Figure("scale_small_ns", float(np.median(few)), "ns of that step with few ..."),
        Figure("scale_big_ns", float(np.median(many)), "... and with many pages held"),
    ]


# ---- all of it -------------------------------------------------------------------------------


def measure(device: Device, progress: Progress = lambda text: None) -> Report:
    """Measure everything on a device; calls progress with the name of each part as it begins."""
    parts: Sequence[tuple[str, Callable[[], list[Figure]]]] = (
        ("steps that map nothing", lambda: no_growth(device)),
        ("growth against bare driver calls", lambda: growth(device)),
        ("prefill", lambda: prefill(device)),
        ("prefill by chunks", lambda: chunked(device)),
        ("decoding, 64 agents", lambda: decode(device, 64, 1000, "mean_run_pages", 16)),
        ("decoding, 80 agents", lambda: decode(device, 80, 800, "mean_run_pages_80_agents", None)),
        ("tables", lambda: tables(device)),
        ("scale", lambda: scale(device)),
    )
    begin = time.monotonic()
    figures: list[Figure] = []
    for name, part in parts:
        progress(name)
        figures += part()
    figures.append(Figure("seconds", time.monotonic() - begin, "the whole run, s", 60))
    return Report(device.name, tuple(figures))
