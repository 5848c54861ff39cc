"""Probes that can make a card fault or hang: only when asked for."""

from __future__ import annotations

import numpy as np

from vmkv import errors
from vmkv.doctor.probe import Outcome, Probe
from vmkv.doctor.workbench import MIB, SIZES, Workbench, pattern
from vmkv.sizes import human

_HOLE_BYTES = 2 * MIB


def _unmapped_read(bench: Workbench) -> Outcome:
    """A card that stops at the access, and one that reads something else, are both sound."""
    ways = set()
    for number, size in enumerate(SIZES):
        data = pattern(size, 2000 + number)
        buffer, address = bench.place(size)
        bench.write(address, data)
        bench.unmap(buffer, address)
        bench.commit()
        try:
            words = bench.read(address, size)
        except errors.WaitTimeoutError:
            raise
        except errors.DeviceError:
            ways.add("the engine stopped")
            bench.renew()
        else:
            if np.array_equal(words, data):
                seen = f"{human(size)} that was unmapped could still be read"
                return Outcome(False, seen)
            ways.add("something else was read")
    return Outcome(True, " or ".join(sorted(ways)))


UNMAPPED_READ = Probe(
    "unmapped-read",
    "unmap-ignored",
    "memory read by the copy engine after it was unmapped",
    "memory that is given back can't be reached any more",
    "memory that was unmapped is still reachable, though the kernel says otherwise",
    _unmapped_read,
)


def _hole(bench: Workbench) -> Outcome:
    address = bench.addresses(_HOLE_BYTES)
    try:
        with bench.hole(address, _HOLE_BYTES):
            bench.write(address, pattern(_HOLE_BYTES, 3000))
            kept = bench.read(address, _HOLE_BYTES).any()
    except errors.WaitTimeoutError:
        raise
    except errors.DeviceError as error:
        bench.renew()
        return Outcome(False, f"the copy engine stopped at a hole: {error}")
    if kept:
        return Outcome(False, "a hole (PRT) keeps what is written")
    return Outcome(True, "reads give zeros, writes vanish")


HOLE = Probe(
    "hole",
    "hole-faults",
    "a range without memory (PRT) written and read by the copy engine",
    "the copy engine gets over holes. vmkv makes none",
    "holes aren't safe on this card. vmkv makes none, so nothing depends on it",
    _hole,
)
