"""What `vmkv bench` sets to work: sequences that go through scripts of steps in C, and the same
growth as a plan of driver calls.

A *script* is an array of steps (`STEP`), each of which brings neighbouring sequences to one length.
A *piece* is what one driver call maps. A *run* is a row of mappings that go on in address and in
slab.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vmkv._native import ffi, lib
from vmkv._values import array_pointer
from vmkv.cache import Cache

STEP = np.dtype([("first", "u4"), ("n", "u4"), ("tokens", "u4")])
PIECE = np.dtype(
    [("address", "u8"), ("bytes", "u8"), ("slab", "u8"), ("slab_offset", "u8"), ("step", "u8")]
)
RANGE = np.dtype([("address", "u8"), ("bytes", "u8")])

Times = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]


def together(n: int, lengths: Iterable[int]) -> Array:
    """A script: n sequences come to each of the lengths in one step."""
    values = np.fromiter(lengths, dtype=np.uint32)
    script = np.zeros(len(values), STEP)
    script["n"] = n
    script["tokens"] = values
    return script


def in_turn(n: int, lengths: Iterable[int]) -> Array:
    """A script: n sequences come to each of the lengths one after the other, a step each."""
    values = np.fromiter(lengths, dtype=np.uint32)
    script = np.zeros(n * len(values), STEP)
    script["n"] = 1
    script["first"] = np.tile(np.arange(n, dtype=np.uint32), len(values))
    script["tokens"] = np.repeat(values, n)
    return script


def chunks(tokens: int, chunk_tokens: int) -> list[int]:
    """The lengths of a prefill by chunks."""
    return [*range(chunk_tokens, tokens, chunk_tokens), tokens]


@dataclass(frozen=True)
class Layout:
    """How the memory behind the spans of a load lies."""

    spans: int
    bytes: int
    mappings: int
    runs: int
    mappings_max: int
    runs_max: int


class Load:
    """Newly opened sequences of a cache, which loops in C bring through a script. Only the cache's
    first group is looked at."""

    def __init__(self, cache: Cache, n: int) -> None:
        self.cache = cache
        self.sequences = [cache.open() for _ in range(n)]
        group = cache.geometry.groups[0]
        interleaved = cache.layout == "token"
        self.layers = 1 if interleaved else len(group.layers)
        self.tensors = 1 if interleaved else len(group.tensors)
        self._ids = ffi.new("vmkv_seq[]", [sequence.id for sequence in self.sequences])
        self._tokens = ffi.new("uint32_t[]", n)
        self.pointer = ffi.new(
            "struct vmkv_bench_load *",
            {
                "cache": cache._pointer,
                "seqs": self._ids,
                "tokens": self._tokens,
                "n": n,
                "layers": self.layers,
                "tensors": self.tensors,
            },
        )

    def run(self, script: Array, batch: int = 1) -> Times:
        """Run a script; returns the nanoseconds of every `batch` steps."""
        times = np.zeros(-(-len(script) // batch), np.uint64)
        self._check(
            lib.vmkv_bench_run(
                self.pointer,
                array_pointer(script, "struct vmkv_bench_step *"),
                len(script),
                batch,
                array_pointer(times, "uint64_t *"),
            )
        )
        return times

    def record(self, script: Array, max_pieces: int) -> Array:
        """Run a script; returns the pieces that it maps, by step."""
        pieces = np.zeros(max_pieces, PIECE)
        count = ffi.new("size_t *")
        self._check(
            lib.vmkv_bench_record(
                self.pointer,
                array_pointer(script, "struct vmkv_bench_step *"),
                len(script),
                array_pointer(pieces, "struct vmkv_bench_piece *"),
                max_pieces,
                count,
            )
        )
        return pieces[: count[0]]

    def look(self) -> Layout:
        ret = ffi.new("struct vmkv_bench_layout *")
        self._check(lib.vmkv_bench_look(self.pointer, ret))
        return Layout(ret.spans, ret.bytes, ret.mappings, ret.runs, ret.mappings_max, ret.runs_max)

    def count_syscalls(self, script: Array) -> int | None:
        """Run a script; returns how many system calls its thread made, None if they could not be
        counted."""
        ret = ffi.new("int64_t *")
        self._check(
            lib.vmkv_bench_count_syscalls(
                self.pointer, array_pointer(script, "struct vmkv_bench_step *"), len(script), ret
            )
        )
        return None if ret[0] < 0 else int(ret[0])

    def _check(self, code: int) -> None:
        if code < 0:
            self.cache._fail(code)


@dataclass(frozen=True)
class Plan:
    """A growth as raw driver calls: what a floor gets, which makes them with nothing around."""

    ranges: Array  # RANGE: reservations that hold all pieces
    pieces: Array  # PIECE: in order of step, slabs numbered from 0
    slab_bytes: int
    slabs: int
    steps: int


def plan_of(load: Load, pieces: Array, steps: int) -> Plan:
    """What was recorded, as a plan."""
    ranges: list[tuple[int, int]] = []
    for layer in range(load.layers):
        for tensor in range(load.tensors):
            span = load.sequences[0].span(layer, tensor, group=0)
            start = span.address - span.slot * span.slot_stride
            ranges.append((start, span.slot_stride * load.cache.info.slot_count))
    merged: list[list[int]] = []
    for start, size in sorted(set(ranges)):
        if merged and start <= sum(merged[-1]):
            merged[-1][1] = max(sum(merged[-1]), start + size) - merged[-1][0]
        else:
            merged.append([start, size])
    numbered = pieces.copy()
    slabs, numbered["slab"] = np.unique(pieces["slab"], return_inverse=True)
    return Plan(
        ranges=np.array([tuple(item) for item in merged], RANGE),
        pieces=numbered,
        slab_bytes=load.cache.info.slab_bytes,
        slabs=len(slabs),
        steps=steps,
    )
