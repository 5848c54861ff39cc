"""What the probes work with: memory, addresses and a context of their own on a card.

Nothing else is ever touched: buffers are allocated here and addresses come from one reserved range.
No address is used twice unless a probe asks for it, so that a card that keeps old translations
spoils only the probe that looks for them. Page tables follow as vmkv has them follow: GEM_VA with
DELAY, then a submission.
"""

from __future__ import annotations

import contextlib
import errno as codes
import math
import time
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from vmkv import drm, errors
from vmkv._closing import Closing
from vmkv._patience import Patience
from vmkv.sizes import human

Words = npt.NDArray[np.uint32]

KIB = 1 << 10
MIB = 1 << 20
PAGE_BYTES = 4 * KIB
# What the manager maps: the smallest page, the usual one, and what one huge entry covers.
SIZES = (4 * KIB, 64 * KIB, 2 * MIB)
STAGING_BYTES = 4 * MIB
# Buffers as great are looked for, if VRAM has that much more room.
PLACED_BYTES = 2 * MIB
ROOM_BYTES = 16 * MIB
# Addresses cost nothing, and are not used again.
ADDRESS_BYTES = 16 << 30
# Free VRAM that has to be there: to make room the kernel would move other programs' memory.
NEEDED_BYTES = 64 * MIB

GPU_TIMEOUT_S = 2.0
# A mapping that isn't seen by then makes a card useless, if it ever is.
LATE_LIMIT_S = 0.03
# Where mappings were seen late, the probes wait longer than the latest, and that.
_PATIENCE = 1.5
_PATIENCE_LEAST_S = 0.002


def change(size: int) -> str:
    """By how much something went up or down, in words."""
    if not size:
        return "neither up nor down"
    return f"{'up' if size > 0 else 'down'} by {human(abs(size))}"


def pattern(size: int, seed: int) -> Words:
    """Words of which no two pages, and no two seeds, have the same."""
    words = np.arange(size // 4, dtype=np.uint32)
    return (words + np.uint32(seed * 0x01000193 & 0xFFFFFFFF)) * np.uint32(2654435761) | np.uint32(
        1
    )


class Staging:
    """Memory that the CPU and the card both reach, at an address of the card."""

    def __init__(self, bench: Workbench, size: int) -> None:
        device = bench.device
        with contextlib.ExitStack() as undo:
            buffer = bench.retry(lambda: device.alloc(size, "gtt", always_valid=True))
            undo.callback(buffer.close)
            addresses = device.va_alloc(size, alignment=2 * MIB, replayable=True)
            undo.enter_context(addresses)
            self.address = addresses.address
            bench.retry(lambda: device.map(buffer, self.address))
            self._view = buffer.cpu_map()
            undo.callback(self._view.release)
            self._undo = undo.pop_all()

    @property
    def words(self) -> Words:
        """What the CPU sees of it."""
        return np.frombuffer(self._view, np.uint32)

    def close(self) -> None:
        """Give it back; nobody may look at words any more."""
        self._undo.close()


class Workbench(Closing):
    """Own memory and addresses on a card, and the copy engine to look at them with. A context
    manager that closes it.

    Attributes:
        device, sdma: the card.
        deadline: of time.monotonic(): when nothing more is submitted.
        late_us: how long after its fence a mapping was seen at the latest; 0: at once.
        retry: asks again what the kernel has no memory for just now, and counts that.
        unmaps_ignored: whether unmaps were found to do nothing.
        placed, spilled: how many buffers in VRAM there were, and how many of them lay elsewhere.
    """

    def __init__(self, device: drm.Device) -> None:
        self.device = device
        self.deadline = math.inf
        self.late_us = 0
        self.retry = Patience()
        self.unmaps_ignored = False
        self.placed = self.spilled = 0
        self._losses = device.vram_lost_counter
        self._next = 0
        self._buffers: list[drm.Buffer] = []
        self._mappings: list[tuple[drm.Buffer, int]] = []
        with contextlib.ExitStack() as undo:
            self.sdma = self.retry(lambda: drm.Sdma(device))
            undo.callback(lambda: self.sdma.close())
            self.staging = Staging(self, STAGING_BYTES)
            undo.callback(self.staging.close)
            # From the top, where engines that share the address space come last.
            self._range = device.va_alloc(ADDRESS_BYTES, alignment=2 * MIB, replayable=True)
            undo.callback(self._range.close)
            self._settle_engine()
            self._undo = undo.pop_all()

    # ---- the engine --------------------------------------------------------------------------

    def submit(self) -> drm.Fence:
        """Submit what was added; what is submitted later runs later.

        Raises:
            DeviceError: refused. WaitTimeoutError: it is past the deadline.
        """
        if time.monotonic() > self.deadline:
            raise errors.WaitTimeoutError("the time for all probes is up", codes.ETIME)
        return self.retry(self.sdma.submit)

    def run(self) -> None:
        """Submit what was added, and wait.

        Raises:
            WaitTimeoutError: not done in two seconds. DeviceError: refused, or failed.
        """
        self.submit().wait(GPU_TIMEOUT_S)

    def commit(self) -> None:
        """Let the page tables follow what was mapped and unmapped."""
        self.run()
        if self.late_us:
            time.sleep(_PATIENCE * self.late_us / 1e6 + _PATIENCE_LEAST_S)

    def renew(self) -> None:
        """Go on with a new context after a fault: the kernel takes no more for the old one."""
        self.sdma.clear()
        self.sdma.close()
        self.sdma = self.retry(lambda: drm.Sdma(self.device))
        self._settle_engine()
        self.commit()

    def _settle_engine(self) -> None:
        """The engine's packets lie in a new mapping. One that comes into view while they are read
        shows half of them, which can hang the card: it gets its time first."""
        time.sleep(LATE_LIMIT_S)

    def is_lost(self) -> bool:
        """Whether the card lost its memory since the beginning, or doesn't answer any more."""
        try:
            return self.device.vram_lost_counter != self._losses
        except errors.DeviceError:
            return True

    # ---- memory ------------------------------------------------------------------------------

    def memory(self, size: int) -> drm.Buffer:
        """Memory in VRAM, made as vmkv makes a slab; gone after the probe. Where it really lies is
        counted on the way: the counters are the whole card's, where others come and go, so both
        have to say the same of it."""
        before = self.device.memory
        buffer = self.retry(
            lambda: self.device.alloc(
                size,
                "vram",
                alignment=0 if size % (2 * MIB) else 2 * MIB,
                always_valid=True,
                cpu_access=False,
                cleared=True,
            )
        )
        self._buffers.append(buffer)
        has_room = before.vram.usable - before.vram.used >= size + ROOM_BYTES
        if has_room and size >= PLACED_BYTES:
            after = self.device.memory
            in_vram, in_gtt = after.vram.used - before.vram.used, after.gtt.used - before.gtt.used
            self.placed += 1
            self.spilled += in_vram < size // 2 <= in_gtt or buffer.domain != {"vram"}
        return buffer

    def free(self, buffer: drm.Buffer) -> None:
        """Give memory back before the probe ends."""
        self._mappings = [item for item in self._mappings if item[0] is not buffer]
        self._buffers.remove(buffer)
        buffer.close()

    def addresses(self, size: int) -> int:
        """Addresses that nothing was ever behind, at a multiple of 2 MiB."""
        address = self._range.address + self._next
        self._next += -(-size // (2 * MIB)) * 2 * MIB
        if self._next > ADDRESS_BYTES:
            raise errors.RangeError("the probes used up their addresses")
        return address

    def map(self, buffer: drm.Buffer, address: int, size: int, offset: int = 0) -> None:
        """Map a piece; seen after `commit`."""
        flags = "read|write|delay"
        self.retry(lambda: self.device.map(buffer, address, size, offset, flags))
        self._mappings.append((buffer, address))

    def unmap(self, buffer: drm.Buffer, address: int) -> None:
        """Take the mapping away that begins there; gone after `commit`."""
        self._mappings.remove((buffer, address))
        self.retry(lambda: self.device.unmap(buffer, address, flags="delay"))

    @contextlib.contextmanager
    def hole(self, address: int, size: int) -> Iterator[None]:
        """A range without memory that may be read (PRT), while it is needed."""
        va_op = self.device.va_op
        self.retry(lambda: va_op(None, "map", address, size, flags="prt|delay"))
        try:
            self.commit()
            yield
        finally:
            self.retry(lambda: va_op(None, "clear", address, size))

    def place(self, size: int) -> tuple[drm.Buffer, int]:
        """Memory at new addresses, in the page tables."""
        buffer, address = self.memory(size), self.addresses(size)
        self.map(buffer, address, size)
        self.commit()
        return buffer, address

    def filled(self, size: int, data: Words) -> drm.Buffer:
        """Memory that holds data, and is mapped nowhere."""
        buffer, address = self.place(size)
        self.write(address, data)
        self.unmap(buffer, address)
        self.commit()
        return buffer

    # ---- contents ----------------------------------------------------------------------------

    def write(self, address: int, data: Words) -> None:
        """Write words through the card's addresses."""
        self.staging.words[: len(data)] = data
        self.sdma.copy(address, self.staging.address, data.nbytes)
        self.run()

    def read(self, address: int, size: int) -> Words:
        """Read words through the card's addresses: a copy."""
        self.staging.words[: size // 4] = 0xA5A5A5A5  # to see whether anything came at all
        self.sdma.copy(self.staging.address, address, size)
        self.run()
        return self.staging.words[: size // 4].copy()

    def holds(self, address: int, data: Words) -> bool:
        """Whether exactly these words are read there."""
        return bool(np.array_equal(self.read(address, data.nbytes), data))

    # ---- the end -----------------------------------------------------------------------------

    def tidy(self) -> None:
        """Give back the memory of a probe. Closing a buffer that is mapped is the safe order: the
        kernel clears its entries first."""
        self.sdma.clear()
        self._mappings.clear()
        while self._buffers:
            self._buffers.pop().close()

    def close(self) -> None:
        """Give back everything. A card that still works on something keeps what it works on until
        this process ends: nobody waits for it."""
        with contextlib.suppress(errors.Error):
            self.tidy()
        fences = [fence for fence in self.sdma._fences if fence is not None]
        try:
            for fence in fences:
                with contextlib.suppress(errors.DeviceError):
                    fence.wait(GPU_TIMEOUT_S)
        except errors.WaitTimeoutError:
            return
        # An interrupt may have left somebody looking at the staging memory.
        with contextlib.suppress(errors.Error, BufferError):
            self._undo.close()
