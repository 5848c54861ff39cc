"""Reading request traces: what users asked of an inference service, as numbers of tokens."""

from __future__ import annotations

import importlib.resources
import os
import sys
from collections.abc import Iterator
from importlib.resources.abc import Traversable
from itertools import islice
from pathlib import Path
from typing import IO

from vmkv.trace_formats import FORMATS, Request, Round, TraceError, parse

__all__ = ["FORMATS", "Request", "Round", "TraceError", "default_trace", "read_trace"]

# A round names all of its tools and a prompt all of its blocks; without a bound one file of another
# kind would be read whole.
_LINE_MAX_BYTES = 1 << 20


def default_trace() -> Traversable:
    """The trace that comes with the package: 980 requests of a code assistant (Azure, 2023)."""
    return importlib.resources.files("vmkv").joinpath("data", "azure_code_2023.csv")


def read_trace(
    source: str | os.PathLike[str] | Traversable | None = None,
    format_name: str | None = None,
    limit: int | None = None,
) -> Iterator[Request]:
    """Read the requests of a trace one by one.

    The file is UTF-8 with or without a byte order mark, with LF or CRLF. format_name is one of
    FORMATS; without it the first line tells. No more than limit requests are read, and nothing
    after them is checked; but the rounds of a session may lie anywhere, so that a file of sessions
    is read whole. Without a source it is default_trace().

    Raises TraceError for a file that can't be read, has a broken line, or holds no request;
    ValueError if limit is below 1 or more than sys.maxsize, or if there is no such format.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}, but at least one request must be read")
    if limit is not None and limit > sys.maxsize:
        raise ValueError(f"limit is {limit}, but it is at most {sys.maxsize}")
    if format_name is not None and format_name not in FORMATS:
        raise ValueError(f"unknown format {format_name!r}: it is one of {', '.join(FORMATS)}")
    if source is None:
        source = default_trace()
    elif not isinstance(source, Traversable):
        source = Path(source)
    return islice(_read(source, format_name), limit)


def _read(source: Traversable, format_name: str | None) -> Iterator[Request]:
    name = str(source)
    try:
        with source.open("rb") as file:
            yield from parse(_read_lines(file, name), name, format_name)
    except OSError as error:
        raise TraceError(f"{name}: can't be read: {error.strerror or error}") from error


def _read_lines(file: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; blank ones only where another line follows."""
    number = 0
    blanks: list[int] = []
    while raw := file.readline(_LINE_MAX_BYTES + 1):
        number += 1
        if len(raw) > _LINE_MAX_BYTES:
            raise TraceError(f"{name}:{number}: longer than {_LINE_MAX_BYTES:,} bytes")
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise TraceError(f"{name}:{number}: not UTF-8 text") from None
        if not line:
            blanks.append(number)
            continue
        if blanks:
            raise TraceError(f"{name}:{blanks[0]}: a blank line")
        yield number, line
