"""What a replay writes into the rows of its sequences, and how it knows that they still hold it.

The content of a row follows from seed, request, group, layer, tensor and token, so that nothing
has to be kept to check it: every row is a cut out of one bank of random numbers (one per dtype)
that starts anew after a prime number of units. A row that is stale, lies in the wrong place or is
another sequence's begins elsewhere in the bank, and is taken for right once in PERIOD_UNITS times.
"""

from __future__ import annotations

import mmap
from array import array
from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmkv import errors
from vmkv._native import ffi, lib
from vmkv._values import array_pointer
from vmkv.geometry import Geometry, Group, Tensor
from vmkv.sequence import Sequence
from vmkv.span import MemoryView, Span
from vmkv.staging import StagedRows, Staging

Bytes = NDArray[np.uint8]
Lines = NDArray[Any]  # of LINE
Areas = NDArray[Any]  # of AREA

# As in native/python/rows.h.
LINE = np.dtype(
    [(name, "u8") for name in ("address", "bank", "period_bytes", "start", "row_bytes")]
)
AREA = np.dtype([(name, "u8") for name in ("address", "token_bytes", "line_first", "line_count")])

# A prime, so that no distance between tokens that software likes comes round to the same cut.
PERIOD_UNITS = 65521


class Bank:
    """Random numbers of one dtype: period_bytes of them, repeated for stretch_bytes more."""

    def __init__(self, dtype: str, stretch_bytes: int, rng: np.random.Generator) -> None:
        # Cuts begin at elements (for q8_0: at blocks), so that rows hold numbers of their dtype.
        self.unit_bytes = 34 if dtype == "q8_0" else 64
        values = _random_values(dtype, PERIOD_UNITS * self.unit_bytes, rng)
        self.period_bytes = len(values)
        self.data: Bytes = np.resize(values, self.period_bytes + stretch_bytes)

    def cut(self, position: int, rows: int, row_bytes: int) -> Bytes:
        """rows consecutive rows, as a view of shape (rows, row_bytes)."""
        start = position % self.period_bytes
        return self.data[start : start + rows * row_bytes].reshape(rows, row_bytes)


def _random_values(dtype: str, count_bytes: int, rng: np.random.Generator) -> Bytes:
    if dtype in ("f32", "f16", "bf16"):
        size = count_bytes // (4 if dtype == "f32" else 2)
        # Twice the unit range: attention over a thousand tokens then prefers some to others.
        numbers = rng.uniform(-2, 2, size).astype(np.float32)
        if dtype == "f32":
            return numbers.view(np.uint8)
        if dtype == "f16":
            return numbers.astype(np.float16).view(np.uint8)
        return (numbers.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    if dtype == "q8_0":
        blocks = np.empty(count_bytes // 34, dtype=[("scale", "<f2"), ("q", "i1", 32)])
        blocks["scale"] = rng.uniform(0.001, 0.016, len(blocks))
        blocks["q"] = rng.integers(-127, 128, (len(blocks), 32))
        return blocks.view(np.uint8)
    return rng.integers(1, 256, count_bytes, dtype=np.uint8)


class Contents:
    """The banks of a geometry."""

    def __init__(self, geometry: Geometry, seed: int, chunk_tokens: int) -> None:
        self.geometry = geometry
        self.seed = seed
        stretches: dict[str, int] = {}
        for group in geometry.groups:
            rows = 1 if group.policy == "state" else chunk_tokens
            for tensor in group.tensors:
                dtype = tensor.dtype
                stretches[dtype] = max(stretches.get(dtype, 0), rows * tensor.row_bytes)
        rng = np.random.default_rng(seed)
        self.banks = {dtype: Bank(dtype, size, rng) for dtype, size in stretches.items()}


@dataclass
class Part:
    """One tensor of a group in one sequence: its rows in all layers."""

    sequence: Sequence
    group_index: int
    tensor_index: int
    group: Group
    tensor: Tensor
    bank: Bank
    starts: NDArray[np.int64]  # where each layer's token 0 lies in the bank
    addresses: list[int]
    token_bytes: int  # from one row to the next; 0 for a state
    # State groups only: of how many tokens each layer's state is, 0 if it was never written.
    versions: list[int] = field(default_factory=list)
    staging: Staging | None = None  # where the CPU can't reach the rows

    @property
    def is_state(self) -> bool:
        return self.group.policy == "state"

    @property
    def layers(self) -> int:
        return len(self.starts)

    def __str__(self) -> str:
        return f"group {self.group_index}, tensor {self.tensor_index}"

    def array(self, layer: int) -> Bytes:
        """A layer's rows, as they are written: (reserved tokens, row_bytes)."""
        span = self.span(layer)
        shape = (span.reserved_tokens, self.tensor.row_bytes)
        strides = (self.token_bytes, 1)
        view = MemoryView(self.sequence.cache, span.address, shape, strides, np.dtype(np.uint8))
        rows: Bytes = np.asarray(view)
        return rows

    def lines(self, layers: Items[int]) -> Lines:
        """Where rows of some layers come from and go to, for the loop in C."""
        lines = np.zeros(len(layers), LINE)
        lines["address"] = [self.addresses[layer] for layer in layers]
        lines["bank"] = self.bank.data.ctypes.data
        lines["period_bytes"] = self.bank.period_bytes
        lines["start"] = [self._start(layer) for layer in layers]
        lines["row_bytes"] = self.tensor.row_bytes
        return lines

    def _start(self, layer: int) -> int:
        start = int(self.starts[layer])
        return start + self.versions[layer] * self.bank.unit_bytes if self.is_state else start

    def expected(self, layer: int, first: int, last: int) -> Bytes:
        """What rows must hold, without looking at them: (last - first, row_bytes), for at most a
        chunk."""
        row_bytes = self.tensor.row_bytes
        return self.bank.cut(self._start(layer) + first * row_bytes, last - first, row_bytes)

    def read(self, layer: int, first: int, last: int, staging: Staging | None = None) -> Bytes:
        """What rows hold, through the sequence's span: (last - first, bytes without padding).
        staging: read by that, though the CPU could."""
        span = self.span(layer)
        bounds = () if self.is_state else (first, last)
        staging = staging or self.staging
        rows: NDArray[Any] = (
            StagedRows(staging, span, *bounds).read() if staging else span.numpy(*bounds)
        )
        held: Bytes = rows.reshape(last - first, -1).view(np.uint8)
        return held

    def live_rows(self, layer: int) -> tuple[int, int]:
        """The rows of a layer that there are: those from first_token to the sequence's length, or
        the one row of a state."""
        if self.is_state:
            return 0, 1
        span = self.span(layer)
        return span.first_token, span.live_tokens

    def span(self, layer: int) -> Span:
        return self.sequence.span(layer, self.tensor_index, group=self.group_index)


def map_sequence(
    contents: Contents,
    sequence: Sequence,
    request: int,
    cuts: int = 0,
    staging: Staging | None = None,
) -> list[Part]:
    """All parts of a sequence that serves the request of that number, in order of groups. cuts
    numbers the sequences that it has one after the other; through staging the rows are reached, if
    the CPU can't do that."""
    # Drawn by request, so that contents don't depend on the order of admission.
    rng = np.random.default_rng([contents.seed, request, cuts])
    parts = []
    for group_index, group in enumerate(contents.geometry.groups):
        for tensor_index, tensor in enumerate(group.tensors):
            bank = contents.banks[tensor.dtype]
            count = len(group.layers)
            spans = [sequence.span(i, tensor_index, group=group_index) for i in range(count)]
            part = Part(
                sequence=sequence,
                group_index=group_index,
                tensor_index=tensor_index,
                group=group,
                tensor=tensor,
                bank=bank,
                starts=rng.integers(0, PERIOD_UNITS, count) * bank.unit_bytes,
                addresses=[span.address for span in spans],
                token_bytes=spans[0].token_stride,
                versions=[0] * count if group.policy == "state" else [],
                staging=staging,
            )
            parts.append(part)
    return parts


class Floor:
    """How fast writing could be: what is written is written again by a plain loop in C, row by row,
    into newly mapped memory of its own, and over that again.

    Attributes:
        seconds: that the loop took.
    """

    def __init__(self, memory_bytes: int) -> None:
        """With room for so much memory."""
        self.seconds = 0.0
        # What a memfd is made of, too.
        self._memory = np.frombuffer(mmap.mmap(-1, memory_bytes), np.uint8)
        self._at = ffi.new("uint64_t *")
        self._written = array("Q")
        self._written_bytes = 0
        # What that has the addresses of has to stay.
        self._lines: dict[int, Lines] = {}

    def add(self, lines: Lines, first: int, last: int) -> None:
        """Rows [first, last) of lines were written; neither lines nor banks change any more."""
        address = lines.ctypes.data
        self._lines[address] = lines
        self._written.extend((address, len(lines), first, last))
        self._written_bytes += int(lines["row_bytes"].sum()) * (last - first)

    def run(self, memory_bytes: int, least_bytes: int = 0) -> None:
        """Write what was added since the last time, if it is so much at least; memory_bytes of the
        memory are used."""
        if self._written_bytes < max(least_bytes, 1):
            return
        ns = ffi.new("uint64_t *")
        code = lib.vmkv_rows_floor(
            ffi.cast("struct vmkv_rows_written *", self._written.buffer_info()[0]),
            len(self._written) // 4,
            self._memory.ctypes.data,
            min(memory_bytes, len(self._memory)),
            self._at,
            ns,
        )
        if code < 0:
            errors.fail(code, "there is too little memory for a row of the plain loop")
        self.seconds += ns[0] / 1e9
        self._written, self._written_bytes = array("Q"), 0
        self._lines.clear()


class Writer:
    """Writes the rows of a sequence."""

    def __init__(self, parts: list[Part], floor: Floor | None = None) -> None:
        """Of parts that are all of a sequence that is empty yet."""
        self.parts = parts
        self.floor = floor
        self._staging = parts[0].staging
        self._states = [part for part in parts if part.is_state]
        cache = parts[0].sequence.cache
        self._page_bytes = cache.info.page_bytes
        growing = [part for part in parts if not part.is_state]
        self._lines = np.concatenate(
            [np.zeros(0, LINE), *(part.lines(range(part.layers)) for part in growing)]
        )
        self._areas = _areas(growing, interleaved=cache.layout == "token")
        self._token_bytes = int(self._lines["row_bytes"].sum())
        self._warm_tokens = _warm_tokens(growing[0]) if growing else 0

    def write(self, first: int, last: int) -> int:
        """Write the rows of tokens [first, last), at most a chunk of them; returns how many
        bytes."""
        written = self._token_bytes * (last - first)
        if len(self._lines):
            self._write(self._areas, self._lines, first, last, self._warm_tokens)
        for part in self._states:
            written += self._write_state(part, last)
        if self._staging:
            self._staging.flush()
        return written

    def _write_state(self, part: Part, tokens: int) -> int:
        """A state is written in whole at the first step; later steps rewrite one layer in turn, for
        a model's state is as large as thousands of rows."""
        layers = range(part.layers) if not part.versions[0] else [tokens % part.layers]
        for layer in layers:
            part.versions[layer] = tokens
        lines = part.lines(layers)
        areas = np.zeros(len(layers), AREA)
        areas["address"], areas["line_count"] = lines["address"], 1
        areas["line_first"] = np.arange(len(layers))
        self._write(areas, lines, 0, 1, 0)
        return len(layers) * part.tensor.row_bytes

    def _write(self, areas: Areas, lines: Lines, first: int, last: int, warm_tokens: int) -> None:
        if self._staging:
            self._write_staged(self._staging, areas, lines, first, last)
        else:
            lib.vmkv_rows_write(
                array_pointer(areas, "struct vmkv_rows_area *"),
                len(areas),
                array_pointer(lines, "struct vmkv_rows_line *"),
                first,
                last,
                self._page_bytes,
                warm_tokens,
            )
        if self.floor:
            self.floor.add(lines, first, last)

    def _write_staged(
        self, staging: Staging, areas: Areas, lines: Lines, first: int, last: int
    ) -> None:
        """Area by area, through an array of the same form."""
        for area in areas:
            begin, count = int(area["line_first"]), int(area["line_count"])
            own = lines[begin : begin + count].copy()
            token_bytes = int(area["token_bytes"])
            at = int(area["address"]) + first * token_bytes
            size = (last - first) * token_bytes or int(own["row_bytes"].max())
            rows = np.zeros(size, np.uint8)
            moved = np.array([area])
            moved["line_first"] = 0
            for records in (moved, own):
                records["address"] = [
                    int(old) - at + rows.ctypes.data for old in records["address"]
                ]
            lib.vmkv_rows_write(
                array_pointer(moved, "struct vmkv_rows_area *"),
                1,
                array_pointer(own, "struct vmkv_rows_line *"),
                first,
                last,
                self._page_bytes,
                last,  # all of it has memory
            )
            staging.write(at, rows)


def _areas(parts: list[Part], interleaved: bool) -> Areas:
    """The memory of the lines of parts: one area a group, or one a line."""
    counts: list[tuple[int, int, int]] = []  # address of token 0, token_bytes, lines
    last_group = -1
    for part in parts:
        if interleaved and part.group_index == last_group:
            address, token_bytes, count = counts[-1]
            low = min(address, *part.addresses)
            counts[-1] = (low, token_bytes, count + part.layers)
        elif interleaved:
            counts.append((min(part.addresses), part.token_bytes, part.layers))
        else:
            counts += [(address, part.token_bytes, 1) for address in part.addresses]
        last_group = part.group_index
    areas = np.zeros(len(counts), AREA)
    if counts:
        areas["address"], areas["token_bytes"], areas["line_count"] = zip(*counts, strict=True)
        areas["line_first"][1:] = np.cumsum(areas["line_count"])[:-1]
    return areas


def _warm_tokens(part: Part) -> int:
    """Tokens that the first layer has memory for already, as it is kept warm."""
    mappings = part.sequence.mappings(0, part.tensor_index, part.group_index)
    end = part.addresses[0]
    for mapping in mappings:
        if mapping.address != end:
            break
        end += mapping.bytes
    return (end - part.addresses[0]) // part.token_bytes
