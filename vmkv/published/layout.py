"""The structs of a published file, as the C header has them: nothing here says it a second time."""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from vmkv._native import ffi, lib

Array = npt.NDArray[Any]

_PREFIX = "struct vmkv_published_"


@cache
def dtype(name: str) -> np.dtype[Any]:
    """The numpy dtype of `struct vmkv_published_NAME`: fields, offsets and size are the compiler's.

    >>> dtype("piece").names
    ('stamp', 'place')
    """
    return _dtype(_PREFIX + name)


def _dtype(name: str) -> np.dtype[Any]:
    kind = ffi.typeof(name)
    return np.dtype(
        {
            "names": [field for field, _ in kind.fields],
            "formats": [_format(value.type) for _, value in kind.fields],
            "offsets": [value.offset for _, value in kind.fields],
            "itemsize": ffi.sizeof(kind),
        }
    )


@cache
def offset(name: str, field: str) -> int:
    """Where a field lies in `struct vmkv_published_NAME`."""
    return int(ffi.offsetof(_PREFIX + name, field))


@cache
def fields(name: str) -> tuple[str, ...]:
    """The names of its fields."""
    return tuple(field for field, _ in ffi.typeof(_PREFIX + name).fields)


@cache
def packed(name: str) -> struct.Struct:
    """Unpacks a `struct vmkv_published_NAME` that holds nothing but numbers, which takes a fraction
    of numpy's time for a single one."""
    kind = ffi.typeof(_PREFIX + name)
    assert sum(ffi.sizeof(field.type) for _, field in kind.fields) == ffi.sizeof(kind)
    letters = {4: "I", 8: "Q"}
    return struct.Struct("<" + "".join(letters[ffi.sizeof(value.type)] for _, value in kind.fields))


def _format(kind: Any) -> Any:
    if kind.kind == "array":
        if kind.item.cname == "char":
            return f"S{kind.length}"
        return (_format(kind.item), (kind.length,))
    return f"<u{ffi.sizeof(kind)}"


def widened(kind: np.dtype[Any], itemsize: int) -> np.dtype[Any]:
    """The same fields in longer entries: those of a newer writer."""
    fields = dict(kind.fields or {})
    return np.dtype(
        {
            "names": list(fields),
            "formats": [field[0] for field in fields.values()],
            "offsets": [field[1] for field in fields.values()],
            "itemsize": itemsize,
        }
    )


def names(enum: str, prefix: str) -> dict[int, str]:
    """Numbers and names of `enum vmkv_published_ENUM`, lower case, without the prefix they share.

    >>> names("slot_state", "SLOT_")
    {0: 'free', 1: 'open', 2: 'retiring'}
    """
    elements = ffi.typeof(f"enum vmkv_published_{enum}").elements
    return {
        number: name.removeprefix("VMKV_PUBLISHED_" + prefix).lower()
        for number, name in sorted(elements.items())
    }


MAGIC = int(lib.VMKV_PUBLISHED_MAGIC)
MAJOR = int(lib.VMKV_PUBLISHED_MAJOR)
MINOR = int(lib.VMKV_PUBLISHED_MINOR)
EVENTS = int(lib.VMKV_PUBLISHED_EVENTS)
BUCKETS = int(lib.VMKV_PUBLISHED_BUCKETS)

# Sections: the struct of an entry, and how many versions of it there are.
SECTIONS = {
    int(lib.VMKV_PUBLISHED_STATE): ("state", 2),
    int(lib.VMKV_PUBLISHED_LIVES): ("live", 2),
    int(lib.VMKV_PUBLISHED_SLOTS): ("slot", 2),
    int(lib.VMKV_PUBLISHED_PIECES): ("piece", 1),
    int(lib.VMKV_PUBLISHED_SLABS): ("slab", 2),
    int(lib.VMKV_PUBLISHED_RING): ("event", 1),
    int(lib.VMKV_PUBLISHED_TIMES): ("times", 1),
    int(lib.VMKV_PUBLISHED_GROUPS): ("group", 1),
    int(lib.VMKV_PUBLISHED_REGIONS): ("region", 1),
    int(lib.VMKV_PUBLISHED_PLACES): ("place", 1),
}

# A piece as readers have it: not packed.
MAPPING = _dtype("struct vmkv_pick_piece")

SLOT_OPEN = int(lib.VMKV_PUBLISHED_SLOT_OPEN)
PIECE_MAPPED = int(lib.VMKV_PUBLISHED_PIECE_MAPPED)
PIECE_WARM = int(lib.VMKV_PUBLISHED_PIECE_WARM)
PIECE_RETIRING = int(lib.VMKV_PUBLISHED_PIECE_RETIRING)
PIECE_UNMAPPING = int(lib.VMKV_PUBLISHED_PIECE_UNMAPPING)

SLOT_STATES = names("slot_state", "SLOT_")
PIECE_STATES = names("piece_state", "PIECE_")
EVENT_KINDS = names("event_kind", "EVENT_")
CALLS = {
    int(lib.VMKV_PUBLISHED_CALL_MAP): "map",
    int(lib.VMKV_PUBLISHED_CALL_UNMAP): "unmap",
    int(lib.VMKV_PUBLISHED_CALL_FILL): "fill",
}
LAYOUTS = {int(lib.VMKV_LAYOUT_LAYER): "layer", int(lib.VMKV_LAYOUT_TOKEN): "token"}
POLICIES = {
    int(lib.VMKV_POLICY_FULL): "full",
    int(lib.VMKV_POLICY_WINDOW): "window",
    int(lib.VMKV_POLICY_STATE): "state",
}
