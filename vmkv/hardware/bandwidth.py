"""How fast the copy engine fills and copies memory that is mapped in small pieces."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from vmkv import drm, errors
from vmkv._closing import Closing
from vmkv.hardware.card import KIB, MIB, Addresses, Card, free_vram

FRAGMENTS = (4 * KIB, 64 * KIB, 2 * MIB)
ROUNDS = 5

# More than the caches of today's cards hold, where there is room.
_RANGE_BYTES = 256 * MIB
_RANGE_BYTES_EMULATED = 32 * MIB
# Work of one submission: long beside what it takes to submit, short beside the driver's patience.
_WORK_S = 0.02
_WORK_MOST = 64
IB_BYTES = 128 * KIB
# A kernel makes a job of each mapping when it is committed; not too many at once.
_COMMIT_PIECES = 1024
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Bandwidth:
    """Bytes that the copy engine fills, or reads and writes, in a second: the median of rounds.

    Attributes:
        what: "fill" or "copy".
        fragment_bytes: the pieces that the ranges are mapped in, in an order drawn by lot.
        range_bytes: how long the ranges are.
        bytes_per_second: bytes written.
    """

    what: str
    fragment_bytes: int
    range_bytes: int
    bytes_per_second: float


class Ranges(Closing):
    """Two ranges of addresses and memory for both. A context manager that closes it."""

    def __init__(self, card: Card, sdma: drm.Sdma, addresses: Addresses) -> None:
        self.device, self._sdma, self._patience = card.device, sdma, card.patience
        most = _RANGE_BYTES_EMULATED if card.emulated else _RANGE_BYTES
        size = min(most, free_vram(card.device) // 4 // (2 * MIB) * 2 * MIB)
        if not size:
            raise errors.DeviceMemoryError("other programs took the free VRAM meanwhile")
        self.range_bytes = size
        self._begin = addresses.take(2 * size)
        self._buffer = card.patience(
            lambda: self.device.alloc(
                2 * size, always_valid=True, cpu_access=False, alignment=2 * MIB
            )
        )

    def measure(self, fragment_bytes: int) -> list[Bandwidth]:
        """Fill and copy through pieces of that size."""
        first, second = self._begin, self._begin + self.range_bytes
        sdma = self._sdma
        work: dict[str, Callable[[], object]] = {
            "fill": lambda: sdma.fill(first, self.range_bytes, 0x3C003C00),
            "copy": lambda: sdma.copy(second, first, self.range_bytes),
        }
        self._map(fragment_bytes)
        try:
            return [
                Bandwidth(what, fragment_bytes, self.range_bytes, self._rate(add))
                for what, add in work.items()
            ]
        finally:
            self._patience(lambda: self.device.clear(self._begin, 2 * self.range_bytes))

    def _map(self, fragment_bytes: int) -> None:
        count = 2 * self.range_bytes // fragment_bytes
        places = list(range(count))
        random.Random(count).shuffle(places)
        for number, place in enumerate(places):
            address = self._begin + number * fragment_bytes
            self._map_piece(address, fragment_bytes, place * fragment_bytes)
            if number % _COMMIT_PIECES == _COMMIT_PIECES - 1:
                self._run()
        self._run()

    def _map_piece(self, address: int, size: int, offset: int) -> None:
        device, flags = self.device, "read|write|delay"
        self._patience(lambda: device.map(self._buffer, address, size, offset, flags))

    def _run(self) -> None:
        self._patience(self._sdma.submit).wait(_PATIENCE_S)

    def _rate(self, add: Callable[[], object]) -> float:
        self._seconds(add, 1)  # memory and translations that are used for the first time
        once = self._seconds(add, 1)
        times = min(max(round(_WORK_S / once), 1), _WORK_MOST)
        seconds = statistics.median(self._seconds(add, times) for _ in range(ROUNDS))
        return times * self.range_bytes / seconds

    def _seconds(self, add: Callable[[], object], times: int) -> float:
        for _ in range(times):
            add()
        begin = time.perf_counter()
        self._run()
        return time.perf_counter() - begin

    def close(self) -> None:
        """Free the memory."""
        self._buffer.close()
