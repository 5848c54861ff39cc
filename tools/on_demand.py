"""Memory on demand with vmkv.drm alone: addresses are reserved, memory comes behind a part of them
when that is needed, the card's copy engine fills and reads it, and it is taken away again.

    python tools/on_demand.py [NODE]

NODE is a render node such as /dev/dri/renderD128 (default: the first of an amdgpu card), or
emulated:gfx1201 for a card that is emulated in this process.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import vmkv
from vmkv import drm
from vmkv.emulator import Emulator

RESERVED = 1 << 30  # of addresses: nothing but numbers
PAGE = 64 << 10
PAGES = 24


@contextlib.contextmanager
def open_card(node: str | None) -> Iterator[drm.Device]:
    kind, _, spec = (node or "").partition(":")
    if kind == "emulated":
        with Emulator(spec) as card, card.device() as device:
            yield device
    else:
        with drm.Device.open(node) as device:
            yield device


class OnDemand:
    """A reserved range of addresses; the first `mapped` bytes of it have memory."""

    def __init__(self, device: drm.Device, memory: drm.Buffer, span: drm.VaRange) -> None:
        self.device, self.memory, self.span = device, memory, span
        self.mapped = 0

    def grow(self, end: int) -> None:
        """Put memory behind the addresses up to `end`. With DELAY the kernel only notes it: the
        next submission makes it write the page tables before it runs."""
        more = end - self.mapped
        where = self.span.address + self.mapped
        self.device.map(self.memory, where, more, self.mapped, "read|write|delay")
        self.mapped = end

    def shrink(self, sdma: drm.Sdma) -> None:
        """Take it all away, by one call and a submission that does nothing else."""
        self.device.clear(self.span.address, self.mapped, "delay")
        sdma.nop().run()
        self.mapped = 0


def use(device: drm.Device, range_: OnDemand, sdma: drm.Sdma) -> int:
    """Grow page by page, fill each as it comes, then read all of them; how many were right."""
    first = range_.span.address
    for n in range(PAGES):
        range_.grow((n + 1) * PAGE)
        sdma.fill(first + n * PAGE, PAGE, n + 1).run()
    with (
        device.alloc(PAGES * PAGE, "gtt", always_valid=True) as target,
        device.va_alloc(PAGES * PAGE, alignment=PAGE) as view,
    ):
        device.map(target, view.address)
        sdma.copy(view.address, first, PAGES * PAGE).run()
        pages = target.numpy("u4").copy().reshape(PAGES, -1)
    return sum(bool((page == n + 1).all()) for n, page in enumerate(pages))


def main(node: str | None = None) -> int:
    with (
        open_card(node) as device,
        drm.Sdma(device) as sdma,
        device.va_alloc(RESERVED, alignment=2 << 20) as span,
        device.alloc(2 << 20, alignment=2 << 20, always_valid=True) as memory,
    ):
        range_ = OnDemand(device, memory, span)
        right = use(device, range_, sdma)
        print(f"{device.name}: {RESERVED >> 20} MiB of addresses reserved at {span.address:#x}")
        print(f"{right} of {PAGES} pages of {PAGE >> 10} KiB came on demand and held what they got")
        range_.shrink(sdma)
    return 0 if right == PAGES else 1


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:2]))
    except vmkv.Error as error:
        sys.exit(f"on_demand: {error}")
