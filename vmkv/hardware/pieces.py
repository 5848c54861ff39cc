"""How long changes of single pieces take: map, unmap, remap, clear."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import Any

from vmkv import drm
from vmkv._closing import Closing
from vmkv._native import ffi, lib
from vmkv._patience import Patience
from vmkv.drm._address import TIMELINE_MINOR
from vmkv.drm._base import failure, libdrm
from vmkv.hardware.card import KIB, MIB, Addresses
from vmkv.sizes import human

PIECES = (4 * KIB, 64 * KIB, 2 * MIB, 32 * MIB)
COMMITS = ("cs", "bo")
# In the order of enum vmkv_bench_change. "first map" is of an address that has no page tables yet.
CHANGES = ("first map", "remap", "unmap", "map", "clear")
CYCLES = 300

_NOPS_BYTES = 4 * KIB


@dataclass(frozen=True)
class Quantiles:
    """Microseconds."""

    p50: float
    p99: float
    max: float

    @classmethod
    def of(cls, ns: list[int]) -> Quantiles:
        """Of times in ns, one at least."""
        ordered = sorted(ns)
        at = (ordered[-(-len(ordered) * percent // 100) - 1] for percent in (50, 99, 100))
        return cls(*(value / 1000 for value in at))


@dataclass(frozen=True)
class Latency:
    """How long one kind of change took: until the calls that ask for it had returned, and until its
    fence was reached.

    Attributes:
        commit: "cs": GEM_VA with DELAY, then a submission; "bo": GEM_VA without.
        change: of CHANGES; a remap is an unmap and a map of other memory, committed together.
        piece_bytes: how much is mapped.
        fence: what tells that it is done: "CS", "timeline" (of GEM_VA itself), or "CS that follows"
            where the kernel has no such timeline.
        samples: how often.
    """

    commit: str
    change: str
    piece_bytes: int
    fence: str
    samples: int
    call_us: Quantiles
    done_us: Quantiles


class Pieces(Closing):
    """Maps and unmaps single pieces of a buffer, each at an address of its own.

    A context manager that closes it.
    """

    def __init__(self, device: drm.Device, addresses: Addresses, patience: Patience) -> None:
        self.device, self._addresses = device, addresses
        self._point = 0
        self._patience = patience
        with contextlib.ExitStack() as scope:
            buffer = scope.enter_context(
                self._patience(lambda: device.alloc(_NOPS_BYTES, "gtt", always_valid=True))
            )
            buffer.cpu_map()[:] = bytes(_NOPS_BYTES)  # a dword of 0 is a NOP
            self._nops = addresses.take(_NOPS_BYTES)
            self._patience(lambda: device.map(buffer, self._nops, flags="read|execute"))
            self._syncobj = scope.enter_context(device.syncobj())
            self._context = scope.enter_context(device.context())
            self._scope = scope.pop_all()

    def measure(self, commit: str, piece_bytes: int, cycles: int) -> list[Latency]:
        """Go through all kinds of changes so many times."""
        stride = max(piece_bytes, 2 * MIB)  # so that each has page tables of its own
        begin = self._addresses.take(cycles * stride)
        timeline = commit == "bo" and self.device.minor >= TIMELINE_MINOR
        fence = "timeline" if timeline else "CS" if commit == "cs" else "CS that follows"
        calls: list[list[int]] = [[] for _ in CHANGES]
        done: list[list[int]] = [[] for _ in CHANGES]
        ret = ffi.new("struct vmkv_bench_time[]", len(CHANGES))
        with self.device.alloc(
            max(2 * piece_bytes, 2 * MIB), always_valid=True, cpu_access=False, alignment=2 * MIB
        ) as buffer:
            card = self._struct(buffer, by_buffer=commit == "bo", timeline=timeline)
            for address in range(begin, begin + cycles * stride, stride):
                code = lib.vmkv_bench_card_cycle(card, address, piece_bytes, ret)
                self._point = int(card.point)
                if code:
                    what = f"map, remap, unmap or clear {human(piece_bytes)}, commit {commit}"
                    raise failure(code, what)
                for number, one in enumerate(ret):
                    calls[number].append(int(one.call_ns))
                    done[number].append(int(one.done_ns))
            self._patience.refusals += int(card.refusals)
        return [
            Latency(
                commit, change, piece_bytes, fence, cycles,
                Quantiles.of(calls[number]), Quantiles.of(done[number]),
            )
            for number, change in enumerate(CHANGES)
        ]  # fmt: skip

    def _struct(self, buffer: drm.Buffer, *, by_buffer: bool, timeline: bool) -> Any:
        card = ffi.new("struct vmkv_bench_card *")
        card.libdrm, card.device, card.context = libdrm(), self.device._use(), self._context._use()
        card.buffer, card.handle = buffer._use(), buffer.handle
        card.syncobj, card.point = self._syncobj.id, self._point
        card.nops = self._nops
        card.by_buffer, card.timeline = by_buffer, timeline
        return card

    def close(self) -> None:
        """Give back what it made, but for addresses."""
        self._scope.close()
