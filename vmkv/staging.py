"""Reading and writing memory that the CPU can't reach at its GPU addresses: the device's own copy
engine copies it from and to a buffer in system memory that both reach."""

from __future__ import annotations

import contextlib
import threading
from typing import Any

import numpy as np
import numpy.typing as npt

from vmkv import drm
from vmkv._closing import Closing
from vmkv._native import ffi
from vmkv.device import Device, amdgpu_info
from vmkv.errors import RangeError, UnreachableError
from vmkv.span import Span

Bytes = npt.NDArray[np.uint8]

_BUFFER_BYTES = 4 << 20
# Of so many copies the device can still tell whether they failed.
_COPIES_AT_ONCE = 16


class Staging(Closing):
    """Reads and writes by GPU addresses. A context manager, to be closed before the device.

    Methods may be called from any thread. Not for what has to be fast.

    Args:
        device: an amdgpu device, real or emulated.

    Raises:
        UnreachableError: another device. DeviceMemoryError.
    """

    def __init__(self, device: Device) -> None:
        info = amdgpu_info(device)
        if info is None:
            raise UnreachableError(
                f"the CPU can't reach the memory of device {device.name}, nor can copies"
            )
        self._device, self._lock = device, threading.Lock()
        self._points: list[int] = []
        self._used_bytes = 0
        with contextlib.ExitStack() as scope:
            handle = int(ffi.cast("uintptr_t", info.amdgpu_device))
            card = scope.enter_context(drm.Device.adopt(handle))
            addresses = scope.enter_context(card.va_alloc(_BUFFER_BYTES, alignment=2 << 20))
            buffer = scope.enter_context(card.alloc(_BUFFER_BYTES, "gtt", always_valid=True))
            card.map(buffer, addresses.address)
            self._address = addresses.address
            self._bytes: Bytes | None = buffer.numpy()
            self._scope = scope.pop_all()

    def read(self, address: int, count: int) -> Bytes:
        """count bytes at an address, after all that was written before.

        Raises:
            AddressError: an address has no memory behind it. DeviceError.
        """
        ret = np.empty(count, np.uint8)
        with self._lock:
            self._flush()
            for begin in range(0, count, _BUFFER_BYTES):
                part = ret[begin : begin + _BUFFER_BYTES]
                self._device.copy(self._address, address + begin, len(part))
                part[...] = self._buffer[: len(part)]
        return ret

    def write(self, address: int, data: Bytes) -> None:
        """Write bytes at an address. They may arrive later: `flush` waits for that, and tells of
        errors."""
        with self._lock:
            for begin in range(0, len(data), _BUFFER_BYTES):
                self._write(address + begin, data[begin : begin + _BUFFER_BYTES])

    def _write(self, address: int, data: Bytes) -> None:
        if self._used_bytes + len(data) > _BUFFER_BYTES or len(self._points) == _COPIES_AT_ONCE:
            self._flush()
        begin, end = self._used_bytes, self._used_bytes + len(data)
        self._buffer[begin:end] = data
        point = self._device.copy(address, self._address + begin, len(data), wait=False)
        self._points.append(point)
        self._used_bytes = end

    def flush(self) -> None:
        """Wait until all that was written is there.

        Raises:
            AddressError: an address had no memory behind it. DeviceError.
        """
        with self._lock:
            self._flush()

    def _flush(self) -> None:
        points, self._points, self._used_bytes = self._points, [], 0
        for point in reversed(points):  # the last one is reached last
            self._device.wait(point)

    @property
    def _buffer(self) -> Bytes:
        assert self._bytes is not None, "the staging is closed"
        return self._bytes

    def close(self) -> None:
        """Give back the buffer. Nothing happens if that is done already."""
        self._bytes = None
        self._scope.close()


class StagedRows:
    """Rows of a span that have memory: those of tokens [first, last), by default all live ones; a
    state is one row. They can be looked at as long as their memory is there, which may be longer
    than their sequence is open.

    Raises:
        RangeError: rows that have no memory. StaleError: the sequence or its cache was closed.
    """

    def __init__(
        self, staging: Staging, span: Span, first: int | None = None, last: int | None = None
    ) -> None:
        struct = span._read()
        if span._policy == "state":
            begin, end, shape = 0, 1, span._row_shape
        else:
            begin = struct.first_token if first is None else first
            end = struct.live_tokens if last is None else last
            shape = (end - begin, *span._row_shape)
        if begin != end and not struct.first_token <= begin <= end <= struct.mapped_tokens:
            raise RangeError(f"tokens {begin} to {end} have no memory")
        self._staging, self._shape = staging, shape
        self._address = span.address + begin * span.token_stride
        self._strides, self._dtype = span.strides, span.dtype
        self._bytes = (end - begin - 1) * span.token_stride + span.row_bytes if end > begin else 0

    def _seen(self, data: Bytes) -> npt.NDArray[Any]:
        """The rows in a copy of the memory from the first one to the last."""
        ret: npt.NDArray[Any] = np.ndarray(self._shape, self._dtype, data, 0, self._strides)
        return ret

    def read(self) -> npt.NDArray[Any]:
        """What they hold; a copy, as `Span.numpy` would show it."""
        return self._seen(self._staging.read(self._address, self._bytes)).copy()

    def write(self, data: object) -> None:
        """Let them hold an array of their shape, or one value. What lies between them is read and
        written again."""
        memory = self._staging.read(self._address, self._bytes)
        self._seen(memory)[...] = data
        self._staging.write(self._address, memory)
        self._staging.flush()
