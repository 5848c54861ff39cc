"""What it costs to share a cache: the same steps with it and without, by turns in one run."""

from __future__ import annotations

import numpy as np

from vmkv import errors
from vmkv.bench.figures import Figure
from vmkv.bench.places import serving_cache
from vmkv.device import Device
from vmkv.loads import Array, Load, Times, in_turn, together

_BATCH = 32  # steps that are timed together


def publish(device: Device, agents: int = 64, rounds: int = 8, pairs: int = 31) -> list[Figure]:
    """Steps of a shared cache against the same steps of one that isn't."""
    return [*_no_growth(device, agents, rounds), *_growth(device, pairs)]


def _no_growth(device: Device, agents: int, rounds: int) -> list[Figure]:
    more: list[float] = []
    for pair in range(rounds):
        with (
            serving_cache(
                device, agents, max_tokens=2048, read_align_tokens=1024, share=False
            ) as alone,
            serving_cache(
                device, agents, max_tokens=2048, read_align_tokens=1024, share=True
            ) as shared,
        ):
            loads = (Load(alone, agents), Load(shared, agents))
            for load in loads:
                load.run(together(agents, [1]))
            grown = shared.stats().growing_steps
            times: tuple[list[int], list[int]] = ([], [])
            for first in range(2, 900, _BATCH):
                script = together(agents, range(first, first + _BATCH))
                for side in (0, 1) if (pair + first // _BATCH) % 2 else (1, 0):
                    times[side].append(int(loads[side].run(script, _BATCH)[0]))
            idle = loads[1].count_syscalls(together(agents, range(961, 1024)))
            if shared.stats().growing_steps != grown:
                raise errors.Error("the steps that should map nothing mapped something")
        # The shortest time of each: what else the machine does only adds to it.
        more.append((min(times[1]) - min(times[0])) / (_BATCH * agents))
    return [
        Figure(
            "shared_no_growth_ns_per_sequence",
            float(np.median(more)),
            f"ns a sequence that sharing adds to a step of {agents} that maps nothing (best "
            f"batches of both, median of {rounds} pairs of caches)",
            1,
        ),
        Figure(
            "shared_no_growth_syscalls",
            idle,
            "system calls of 63 such steps of a shared cache, seen by ptrace",
            0,
        ),
    ]


def _growth(device: Device, rounds: int) -> list[Figure]:
    # A page of 64 KiB holds 32 tokens of a row of 2 KiB: each of these steps maps one a span.
    lengths = range(1, 1025, 32)
    # The first step of a sequence isn't counted: caches are cold then.
    scripts = {
        "": (8, in_turn(8, lengths), 8, "one sequence a step"),
        "_many": (16, together(16, lengths), 1, "16 sequences a step"),
    }
    figures = []
    for suffix, (agents, script, first, what) in scripts.items():
        times = np.array(
            [_race(device, agents, script, bool(i % 2)) for i in range(rounds)], np.float64
        )
        alone, shared = times[:, 0, first:], times[:, 1, first:]
        figures += [
            Figure(
                f"shared_growth_ratio{suffix}",
                _quick(shared) / _quick(alone),
                f"time of steps that grow, shared to not ({what}, mean of the quickest quarter of "
                f"{rounds} rounds of each step)",
                1.02,
            ),
            Figure(
                f"shared_growth_ratio{suffix}_median",
                float(np.median(shared, axis=0).sum() / np.median(alone, axis=0).sum()),
                "the same by the medians of each step",
            ),
        ]
    return figures


def _quick(times: Array) -> float:
    """How long a script takes, of times by round and step: what else the machine does only adds to
    them, but the best of each alone is that of few."""
    quarter = -(-len(times) // 4)
    return float(np.sort(times, axis=0)[:quarter].mean(axis=0).sum())


def _race(device: Device, agents: int, script: Array, shared_first: bool) -> list[Times]:
    """The times of each step of a script in a cache that isn't shared, and in one that is."""
    times = [np.zeros(len(script), np.uint64), np.zeros(len(script), np.uint64)]
    with (
        serving_cache(device, agents, share=False) as alone,
        serving_cache(device, agents, share=True) as shared,
    ):
        loads = (Load(alone, agents), Load(shared, agents))
        for i in range(len(script)):
            # Both by turns, and by turns who begins: the machine is in the same state for both.
            for side in (1, 0) if (i % 2 == 0) == shared_first else (0, 1):
                times[side][i] = loads[side].run(script[i : i + 1])[0]
        for cache in (alone, shared):
            if cache.stats().growing_steps != len(script):
                raise errors.Error("not all of the steps that should grow did")
    return times
