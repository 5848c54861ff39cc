"""Sequences: what grows, and has spans."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from vmkv._closing import Closing
from vmkv._native import ffi, lib
from vmkv._values import NoCopy, check_count, check_index, new_struct, read_struct
from vmkv.errors import RangeError
from vmkv.span import Mapping, Span

if TYPE_CHECKING:
    from vmkv.cache import Cache


class Sequence(NoCopy, Closing):
    """An open sequence; made by `Cache.open`. A context manager that closes it.

    Can be the key of a dict: two are equal if they are the same sequence of the same cache. Every
    method may be called from any thread; two calls at once on one sequence don't wait for each
    other: the second raises BusyError. A sequence that nobody refers to stays open until it is
    closed, or its cache is.

    Attributes:
        cache: whose sequence it is.
        id: the C API's handle, a 64-bit number; never used again within the cache.
        slot: its place in the address space, the index of `Cache.ready_tokens`.
    """

    __slots__ = ("__weakref__", "_closed", "_hash", "cache", "id", "slot")

    def __init__(self, cache: Cache, number: int) -> None:
        self.cache = cache
        self.id = number
        self._hash = hash((id(cache), number))
        self._closed = False
        self.slot: int = self._read_span(0, 0, 0).slot

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return self.id == other.id and self.cache is other.cache

    def _read_span(self, group: int, layer: int, tensor: int) -> Any:
        struct = new_struct("vmkv_span")
        cache = self.cache
        code = lib.vmkv_span(cache._pointer, self.id, group, layer, tensor, struct)
        if code:
            cache._fail(code)
        return struct

    @property
    def tokens(self) -> int:
        """Its length: the live tokens.

        Raises:
            StaleError: it was closed, or its cache was.
        """
        return int(self._read_span(0, 0, 0).live_tokens)

    def _locate(self, layer: int, tensor: str | int, group: int | None) -> tuple[int, int, int]:
        """Indexes of the group, of the layer in it, and of the tensor."""
        geometry = self.cache.geometry
        if group is None:
            number, index = geometry.locate(layer, tensor)
        else:
            count = len(geometry.groups)
            number, index = check_index("group", group), check_index("layer", layer)
            if not 0 <= number < count:
                raise RangeError(f"no group {group}: there are {count}, from 0")
            layers = len(geometry.groups[number].layers)
            if not 0 <= index < layers:
                raise RangeError(f"no layer {layer} in group {group}: it has {layers}, from 0")
        return number, index, geometry.groups[number].tensor_index(tensor)

    def span(self, layer: int = 0, tensor: str | int = 0, group: int | None = None) -> Span:
        """Where a tensor lies: its addresses, the same as long as the sequence is open.

        `layer` is the model's number, unless a group is named: then it counts from 0 within the
        group. `tensor` is a name such as "k" or an index; 0, the first, is k where there are k and
        v, and the latent of MLA.

        Raises:
            RangeError: no such group, layer or tensor. StaleError: the sequence or its cache was
            closed.
        """
        return Span(self, *self._locate(layer, tensor, group))

    def mappings(
        self, layer: int = 0, tensor: str | int = 0, group: int | None = None
    ) -> list[Mapping]:
        """The mappings behind a span, in order of address; arguments as in `span`. In the token
        layout and in state groups: behind the range that it shares with the group's other tensors.

        Raises:
            RangeError, StaleError: as in `span`. BusyError: a call is at work on the sequence.
        """
        indexes = self._locate(layer, tensor, group)
        cache, count, room = self.cache, ffi.new("size_t *"), 64
        while True:
            array = ffi.new("struct vmkv_mapping[]", room)
            code = lib.vmkv_seq_mappings(cache._pointer, self.id, *indexes, array, room, count)
            if code:
                cache._fail(code)
            if count[0] <= room:
                return [read_struct(Mapping, array[index]) for index in range(count[0])]
            room = count[0]

    def close(self, busy_until: int = 0) -> None:
        """Close it. Its memory becomes another's once `Cache.retire` has passed the greatest
        busy_until that was given for it; at once, if that is already so.

        Raises:
            StaleError: it was closed already, or its cache was. BusyError: a call is at work on it.
            InvalidError, RangeError: busy_until is no 64-bit number.
        """
        until = check_count("busy_until", busy_until, 64)
        code = lib.vmkv_seq_close(self.cache._pointer, self.id, until)
        if code:
            self.cache._fail(code)
        self._closed = True

    def __repr__(self) -> str:
        return f"<vmkv.Sequence {self.id:#x} in slot {self.slot}>"

    def __exit__(self, *ended: Any) -> None:
        if not self._closed and not self.cache.closed:
            super().__exit__(*ended)
