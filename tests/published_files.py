"""Files as a cache publishes them, made without a cache: what is in them is the test's choice."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from vmkv.published import layout, processes

PAGE_BYTES = 1 << 16
SLAB_PAGES = 1024
STRETCH_PAGES = 32
# Bits of the pages, page, region and slot in the place of a piece.
PLACE_BITS = 16, 16, 8, 8
# A piece as a test has it, by the number of its first page: two versions, which are packed when the
# file is written.
PIECE = np.dtype([("epoch", "<u8"), *[(name, "<u4") for name in (
    "state", "pages", "page", "region", "slot"
)]])  # fmt: skip
BASE = 0x7000_0000_0000
STRIDE = 64 << 20
ROW_BYTES = 2048


@dataclass
class Forged:
    """One layer layout with k and v of each layer, and sequences whose memory lies one behind the
    other. Change the arrays, then write it."""

    slots: int = 8
    slabs: int = 2
    layers: int = 2
    epoch: int = 10
    first: tuple[str, ...] = ()  # sections that lie before the others, in this order
    header: Any = field(init=False)
    sections: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        regions = 2 * self.layers
        counts = {
            "state": 1, "live": self.slots, "slot": self.slots, "slab": self.slabs,
            "piece": self.slabs * SLAB_PAGES, "event": layout.EVENTS, "times": 3,
            "group": 1, "region": regions, "place": regions,
        }  # fmt: skip
        self.sections = {
            name: np.zeros((counts[name], versions), layout.dtype(name))
            for name, versions in layout.SECTIONS.values()
        }
        self.sections["piece"] = np.zeros((counts["piece"], 2), PIECE)
        self._describe(regions)
        self._name()
        self._next_page = 0
        state = self.sections["state"][0, 0]
        state["epoch"], state["steps"] = self.epoch, self.epoch
        state["budget_bytes"] = self.slabs * SLAB_PAGES * PAGE_BYTES
        state["slab_bytes"], state["slabs"] = state["budget_bytes"], self.slabs
        state["free_clean_bytes"] = state["slab_bytes"]
        slabs = self.sections["slab"][:, 0]
        slabs["bytes"], slabs["epoch"] = SLAB_PAGES * PAGE_BYTES, 1

    def _name(self) -> None:
        header = self.header = np.zeros((), layout.dtype("header"))
        header["magic"], header["version_major"] = layout.MAGIC, layout.MAJOR
        header["version_minor"] = layout.MINOR
        header["epoch"], header["beat_ns"] = self.epoch, time.monotonic_ns()
        header["pid"], header["uid"] = os.getpid(), os.getuid()
        header["start_ticks"] = processes.read_stat(os.getpid())[1]
        header["pid_namespace"] = processes.own_namespace()
        header["boot_id"] = processes.boot_id().encode()
        header["created_ns"] = time.monotonic_ns()
        header["created_realtime_ns"] = time.time_ns()
        header["program"], header["device"], header["driver"] = b"forged", b"host", b"host"
        header["tag"], header["layout"] = 0xABCDE, 0
        header["page_bytes"], header["slab_pages"] = PAGE_BYTES, SLAB_PAGES
        header["slab_bytes"], header["stretch_pages"] = PAGE_BYTES * SLAB_PAGES, STRETCH_PAGES
        for name, bits in zip(("pages", "page", "region", "slot"), PLACE_BITS, strict=True):
            header[f"{name}_bits"] = bits
        header["reserved_bytes"] = 2 * self.layers * self.slots * STRIDE
        header["bytes_per_token"] = 2 * self.layers * ROW_BYTES
        header["slot_count"], header["max_slots"] = self.slots, self.slots
        header["max_tokens"], header["read_align_tokens"] = STRIDE // ROW_BYTES, 1
        header["zero"] = 1

    def _describe(self, regions: int) -> None:
        group = self.sections["group"][0, 0]
        group["layers"], group["tensors"] = self.layers, 2
        group["token_bytes"] = regions * ROW_BYTES
        for number in range(regions):
            region, place = self.sections["region"][number, 0], self.sections["place"][number, 0]
            region["base"] = BASE + number * self.slots * STRIDE
            region["slot_stride"], region["token_bytes"] = STRIDE, ROW_BYTES
            place["row_bytes"], place["region"] = ROW_BYTES, number
            place["layer"], place["tensor"] = divmod(number, 2)

    def add_sequence(self, slot: int, tokens: int) -> int:
        """An open sequence of so many tokens, with a mapping a span; returns its number."""
        pages = -(-tokens * ROW_BYTES // PAGE_BYTES)
        for region in range(2 * self.layers):
            self.add_piece(slot, region, 0, pages)
        state, live = self.sections["state"][0, 0], self.sections["live"][slot, 0]
        record, seq = self.sections["slot"][slot, 0], 0xABCDE << 44 | 1 << 20 | slot
        record["epoch"], record["seq"], record["state"] = self.epoch, seq, layout.SLOT_OPEN
        record["mapped_tokens"] = record["ready_tokens"] = pages * PAGE_BYTES // ROW_BYTES
        live["epoch"], live["tokens"], live["previous"] = self.epoch, tokens, tokens
        live["step"] = self.epoch
        state["sequences"] += 1
        state["live_bytes"] += tokens * 2 * self.layers * ROW_BYTES
        return seq

    def add_piece(self, slot: int, region: int, page: int, pages: int) -> int:
        """A mapping; returns the number of its first physical page."""
        if self._next_page % SLAB_PAGES + pages > SLAB_PAGES:
            self._next_page = -(-self._next_page // SLAB_PAGES) * SLAB_PAGES
        first = self._next_page
        self._next_page += pages
        piece = self.sections["piece"][first, 0]
        piece["epoch"], piece["slot"], piece["region"] = self.epoch, slot, region
        piece["page"], piece["pages"], piece["state"] = page, pages, layout.PIECE_MAPPED
        slab, state = self.sections["slab"][first // SLAB_PAGES, 0], self.sections["state"][0, 0]
        for record in (slab, self.sections["slot"][slot, 0]):
            record["mapped_pages"] += pages
            record["pieces"] += 1
            record["epoch"] = self.epoch
        state["mapped_bytes"] += pages * PAGE_BYTES
        state["free_clean_bytes"] -= pages * PAGE_BYTES
        state["mappings"] += 1
        return first

    def _packed_pieces(self) -> Any:
        """The section of pieces, as the file has it."""
        versions = np.take_along_axis(
            self.sections["piece"], np.argsort(self.sections["piece"]["epoch"], axis=1), axis=1
        )
        before, now = versions[:, 0], versions[:, 1]
        packed = np.zeros(len(now), layout.dtype("piece"))
        age = np.minimum(now["epoch"] - before["epoch"], 4095)
        state = now["state"].astype(np.uint64) | before["state"].astype(np.uint64) << np.uint64(3)
        packed["stamp"] = now["epoch"] << np.uint64(18) | age << np.uint64(6) | state
        told, shift = np.where(now["pages"] > 0, now, before), 0
        for name, bits in zip(("pages", "page", "region", "slot"), PLACE_BITS, strict=True):
            packed["place"] |= told[name].astype(np.uint64) << np.uint64(shift)
            shift += bits
        page = np.arange(len(packed)) % SLAB_PAGES
        inside = page % STRETCH_PAGES * (SLAB_PAGES // STRETCH_PAGES) + page // STRETCH_PAGES
        entries = np.zeros((len(packed), 1), packed.dtype)
        entries[np.arange(len(packed)) - page + inside, 0] = packed
        return entries

    def _place(self, kind: tuple[int, tuple[str, int]]) -> int:
        name = kind[1][0]
        return self.first.index(name) if name in self.first else len(self.first)

    def to_bytes(self) -> bytes:
        """The whole file."""
        table = np.zeros(len(layout.SECTIONS), layout.dtype("section"))
        offset = -(-(self.header.nbytes + table.nbytes) // 64) * 64
        parts = []
        kinds = sorted(layout.SECTIONS.items(), key=self._place)
        for entry, (number, (name, versions)) in zip(table, kinds, strict=True):
            rows = self.sections[name] if name != "piece" else self._packed_pieces()
            entry["id"], entry["versions"], entry["offset"] = number, versions, offset
            entry["entry_bytes"], entry["count"] = rows.dtype.itemsize, len(rows)
            parts.append((offset, rows.tobytes()))
            offset = -(-(offset + rows.nbytes) // 64) * 64
        header = self.header.copy()
        header["header_bytes"], header["section_count"] = header.nbytes, len(table)
        header["section_bytes"], header["file_bytes"] = table.dtype.itemsize, offset
        data = bytearray(offset)
        data[: header.nbytes] = header.tobytes()
        data[header.nbytes : header.nbytes + table.nbytes] = table.tobytes()
        for start, part in parts:
            data[start : start + len(part)] = part
        return bytes(data)

    def write(self, directory: Path, data: bytes | None = None) -> Path:
        """Write it into a directory, under the name that the process's cache would have."""
        directory.mkdir(mode=0o700, exist_ok=True)
        path = directory / f"{int(self.header['pid'])}-{int(self.header['tag']):05x}.kv"
        path.write_bytes(self.to_bytes() if data is None else data)
        path.chmod(0o600)
        return path
