"""What it takes to look at a shared cache: a million pages at once; ten times a second while it
grows, as `vmkv stats --watch --json` does; and how much slower the engine's steps are for that.

    stats_speed.py [--pages N] [--looks N] [--device NAME] [--single]

--single maps every page by itself, so that there are as many mappings as pages: on an emulated
card, as the system bounds a process's own mappings.

The engine rests for 2 ms after each step while its readers are timed, and never while it is. What
the readers took is their CPU time; of the engine it is CPU time for each step, in turns with a
reader and without: both are less at the mercy of what else the machine does than a clock is.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial

import vmkv
from vmkv import published
from vmkv.geometry import Geometry, Group, Tensor
from vmkv.published import figures
from vmkv.published.watching import Watched
from vmkv.stats_live import SLOW_SECONDS, Sampler

INTERVAL_SECONDS = 0.1
LOOKS_A_TURN, TURNS = 5, 20
PAGE_BYTES, LAYERS, MAX_TOKENS = 4096, 8, 16384
ROW_BYTES = 256
# Of a sequence that has its full length.
PAGES = 2 * LAYERS * MAX_TOKENS * ROW_BYTES // PAGE_BYTES


def grow(device_name: str, pages: int, single: bool) -> None:
    """The engine: maps so many pages, says so, and then steps until it is ended."""
    rows = Tensor("k", 1, 128), Tensor("v", 1, 128)
    group = Group("full", tuple(range(LAYERS)), rows)
    count = -(-pages // PAGES)
    with (
        vmkv.open(device_name) as device,
        vmkv.Cache(
            device,
            Geometry((group,)),
            budget=(count + 2) * PAGES * PAGE_BYTES,
            page=PAGE_BYTES,
            max_slots=count + 1,
            max_tokens=MAX_TOKENS,
            mapping_max=PAGE_BYTES if single else None,
            share=True,
        ) as cache,
    ):
        for _ in range(count):
            cache.step({cache.open(): MAX_TOKENS})
        rest = [0.002]
        signal.signal(signal.SIGUSR1, lambda *_: rest.clear())
        print("ready", flush=True)
        while True:
            with cache.open() as last:
                for tokens in range(1, MAX_TOKENS, 3):
                    cache.step({last: tokens})
                    time.sleep(rest[0]) if rest else None


def measure(pid: int, looks: int) -> None:
    """Print what it takes to look at it."""
    with Watched(pid) as watched:
        begin = time.perf_counter()
        (found,) = watched.now()
        assert found.reader is not None, found.problem
        snapshot = found.reader.look(pieces=True)
        print(f"{time.perf_counter() - begin:.3f} s to read the whole state", end="")
        pages = snapshot.mapped_bytes // PAGE_BYTES
        assert snapshot.pieces is not None
        print(f": {pages:,} pages in {len(snapshot.pieces):,} mappings")
        problems = published.contradictions(snapshot)
        rows = figures.of_runs(snapshot), figures.of_sequences(snapshot), figures.of_slabs(snapshot)
        assert problems == []
        assert all(rows)
        print(f"{time.perf_counter() - begin:.3f} s with all checks and tables of `vmkv stats PID`")
        measure_floor(looks)
        sampler, reader = Sampler(pieces=False), found.reader
        measure_reader("all figures", lambda: sampler.look(watched.now(0.8 * SLOW_SECONDS)), looks)
        measure_reader("every mapping", lambda: reader.look(pieces=True), looks)
        os.kill(pid, signal.SIGUSR1)
        measure_engine(pid, lambda: sampler.look(watched.now(0.8 * SLOW_SECONDS)), reader)


def used_ns(work: Callable[[], object], pause_seconds: float, times: int) -> list[int]:
    """CPU time that some work takes after a pause."""
    used = []
    for _ in range(times):
        time.sleep(pause_seconds)
        before = time.process_time_ns()
        work()
        used.append(time.process_time_ns() - before)
    return used


def measure_reader(what: str, look: Callable[[], object], looks: int) -> None:
    """CPU time of ten looks a second, and of looks with less of a pause between."""
    used = used_ns(look, INTERVAL_SECONDS, looks)
    mean_ns, soon_ns = statistics.mean(used), statistics.median(used_ns(look, 0.003, looks))
    print(
        f"{mean_ns / INTERVAL_SECONDS / 1e9:.2%} of a core to read {what} ten times a second",
        end="",
    )
    print(
        f"; {mean_ns / 1e6:.2f} ms each, median {statistics.median(used) / 1e6:.2f} ms; "
        f"{soon_ns / 1e6:.2f} ms after a pause of 3 ms"
    )


def measure_floor(looks: int) -> None:
    """What this machine makes of a pause: the same work, which is no reader's."""
    work = partial(sum, range(3000))
    after, soon = (statistics.median(used_ns(work, s, looks)) for s in (INTERVAL_SECONDS, 0.0))
    print(f"floor: any work takes {after / soon:.1f} times as long after a pause of 0.1 s", end="")
    print(f" ({soon / 1e3:.0f} us, sums of numbers)")


def measure_engine(pid: int, look: Callable[[], object], reader: published.Reader) -> None:
    """CPU time of the engine's steps, with and without ten looks a second, in turns."""
    clock = (~pid << 3) | 2  # as clock_getcpuclockid(3) makes it: the process's CPU time
    taken: dict[bool, list[float]] = {False: [], True: []}
    for turn in range(2 * TURNS):
        looking = turn % 2 == 1
        steps, begun_ns = reader.steps()[0], time.clock_gettime_ns(clock)
        for _ in range(LOOKS_A_TURN):
            time.sleep(INTERVAL_SECONDS)
            if looking:
                look()
        spent_ns = time.clock_gettime_ns(clock) - begun_ns
        taken[looking].append(spent_ns / max(1, reader.steps()[0] - steps))
    alone, read = (statistics.median(taken[looking]) for looking in (False, True))
    spread = statistics.quantiles(taken[False], n=4)
    print(f"{read / alone - 1:+.2%} CPU time a step of the engine while it is read so: ", end="")
    print(
        f"{alone / 1e3:.2f} us alone, {read / 1e3:.2f} us read, medians of {TURNS} turns; ", end=""
    )
    print(f"alone the middle half of turns is {(spread[2] - spread[0]) / alone:.1%} wide")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--pages", type=int, default=1_000_000)
    parser.add_argument("--looks", type=int, default=50)
    parser.add_argument("--device", default="host")
    parser.add_argument("--single", action="store_true")
    parser.add_argument("--engine", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.engine:
        grow(options.device, options.pages, options.single)
        return
    with subprocess.Popen(
        [sys.executable, *sys.argv, "--engine"], stdout=subprocess.PIPE, text=True
    ) as engine:
        try:
            assert engine.stdout is not None
            if engine.stdout.readline() != "ready\n":
                raise SystemExit("the engine could not begin")
            measure(engine.pid, options.looks)
        finally:
            engine.kill()


if __name__ == "__main__":
    main()
