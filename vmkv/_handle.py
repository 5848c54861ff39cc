"""How Device and Cache own what the C library gave them."""

from __future__ import annotations

import operator
import os
import threading
import time
import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

from vmkv import errors
from vmkv._closing import Closing
from vmkv._native import ffi
from vmkv._values import NoCopy

# How long close() waits for calls of other threads on the same handle to come back.
CLOSE_TIMEOUT_S = 5.0

_TEXT_BYTES = 512

_call: Callable[[Any], object] = operator.call

# No WeakSet: that runs Python code when a handle is collected, see Handle.
_handles: set[weakref.ref[Handle]] = set()


class Handle(NoCopy, Closing):
    """Owns a C handle. A context manager that closes it.

    Each call borrows it through `_pointer`, and only while it is inside: methods pass
    `self._pointer` straight to the C function and never keep it in a variable, where a traceback
    could hold on to it. So a handle is never destroyed under a call, and that costs the call
    nothing. Once closed, `_pointer` is NULL, which every C function refuses.

    `_owned` destroys the C handle when it is collected; `_pointer` refers to it. No Python code
    runs in that: a signal handler that raises (Ctrl-C) could end it halfway. For the same reason
    some steps below are one call of a builtin: handlers run between calls, never within one.
    """

    __slots__ = ("__weakref__", "_closing", "_destroy", "_owned", "_pointer")

    def __init__(self, destroy: Callable[[Any], int | None], needs: Handle | None = None) -> None:
        """Own nothing yet. destroy is a C function; `needs` lives on until it was called."""
        self._destroy = partial(destroy)
        # Not for Python's sake but for C's: what is destroyed needs it, whoever is collected first.
        self._destroy.needs = needs  # type: ignore[attr-defined]
        self._closing = threading.RLock()
        self._owned: Any = None
        self._pointer: Any = ffi.NULL

    def _create(self, create: Callable[[Any], int], kind: str) -> int:
        """Own what a C function writes to a pointer of that kind; returns its code."""
        ret = ffi.new(f"{kind} **")
        owners: list[Any] = []
        try:
            code = create(ret)
            if code:
                return code
            owners.extend(map(ffi.gc, (ret[0],), (self._destroy,)))
        except BaseException:
            if ret[0] and not owners:
                self._destroy(ret[0])
            raise
        self._owned = owners.pop()
        self._pointer = _lend(self._owned)
        _handles.add(weakref.ref(self, _handles.discard))
        return 0

    @property
    def closed(self) -> bool:
        """Whether it was closed."""
        return not self._pointer

    def _use(self) -> Any:
        """The pointer, to be passed on to a C function right away.

        Raises:
            ClosedError: it was closed.
        """
        pointer = self._pointer
        if not pointer:
            raise errors.ClosedError(f"{self._what()} is closed")
        return pointer

    def _release(self) -> int:
        """Destroy the C handle once no call is inside; returns what its destructor returned, after
        which the handle is as before if that was an error. So it is after an interrupt, unless the
        C handle was destroyed already.

        Raises:
            BusyError: a call didn't come back in time; the handle is as before.
        """
        with self._closing:
            if self.closed:
                return 0
            alive = weakref.ref(self._pointer)
            try:
                self._pointer = ffi.NULL
                self._await_end(alive)
                return self._end()
            finally:
                if self._owned is not None:
                    self._pointer = alive() or _lend(self._owned)

    def _await_end(self, alive: weakref.ref[Any]) -> None:
        """Wait until no call has the pointer any more."""
        deadline = time.monotonic() + CLOSE_TIMEOUT_S
        while alive() is not None:
            if time.monotonic() > deadline:
                raise errors.BusyError(f"a call is still at work on {self._what()}")
            time.sleep(0.0001)

    def _end(self) -> int:
        """Destroy the C handle, and if that worked, own it no more: all that or nothing, as one
        call. any() stops at the first step that returns something true: an error's code."""
        codes: list[int | None] = []
        steps: tuple[Callable[[], object], ...] = (
            partial(codes.extend, map(self._destroy, (self._owned,))),
            partial(any, codes),
            partial(ffi.gc, self._owned, None),
            partial(setattr, self, "_owned", None),
        )
        any(map(_call, steps))
        return codes[0] or 0

    def _what(self) -> str:
        """What it is, in messages."""
        raise NotImplementedError

    def _read_error(self, text: Any, size: int) -> None:
        """Have the C library write the last error's text."""
        raise NotImplementedError

    def _fail(self, code: int) -> NoReturn:
        """Raise what a negative errno value of a call on this handle means."""
        if self.closed:
            raise errors.ClosedError(f"{self._what()} is closed", -code)
        text = text_buffer()
        self._read_error(text, len(text))
        errors.fail(code, read_text(text))


def _lend(owned: Any) -> Any:
    """A pointer for calls; it keeps what it was made of. Nothing has to be done at its end."""
    return ffi.gc(owned, bool)


def text_buffer() -> Any:
    """Where a call writes what was wrong."""
    return ffi.new("char[]", _TEXT_BYTES)


def read_text(buffer: Any) -> str:
    """What it wrote."""
    return str(ffi.string(buffer).decode(errors="replace"))


def _forget_all() -> None:
    """After fork the parent alone may use the handles: the child must not even destroy them."""
    for handle in filter(None, [known() for known in _handles]):
        handle._closing = threading.RLock()
        if handle._owned is not None:
            ffi.gc(handle._owned, None)
        handle._owned, handle._pointer = None, ffi.NULL


os.register_at_fork(after_in_child=_forget_all)
