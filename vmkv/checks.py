"""Reading back what a replay wrote: rows, and attention over them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from vmkv.geometry import Tensor
from vmkv.rows import Bytes, Part
from vmkv.staging import Staging

Floats = NDArray[np.float32]

_FAILURES_TOLD = 10

# The copy engine reads again what every so many checks of rows have read.
_CHECKS_PER_COPY = 8

# What attention reads of one head at most, so that its copies as float32 stay small however long
# sequences are: 16,384 tokens of 128 f16 numbers.
_HEAD_BYTES_MAX = 4 << 20

# dtype -> bytes and elements of the smallest piece that holds numbers.
_NUMBERS = {"f32": (4, 1), "f16": (2, 1), "bf16": (2, 1), "q8_0": (34, 32)}


def to_floats(data: Bytes, dtype: str) -> Floats:
    """The numbers in rows of bytes, as a new float32 array (rows, elements). What has no format
    known here counts as signed bytes / 64."""
    if dtype == "f32":
        return data.view(np.float32).astype(np.float32)
    if dtype == "f16":
        return data.view(np.float16).astype(np.float32)
    if dtype == "bf16":
        return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    if dtype == "q8_0":
        blocks = data.reshape(len(data), -1, 34)
        scales = blocks[:, :, :2].copy().view(np.float16).astype(np.float32)
        numbers: Floats = blocks[:, :, 2:].view(np.int8) * scales
        return numbers.reshape(len(data), -1)
    return data.view(np.int8).astype(np.float32) * np.float32(1 / 64)


def attention(query: Floats, keys: Floats, values: Floats) -> Floats:
    """Scaled dot-product attention of one query (head_dim) over all tokens of one head's keys and
    values (tokens, head_dim)."""
    # einsum, because BLAS would wake a thread for every core, to no gain at this size.
    scores = np.einsum("td,d->t", keys, query) / np.float32(np.sqrt(len(query)))
    weights = np.exp(scores - scores.max())
    result: Floats = np.einsum("t,td->d", weights / weights.sum(), values)
    return result


@dataclass(frozen=True)
class Heads:
    """How the heads of a tensor lie in its rows; count is 0 if they can't be read as numbers."""

    count: int
    size_bytes: int
    dtype: str

    @classmethod
    def of(cls, tensor: Tensor) -> Heads:
        size, elements = _NUMBERS.get(tensor.dtype, (1, 1))
        if tensor.row_bytes % size:
            return cls(0, 0, tensor.dtype)  # padded so that rows begin between two numbers
        if not tensor.heads:
            return cls(1, tensor.row_bytes, tensor.dtype)
        if tensor.head_dim % elements:
            # Blocks of numbers lie across heads: take them as one.
            return cls(1, tensor.heads * tensor.head_dim // elements * size, tensor.dtype)
        return cls(tensor.heads, tensor.head_dim // elements * size, tensor.dtype)

    def floats(self, rows: Bytes, head: int) -> Floats:
        """One head of rows, as float32 (rows, elements)."""
        begin = head * self.size_bytes
        return to_floats(rows[:, begin : begin + self.size_bytes], self.dtype)


@dataclass
class Checks:
    """Counts checks and what they found."""

    rng: np.random.Generator
    chunk_tokens: int
    copies: Staging | None = None  # reads a sample of what the CPU reads
    done: int = 0
    failed: int = 0
    copied: int = 0  # of those done: rows that came by the copy engine
    failures: list[str] = field(default_factory=list)  # the first few, in words

    def note(self, wrong: str, where: str) -> None:
        """Count a check; it failed if there is a text of what was wrong."""
        self.done += 1
        if wrong:
            self.failed += 1
            if len(self.failures) < _FAILURES_TOLD:
                self.failures.append(f"{where}: {wrong}")

    def check_zero(self, part: Part, layer: int, token: int) -> None:
        """A row that was not written yet is zero, whoever had the memory before."""
        rows = part.read(layer, token, token + 1)
        wrong = "memory from elsewhere isn't zero" if rows.any() else ""
        self.note(wrong, f"{part}, layer {layer}, token {token}")

    def check_place(self, part: Part, layer: int, tokens: int) -> None:
        """A span lies where it lay when its sequence was opened, and tells the right length."""
        span = part.span(layer)
        wrong = ""
        if span.address != part.addresses[layer]:
            wrong = f"was at {part.addresses[layer]:#x} and is at {span.address:#x}"
        elif span.live_tokens != tokens:
            wrong = f"tells {span.live_tokens} tokens where there are {tokens}"
        self.note(wrong, f"{part}, layer {layer}")

    def check_rows(self, part: Part, layer: int, first: int, last: int) -> None:
        """The rows of tokens [first, last) hold what was written."""
        for start in range(first, last, self.chunk_tokens):
            stop = min(start + self.chunk_tokens, last)
            wrong = self._wrong_rows(part, layer, start, stop, None)
            if self.copies and self.done % _CHECKS_PER_COPY == 0:
                wrong = wrong or self._wrong_rows(part, layer, start, stop, self.copies)
                self.copied += 1
            elif part.staging:
                self.copied += 1
            self.note(wrong, f"{part}, layer {layer}")

    def _wrong_rows(
        self, part: Part, layer: int, first: int, last: int, copies: Staging | None
    ) -> str:
        rows = part.read(layer, first, last, copies)
        expected = part.expected(layer, first, last)[:, : rows.shape[1]]
        if np.array_equal(rows, expected):
            return ""
        row, byte = np.argwhere(rows != expected)[0]
        reader = "to the copy engine, " if copies else ""
        return f"{reader}token {first + row} holds something else from byte {byte} on"

    def check_attention(self, keys: Part, values: Part, layer: int, heads: int) -> None:
        """Attention over spans is attention over plain arrays that hold what was written. Both run
        the same code on the same numbers, so they have to be equal to the last bit. The query is
        one over the tokens that the newest token sees, or a random stretch of them where they are
        very many, for so many heads from a random one on."""
        span = keys.span(layer)
        last = span.live_tokens
        first = span.first_token
        if keys.group.policy == "window":
            first = max(first, last - keys.group.window_tokens)
        parts = (keys, values)
        layouts = [Heads.of(part.tensor) for part in parts]
        count = min(layout.count for layout in layouts)
        if count == 0 or first == last:
            return
        most = max(_HEAD_BYTES_MAX // max(layout.size_bytes for layout in layouts), 1)
        if last - first > most:
            first = int(self.rng.integers(first, last - most + 1))
            last = first + most
        rows = [part.read(layer, first, last) for part in parts]
        start = int(self.rng.integers(count))
        for head in ((start + i) % count for i in range(min(heads, count))):
            in_spans = [layouts[i].floats(rows[i], head) for i in range(2)]
            plain = [self._plain_floats(part, layer, first, last, head) for part in parts]
            query = self.rng.standard_normal((in_spans[0].shape[1],), np.float32)
            equal = np.array_equal(attention(query, *in_spans), attention(query, *plain))
            wrong = "" if equal else f"attention of head {head} differs"
            self.note(wrong, f"{keys}, layer {layer}, token {last - 1}")

    def _plain_floats(self, part: Part, layer: int, first: int, last: int, head: int) -> Floats:
        """One head of what rows must hold, as a plain array."""
        heads = Heads.of(part.tensor)
        chunks = (
            part.expected(layer, start, min(start + self.chunk_tokens, last))
            for start in range(first, last, self.chunk_tokens)
        )
        return np.concatenate([heads.floats(chunk, head) for chunk in chunks])
