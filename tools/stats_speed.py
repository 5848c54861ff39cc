"""How fast a shared cache is read: a million pages at once, and ten times a second while it grows.

    stats_speed.py [--pages N] [--looks N] [--device NAME] [--single]

--single maps every page by itself, so that there are as many mappings as pages: on an emulated
card, as the system bounds a process's own mappings.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

import vmkv
from vmkv import published
from vmkv.geometry import Geometry, Group, Tensor
from vmkv.published import figures

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
        print("ready", flush=True)
        while True:
            with cache.open() as last:
                for tokens in range(1, MAX_TOKENS, 3):
                    cache.step({last: tokens})
                    time.sleep(0.002)


def measure(pid: int, looks: int) -> None:
    """Print what it takes to look at it."""
    begin = time.perf_counter()
    (found,) = published.find(pid)
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
    for what in ("lines", "lines and mappings"):
        used = 0.0
        for _ in range(looks):
            time.sleep(0.1)
            before = time.process_time()
            found.reader.look(pieces=what != "lines")
            used += time.process_time() - before
        print(f"{10 * used / looks:.2%} of a core to read {what} ten times a second", end="")
        print(f"; {used / looks * 1e3:.2f} ms each")
    published.close_all([found])


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
