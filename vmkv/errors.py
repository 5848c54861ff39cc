"""The errors of vmkv: one tree, each class also the builtin that fits it.

Error
├── InvalidError (ValueError)           an argument makes no sense
│   ├── RangeError (IndexError)         it lies outside what exists, or past max_tokens
│   └── SizeError (OverflowError)       sizes whose product is more than 64 bits or addresses hold
├── Shortage (MemoryError)              not enough memory, mappings or slots; nothing changed
├── HostMemoryError (MemoryError)       no host memory for bookkeeping; nothing changed
├── StaleError (LookupError)            a sequence that was closed, or belongs to another cache
│   └── ClosedError (ValueError)        a device or cache that was closed
├── BusyError (BlockingIOError)         another call is at work on it, or something still uses it
├── WaitTimeoutError (TimeoutError)     a point was not reached in time
├── UnreachableError (TypeError)        the CPU cannot reach this device's memory
└── DeviceError (OSError)               the driver refused a call; errno says how
    ├── AddressError                    an address has no memory behind it
    ├── DeviceMemoryError (MemoryError) the driver has no memory for it
    ├── DeviceNotFoundError             an unknown device, or none such on this machine
    ├── DeviceLostError                 the device is gone; only closing and statistics still work
    └── UnsupportedError (NotImplementedError)  this driver or library is too old, or can't at all
"""

from __future__ import annotations

import errno as codes
import os
from typing import NoReturn


class Error(Exception):
    """Base of all errors of vmkv. `errno` is the positive errno value of the C call, or None if
    the error was found before there was a call."""

    errno: int | None = None

    def __init__(self, message: str = "", errno: int | None = None) -> None:
        super().__init__(message)
        if errno is not None:
            self.errno = errno


class InvalidError(Error, ValueError):
    """An argument makes no sense; the message says what would."""


class RangeError(InvalidError, IndexError):
    """A length past max_tokens, or a group, layer, tensor or row that does not exist."""


class SizeError(InvalidError, OverflowError):
    """Sizes whose product is more than 64 bits, or more addresses than the device has."""


class HostMemoryError(Error, MemoryError):
    """No host memory for bookkeeping; nothing changed."""


class StaleError(Error, LookupError):
    """The sequence was closed, or belongs to another cache."""


class ClosedError(StaleError, ValueError):
    """The device or cache was closed."""


class BusyError(Error, BlockingIOError):
    """Another call is at work on it, or something still uses it; it stays as it was."""


class WaitTimeoutError(Error, TimeoutError):
    """The device did not reach a point in time."""


class UnreachableError(Error, TypeError):
    """The CPU cannot reach this device's memory."""


class DeviceError(Error, OSError):
    """The driver refused a call; `errno` says how, and nothing changed."""


class AddressError(DeviceError):
    """An address has no memory behind it."""


class DeviceMemoryError(DeviceError, MemoryError):
    """The driver has no memory for it; nothing changed."""


class UnsupportedError(DeviceError, NotImplementedError):
    """The driver or its library lacks what was asked for; the message says what would have it."""


class DeviceNotFoundError(DeviceError):
    """An unknown device, or none such on this machine."""


class DeviceLostError(DeviceError):
    """The device is lost; closing and statistics still work, everything else raises this."""


class Shortage(Error, MemoryError):  # noqa: N818 - a report more than an accident
    """There is not enough memory, or too few mappings or slots. Nothing changed.

    Attributes:
        kind: what there is too little of: "bytes", "mappings" or "slots".
        needed: bytes, mappings or slots that the whole call would newly take.
        missing: how many of those there are too few.
        retiring_bytes: given back by the engine, free once `Cache.retire` has passed
            `retiring_until`.
        retiring_until: see above.
        transit_bytes: on their way through the device, free once it has reached `transit_point`.
        transit_point: see above.
        seq_needed_bytes: what each sequence would newly need, in the order of the step.
    """

    def __init__(
        self,
        message: str = "",
        *,
        kind: str = "bytes",
        needed: int = 0,
        missing: int = 0,
        retiring_bytes: int = 0,
        retiring_until: int = 0,
        transit_bytes: int = 0,
        transit_point: int = 0,
        seq_needed_bytes: tuple[int, ...] = (),
    ) -> None:
        self.kind = kind
        self.needed = needed
        self.missing = missing
        self.retiring_bytes = retiring_bytes
        self.retiring_until = retiring_until
        self.transit_bytes = transit_bytes
        self.transit_point = transit_point
        self.seq_needed_bytes = seq_needed_bytes
        super().__init__(message or self._describe(), codes.ENOSPC)

    def _describe(self) -> str:
        from vmkv.sizes import human  # sizes imports this module

        if self.kind == "slots":
            return "no slot is free: close a sequence, or retire those that were closed"
        if self.kind == "mappings":
            text = f"too few mappings: {self.needed:,} more are needed, {self.missing:,} too many"
            remedy = "close a sequence, or use larger pages, layout='token' or a higher limit"
            return "; ".join([text, *self._pending(), remedy])
        text = (
            f"not enough memory: {human(self.needed)} more is needed, "
            f"{human(self.missing)} of it is missing"
        )
        remedies = self._pending()
        if self.retiring_bytes + self.transit_bytes < self.missing:
            remedies.append("close a sequence or raise the budget")
        return "; ".join([text, *remedies])

    def _pending(self) -> list[str]:
        """What comes free by itself, and when."""
        from vmkv.sizes import human

        parts = []
        if self.retiring_bytes:
            parts.append(
                f"{human(self.retiring_bytes)} comes free with retire({self.retiring_until})"
            )
        if self.transit_bytes:
            parts.append(f"{human(self.transit_bytes)} comes free at point {self.transit_point}")
        return parts


_CLASSES: dict[int, type[Error]] = {
    codes.EINVAL: InvalidError,
    codes.E2BIG: InvalidError,
    codes.ERANGE: RangeError,
    codes.EOVERFLOW: SizeError,
    codes.ENOMEM: HostMemoryError,
    codes.ESTALE: StaleError,
    codes.EBUSY: BusyError,
    codes.ETIME: WaitTimeoutError,
    codes.EFAULT: AddressError,
    codes.ENODEV: DeviceLostError,
}


def fail(code: int, text: str) -> NoReturn:
    """Raise what a negative errno value of the C library means; text is the handle's own."""
    value = -code
    message = text or os.strerror(value)
    raise _CLASSES.get(value, DeviceError)(message, value)
