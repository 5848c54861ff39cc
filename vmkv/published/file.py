"""A published file, opened with no trust in it: whatever it says is checked before it is used."""

from __future__ import annotations

import os
import stat
import struct
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vmkv._closing import Closing
from vmkv.errors import InvalidError
from vmkv.published import layout
from vmkv.published.layout import Array
from vmkv.published.processes import Process
from vmkv.published.words import printable
from vmkv.safety import modes_of

# Far beyond any cache: 2^28 pages, 64 bytes each. A greater file is no cache's.
FILE_BYTES_MAX = 1 << 34
# What is copied in one go, a slab's pieces or all of another section: 2^20 slots take 200 MB.
COPY_BYTES_MAX = 1 << 29
SECTIONS_MAX = 1 << 10
SLOTS_MAX = 1 << 20
PLACES_MAX = 1 << 18
_ADDRESSES_END = 1 << 64
# What lies between two sections is rather read than skipped if it is less.
_GAP_BYTES = 4096
_EPOCH_OFFSET = layout.offset("header", "epoch")
_EPOCH_AND_BEAT = struct.Struct("<QQ")
assert layout.offset("header", "beat_ns") == _EPOCH_OFFSET + 8


class PublishedError(InvalidError):
    """A file that no cache can have written, or that this version can't read."""


@dataclass(frozen=True)
class Header:
    """What a cache is, and whose: nothing of it changes.

    Attributes:
        process: whose it is.
        program: the process's name.
        uid: its user.
        created_ns: CLOCK_MONOTONIC; created_realtime_ns: the same moment by the calendar.
        device: as vmkv.open takes it; driver: "host", "amdgpu" or "emulated"; pci_id: of the card,
            "" if there is none or it is unknown.
        safe_modes: those in force.
        tag: the top 20 bits of the cache's sequences.
        layout: "layer" or "token".
        page_bytes, slab_bytes: physical; reserved_bytes: virtual.
        bytes_per_token, fixed_bytes: live bytes of a token and of a sequence's states.
        slab_pages: pages of a whole slab; stretch_pages: of its parts.
        place_bits: how many bits the numbers in the place of a piece have.
        zero: whether memory from another sequence reads as zero.
    """

    process: Process
    program: str
    uid: int
    created_ns: int
    created_realtime_ns: int
    device: str
    driver: str
    pci_id: str
    safe_modes: tuple[str, ...]
    wait_after_map_us: int
    tag: int
    layout: str
    page_bytes: int
    slab_bytes: int
    reserved_bytes: int
    bytes_per_token: int
    fixed_bytes: int
    slot_count: int
    max_slots: int
    max_tokens: int
    read_align_tokens: int
    slab_pages: int
    stretch_pages: int
    place_bits: tuple[int, int, int, int]
    zero: bool
    library: str


@dataclass(frozen=True)
class Section:
    """Where the entries of one kind lie: count x versions x entry_bytes from offset on."""

    name: str
    versions: int
    offset: int
    entry_bytes: int
    count: int

    @property
    def end(self) -> int:
        """The byte behind the last entry."""
        return self.offset + self.count * self.versions * self.entry_bytes

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """Of a version of an entry; a newer writer's are longer than ours."""
        return layout.widened(layout.dtype(self.name), self.entry_bytes)


def _offset(section: Section) -> int:
    return section.offset


class Copy(NamedTuple):
    """So many entries as they were copied, with all their versions, from data[offset] on."""

    section: Section
    data: bytes
    offset: int
    entries: int


class PublishedFile(Closing):
    """An open file whose header and table of sections make sense. A context manager.

    Every read goes to memory of our own: a file that is cut short meanwhile is an error, no signal.

    Attributes:
        name: what errors call it.
        header: what is constant.
        groups, regions, places: the geometry, arrays of the C structs.
    """

    def __init__(self, name: str, descriptor: int) -> None:
        self.name = name
        self._descriptor = descriptor
        try:
            self._size = os.fstat(descriptor).st_size
            self._raw = self._read_header()
            self._sections = self._read_sections()
            self._runs_of: dict[tuple[str, ...], list[list[Section]]] = {}
            self.header = self._check_header()
            self.groups = self._constant("group")
            self.regions = self._constant("region")
            self.places = self._constant("place")
            self._check_counts()
            self._check_geometry()
        except BaseException:
            os.close(descriptor)
            raise

    @classmethod
    def open(cls, path: str | Path, directory: int | None = None) -> PublishedFile:
        """Open a file by its name in an open directory, or by its path.

        Raises:
            PublishedError: it is not a regular file of this user's alone, or not a published one.
            FileNotFoundError, OSError.
        """
        name = os.fspath(path)
        # A FIFO would wait for its writer for ever without O_NONBLOCK.
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
        try:
            found = os.stat(name, dir_fd=directory, follow_symlinks=False)
            # Opening a device can do something by itself, so what it is is asked before, too.
            _check_kind(name, found)
            descriptor = os.open(name, flags, dir_fd=directory)
        except ValueError as error:
            raise PublishedError(f"{name!r} is no file's name: {error}") from None
        try:
            _check_kind(name, os.fstat(descriptor))
        except BaseException:
            os.close(descriptor)
            raise
        return cls(name, descriptor)

    def close(self) -> None:
        """Close it. Nothing happens if it is closed already."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    @property
    def descriptor(self) -> int:
        """Of the open file; -1: it is closed."""
        return self._descriptor

    @property
    def removed(self) -> bool:
        """Whether its name is gone: the cache was destroyed."""
        return os.fstat(self._descriptor).st_nlink == 0

    def check_size(self) -> None:
        """See to it that nothing of it was cut off.

        Raises:
            PublishedError: something was.
        """
        size = os.fstat(self._descriptor).st_size
        if size < self._size:
            raise self.fail(f"it was cut short at byte {size:,}")

    def fail(self, why: str) -> PublishedError:
        """An error with the file's name, to be raised."""
        return PublishedError(f"{self.name}: {why}")

    # ---- reading ----------------------------------------------------------------------------

    def read(self, offset: int, size: int) -> bytes:
        """Bytes of the file.

        Raises:
            PublishedError: it ends before.
        """
        data = os.pread(self._descriptor, size, offset)
        while len(data) < size:
            more = os.pread(self._descriptor, size - len(data), offset + len(data))
            if not more:
                raise self.fail(f"it was cut short at byte {offset + len(data):,}")
            data += more
        return data

    def read_epoch(self) -> tuple[int, int]:
        """The header's epoch and beat_ns, as they are now."""
        epoch, beat_ns = _EPOCH_AND_BEAT.unpack(self.read(_EPOCH_OFFSET, _EPOCH_AND_BEAT.size))
        return epoch, beat_ns

    def section(self, name: str) -> Section:
        """Where the entries of one kind lie."""
        return self._sections[name]

    def read_entries(self, name: str, first: int = 0, count: int | None = None) -> Array:
        """Entries [first, first + count), all by default, of a section with one version."""
        copy = self.copy_entries(name, first, count)
        assert copy.section.versions == 1
        return np.frombuffer(copy.data, copy.section.dtype)

    def copy_entries(self, name: str, first: int = 0, count: int | None = None) -> Copy:
        """Entries [first, first + count) of a section, all by default, with all their versions."""
        section = self._sections[name]
        count = section.count - first if count is None else count
        assert 0 <= first <= first + count <= section.count
        step = section.versions * section.entry_bytes
        return Copy(section, self.read(section.offset + first * step, count * step), 0, count)

    def copy(self, *names: str) -> list[Copy]:
        """All entries of some sections. Those that lie close together are read at once, in the
        order that they lie in."""
        found: dict[str, Copy] = {}
        for run in self._runs(names):
            begin = run[0].offset
            data = self.read(begin, run[-1].end - begin)
            for section in run:
                found[section.name] = Copy(section, data, section.offset - begin, section.count)
        return [found[name] for name in names]

    def _runs(self, names: tuple[str, ...]) -> list[list[Section]]:
        """Sections that are read at once."""
        if names not in self._runs_of:
            runs: list[list[Section]] = []
            for section in sorted((self._sections[name] for name in names), key=_offset):
                if runs and 0 <= section.offset - runs[-1][-1].end < _GAP_BYTES:
                    runs[-1].append(section)
                else:
                    runs.append([section])
            self._runs_of[names] = runs
        return self._runs_of[names]

    # ---- checks -----------------------------------------------------------------------------

    def _read_header(self) -> Array:
        kind = layout.dtype("header")
        if self._size < kind.itemsize:
            raise self.fail(
                f"it has {self._size:,} bytes, less than a header: damaged, or no cache's"
            )
        if self._size > FILE_BYTES_MAX:
            raise self.fail(f"it has {self._size:,} bytes, more than any cache's")
        header: Array = np.frombuffer(self.read(0, kind.itemsize), kind)[0]
        if int(header["magic"]) != layout.MAGIC:
            raise self.fail("it doesn't begin as a cache's file does: damaged, or no cache's")
        if int(header["version_major"]) != layout.MAJOR:
            raise self.fail(
                f"it has format {header['version_major']}.{header['version_minor']}, and this "
                f"vmkv reads format {layout.MAJOR}: use the vmkv that the engine has"
            )
        if not kind.itemsize <= int(header["header_bytes"]) <= self._size:
            raise self._damaged(f"a header of {header['header_bytes']:,} bytes")
        if int(header["file_bytes"]) != self._size:
            raise self.fail(
                f"it has {self._size:,} bytes and should have {header['file_bytes']:,}: damaged"
            )
        return header

    def _damaged(self, what: str) -> PublishedError:
        return self.fail(f"damaged: it tells of {what}")

    def _read_sections(self) -> dict[str, Section]:
        kind = layout.dtype("section")
        count, step = int(self._raw["section_count"]), int(self._raw["section_bytes"])
        first = int(self._raw["header_bytes"])
        if not (kind.itemsize <= step <= 4096 and count <= SECTIONS_MAX):
            raise self._damaged(f"{count:,} sections, {step:,} bytes each in their table")
        if first + count * step > self._size:
            raise self._damaged("a table of sections beyond its end")
        table = self.read(first, count * step)
        sections: dict[str, Section] = {}
        for index in range(count):
            entry = np.frombuffer(table, kind, 1, index * step)[0]
            if int(entry["id"]) not in layout.SECTIONS:
                continue
            section = self._check_section(entry)
            if section.name in sections:
                raise self._damaged(f"two sections of {section.name} entries")
            sections[section.name] = section
        missing = {name for name, _ in layout.SECTIONS.values()} - set(sections)
        if missing:
            raise self.fail(f"damaged: it has no section of {min(missing)} entries")
        return sections

    def _check_section(self, entry: Array) -> Section:
        name, versions = layout.SECTIONS[int(entry["id"])]
        numbers = [int(entry[field]) for field in ("versions", "offset", "entry_bytes", "count")]
        section = Section(name, *numbers)
        if section.versions != versions:
            raise self._damaged(f"{section.versions:,} versions of each {name} entry")
        if not layout.dtype(name).itemsize <= section.entry_bytes <= 1 << 16:
            raise self._damaged(f"{name} entries of {section.entry_bytes:,} bytes")
        if section.entry_bytes % 8 or section.offset % 64:
            raise self._damaged(f"{name} entries at byte {section.offset:,}, which none lie at")
        if section.end > self._size:
            raise self._damaged(f"{section.count:,} {name} entries, which reach beyond its end")
        if name != "piece" and section.end - section.offset > COPY_BYTES_MAX:
            raise self._damaged(f"{section.count:,} {name} entries, more than any cache's")
        return section

    def _constant(self, name: str) -> Array:
        if not 1 <= self._sections[name].count <= PLACES_MAX:
            raise self._damaged(f"{self._sections[name].count:,} {name} entries")
        return self.read_entries(name)

    def _check_header(self) -> Header:
        raw = self._raw
        names = [name for name in raw.dtype.names or () if raw[name].dtype.kind == "u"]
        number = {name: int(raw[name]) for name in names if not raw[name].shape}
        page, slab_pages = number["page_bytes"], number["slab_pages"]
        if page == 0 or page & (page - 1) or page > 1 << 21:
            raise self._damaged(f"pages of {page:,} bytes")
        if slab_pages == 0 or slab_pages * page != number["slab_bytes"]:
            raise self._damaged(f"slabs of {number['slab_bytes']:,} bytes in {slab_pages:,} pages")
        stretch_pages = number["stretch_pages"]
        if stretch_pages == 0 or slab_pages % stretch_pages:
            raise self._damaged(f"slabs of {slab_pages:,} pages in parts of {stretch_pages:,}")
        kinds = ("pages_bits", "page_bits", "region_bits", "slot_bits")
        pages_bits, page_bits, region_bits, slot_bits = place_bits = tuple(
            number[kind] for kind in kinds
        )
        if max(place_bits) > 32 or sum(place_bits) > 63:
            raise self._damaged(f"places of {sum(place_bits)} bits")
        if number["layout"] not in layout.LAYOUTS:
            raise self._damaged(f"a layout with number {number['layout']}")
        if not 1 <= number["slot_count"] <= SLOTS_MAX:
            raise self._damaged(f"{number['slot_count']:,} slots")
        if not 1 <= number["pid"] < 1 << 31:
            raise self._damaged(f"a process with number {number['pid']:,}")
        process = Process(
            number["pid"], number["start_ticks"], _text(raw["boot_id"]), number["pid_namespace"]
        )
        same = (
            "uid", "created_ns", "created_realtime_ns", "wait_after_map_us", "tag",
            "page_bytes", "slab_bytes", "reserved_bytes", "bytes_per_token", "fixed_bytes",
            "slot_count", "max_slots", "max_tokens", "read_align_tokens", "slab_pages",
            "stretch_pages",
        )  # fmt: skip
        return Header(
            process=process,
            program=_text(raw["program"]),
            device=_text(raw["device"]),
            driver=_text(raw["driver"]),
            pci_id=_text(raw["pci_id"]),
            safe_modes=modes_of(number["safe"]),
            layout=layout.LAYOUTS[number["layout"]],
            place_bits=(pages_bits, page_bits, region_bits, slot_bits),
            zero=number["zero"] != 0,
            library=".".join(str(number["library"] >> shift & 0xFF) for shift in (16, 8, 0)),
            **{name: number[name] for name in same},
        )

    def _check_counts(self) -> None:
        counts = {name: section.count for name, section in self._sections.items()}
        if counts["state"] != 1 or counts["times"] < len(layout.CALLS):
            raise self._damaged(f"{counts['state']:,} states, {counts['times']:,} histograms")
        if counts["event"] != layout.EVENTS:
            raise self._damaged(f"a ring of {counts['event']:,} events")
        for name in ("live", "slot"):
            if counts[name] != self.header.slot_count:
                raise self._damaged(f"{counts[name]:,} {name} entries of as many slots")
        if self.header.slab_pages * self._sections["piece"].entry_bytes > COPY_BYTES_MAX:
            raise self._damaged(f"slabs of {self.header.slab_pages:,} pages, more than any cache's")
        if counts["piece"] % self.header.slab_pages:
            raise self._damaged(f"{counts['piece']:,} pages, which are no whole slabs")
        if counts["piece"] > counts["slab"] * self.header.slab_pages:
            raise self._damaged(f"{counts['piece']:,} pages in {counts['slab']:,} slabs")

    def _check_geometry(self) -> None:
        for group in self.groups:
            first, layers, tensors = (
                int(group[field]) for field in ("first_place", "layers", "tensors")
            )
            if int(group["policy"]) not in layout.POLICIES or not layers or not tensors:
                raise self._damaged("a group of layers that can't be")
            if first + layers * tensors > len(self.places):
                raise self._damaged("a group with more tensors than there are")
        for region in self.regions:
            base, stride = int(region["base"]), int(region["slot_stride"])
            if int(region["group"]) >= len(self.groups):
                raise self._damaged("a region of no group")
            if not stride or stride % self.header.page_bytes or stride >> 32 > 1 << 20:
                raise self._damaged(f"slots of {stride:,} bytes of addresses")
            if base + self.header.slot_count * stride > _ADDRESSES_END:
                raise self._damaged(f"addresses beyond the end of 64 bits, from {base:#x} on")
            if max(int(region["token_bytes"]), int(region["fixed_bytes"])) > stride:
                raise self._damaged("tokens that are longer than a slot's addresses")
        for place in self.places:
            if int(place["region"]) >= len(self.regions) or int(place["group"]) >= len(self.groups):
                raise self._damaged("a tensor in no region")
            group = self.groups[int(place["group"])]
            if place["layer"] >= group["layers"] or place["tensor"] >= group["tensors"]:
                raise self._damaged("a tensor that its group hasn't")
            if int(self.regions[int(place["region"])]["group"]) != int(place["group"]):
                raise self._damaged("a tensor in another group's region")
            stride = int(self.regions[int(place["region"])]["slot_stride"])
            if int(place["offset"]) + int(place["row_bytes"]) > stride:
                raise self._damaged("a tensor outside its region")


def _check_kind(name: str, found: os.stat_result) -> None:
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a FIFO",
        stat.S_IFDIR: "a directory",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    kind = kinds.get(stat.S_IFMT(found.st_mode))
    if kind is not None or not stat.S_ISREG(found.st_mode):
        raise PublishedError(f"{name}: it is {kind or 'no regular file'}, and is not read")
    if found.st_uid != os.getuid():
        raise PublishedError(f"{name}: it is owned by user {found.st_uid}, and is not read")
    if stat.S_IMODE(found.st_mode) & 0o022:
        raise PublishedError(f"{name}: others may write to it, and it is not read")


def _text(value: Array) -> str:
    return printable(bytes(value).split(b"\0")[0].decode(errors="replace"))
