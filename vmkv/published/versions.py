"""Which of the two versions of an entry counts: the newest that is not beyond a change's number."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from vmkv._native import ffi, lib
from vmkv.published import layout
from vmkv.published.layout import Array

if TYPE_CHECKING:
    from vmkv.published.file import Copy, Header


def newest(copy: Copy, epoch: int) -> tuple[Array, bool]:
    """The version of each entry that counts, and whether one had none."""
    found = np.empty(copy.entries, copy.section.dtype)
    none = lib.vmkv_pick_newest(_entries(copy), epoch, ffi.from_buffer(found))
    return found, none > 0


def mappings(copy: Copy, header: Header, first: int, epoch: int) -> tuple[Array, bool]:
    """Entries of pieces of whole slabs, from number `first` on: what there is at an epoch, as
    `layout.MAPPING`, in order of `phys`; and whether one had no state that counts."""
    found, count = np.empty(copy.entries, layout.MAPPING), ffi.new("uint64_t *")
    pieces = ffi.new(
        "struct vmkv_pick_pieces *",
        [
            ffi.from_buffer(copy.data) + copy.offset, copy.entries, copy.section.entry_bytes, first,
            header.slab_pages, header.stretch_pages, *header.place_bits,
        ],
    )  # fmt: skip
    into = ffi.cast("struct vmkv_pick_piece *", ffi.from_buffer(found))
    none = lib.vmkv_pick_mappings(pieces, epoch, into, count)
    return found[: count[0]], none > 0


def only(copy: Copy, epoch: int) -> dict[str, int] | None:
    """The version that counts of a section's only entry, by name; None if there is none."""
    name, first = copy.section.name, copy.offset
    second = first + int(_between(copy))
    unpacked = (layout.packed(name).unpack_from(copy.data, at) for at in (first, second))
    whole = [numbers for numbers in unpacked if numbers[0] <= epoch]
    return dict(zip(layout.fields(name), max(whole), strict=True)) if whole else None


def _entries(copy: Copy) -> Any:
    first = ffi.from_buffer(copy.data) + copy.offset
    between, size = _between(copy), copy.section.entry_bytes
    stride = size * copy.section.versions
    return ffi.new(
        "struct vmkv_pick_entries *", [first, first + between, stride, copy.entries, size]
    )


def _between(copy: Copy) -> int:
    """From the first version of an entry to its second: this, and the stride, is how they lie."""
    return copy.section.entry_bytes


class Sums(NamedTuple):
    """Of a field of some entries: its sum within 64 bits, the greatest, the bits that are set in
    any, and how many are not 0."""

    sum: int
    most: int
    bits: int
    nonzero: int


def add_up(rows: Array, *fields: str, at: Array | None = None) -> list[Sums]:
    """Of each field; at: only of these entries. Each numpy function that is called but now and then
    costs more than all of this."""
    columns = ffi.new("struct vmkv_pick_column[]", [_column(rows, field) for field in fields])
    if at is not None:
        for column in columns:
            column.index, column.count = ffi.cast("int64_t *", ffi.from_buffer(at)), len(at)
    lib.vmkv_pick_add_up(columns, len(fields))
    return [Sums(one.sum, one.most, one.bits, one.nonzero) for one in columns]


def equal(rows: Array, field: str, number: int) -> Array:
    """Indexes of the entries with that number."""
    found = np.empty(len(rows), np.int64)
    column = ffi.new("struct vmkv_pick_column *", _column(rows, field))
    index = ffi.cast("int64_t *", ffi.from_buffer(found))
    return found[: lib.vmkv_pick_equal(column, number, index)]


def _column(rows: Array, field: str) -> tuple[Any, ...]:
    kind = rows.dtype
    number, offset = kind.fields[field][:2]  # type: ignore[index]
    return ffi.from_buffer(rows), kind.itemsize, offset, number.itemsize, 0, ffi.NULL, len(rows)


def is_same(rows: Array, again: Array) -> bool:
    """Whether two copies are equal, byte for byte."""
    return len(rows) == len(again) and bool((rows.view(np.uint64) == again.view(np.uint64)).all())


def plain(rows: Array) -> Array:
    """The same rows as bytes."""
    return rows.view(f"V{rows.dtype.itemsize}")
