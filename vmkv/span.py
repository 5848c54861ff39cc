"""Spans: where a tensor of a sequence lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from vmkv._values import NoCopy, check_index
from vmkv.errors import RangeError, UnreachableError
from vmkv.geometry import Group, Tensor

if TYPE_CHECKING:
    from vmkv.sequence import Sequence

# How the CPU sees elements. numpy has no bf16: its bits are shown as uint16.
_ELEMENTS = {"f32": "float32", "f16": "float16", "bf16": "uint16", "f8": "uint8"}


@dataclass(frozen=True)
class Mapping:
    """One contiguous piece of physical memory behind a span; `struct vmkv_mapping`.

    Attributes:
        address: the GPU address where it begins.
        bytes: a whole number of pages.
        slab: the number of the slab that it is a piece of.
        slab_offset: where in the slab it begins, in bytes.
    """

    address: int
    bytes: int
    slab: int
    slab_offset: int


class MemoryView:
    """Shows memory to numpy. Arrays made of it hold it, and it holds what owns the memory."""

    def __init__(
        self,
        owner: object,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...],
        dtype: np.dtype[Any],
        readonly: bool = False,
    ) -> None:
        self.owner = owner
        self.__array_interface__ = {
            "version": 3,
            "data": (address, readonly),
            "shape": shape,
            "strides": strides,
            "typestr": dtype.str,
        }


class Span(NoCopy):
    """Where one tensor of one layer of a sequence lies: one contiguous range of GPU addresses.

    Token t of the sequence is the row at `address + t * token_stride`; the same tensor of the
    sequence in slot s, at `address + (s - slot) * slot_stride + t * token_stride`. None of this
    changes while the sequence is open. How many tokens there are does: those properties ask anew.

    Attributes:
        sequence: whose span it is.
        group, layer, tensor: which: indexes of the group, of the layer in it, of the tensor.
        address: GPU address of token 0.
        slot: the sequence's slot.
        token_stride: bytes from one token to the next; 0 for a state.
        slot_stride: bytes from one slot to the next.
        row_bytes: bytes of one token (of the whole state).
        reserved_tokens: tokens that there are addresses for; 1 for a state.
        dtype: what `numpy` shows: float32, float16; uint16 for bf16; uint8 for f8, and for the
            bytes of q8_0 and opaque rows.
    """

    __slots__ = (
        "_policy",
        "_row_shape",
        "_row_strides",
        "address",
        "dtype",
        "group",
        "layer",
        "reserved_tokens",
        "row_bytes",
        "sequence",
        "slot",
        "slot_stride",
        "tensor",
        "token_stride",
    )

    def __init__(self, sequence: Sequence, group: int, layer: int, tensor: int) -> None:
        described: Group = sequence.cache.geometry.groups[group]
        struct = sequence._read_span(group, layer, tensor)
        self.sequence = sequence
        self.group, self.layer, self.tensor = group, layer, tensor
        self.address: int = struct.address
        self.slot: int = struct.slot
        self.token_stride: int = struct.token_stride
        self.slot_stride: int = struct.slot_stride
        self.row_bytes: int = struct.row_bytes
        self.reserved_tokens: int = struct.reserved_tokens
        self._policy = described.policy
        self._describe_row(described.tensors[tensor])

    def _describe_row(self, tensor: Tensor) -> None:
        self.dtype: np.dtype[Any] = np.dtype(_ELEMENTS.get(tensor.dtype, "uint8"))
        self._row_shape: tuple[int, ...] = (self.row_bytes,)
        self._row_strides: tuple[int, ...] = (1,)
        if tensor.dtype in _ELEMENTS:
            element = self.dtype.itemsize
            self._row_shape = (tensor.heads, tensor.head_dim)
            self._row_strides = (tensor.head_dim * element, element)

    def _read(self) -> Any:
        return self.sequence._read_span(self.group, self.layer, self.tensor)

    @property
    def live_tokens(self) -> int:
        """The sequence's length.

        Raises:
            StaleError: the sequence or its cache was closed.
        """
        return int(self._read().live_tokens)

    @property
    def first_token(self) -> int:
        """Tokens below this were trimmed from the window: no memory is there. Raises as
        `live_tokens`."""
        return int(self._read().first_token)

    @property
    def mapped_tokens(self) -> int:
        """Whole tokens from 0 that have memory (from first_token, if that is more); usable once
        ready. 1 for a state that has memory. Raises as `live_tokens`."""
        return int(self._read().mapped_tokens)

    @property
    def shape(self) -> tuple[int, ...]:
        """(live tokens, heads, head_dim), or (live tokens, row_bytes) for q8_0 and opaque rows:
        what lies at `address`. A state has no tokens. Raises as `live_tokens`."""
        if self._policy == "state":
            return self._row_shape
        return (self.live_tokens, *self._row_shape)

    @property
    def strides(self) -> tuple[int, ...]:
        """Bytes from one element to the next, for each dimension of `shape`."""
        if self._policy == "state":
            return self._row_strides
        return (self.token_stride, *self._row_strides)

    def numpy(self, first: int | None = None, last: int | None = None) -> npt.NDArray[Any]:
        """The rows of tokens first to last as an array that shows the memory itself, for reading
        and writing. Without bounds: from first_token to the live length.

        Shape (last - first, heads, head_dim), or (last - first, row_bytes) of uint8 for q8_0 and
        opaque rows; for a state (heads, head_dim) or (row_bytes,), with no bounds to give.

        The array keeps the cache from being collected, but not the memory from being taken away:
        after the sequence or the cache was closed, or the window has passed the rows, touching it
        is an access to memory that isn't there.

        >>> with vmkv.open("host") as device:
        ...     geometry = vmkv.Geometry.full(layers=2, heads=8, head_dim=128)
        ...     with vmkv.Cache(device, geometry, budget="1GiB") as cache:
        ...         sequence = cache.open()
        ...         _ = cache.step({sequence: 100})
        ...         sequence.span(layer=1, tensor="v").numpy().shape
        (100, 8, 128)

        Raises:
            RangeError: rows that have no memory. UnreachableError: the CPU can't reach the
            device's memory. StaleError: the sequence or its cache was closed.
        """
        cache = self.sequence.cache
        struct = self._read()
        if not cache._cpu_addresses:
            raise UnreachableError(
                "the CPU can't reach this device's memory: copy it, or use the device's own arrays"
            )
        if self._policy == "state":
            return self._state(struct, first, last)
        begin = struct.first_token if first is None else check_index("first", first)
        end = struct.live_tokens if last is None else check_index("last", last)
        if not struct.first_token <= begin <= end <= max(struct.mapped_tokens, struct.first_token):
            raise RangeError(
                f"tokens {begin} to {end} have no memory: that is there for "
                f"{struct.first_token} to {struct.mapped_tokens}"
            )
        shape = (end - begin, *self._row_shape)
        address = self.address + begin * self.token_stride
        view = MemoryView(cache, address, shape, self.strides, self.dtype)
        return np.asarray(view)

    def _state(self, struct: Any, first: int | None, last: int | None) -> npt.NDArray[Any]:
        if first is not None or last is not None:
            raise RangeError("a state has no tokens to choose from")
        if not struct.mapped_tokens:
            raise RangeError("the state has no memory yet: that comes with the first step")
        view = MemoryView(
            self.sequence.cache, self.address, self._row_shape, self._row_strides, self.dtype
        )
        return np.asarray(view)

    def __repr__(self) -> str:
        return (
            f"<vmkv.Span group {self.group} layer {self.layer} tensor {self.tensor} "
            f"of slot {self.slot} at {self.address:#x}>"
        )
