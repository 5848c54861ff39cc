"""Probes of memory: whether it is clean, where it was asked for, and stays there."""

from __future__ import annotations

from vmkv.doctor.probe import Outcome, Probe
from vmkv.doctor.workbench import MIB, PAGE_BYTES, PLACED_BYTES, Workbench, pattern
from vmkv.sizes import human

_ZERO_BYTES = 4 * MIB
_RESIDENT_COUNT = 16


# ---- zeros -----------------------------------------------------------------------------------


def _zeroing(bench: Workbench) -> Outcome:
    for seed in range(3):
        buffer, address = bench.place(_ZERO_BYTES)
        words = bench.read(address, _ZERO_BYTES)
        if words.any():
            dirty = int((words != 0).sum()) * 4
            return Outcome(False, f"{human(dirty)} of {human(_ZERO_BYTES)} new VRAM wasn't zero")
        bench.write(address, pattern(_ZERO_BYTES, seed))
        bench.free(buffer)
    return Outcome(True, f"{human(_ZERO_BYTES)} read as zero three times, though it was dirty")


ZEROING = Probe(
    "zeroing",
    "dirty-memory",
    "new VRAM that was dirtied before and given back",
    "new memory holds nobody's data",
    "new memory holds what somebody left there",
    _zeroing,
)


def _fill(bench: Workbench) -> Outcome:
    size, hole = 2 * MIB, slice(64 * PAGE_BYTES // 4, 80 * PAGE_BYTES // 4)
    data = pattern(size, 50)
    _, address = bench.place(size)
    bench.write(address, data)
    for begin, end, value in ((hole.start, hole.stop, 0), (0, 1, 7), (size // 4 - 1, size // 4, 9)):
        data[begin:end] = value
        bench.sdma.fill(address + 4 * begin, 4 * (end - begin), value)
    bench.run()
    if bench.holds(address, data):
        return Outcome(True, "what was to be filled is filled, and nothing else")
    return Outcome(False, "a fill wrote too little, or elsewhere")


FILL = Probe(
    "fill",
    "wrong-fill",
    "pages zeroed by the copy engine between others",
    "memory that passes from one sequence to another is clean",
    "memory can't be cleaned before it passes to another sequence",
    _fill,
)


# ---- residency -------------------------------------------------------------------------------


def _residency(bench: Workbench) -> Outcome:
    for _ in range(_RESIDENT_COUNT):
        bench.memory(PLACED_BYTES)
    placed = bench.placed
    if not placed:
        return Outcome(
            None,
            "not tried: no VRAM is free any more",
            "where memory lies is unknown here; vmkv looks for each slab",
            harmless=True,
        )
    if bench.spilled:
        return Outcome(False, f"{bench.spilled} of {placed} lie in GTT, with VRAM free")
    return Outcome(True, f"all {placed} lie in VRAM" if placed > 1 else "the only one lies in VRAM")


RESIDENCY = Probe(
    "residency",
    "silent-gtt",
    "buffers for VRAM, of this and all other probes, against the kernel's counters",
    "memory lies in VRAM where it was asked for",
    "memory for VRAM lies in the system's, where attention over it is several times slower; vmkv "
    "sees that in the usage of the heaps, gives such memory back and asks again",
    _residency,
)
