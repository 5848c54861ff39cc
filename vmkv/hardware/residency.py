"""What happens when VRAM is nearly full."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass

from vmkv import drm, errors
from vmkv.hardware.card import GIB, KIB, MIB, Addresses, Card, free_vram

LIMIT_S = 40.0
_PATIENCE_S = 10.0
_SETTLE_S = 0.1
_SETTLE_MOST_S = 3.0
# An emulated card's memory is the machine's: of each buffer only so much is written.
WRITTEN_BYTES_EMULATED = 64 * KIB


@dataclass(frozen=True)
class Residency:
    """VRAM was filled with buffers, in steps, up to a reserve that is never touched, so that no
    other program's memory has to move; each buffer was written when it came, and all once more at
    the end.

    Attributes:
        usable_bytes, used_before_bytes: of VRAM, before.
        reserve_bytes: what was left free.
        filled_bytes: what the buffers had.
        used_peak_bytes, used_after_bytes: of VRAM, when they were there, and after they were gone.
        allocate_s_per_gib: to allocate (newer kernels clear it then).
        write_bytes_per_second, rewrite_bytes_per_second: by the copy engine, when memory was new
            (mapping it included), and at the end. None if not even one buffer fitted.
        outside_vram: buffers that the kernel put into system memory, as it says of them, or as the
            usage of the heaps tells.
        evictions, moved_bytes: what the kernel counted meanwhile, of all programs on the card.
        stopped: why it ended: "reserve", "evictions", "refused", "outside VRAM" or "time".
    """

    usable_bytes: int
    used_before_bytes: int
    reserve_bytes: int
    filled_bytes: int
    used_peak_bytes: int
    used_after_bytes: int
    allocate_s_per_gib: float | None
    write_bytes_per_second: float | None
    rewrite_bytes_per_second: float | None
    outside_vram: int
    evictions: int
    moved_bytes: int
    stopped: str


def reserve_of(usable_bytes: int) -> int:
    """What stays free of so much VRAM: a sixteenth, and half a GiB or a quarter at least."""
    return max(usable_bytes // 16, min(512 * MIB, usable_bytes // 4))


class _Filling:
    """The buffers, and what it took to make and write them."""

    def __init__(
        self, card: Card, sdma: drm.Sdma, addresses: Addresses, scope: contextlib.ExitStack
    ) -> None:
        self.device, self.sdma, self._patience = card.device, sdma, card.patience
        self._addresses, self._scope = addresses, scope
        usable = card.device.memory.vram.usable
        self.reserve_bytes = reserve_of(usable)
        # Whole blocks of 2 MiB, some dozens of them.
        self.step_bytes = max(min(256 * MIB, usable // 64 // (2 * MIB) * 2 * MIB), 2 * MIB)
        self.written_bytes = WRITTEN_BYTES_EMULATED if card.emulated else self.step_bytes
        self.begun_evictions = card.device.counter("evictions")
        self.begun_moved = card.device.counter("bytes_moved")
        self.buffers: list[drm.Buffer] = []
        self.addresses: list[int] = []
        self._spilled: set[drm.Buffer] = set()
        self.allocate_s = self.write_s = 0.0

    @property
    def evictions(self) -> int:
        return self.device.counter("evictions") - self.begun_evictions

    @property
    def outside(self) -> int:
        return sum(self._is_outside(buffer) for buffer in self.buffers)

    def _is_outside(self, buffer: drm.Buffer) -> bool:
        return buffer in self._spilled or buffer.domain != {"vram"}

    def fill(self) -> str:
        """Add buffers; returns why it ended."""
        end = time.monotonic() + LIMIT_S
        while free_vram(self.device) >= self.reserve_bytes + self.step_bytes:
            if time.monotonic() > end:
                return "time"
            try:
                self._add()
            except errors.DeviceMemoryError:
                return "refused"
            if self.evictions:
                return "evictions"
            if self._is_outside(self.buffers[-1]):
                return "outside VRAM"
        return "reserve"

    def _add(self) -> None:
        address, device, size = self._addresses.take(self.step_bytes), self.device, self.step_bytes
        before, begin = device.memory, time.perf_counter()
        # A refusal is how it may end, when it is nearly full: nobody is asked again.
        buffer = self._scope.enter_context(
            device.alloc(size, always_valid=True, cpu_access=False, alignment=2 * MIB)
        )
        self.allocate_s += time.perf_counter() - begin
        # The kernel may say VRAM and mean GTT. The heaps are everybody's: both have to say so.
        after = device.memory
        in_vram, in_gtt = after.vram.used - before.vram.used, after.gtt.used - before.gtt.used
        if in_vram < size // 2 <= in_gtt:
            self._spilled.add(buffer)
        begin = time.perf_counter()
        self._patience(lambda: device.map(buffer, address, flags="read|write|delay"))
        self.buffers.append(buffer)
        self.addresses.append(address)
        self._write(address)
        self.write_s += time.perf_counter() - begin

    def _write(self, address: int) -> None:
        self.sdma.fill(address, self.written_bytes, 0x5A5A5A5A)
        self._patience(self.sdma.submit).wait(_PATIENCE_S)

    def rewrite(self) -> float:
        """Write all buffers again; returns the seconds."""
        begin = time.perf_counter()
        for address in self.addresses:
            self._write(address)
        return time.perf_counter() - begin


def fill_vram(card: Card, sdma: drm.Sdma, addresses: Addresses) -> Residency:
    """Fill VRAM nearly, look, and give all back but the addresses.

    Raises:
        DeviceError: the kernel refused something, or a write wasn't done in time.
    """
    device = card.device
    used_before = _settled(device)
    with contextlib.ExitStack() as scope:
        filling = _Filling(card, sdma, addresses, scope)
        stopped = filling.fill()
        rewrite_s = filling.rewrite()
        peak, outside = device.memory.vram.used, filling.outside
        evictions = filling.evictions
        moved = device.counter("bytes_moved") - filling.begun_moved
    count = len(filling.buffers)
    filled, written = count * filling.step_bytes, count * filling.written_bytes
    return Residency(
        usable_bytes=device.memory.vram.usable,
        used_before_bytes=used_before,
        reserve_bytes=filling.reserve_bytes,
        filled_bytes=filled,
        used_peak_bytes=peak,
        used_after_bytes=_settled(device),
        allocate_s_per_gib=filling.allocate_s / (filled / GIB) if filled else None,
        write_bytes_per_second=written / filling.write_s if filled else None,
        rewrite_bytes_per_second=written / rewrite_s if filled else None,
        outside_vram=outside,
        evictions=evictions,
        moved_bytes=moved,
        stopped=stopped,
    )


def _settled(device: drm.Device) -> int:
    """VRAM in use once what was freed has come back, which goes through the card, too: when it
    hasn't changed for a while. Others may use the card, so it isn't waited for long."""
    used, end = device.memory.vram.used, time.monotonic() + _SETTLE_MOST_S
    while time.monotonic() < end:
        time.sleep(_SETTLE_S)
        before, used = used, device.memory.vram.used
        if before == used:
            break
    return used
