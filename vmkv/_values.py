"""Between Python's values and C's."""

from __future__ import annotations

import math
import operator
from dataclasses import fields
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex, TypeVar

from vmkv._native import ffi
from vmkv.errors import InvalidError, RangeError

if TYPE_CHECKING:
    import numpy.typing as npt

Record = TypeVar("Record")


class NoCopy:
    """Stands for something in the C library: a copy would be a second owner of one thing."""

    __slots__ = ()

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        kind = type(self).__name__
        raise TypeError(
            f"a {kind} can't be copied or pickled: it stands for memory of this process"
        )


def check_index(name: str, value: Any) -> int:
    """Any integer.

    Raises:
        TypeError: not an integer.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is an integer, not {value!r}") from None


def check_count(name: str, value: Any, bits: int = 32) -> int:
    """An integer that an unsigned C type of so many bits holds.

    Raises:
        InvalidError: it is negative. RangeError: it is too great. TypeError: not an integer.
    """
    number = check_index(name, value)
    if number < 0:
        raise InvalidError(f"{name} is {number}: it can't be negative")
    if number >= 2**bits:
        raise RangeError(f"{name} is {number}: it is at most 2^{bits} - 1")
    return number


def timeout_ns(timeout: float | None) -> int:
    """Seconds (None: for ever) as nanoseconds in 64 bits.

    Raises:
        InvalidError: negative or NaN. TypeError: no number at all.
    """
    endless = 2**64 - 1
    if timeout is None:
        return endless
    try:
        seconds = float(timeout) if not isinstance(timeout, str | bytes) else None
    except OverflowError:
        seconds = math.inf if timeout > 0 else -math.inf
    except (TypeError, ValueError):
        seconds = None
    if seconds is None:
        raise TypeError(f"timeout is a number of seconds or None, not {timeout!r}")
    if not seconds >= 0:
        raise InvalidError(f"timeout is {timeout}: it is 0 or more seconds")
    return endless if math.isinf(seconds) else min(int(seconds * 1e9), endless)


def array_pointer(array: npt.NDArray[Any], c_type: str) -> Any:
    """Where an array's elements are, for C; it holds as long as the array does."""
    return ffi.cast(c_type, array.ctypes.data)


def new_struct(name: str, **values: Any) -> Any:
    """A zeroed `struct NAME *` that knows its size, with some fields set."""
    struct = ffi.new(f"struct {name} *")
    struct.struct_size = ffi.sizeof(f"struct {name}")
    for field, value in values.items():
        setattr(struct, field, value)
    return struct


def read_struct(record: type[Record], struct: Any, **values: Any) -> Record:
    """A dataclass whose fields are named as those of a C struct, with what the struct holds, but
    for the values that are given."""
    for field in fields(record):  # type: ignore[arg-type]
        if field.name not in values:
            value = getattr(struct, field.name)
            values[field.name] = value if isinstance(value, int) else ffi.string(value).decode()
    return record(**values)
