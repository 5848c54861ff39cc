"""How tests read and write rows of spans: as the CPU does, where GPU addresses are addresses of the
process; else by the device's own copy engine."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import numpy.typing as npt

from vmkv import Device, Span
from vmkv.staging import StagedRows, Staging

_stagings: dict[Device, Staging] = {}


@contextlib.contextmanager
def reaching(device: Device) -> Iterator[Device]:
    """A time in which the rows of a device's spans can be reached. It ends before the device."""
    if device.info.cpu_addresses:
        yield device
        return
    with Staging(device) as _stagings[device]:
        try:
            yield device
        finally:
            del _stagings[device]


class Rows:
    """Rows of a span that have memory, by default all live ones; bounds and errors are those of
    `Span.numpy`. They can be looked at as long as their memory is there, which may be longer than
    their sequence is open."""

    def __init__(self, span: Span, first: int | None = None, last: int | None = None) -> None:
        device = span.sequence.cache.device
        self._view: npt.NDArray[Any] | None = None
        self._staged: StagedRows | None = None
        if device.info.cpu_addresses:
            self._view = span.numpy(first, last)
        else:
            self._staged = StagedRows(_stagings[device], span, first, last)

    def read(self) -> npt.NDArray[Any]:
        """What they hold now; a copy."""
        if self._staged is not None:
            return self._staged.read()
        assert self._view is not None
        return self._view.copy()

    def write(self, data: object) -> None:
        """Let them hold something: an array of their shape, or one value for all."""
        if self._staged is not None:
            self._staged.write(data)
        else:
            assert self._view is not None
            self._view[...] = data


def read(span: Span, first: int | None = None, last: int | None = None) -> npt.NDArray[Any]:
    """What rows hold; see `Rows`."""
    return Rows(span, first, last).read()


def write(span: Span, data: object, first: int | None = None, last: int | None = None) -> None:
    """Let rows hold something; see `Rows`."""
    Rows(span, first, last).write(data)
