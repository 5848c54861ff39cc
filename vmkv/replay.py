"""Replaying a trace of requests on a device: every token of every request gets real memory, real
bytes are written to it, and what is read back is checked. A round is one step of the cache for all
agents; vmkv.serving says who they are and how they grow.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vmkv.cache import Cache
from vmkv.checks import Checks
from vmkv.errors import Shortage, UnreachableError
from vmkv.recorder import Holding, Recorder
from vmkv.rows import Contents, Floor, Part, Writer, map_sequence
from vmkv.sequence import Sequence
from vmkv.serving import CHUNK_TOKENS, Agent, Counts, Serving
from vmkv.sharing import Prefixes, most_shared_tokens
from vmkv.staging import Staging
from vmkv.step import Batch
from vmkv.traces import Request

# Rows that are read back after each step, half of them new ones.
_ROWS_CHECKED_A_STEP = 16
# Rows that are read back all over a sequence when it ends, besides one layer in whole.
_ROWS_CHECKED_AT_END = 64

# What is written before a plain loop writes the same.
_FLOOR_BYTES = 256 << 20

# Attention reads all rows of a head, which costs more than the writing of a decoded token: it is
# checked each so many steps, and less often over long sequences.
_STEPS_PER_ATTENTION = 8
_ROWS_PER_ATTENTION_STEP = 256


@dataclass(kw_only=True)
class Report(Counts):
    """What a replay did. Counts are the same for the same seed and options; the _seconds aren't.

    Bytes are bytes of the device's memory, but reserved_bytes, which are addresses. waste is
    1 - live / mapped bytes after each step; None if there was none.

    floor_seconds are what a plain loop took to write the same rows, if that was asked for, and
    write_ratio is its part of write_seconds.

    shareable_tokens are those of prompts that began as one that was admitted before began: what an
    engine would not compute again if it kept all prefixes. active_shareable_tokens are those of
    them that began as one that was still being served: what forked sequences would not hold twice.
    Bytes are of their rows, states aside. A request counts once, with the prompt of its first
    round; only a trace with hash ids tells.
    """

    device: str
    layout: str
    page_bytes: int
    budget_bytes: int
    agents: int
    max_tokens: int
    seed: int
    starved: int = 0  # of those skipped: the device could not give what the budget allows
    preempted: int = 0  # gave their memory back for others and began anew
    step_shortages: int = 0  # steps that found memory only after the queue was drained
    steps: int = 0
    tokens_written: int = 0
    bytes_written: int = 0
    shareable_tokens: int = 0
    shareable_bytes: int = 0
    active_shareable_tokens: int = 0
    active_shareable_bytes: int = 0
    live_bytes_peak: int = 0
    mapped_bytes_peak: int = 0
    slab_bytes_peak: int = 0
    reserved_bytes: int = 0
    waste_mean: float | None = None
    waste_p99: float | None = None
    waste_max: float | None = None
    driver_calls: int = 0
    mappings: int = 0  # made
    mappings_peak: int = 0
    checks_done: int = 0
    checks_failed: int = 0
    checks_copied: int = 0  # of those done: what the device's copy engine read as well, or alone
    failures: list[str] = field(default_factory=list)  # the first failed checks, in words
    total_seconds: float = 0.0
    step_seconds: float = 0.0
    retire_seconds: float = 0.0
    write_seconds: float = 0.0
    check_seconds: float = 0.0
    floor_seconds: float | None = None
    write_ratio: float | None = None


@dataclass(eq=False)
class _Agent(Agent):
    """A request that is being served, and its sequence."""

    sequence: Sequence
    writer: Writer
    tokens: int = 0  # written so far ...
    older_tokens: int = 0  # ... and before the last step
    last_used: int = 0  # the last step that used its memory

    @property
    def parts(self) -> list[Part]:
        return self.writer.parts

    @property
    def next_tokens(self) -> int:
        """Its length after the next step."""
        return self.progress.next_tokens


def _hold(agent: _Agent) -> Holding:
    """What an agent has after a step."""
    request, tokens = agent.request, agent.next_tokens
    return Holding(request.index, agent.sequence, agent.tokens, tokens, request.total_tokens)


def replay(
    cache: Cache,
    requests: Iterable[Request],
    *,
    seed: int = 0,
    progress: Callable[[Report], None] | None = None,
    recorder: Recorder | None = None,
    floor: Floor | None = None,
) -> Report:
    """Replay requests on a cache that has no sequences and zeroes its memory, as many at a time as
    it has slots.

    progress is called after each step with what was counted so far: requests, tokens and bytes.
    recorder is told of each step before that. floor writes by turns with the replay. Where the CPU
    can't reach the device's memory, rows are copied there and back by the device itself.

    Raises UnreachableError if that can't be done either, and what the requests raise.
    """
    return Replay(cache, requests, seed, progress, recorder, floor).run()


class Replay(Serving[_Agent]):
    """One replay; see replay()."""

    def __init__(
        self,
        cache: Cache,
        requests: Iterable[Request],
        seed: int,
        progress: Callable[[Report], None] | None,
        recorder: Recorder | None = None,
        floor: Floor | None = None,
    ) -> None:
        device = cache.device
        info = cache.info
        self.report = Report(
            device=device.name,
            layout=info.layout,
            page_bytes=info.page_bytes,
            budget_bytes=cache.stats().budget_bytes,
            agents=info.max_slots,
            max_tokens=info.max_tokens,
            seed=seed,
        )
        super().__init__(requests, info.max_slots, self.report.budget_bytes, self.report)
        self.cache = cache
        self.contents = Contents(cache.geometry, seed, CHUNK_TOKENS)
        self.random = random.Random(seed)
        self.lag = random.Random(seed)  # of its own, so that counts don't depend on checks
        self.checks = Checks(np.random.default_rng(seed), CHUNK_TOKENS)
        self.prefixes = Prefixes()
        self.known: set[int] = set()  # indices of requests whose prompts are in there
        self.waste: list[tuple[float, int]] = []  # after a step, and how many were like it
        self.passed_steps = 0  # since the last one that was taken
        self.batch: Batch | None = None
        self.attention_round = _STEPS_PER_ATTENTION  # when it is checked next
        self.progress = progress
        self.recorder = recorder
        self.floor = floor
        self.completed = 0  # the round that the engine's queue has passed
        self.staging: Staging | None = None

    def run(self) -> Report:
        """Serve all requests."""
        with ExitStack() as scope:
            reached = self.cache.device.info.cpu_addresses
            # The CPU's view says nothing of the card's: a sample is read by its copy engine too.
            with suppress(UnreachableError) if reached else nullcontext():
                copies = scope.enter_context(Staging(self.cache.device))
                if reached:
                    self.checks.copies = copies
                else:
                    self.staging = copies
            return self._run()

    def _run(self) -> Report:
        begin = time.perf_counter()
        self.run_rounds()
        self._retire(self.round)
        self._write_again()
        self._check_end()
        self._close_report()
        self.report.total_seconds = time.perf_counter() - begin
        if self.floor:
            self.report.total_seconds -= self.floor.seconds
        return self.report

    def serve(self) -> None:
        with self._timed("step_seconds"):
            self._step()
        if not self.active:
            return
        with self._timed("check_seconds"):
            self._check_new_memory()
        with self._timed("write_seconds"):
            self._write()
        self._write_again(_FLOOR_BYTES)
        with self._timed("check_seconds"):
            self._check_step()

    def pass_over(self, steps: int) -> None:
        self.passed_steps = steps

    def end_round(self) -> None:
        if self.progress:
            self.progress(self.report)
        # The queue lags one or two rounds behind.
        self._retire(self.round - self.lag.choice((0, 1)))

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        begin = time.perf_counter()
        try:
            yield
        finally:
            setattr(self.report, name, getattr(self.report, name) + time.perf_counter() - begin)

    # ---- admission

    def need_bytes(self, request: Request) -> int | None:
        if request.total_tokens > self.report.max_tokens:
            return None
        return self.cache.need_bytes(request.total_tokens, CHUNK_TOKENS)

    def open(self, request: Request, need_bytes: int) -> _Agent | None:
        sequence = self._open_sequence(request)
        if sequence is None:
            return None
        if request.index not in self.known:
            self.known.add(request.index)
            self._count_shareable(request)
        writer = self._map(sequence, request.index)
        return _Agent(request, need_bytes, sequence, writer, last_used=self.completed)

    def _map(self, sequence: Sequence, number: int, cuts: int = 0) -> Writer:
        parts = map_sequence(self.contents, sequence, number, cuts, self.staging)
        return Writer(parts, self.floor)

    def _open_sequence(self, request: Request) -> Sequence | None:
        self.batch = None
        while True:
            try:
                return self.cache.open(prefer="warm", expected_tokens=request.total_tokens)
            except Shortage:
                # Every slot waits for the queue: drain it and try again.
                if self.completed < self.round:
                    self._retire(self.round)
                elif self.active:
                    return None
                else:
                    raise

    def close(self, agent: _Agent) -> None:
        with self._timed("check_seconds"):
            self._check_sequence(agent)
        self._close_sequence(agent)

    def _close_sequence(self, agent: _Agent) -> None:
        if self.recorder:
            self.recorder.before_close()
        agent.sequence.close(busy_until=agent.last_used)
        self.batch = None

    def reopen(self, agent: _Agent) -> None:
        sequence = self._open_sequence(agent.request)
        if sequence is None:
            self._put_back(agent)
            return
        agent.sequence, agent.tokens, agent.older_tokens = sequence, 0, 0
        # Other contents than before, so that rows of before are found out.
        agent.writer = self._map(sequence, agent.request.index, agent.progress.cuts)

    def _count_shareable(self, request: Request) -> None:
        report, row_bytes = self.report, self.cache.info.bytes_per_token
        tokens = self.prefixes.add(request)
        report.shareable_tokens += tokens
        report.shareable_bytes += tokens * row_bytes
        tokens = most_shared_tokens(request, (agent.request for agent in self.active))
        report.active_shareable_tokens += tokens
        report.active_shareable_bytes += tokens * row_bytes

    # ---- steps

    def _step(self) -> None:
        """Make all agents' next lengths usable, whatever has to be waited for or given up."""
        waited_point = 0
        while self.active:
            if self.batch is None:
                self.batch = self.cache.batch([agent.sequence for agent in self.active])
            self.batch.tokens[:] = [agent.next_tokens for agent in self.active]
            try:
                ready = self.batch.step(busy_until=self.round)
            except Shortage as shortage:
                self.report.step_shortages += 1
                if self.completed < self.round - 1:
                    self._retire(self.round - 1)
                elif shortage.transit_point > waited_point:
                    waited_point = shortage.transit_point
                    self.cache.device.wait(waited_point)
                else:
                    self._give_up_youngest()
            else:
                self.cache.device.wait(ready)
                self._count_steps()
                return

    def _count_steps(self) -> None:
        """A step has succeeded, and with it those that were passed over."""
        steps, self.passed_steps = 1 + self.passed_steps, 0
        self.report.steps += steps
        stats = self.cache.stats()
        self.waste.append((stats.waste, steps))
        if self.recorder:
            self.recorder.add_step(stats, map(_hold, self.active), steps)

    def _give_up_youngest(self) -> None:
        """Admission was wrong, because the device has less memory or fewer mappings than the budget
        lets expect: the youngest agent begins anew later. A last one that is alone never fits."""
        agent = self.active[-1]
        self._close_sequence(agent)
        if len(self.active) > 1:
            self._put_back(agent)
        else:
            self.active.remove(agent)
            self.report.skipped += 1
            self.report.starved += 1

    def _put_back(self, agent: _Agent) -> None:
        """Have an agent whose sequence is closed begin anew when there is memory again."""
        self.active.remove(agent)
        self.report.preempted += 1
        self.crowded = True
        self.delayed.add(agent.request.index)
        self.returned.appendleft(agent.request)

    def _retire(self, completed: int) -> None:
        self.completed = max(self.completed, completed)
        with self._timed("retire_seconds"):
            self.cache.retire(self.completed)

    def _write(self) -> None:
        for agent in self.active:
            first, last = agent.tokens, agent.next_tokens
            if first < last:
                self.report.bytes_written += agent.writer.write(first, last)
            self.report.tokens_written += last - first
            agent.older_tokens, agent.tokens = first, last
            agent.last_used = self.round

    def _write_again(self, least_bytes: int = 0) -> None:
        """Into as much memory as was mapped up to now, so that as many rows meet memory that is
        new."""
        if self.floor:
            self.floor.run(self.cache.stats().mapped_bytes_peak, least_bytes)

    # ---- checks

    def _check_new_memory(self) -> None:
        """After a step and before it is written to: new memory reads as zero."""
        for agent in self.active:
            part, layer = self._pick_layer(agent)
            if agent.tokens == agent.next_tokens:
                continue  # it waits
            if not part.is_state:
                token = self.random.randrange(agent.tokens, agent.next_tokens)
                self.checks.check_zero(part, layer, token)
            elif not agent.tokens:
                self.checks.check_zero(part, layer, 0)

    def _check_step(self) -> None:
        """A sample of old and new rows, and what attention makes of one head."""
        for i in range(_ROWS_CHECKED_A_STEP):
            agent = self.random.choice(self.active)
            self._check_row(agent, agent.older_tokens if i % 2 else 0)
        agent = self.random.choice(self.active)
        part, layer = self._pick_layer(agent)
        self.checks.check_place(part, layer, agent.tokens)
        if self.round >= self.attention_round:
            steps = max(_STEPS_PER_ATTENTION, agent.tokens // _ROWS_PER_ATTENTION_STEP)
            self.attention_round = self.round + steps
            for keys, values in pair_parts(agent.parts):
                layer = self.random.randrange(keys.layers)
                self.checks.check_attention(keys, values, layer, heads=1)

    def _check_sequence(self, agent: _Agent) -> None:
        """Before a sequence closes: one layer of every tensor in whole, rows of all others, and
        attention with all heads."""
        for part in agent.parts:
            layer = self.random.randrange(part.layers)
            self.checks.check_place(part, layer, agent.tokens)
            first, last = part.live_rows(layer)
            self.checks.check_rows(part, layer, first, last)
        for _ in range(_ROWS_CHECKED_AT_END):
            self._check_row(agent, 0)
        for keys, values in pair_parts(agent.parts):
            layer = self.random.randrange(keys.layers)
            self.checks.check_attention(keys, values, layer, heads=keys.tensor.heads)

    def _check_row(self, agent: _Agent, first: int) -> None:
        """A live row of a token from `first` on, in any layer."""
        part, layer = self._pick_layer(agent)
        oldest, last = part.live_rows(layer)
        token = self.random.randrange(min(max(first, oldest), last - 1), last)
        self.checks.check_rows(part, layer, token, token + 1)

    def _pick_layer(self, agent: _Agent) -> tuple[Part, int]:
        part = self.random.choice(agent.parts)
        return part, self.random.randrange(part.layers)

    def _check_end(self) -> None:
        """All sequences are closed and retired: nothing may be left behind any of them."""
        stats = self.cache.stats()
        left = {
            name: getattr(stats, name)
            for name in ("sequences", "live_bytes", "mapped_bytes", "retiring_bytes", "held_bytes")
            if getattr(stats, name)
        }
        wrong = ", ".join(f"{name} is {value}" for name, value in left.items())
        self.checks.note(wrong, "after the last request")

    def _close_report(self) -> None:
        report, stats = self.report, self.cache.stats()
        report.live_bytes_peak = stats.live_bytes_peak
        report.mapped_bytes_peak = stats.mapped_bytes_peak
        report.slab_bytes_peak = stats.slab_bytes_peak
        report.reserved_bytes = stats.reserved_bytes
        if self.waste:
            values, steps = map(np.array, zip(*sorted(self.waste), strict=True))
            report.waste_mean = float(np.average(values, weights=steps))
            report.waste_p99 = _percentile(values, steps, 99)
            report.waste_max = float(values[-1])
        if self.floor and report.write_seconds:
            report.floor_seconds = self.floor.seconds
            report.write_ratio = self.floor.seconds / report.write_seconds
        report.driver_calls = stats.driver_calls
        report.mappings = stats.map_calls
        report.mappings_peak = stats.mappings_peak
        report.checks_done = self.checks.done
        report.checks_failed = self.checks.failed
        report.checks_copied = self.checks.copied
        report.failures = self.checks.failures


def _percentile(values: NDArray[np.float64], counts: NDArray[np.int64], percent: float) -> float:
    """As np.percentile makes it of sorted values, each so many times; between two of them it is
    interpolated."""
    ends = np.cumsum(counts)
    place = (int(ends[-1]) - 1) * percent / 100
    low, high = values[np.searchsorted(ends, [np.floor(place), np.ceil(place)], side="right")]
    return float(low + (high - low) * (place % 1))


def pair_parts(parts: list[Part]) -> list[tuple[Part, Part]]:
    """Keys and values of every group that attention reads: its first and its last tensor (one and
    the same for a latent)."""
    groups: dict[int, list[Part]] = {}
    for part in parts:
        if not part.is_state:
            groups.setdefault(part.group_index, []).append(part)
    return [(group[0], group[-1]) for group in groups.values()]
