"""What is closed at the end of a `with` block."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from vmkv.errors import Error


class Closing:
    """A context manager that closes itself. If the block ended by an error, that is what the caller
    has to hear of, not why something couldn't be closed after it."""

    __slots__ = ()

    def close(self) -> None:
        """Give back what it has."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            self.close()
        except Error:
            if error is None:
                raise
