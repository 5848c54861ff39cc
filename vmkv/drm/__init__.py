"""amdgpu's buffers, addresses and submissions, through libdrm_amdgpu.

A thin face of libdrm, which is found at run time (2.4.114 or newer): devices, buffers, ranges of
addresses, GEM_VA with all its operations and flags, contexts, SDMA, syncobjs. Nothing is decided
here: what is asked goes to the kernel, and what it refuses comes back as an exception that has its
errno and says what was asked. Everything that is made is a context manager that gives it back.

Here a card is emulated; `Device.open()` takes a real one. A range of addresses is reserved, memory
is put behind a part of it when needed, filled and read by the copy engine, and taken away again:

>>> import errno
>>> from vmkv import drm
>>> from vmkv.emulator import Emulator
>>> page = 64 << 10
>>> with Emulator("gfx1201?vram=1GiB") as card, card.device() as device, drm.Sdma(device) as sdma:
...     with device.va_alloc(1 << 30, alignment=2 << 20) as span, device.alloc(
...         4 * page, "vram", always_valid=True
...     ) as memory, device.alloc(page, "gtt", always_valid=True) as target, device.va_alloc(
...         page, alignment=page
...     ) as view:
...         device.map(target, view.address)
...         for n in range(3):  # as it grows
...             device.map(memory, span.address + n * page, page, n * page, "read|write|delay")
...             sdma.fill(span.address + n * page, page, 0x11111111 * (n + 1)).run()
...         sdma.copy(view.address, span.address + 2 * page, page).run()
...         print(hex(int(target.numpy("u4")[-1])), card.count("GEM_VA", "map"))
...         device.clear(span.address, 3 * page)
...         device.unmap(target, view.address)
...         try:
...             sdma.fill(span.address, page, 0).run()
...         except vmkv.DeviceError as error:
...             print(error.errno == errno.ECANCELED, device.gpuvm_fault.address == span.address)
0x33333333 5
True True
"""

from vmkv.drm._address import MAPPING_FLAGS, OPERATIONS, VaRange
from vmkv.drm.buffer import Buffer, BufferList
from vmkv.drm.context import PRIORITIES, Context, ContextState, Fence
from vmkv.drm.device import Device, driver_of, render_nodes
from vmkv.drm.info import (
    COUNTERS,
    DOMAINS,
    IP_TYPES,
    CardInfo,
    Driver,
    Fault,
    Heap,
    HwIp,
    Memory,
)
from vmkv.drm.sdma import Sdma
from vmkv.drm.syncobj import Syncobj, wait_syncobjs

__all__ = [
    "COUNTERS",
    "DOMAINS",
    "IP_TYPES",
    "MAPPING_FLAGS",
    "OPERATIONS",
    "PRIORITIES",
    "Buffer",
    "BufferList",
    "CardInfo",
    "Context",
    "ContextState",
    "Device",
    "Driver",
    "Fault",
    "Fence",
    "Heap",
    "HwIp",
    "Memory",
    "Sdma",
    "Syncobj",
    "VaRange",
    "driver_of",
    "render_nodes",
    "wait_syncobjs",
]
