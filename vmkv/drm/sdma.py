"""SDMA: a card's copy engine, with indirect buffers of its own."""

from __future__ import annotations

import array
import contextlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from vmkv import errors
from vmkv._closing import Closing
from vmkv._values import check_count
from vmkv.drm import packets
from vmkv.drm.buffer import Buffer, BufferList
from vmkv.drm.context import Context, Fence, Signal

if TYPE_CHECKING:
    from vmkv.drm._address import VaRange
    from vmkv.drm.device import Device

_PAD_DWORDS = 8


class Sdma(Closing):
    """Collects packets and submits them to the copy engine.

    `copy`, `fill`, `write` and so on only add packets; `submit` sends what was added, and `run`
    waits for it too. The packets lie in a small buffer of its own, in GTT. Not to be used by
    several threads at once.

    Args:
        device: of which card.
        ring: of the engine.
        ib_bytes: room for the packets of one submission, rounded up to pages.
        ibs: how many submissions can be under way before the next waits for the first.

    Attributes:
        device, context, ring: what it submits to.
        version: (major, minor) of the engine.

    Raises:
        UnsupportedError: the card has no such engine.
    """

    __slots__ = (
        "_buffer", "_fences", "_next", "_range", "_view", "context", "device", "dwords",
        "ib_bytes", "ring", "version",
    )  # fmt: skip

    def __init__(
        self, device: Device, *, ring: int = 0, ib_bytes: int = 16384, ibs: int = 4
    ) -> None:
        engine = device.hw_ip("dma")
        if engine is None or not engine.rings >> check_count("ring", ring, 5) & 1:
            raise errors.UnsupportedError(f"the card has no SDMA ring {ring}")
        page = max(4096, engine.ib_start_alignment)
        self.device, self.ring = device, ring
        self.version = (engine.version_major, engine.version_minor)
        self.ib_bytes = -(-max(check_count("ib_bytes", ib_bytes), 1) // page) * page
        self.dwords: list[int] = []
        self._fences: list[Fence | None] = [None] * max(check_count("ibs", ibs, 16), 1)
        self._next = 0
        self._make(self.ib_bytes * len(self._fences), page)

    def _make(self, size: int, page: int) -> None:
        with contextlib.ExitStack() as undo:
            self._buffer: Buffer = undo.enter_context(
                self.device.alloc(size, "gtt", always_valid=True, alignment=page)
            )
            self._range: VaRange = undo.enter_context(self.device.va_alloc(size, alignment=page))
            self.device.map(self._buffer, self._range.address, size, flags="read|execute")
            self.context = undo.enter_context(Context(self.device))
            self._view = self._buffer.cpu_map().cast("I")
            undo.pop_all()

    def nop(self, dwords: int = 1) -> Sdma:
        """Add packets that do nothing. Like all of these, returns the object itself."""
        self.dwords += packets.nop(dwords)
        return self

    def copy(self, destination: int, source: int, size: int) -> Sdma:
        """Add copies of size bytes from one address to another, which must not overlap."""
        step = packets.max_bytes(self.version)
        for done in range(0, check_count("size", size, 64), step):
            part = min(step, size - done)
            self.dwords += packets.copy(destination + done, source + done, part, self.version)
        return self

    def fill(self, address: int, size: int, value: int = 0) -> Sdma:
        """Add fills of size bytes with a value of 32 bits; address and size are multiples of 4."""
        step = packets.max_bytes(self.version)
        for done in range(0, check_count("size", size, 64), step):
            part = min(step, size - done)
            self.dwords += packets.fill(address + done, part, value, self.version)
        return self

    def write(self, address: int, data: bytes | list[int]) -> Sdma:
        """Add a write of data: bytes, a multiple of 4 of them, or dwords."""
        self.dwords += packets.write(address, data)
        return self

    def fence(self, address: int, value: int) -> Sdma:
        """Add a write of a 32-bit value that comes after all before it."""
        self.dwords += packets.fence(address, value, self.version)
        return self

    def submit(
        self,
        *,
        waits: Iterable[Fence | Signal] = (),
        signals: Iterable[Signal] = (),
        buffers: Iterable[Buffer] | BufferList = (),
    ) -> Fence:
        """Submit what was added (if nothing, a NOP); see `Context.submit`. If it fails, the packets
        stay to be submitted again, or forgotten by `clear`.

        Raises:
            InvalidError: more packets than ib_bytes hold. DeviceError.
        """
        words = self.dwords or packets.nop()
        padded = [*words, *packets.nop(-len(words) % _PAD_DWORDS)]
        size = len(padded) * 4
        if size > self.ib_bytes:
            raise errors.InvalidError(f"packets of {size} bytes: there is room for {self.ib_bytes}")
        busy = self._fences[self._next]
        if busy is not None:
            _settle(busy)
        begin = self._next * self.ib_bytes
        self._view[begin // 4 : (begin + size) // 4] = memoryview(array.array("I", padded))
        fence = self.context.submit(
            [(self._range.address + begin, size)],
            ring=self.ring,
            waits=waits,
            signals=signals,
            buffers=buffers,
        )
        self._fences[self._next] = fence
        self._next = (self._next + 1) % len(self._fences)
        self.clear()
        return fence

    def clear(self) -> None:
        """Forget the packets that were added."""
        self.dwords.clear()

    def run(
        self, *, buffers: Iterable[Buffer] | BufferList = (), timeout: float | None = None
    ) -> None:
        """Submit what was added and wait for it.

        Raises:
            WaitTimeoutError: not in that time. DeviceError: refused, or failed (errno ECANCELED
            after a fault).
        """
        self.submit(buffers=buffers).wait(timeout)

    def close(self) -> None:
        """Give back the buffer and the context, when all submissions are done. Nothing happens if
        that is done already."""
        if self.context.closed:
            return
        for fence in self._fences:
            if fence is not None:
                _settle(fence)
        self.context.close()
        self._view.release()
        self._buffer.close()  # with its mapping: an unmap could be refused
        self._range.close()


def _settle(fence: Fence) -> None:
    """Wait until the engine has left a submission, however it ended."""
    try:
        fence.wait()
    except errors.DeviceLostError:
        raise
    except errors.DeviceError:
        pass  # whoever waits for the fence itself hears of it
