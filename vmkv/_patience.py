"""Kernels that have no memory for a moment, and then have."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from vmkv import errors

Result = TypeVar("Result")

_RETRIES = 50
_RETRY_PAUSE_S = 0.001


class Patience:
    """Asks again for a while what the kernel has no memory for just now, as some do.

    Attributes:
        refusals: how often it had none.
    """

    def __init__(self) -> None:
        self.refusals = 0

    def __call__(self, call: Callable[[], Result]) -> Result:
        """What the call returns."""
        for _ in range(_RETRIES):
            try:
                return call()
            except errors.DeviceMemoryError:
                self.refusals += 1
                time.sleep(_RETRY_PAUSE_S)
        return call()
