"""What a replay writes into the rows of its sequences, and how it knows that they still hold it.

The content of a row follows from seed, request, group, layer, tensor and token, so that nothing
has to be kept to check it: every row is a cut out of one bank of random numbers (one per dtype)
that starts anew after a prime number of units. A row that is stale, lies in the wrong place or is
another sequence's begins elsewhere in the bank, and is taken for right once in PERIOD_UNITS times.
"""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vmkv.geometry import Geometry, Group, Tensor
from vmkv.sequence import Sequence
from vmkv.span import MemoryView, Span

Bytes = NDArray[np.uint8]

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
        self._cuts: dict[int, Bytes] = {}

    def cut(self, position: int, rows: int, row_bytes: int) -> Bytes:
        """rows consecutive rows, as a view of shape (rows, row_bytes)."""
        start = position % self.period_bytes
        return self.data[start : start + rows * row_bytes].reshape(rows, row_bytes)

    def gather(self, positions: NDArray[np.int64], row_bytes: int) -> Bytes:
        """One row at each position, as an array of shape (len(positions), row_bytes)."""
        cuts = self._cuts.get(row_bytes)
        if cuts is None:
            shape = (self.period_bytes, row_bytes)
            cuts = np.lib.stride_tricks.as_strided(self.data, shape, (1, 1), writeable=False)
            self._cuts[row_bytes] = cuts
        rows: Bytes = cuts[positions % self.period_bytes]
        return rows


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


def map_layers(spans: Items[Span]) -> list[tuple[int, Bytes]]:
    """The spans of a tensor's layers as arrays (layers, tokens, row_bytes), each with its first
    layer: one array for all layers if their addresses are evenly spaced, else one a layer."""
    first = spans[0]
    addresses = [span.address for span in spans]
    step = addresses[1] - addresses[0] if len(spans) > 1 else 0
    same = {(span.token_stride, span.row_bytes, span.reserved_tokens) for span in spans}
    even = all(address == addresses[0] + i * step for i, address in enumerate(addresses))
    if even and step >= 0 and len(same) == 1:
        return [(0, _map_rows(first, len(spans), step))]
    return [(layer, _map_rows(span, 1, 0)) for layer, span in enumerate(spans)]


def _map_rows(span: Span, layers: int, layer_stride: int) -> Bytes:
    shape = (layers, span.reserved_tokens, span.row_bytes)
    strides = (layer_stride, span.token_stride, 1)
    view = MemoryView(span.sequence.cache, span.address, shape, strides, np.dtype(np.uint8))
    rows: Bytes = np.asarray(view)
    return rows


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
    blocks: list[tuple[int, Bytes]]
    # State groups only: of how many tokens each layer's state is, 0 if it was never written.
    versions: list[int] = field(default_factory=list)

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
        for first, block in self.blocks:
            if first <= layer < first + len(block):
                rows: Bytes = block[layer - first]
                return rows
        raise IndexError(layer)

    def write(self, first: int, last: int) -> int:
        """Write the rows of tokens [first, last) in all layers; returns how many bytes."""
        if self.is_state:
            return self._write_state(last)
        row_bytes = self.tensor.row_bytes
        if last - first == 1:
            positions = self.starts + first * row_bytes
            for layer, block in self.blocks:
                rows = self.bank.gather(positions[layer : layer + len(block)], row_bytes)
                block[:, first] = rows
        else:
            for layer in range(self.layers):
                self.array(layer)[first:last] = self.expected(layer, first, last)
        return (last - first) * row_bytes * self.layers

    def _write_state(self, tokens: int) -> int:
        """A state is written in whole at the first step; later steps rewrite one layer in turn, for
        a model's state is as large as thousands of rows."""
        layers = range(self.layers) if not self.versions[0] else [tokens % self.layers]
        for layer in layers:
            self.versions[layer] = tokens
            self.array(layer)[:] = self.expected(layer, 0, 1)
        return len(layers) * self.tensor.row_bytes

    def expected(self, layer: int, first: int, last: int) -> Bytes:
        """What rows must hold, without looking at them: (last - first, row_bytes), for at most a
        chunk."""
        start = int(self.starts[layer])
        if self.is_state:
            start += self.versions[layer] * self.bank.unit_bytes
        row_bytes = self.tensor.row_bytes
        return self.bank.cut(start + first * row_bytes, last - first, row_bytes)

    def read(self, layer: int, first: int, last: int) -> Bytes:
        """What rows hold, through the sequence's span: (last - first, bytes without padding)."""
        span = self.span(layer)
        rows: NDArray[Any] = span.numpy() if self.is_state else span.numpy(first, last)
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


def map_sequence(contents: Contents, sequence: Sequence, request: int, cuts: int = 0) -> list[Part]:
    """All parts of a sequence that serves the request of that number, in order of groups. cuts
    numbers the sequences that it has one after the other."""
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
                blocks=map_layers(spans),
                versions=[0] * count if group.policy == "state" else [],
            )
            parts.append(part)
    return parts
