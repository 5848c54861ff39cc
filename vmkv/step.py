"""The one hot call from Python."""

from __future__ import annotations

import errno as codes
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import numpy.typing as npt

from vmkv import errors
from vmkv._native import ffi, lib
from vmkv._values import NoCopy, check_count, new_struct
from vmkv.sequence import Sequence

if TYPE_CHECKING:
    from vmkv.cache import Cache

_KINDS = {lib.VMKV_SHORTAGE_BYTES: "bytes", lib.VMKV_SHORTAGE_MAPPINGS: "mappings"}


def read_shortage(told: Any, kind: str, **others: Any) -> errors.Shortage:
    """The exception for a `struct vmkv_shortage`; others are what that doesn't tell."""
    return errors.Shortage(
        kind=kind,
        needed=told.needed,
        missing=told.missing,
        retiring_bytes=told.retiring_bytes,
        retiring_until=told.retiring_until,
        transit_bytes=told.transit_bytes,
        transit_point=told.transit_point,
        **others,
    )


class Call(NoCopy):
    """The C structs of a step, to be used again and again."""

    __slots__ = ("_cache", "_ids", "_needed", "_request", "_result", "_tokens")

    def __init__(self, cache: Cache, sequences: Iterable[Sequence], tokens: Any) -> None:
        ids = []
        for sequence in sequences:
            if not isinstance(sequence, Sequence):
                raise TypeError(f"a step takes sequences, not {sequence!r}")
            if sequence.cache is not cache:
                raise errors.StaleError(f"{sequence!r} belongs to another cache")
            ids.append(sequence.id)
        self._cache = cache
        self._ids = ffi.new("vmkv_seq[]", ids)
        self._needed = ffi.new("uint64_t[]", len(ids))
        if isinstance(tokens, list):
            self._tokens = ffi.new("uint32_t[]", tokens)
        else:
            self._tokens = ffi.from_buffer("uint32_t[]", tokens)
        self._request = new_struct(
            "vmkv_step_request",
            seqs=self._ids,
            tokens=self._tokens,
            n=len(ids),
            seq_needed_bytes=self._needed,
        )
        self._result = new_struct("vmkv_step_result")

    def step(self, busy_until: int = 0) -> int:
        """As `Cache.step`, with the lengths that are in the array."""
        request, result = self._request, self._result
        try:
            request.busy_until = busy_until
        except (OverflowError, TypeError):
            request.busy_until = check_count("busy_until", busy_until, 64)
        code = _vmkv_step(self._cache._pointer, request, result)
        if code:
            self._fail(code)
        return result.ready  # type: ignore[no-any-return]

    def _fail(self, code: int) -> NoReturn:
        if code != -codes.ENOSPC:
            self._cache._fail(code)
        told = self._result.shortage
        kind = _KINDS.get(told.kind, "bytes")
        raise read_shortage(told, kind, seq_needed_bytes=tuple(self._needed))


_vmkv_step = lib.vmkv_step


class Batch(Call):
    """Steps of the same sequences, at the price of one C call; made by `Cache.batch`.

    Write the lengths into `tokens`, then call `step`. The arrays are reused by every step: two
    threads must not use one batch at the same time. Once one of the sequences is closed, every step
    raises StaleError: make a new batch.

    >>> with vmkv.open("host") as device:
    ...     geometry = vmkv.Geometry.full(layers=2, heads=8, head_dim=128)
    ...     with vmkv.Cache(device, geometry, budget="1GiB") as cache:
    ...         batch = cache.batch([cache.open() for _ in range(4)])
    ...         batch.tokens[:] = [512, 700, 512, 3]
    ...         _ = batch.step()
    ...         batch.tokens += 1
    ...         _ = batch.step()
    ...         [sequence.tokens for sequence in batch.sequences]
    [513, 701, 513, 4]
    """

    __slots__ = ("_array", "sequences")

    def __init__(self, cache: Cache, sequences: Iterable[Sequence]) -> None:
        if not isinstance(sequences, Iterable):
            raise TypeError(f"a batch takes sequences, not {sequences!r}")
        self.sequences = tuple(sequences)
        for sequence in self.sequences:
            if not isinstance(sequence, Sequence):
                raise TypeError(f"a batch takes sequences, not {sequence!r}")
        if len(set(self.sequences)) != len(self.sequences):
            raise errors.InvalidError("a sequence is in the batch twice")
        self._array = np.zeros(len(self.sequences), np.uint32)
        super().__init__(cache, self.sequences, self._array)
        self._array[:] = [sequence.tokens for sequence in self.sequences]

    @property
    def tokens(self) -> npt.NDArray[np.uint32]:
        """The lengths that the next step makes usable: shape (n,), dtype uint32, in the order of
        `sequences`. At first their present lengths. Always the same array; assigning to it copies.

        Raises (assigning):
            InvalidError: not n integers, or a negative one. RangeError: one of 2^32 or more.
        """
        return self._array

    @tokens.setter
    def tokens(self, values: Any) -> None:
        if values is self._array:  # batch.tokens += 1 has written them already
            return
        numbers = np.asarray(values)
        if numbers.shape not in ((), self._array.shape) or (
            numbers.size and numbers.dtype.kind not in "iu"
        ):
            raise errors.InvalidError(f"tokens takes {len(self._array)} integers, not {values!r}")
        if numbers.size:
            check_count("a length in tokens", numbers.min())
            check_count("a length in tokens", numbers.max())
        self._array[:] = numbers
