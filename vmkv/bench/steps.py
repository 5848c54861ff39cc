"""Steps that map nothing: the call that an engine makes for each token."""

from __future__ import annotations

import time

import numpy as np

from vmkv import errors
from vmkv.bench.figures import Figure
from vmkv.bench.ioctls import Counter, total
from vmkv.bench.places import serving_cache
from vmkv.cache import Cache
from vmkv.device import Device
from vmkv.loads import Load, Times, in_turn, together


def no_growth(device: Device, agents: int = 64, rounds: int = 4) -> list[Figure]:
    """Steps within memory that is there already: each advances all sequences by a token."""
    per_step: list[Times] = []
    python_us: list[float] = []
    batch = 32
    counter = Counter(device)
    for _ in range(rounds):
        # Memory for 1,024 tokens comes with the first step, so that 1,023 more need none.
        with serving_cache(device, agents, max_tokens=2048, read_align_tokens=1024) as cache:
            load = Load(cache, agents)
            load.run(together(agents, [1]))
            grown = cache.stats().growing_steps
            with counter.during() as idle_ioctls:
                per_step.append(load.run(together(agents, range(2, 514)), batch))
                python_us += _python_steps(cache, load, first=514, last=960)
                idle = load.count_syscalls(together(agents, range(961, 1024)))
            if cache.stats().growing_steps != grown:
                raise errors.Error("the steps that should map nothing mapped something")
            before = cache.stats()
            with counter.during() as growing_ioctls:
                growing = load.count_syscalls(in_turn(1, [1025]))
            pieces = cache.stats().map_calls - before.map_calls
    ns = np.concatenate(per_step) / (batch * agents)
    text = "for comparison: those of a step that grows ..."
    grown_by = [Figure("growth_syscalls", growing, text)]
    if counter.able:
        alone = "no system calls of growing: an emulated card's are the emulator's own"
        grown_by = [
            Figure("no_growth_ioctls", total(idle_ioctls), "ioctls of all those steps", 0),
            Figure("growth_syscalls", None, alone),
            Figure("growth_ioctls", total(growing_ioctls), text),
        ]
    return [
        Figure(
            "no_growth_ns_per_sequence",
            float(np.median(ns)),
            f"ns a sequence in C, {agents} sequences a step (median of {len(ns)} batches)",
            10,
        ),
        Figure("no_growth_ns_per_sequence_best", float(ns.min()), "the same, the best batch"),
        Figure("no_growth_syscalls", idle, "system calls of 63 such steps, seen by ptrace", 0),
        *grown_by,
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
