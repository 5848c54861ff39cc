"""Probes of mappings: whether what is mapped is there, at once, and gone when it is unmapped."""

from __future__ import annotations

import errno as codes
import random
import time
from dataclasses import dataclass

import numpy as np

from vmkv import drm, errors
from vmkv._native import ffi, lib
from vmkv.doctor.probe import Outcome, Probe
from vmkv.doctor.workbench import (
    LATE_LIMIT_S,
    MIB,
    SIZES,
    Words,
    Workbench,
    pattern,
)
from vmkv.drm._base import libdrm
from vmkv.sizes import human

_EDGE_BYTES = 256
_LATE_ROUNDS = 8
_TOO_LATE = "mappings come so late, if they come, that nobody can wait for them"
_HOLES_SINCE = (4, 0)
# Longer than any mapping is late, which the next probe measures.
_ENGINE_LIMIT_S = 1.2


# ---- the copy engine -------------------------------------------------------------------------


def _copy_engine(bench: Workbench) -> Outcome:
    """Its own packets and the staging memory may be seen late, too: they get their time."""
    begin, tries = time.monotonic(), 0
    words = bench.staging.words
    while time.monotonic() - begin < _ENGINE_LIMIT_S:
        tries += 1
        words[:2] = 0
        bench.sdma.write(bench.staging.address, [0x600DF00D + tries])
        bench.run()
        if words[0] == 0x600DF00D + tries and words[1] == 0:
            version = ".".join(map(str, bench.sdma.version))
            return Outcome(True, f"SDMA {version} wrote what it was told to")
    return Outcome(False, f"{tries} submissions ended well, and nothing was written", fatal=True)


COPY_ENGINE = Probe(
    "copy-engine",
    "dead-engine",
    "a word written by the copy engine (SDMA) into system memory",
    "probes can look at the card's memory through its own addresses",
    "nothing can be proved of a card whose copy engine does nothing",
    _copy_engine,
)


# ---- late visibility -------------------------------------------------------------------------


def _touch(bench: Workbench, address: int, size: int, value: int) -> bool:
    """Write to both ends of a mapping, and read what was written: all in the card's queue behind
    what was submitted before, as an engine's work is."""
    words = bench.staging.words[: 2 * _EDGE_BYTES // 4]
    words[:] = 0
    target, last = bench.staging.address, address + size - _EDGE_BYTES
    bench.sdma.fill(address, _EDGE_BYTES, value).fill(last, _EDGE_BYTES, value)
    bench.submit()
    bench.sdma.copy(target, address, _EDGE_BYTES)
    bench.sdma.copy(target + _EDGE_BYTES, last, _EDGE_BYTES)
    bench.run()
    return bool((words == value).all())


@dataclass(frozen=True)
class _Lateness:
    """How late a mapping was: still missing so many seconds after its fence, and there at the
    second time. On a busy machine these are far apart."""

    missing: float
    seen: float


class _UnseenError(Exception):
    """A mapping wasn't seen in time; the message says which."""


def _lateness(bench: Workbench, size: int, value: int) -> _Lateness | None:
    """Of a new mapping; None if it is there at once.

    Raises:
        _UnseenError: it didn't come. WaitTimeoutError: the card hangs.
    """
    buffer, address = bench.memory(size), bench.addresses(size)
    bench.map(buffer, address, size)
    bench.submit()
    start = time.monotonic()
    if _touch(bench, address, size, value):
        return None
    reached = begin = failed = time.monotonic()  # the fence was reached before
    while not _touch(bench, address, size, value + 1):
        value, failed = value + 1, begin
        if failed - reached > LATE_LIMIT_S:
            raise _UnseenError(
                f"a mapping of {human(size)} lost what was written for {LATE_LIMIT_S * 1e3:.0f} ms"
            )
        begin = time.monotonic()
    return _Lateness(failed - reached, begin - start)


def _late_visibility(bench: Workbench) -> Outcome:
    count, late = 0, []
    for number in range(_LATE_ROUNDS):
        for size in SIZES:
            try:
                found = _lateness(bench, size, 0x10000000 + 0x10000 * number)
            except _UnseenError as error:
                bench.late_us = round(LATE_LIMIT_S * 1e6)
                return Outcome(False, str(error), _TOO_LATE, fatal=True)
            count += 1
            late += [found] if found else []
        bench.tidy()
        if number and late:
            break  # more would only take longer
    if not late:
        return Outcome(True, f"{count} mappings, all seen at once")
    # No less than was proved of any, nor than is sure of all, if they are alike.
    most = max(max(found.missing for found in late), min(found.seen for found in late))
    bench.late_us = round(most * 1e6)
    how = "lost writes or read as zero"
    return Outcome(False, f"{len(late)} of {count} mappings {how}, for {bench.late_us:,} us or so")


LATE_VISIBILITY = Probe(
    "late-visibility",
    "late-visibility",
    "memory written and read through new addresses as soon as their fence is reached",
    "new memory can be used at the point that a step returns",
    "fences come too early: rows written right away would be lost. vmkv waits after each map",
    _late_visibility,
)


# ---- contents --------------------------------------------------------------------------------


def _blamed(bench: Workbench, wrong: str) -> Outcome:
    """A failure, unless another fault explains it: pages that still are where they were."""
    if bench.unmaps_ignored:
        return Outcome(None, f"not told apart from unmaps that are ignored: {wrong}")
    return Outcome(False, wrong)


def _pieces_hold(bench: Workbench, size: int, seed: int) -> str:
    """Map a buffer's pieces in another order and write to them; see it whole at other addresses.
    Returns what was wrong."""
    count = min(16, 2 * 2 * MIB // size)
    whole, data = size * count, pattern(size * count, seed)
    order = random.Random(seed).sample(range(count), count)
    buffer, address = bench.memory(max(whole, 2 * MIB)), bench.addresses(whole)
    for place, piece in enumerate(order):
        bench.map(buffer, address + place * size, size, piece * size)
    bench.commit()
    bench.write(address, data)
    if not bench.holds(address, data):
        return f"{human(size)}: other words are read than were written"
    for place in range(count):
        bench.unmap(buffer, address + place * size)
    linear = bench.addresses(whole)
    bench.map(buffer, linear, whole)
    bench.commit()
    expected: Words = np.empty_like(data).reshape(count, -1)
    expected[order] = data.reshape(count, -1)
    if not bench.holds(linear, expected.reshape(-1)):
        return f"{human(size)}: pieces lie elsewhere in the buffer than they were mapped"
    return ""


def _map_write_read(bench: Workbench) -> Outcome:
    for seed, size in enumerate(SIZES, 1):
        wrong = _pieces_hold(bench, size, seed)
        if wrong:
            return _blamed(bench, wrong)
        bench.tidy()
    return Outcome(True, "every word came back, at the place where it belongs")


MAP_WRITE_READ = Probe(
    "map-write-read",
    "wrong-data",
    "pieces of 4 KiB, 64 KiB and 2 MiB mapped, written and read back by the copy engine",
    "addresses lead to the memory that was mapped there",
    "addresses lead to other memory than was mapped there",
    _map_write_read,
)


# ---- unmapping -------------------------------------------------------------------------------


def _mapping_count(bench: Workbench, buffer: drm.Buffer) -> int | None:
    """How many mappings of a buffer the kernel knows; None if it doesn't tell."""
    query = ffi.new("struct drm_amdgpu_gem_op *")
    query.handle, query.op = buffer.handle, lib.AMDGPU_GEM_OP_GET_MAPPING_INFO
    size = ffi.sizeof(query[0])
    code = libdrm().drmCommandWriteRead(bench.device.fd, lib.DRM_AMDGPU_GEM_OP, query, size)
    return None if code else int(query.num_entries)


def _still_mapped(bench: Workbench, size: int) -> str:
    """Map, unmap, and ask the kernel what is left. Returns how it tells that it still is there."""
    buffer, address = bench.place(size)
    bench.unmap(buffer, address)
    bench.commit()
    if _mapping_count(bench, buffer):
        return "the kernel still lists the mapping"
    try:
        bench.retry(lambda: bench.device.unmap(buffer, address, flags="delay"))
        return "the same unmap succeeds twice"
    except errors.DeviceError as error:
        if error.errno != codes.ENOENT:
            raise
    other = bench.memory(size)
    try:
        bench.map(other, address, size)
    except errors.DeviceError as error:
        if error.errno != codes.EINVAL:
            raise
        return "the addresses are still taken"
    bench.commit()
    return ""


def _still_reached(bench: Workbench, size: int, seed: int) -> str:
    """Map, unmap, and look at what is there. To look at nothing would fault: so a hole (PRT) is put
    there, which reads as zero. The copy engine is made for that from SDMA 4.0 on: Mesa,
    ac_gpu_info.c, sdma_supports_sparse. Returns what was wrong."""
    data = pattern(size, seed)
    buffer, address = bench.place(size)
    bench.write(address, data)
    bench.unmap(buffer, address)
    bench.commit()
    with bench.hole(address, size):
        reached = int((bench.read(address, size) == data).sum()) * 4
    return f"{reached:,} of {size:,} bytes can still be read" if reached else ""


def _unmap(bench: Workbench) -> Outcome:
    for number, size in enumerate(SIZES):
        wrong = _still_mapped(bench, size)
        if not wrong and bench.sdma.version >= _HOLES_SINCE:
            wrong = _still_reached(bench, size, 200 + number)
        if wrong:
            bench.unmaps_ignored = True
            return Outcome(False, f"after an unmap of {human(size)} that succeeded: {wrong}")
        bench.tidy()
    return Outcome(True, "mappings are gone, and their addresses free again")


UNMAP = Probe(
    "unmap",
    "unmap-ignored",
    "mappings taken away, and the kernel and the copy engine asked what is left of them",
    "memory that is given back can't be reached any more",
    "unmaps succeed and do nothing: memory would be given to others while it is still reachable",
    _unmap,
)


# ---- remapping -------------------------------------------------------------------------------


def _remapped(bench: Workbench, old_size: int, new_size: int, seed: int) -> Outcome | None:
    """Put another buffer behind addresses that had one. Returns what was wrong; None: nothing."""
    size = max(old_size, new_size)
    was, comes = pattern(size, seed), pattern(size, seed + 1)
    old, new = bench.filled(size, was), bench.filled(size, comes)
    address = bench.addresses(size)
    for begin in range(0, size, old_size):
        bench.map(old, address + begin, old_size, begin)
    bench.commit()
    bench.read(address, size)  # so that the translation is known
    for begin in range(0, size, old_size):
        bench.unmap(old, address + begin)
    bench.commit()
    for begin in range(0, size, new_size):
        bench.map(new, address + begin, new_size, begin)
    bench.commit()
    read = bench.read(address, size)
    if np.array_equal(read, comes):
        return None
    what = f"{human(old_size)} remapped as {human(new_size)}"
    stale = int((read == was).sum()) * 4
    if stale:
        seen = f"{what}: {stale:,} of {size:,} bytes are still those of the old page"
        return Outcome(False, seen)
    return _blamed(bench, f"{what}: neither the new page is read nor the old one")


def _remap(bench: Workbench) -> Outcome:
    pairs = [(size, size) for size in SIZES for _ in range(2)]
    pairs += [(2 * MIB, SIZES[1]), (SIZES[1], 2 * MIB)]
    for number, (old, new) in enumerate(pairs):
        wrong = _remapped(bench, old, new, 100 + 2 * number)
        if wrong:
            return wrong
        bench.tidy()
    return Outcome(True, f"{len(pairs)} times the new page was read")


REMAP = Probe(
    "remap",
    "stale-translation",
    "another page put behind addresses that had one, and read",
    "addresses can be used again",
    "addresses keep their old page: a new sequence would read another's. vmkv uses none twice",
    _remap,
)


# ---- aliases ---------------------------------------------------------------------------------


def _diverges(bench: Workbench, size: int, seed: int) -> str:
    """Map memory at two addresses and write through either. Returns what was wrong."""
    buffer, one = bench.place(size)
    two = bench.addresses(size)
    bench.map(buffer, two, size)
    bench.commit()
    for number, (writes, reads) in enumerate(((one, two), (two, one), (one, two))):
        data = pattern(size, seed + number)
        bench.write(writes, data)
        if not bench.holds(writes, data):
            return f"{human(size)}: an address doesn't keep what is written through it"
        if not bench.holds(reads, data):
            way = "second" if number != 1 else "first"
            return f"{human(size)}: the {way} address doesn't show what the other wrote"
    return ""


def _alias(bench: Workbench) -> Outcome:
    for number, size in enumerate(SIZES):
        wrong = _diverges(bench, size, 1000 + 10 * number)
        if wrong:
            return Outcome(False, wrong)
        bench.tidy()
    return Outcome(True, "both addresses show the same, whichever was written through")


ALIAS = Probe(
    "alias",
    "alias-diverges",
    "one page at two addresses, written through either and read through the other",
    "pages can be zeroed through an address of their own",
    "one page at two addresses isn't one page: zeros written through one don't show at the other. "
    "vmkv zeroes pages through the address that uses them",
    _alias,
)
