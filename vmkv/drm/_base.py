"""How vmkv.drm calls libdrm and owns what comes from it."""

from __future__ import annotations

import errno as codes
import functools
import os
import time
import traceback
import weakref
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from vmkv import errors
from vmkv._handle import Handle, read_text, text_buffer
from vmkv._native import ffi, lib
from vmkv._values import timeout_ns

if TYPE_CHECKING:
    from vmkv.drm.device import Device

Names = str | Iterable[str]

_CLASSES: dict[int, type[errors.DeviceError]] = {
    codes.ENOMEM: errors.DeviceMemoryError,
    codes.ENOSPC: errors.DeviceMemoryError,
    codes.ENODEV: errors.DeviceLostError,
    codes.ENOSYS: errors.UnsupportedError,
}


@functools.cache
def libdrm() -> Any:
    """libdrm's functions, loaded at the first call and kept for good.

    Raises:
        UnsupportedError: libdrm isn't installed, or older than 2.4.114.
    """
    table, text = ffi.new("struct vmkv_libdrm *"), text_buffer()
    code = lib.vmkv_libdrm_load(table, text, len(text))
    if code:
        raise errors.UnsupportedError(read_text(text), -code)
    return table


def optional(name: str) -> Any:
    """A function that not every libdrm has.

    Raises:
        UnsupportedError: this one doesn't.
    """
    function = getattr(libdrm(), name)
    if not function:
        message = f"this libdrm has no {name}: that needs libdrm {release_of(name)} or newer"
        raise errors.UnsupportedError(message, codes.ENOSYS)
    return function


def release_of(name: str) -> str:
    """The first libdrm that vmkv runs with and that has a function."""
    return str(ffi.string(lib.vmkv_libdrm_release(name.encode())).decode())


def failure(value: int, what: str) -> errors.Error:
    """The exception for what a function of libdrm returned; `what` says what was asked of it. To be
    called before anything else is asked of C: libdrm leaves some errors in errno."""
    code = -lib.vmkv_libdrm_result(value)
    name = codes.errorcode.get(code, str(code))
    message = f"{what}: {os.strerror(code)} ({name})"
    if code == codes.ETIME:
        return errors.WaitTimeoutError(message, code)
    return _CLASSES.get(code, errors.DeviceError)(message, code)


def bits(what: str, known: Mapping[str, int], names: Names) -> int:
    """The sum of the bits that names stand for: "read|write" or ("read", "write").

    Raises:
        InvalidError: an unknown name.
    """
    result = 0
    for name in names.split("|") if isinstance(names, str) else names:
        if name not in known:
            raise errors.InvalidError(f"{what} {name!r} is none of {', '.join(known)}")
        result |= known[name]
    return result


def choice(what: str, known: Mapping[str, int], name: str) -> int:
    """What a name stands for.

    Raises:
        InvalidError: an unknown name.
    """
    if name not in known:
        raise errors.InvalidError(f"{what} {name!r} is none of {', '.join(known)}")
    return known[name]


def deadline_ns(timeout: float | None) -> int:
    """When a wait that begins now ends, on the clock that the kernel's syncobjs use."""
    return min(time.monotonic_ns() + timeout_ns(timeout), 2**63 - 1)


class Object(Handle):
    """Something of libdrm's, owned: a context manager that closes it.

    Methods may be called from any thread; `close` waits for calls that are at work. Whatever isn't
    closed is released when Python collects it.
    """

    __slots__ = ()

    def close(self) -> None:
        """Release it. Nothing happens if that is done already.

        Raises:
            BusyError: it is in use. DeviceError: the kernel refused.
        """
        code = self._release()
        if code:
            self._refuse(code)

    def _refuse(self, code: int) -> NoReturn:
        """Raise why it stays open."""
        raise failure(code, f"close {self._what()}")


class Part(Object):
    """An object that belongs to a device, which can't be closed before it.

    Attributes:
        device: the device.
    """

    __slots__ = ("device",)

    def __init__(self, destroy: Callable[[Any], int | None], device: Device) -> None:
        super().__init__(destroy, needs=device)
        self.device = device
        device._parts.add(weakref.ref(self, device._parts.discard))

    def _make(self, kind: str, what: str, create: Callable[[Any, Any], int]) -> None:
        """Own what create(device pointer, pointer to the result) makes."""
        pointer = self.device._use()  # until the end: the device isn't closed meanwhile
        try:
            code = self._create(partial(create, pointer), kind)
            if code:
                raise failure(code, what)
        except BaseException as error:
            # Its traceback would keep the pointer, and so the device in use.
            traceback.clear_frames(error.__traceback__)
            raise
        finally:
            del pointer


class Numbered(Part):
    """A part that libdrm tells by a number."""

    __slots__ = ()

    def _number(self, what: str, destroy: Any, create: Callable[[Any, Any], int]) -> None:
        """Own the number that create(device pointer, pointer to the number) makes."""

        def make(pointer: Any, ret: Any) -> int:
            code: int = lib.vmkv_drm_id_create(pointer, destroy, ret)
            if code:
                return code
            code = lib.vmkv_libdrm_result(create(pointer, ffi.addressof(ret[0], "id")))
            if code:
                lib.vmkv_drm_id_destroy(ret[0])
                ret[0] = ffi.NULL
            return code

        self._make("struct vmkv_drm_id", what, make)

    @property
    def id(self) -> int:
        """Its number among those of the device's file.

        Raises:
            ClosedError: it was closed.
        """
        return int(self._use().id)
