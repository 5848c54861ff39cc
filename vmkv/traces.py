"""Request traces: what users asked of an inference service, as numbers of tokens."""

from __future__ import annotations

import csv
import importlib.resources
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources.abc import Traversable
from itertools import islice
from pathlib import Path
from typing import IO

from vmkv.errors import InvalidError

AZURE_COLUMNS = ("TIMESTAMP", "ContextTokens", "GeneratedTokens")

# No line of a trace comes near it; without a bound one file of another kind would be read whole.
_LINE_MAX_BYTES = 4096


class TraceError(InvalidError):
    """A trace that can't be read; the text names the file, the line and what would be right."""


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a trace.

    index counts the requests of the trace from 0; line is where it stands in its file, from 1.
    prompt_tokens is at least 1; output_tokens may be 0 (only the prompt was processed).
    """

    index: int
    line: int
    prompt_tokens: int
    output_tokens: int

    @property
    def total_tokens(self) -> int:
        """Tokens of the whole request: how long its sequence gets."""
        return self.prompt_tokens + self.output_tokens


def default_trace() -> Traversable:
    """The trace that comes with the package: 980 requests of a code assistant (Azure, 2023)."""
    return importlib.resources.files("vmkv").joinpath("data", "azure_code_2023.csv")


def read_azure(
    source: str | os.PathLike[str] | Traversable | None = None, limit: int | None = None
) -> Iterator[Request]:
    """Read the requests of an Azure LLM inference trace one by one.

    The file is CSV with the columns TIMESTAMP, ContextTokens and GeneratedTokens, in UTF-8 with or
    without a byte order mark, with LF or CRLF. Times are not looked at. No more than limit
    requests are read, and nothing after them is checked. Without a source it is default_trace().

    Raises TraceError for a file that can't be read, has a broken line, or holds no request;
    ValueError if limit is below 1, or more than sys.maxsize.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit is {limit}, but at least one request must be read")
    if limit is not None and limit > sys.maxsize:
        raise ValueError(f"limit is {limit}, but it is at most {sys.maxsize}")
    if source is None:
        source = default_trace()
    elif not isinstance(source, Traversable):
        source = Path(source)
    return islice(_read(source), limit)


def _read(source: Traversable) -> Iterator[Request]:
    name = str(source)
    try:
        with source.open("rb") as file:
            yield from _parse(_read_lines(file, name), name)
    except OSError as error:
        raise TraceError(f"{name}: can't be read: {error.strerror or error}") from error


def _read_lines(file: IO[bytes], name: str) -> Iterator[tuple[int, str]]:
    """Numbered lines without their ends; blank ones only where another line follows."""
    number = 0
    blanks: list[int] = []
    while raw := file.readline(_LINE_MAX_BYTES + 1):
        number += 1
        if len(raw) > _LINE_MAX_BYTES:
            raise _broken(name, number, f"longer than {_LINE_MAX_BYTES:,} bytes")
        try:
            line = raw.decode("utf-8-sig" if number == 1 else "utf-8").strip()
        except UnicodeDecodeError:
            raise _broken(name, number, "not UTF-8 text") from None
        if not line:
            blanks.append(number)
            continue
        if blanks:
            raise _broken(name, blanks[0], "blank")
        yield number, line


def _parse(lines: Iterator[tuple[int, str]], name: str) -> Iterator[Request]:
    header = ",".join(AZURE_COLUMNS)
    number, line = next(lines, (0, ""))
    if not number:
        raise TraceError(f"{name}: the file is empty; an Azure trace begins with the line {header}")
    if tuple(column.strip() for column in _split(line, name, number)) != AZURE_COLUMNS:
        raise TraceError(
            f"{name}:{number}: the line is {_quote(line)}, but an Azure trace begins with {header}"
        )
    index = -1
    for index, (number, line) in enumerate(lines):
        yield _parse_request(index, number, line, name)
    if index < 0:
        raise TraceError(f"{name}: no requests; at least one line must follow {header}")


def _parse_request(index: int, number: int, line: str, name: str) -> Request:
    fields = _split(line, name, number)
    if len(fields) != len(AZURE_COLUMNS):
        raise _broken(name, number, f"{len(fields)} fields in {_quote(line)}")
    prompt_tokens = _parse_count(fields, 1, name, number)
    if prompt_tokens == 0:
        raise _broken(name, number, "ContextTokens is 0, but a request has at least one token")
    return Request(index, number, prompt_tokens, _parse_count(fields, 2, name, number))


def _parse_count(fields: list[str], column: int, name: str, number: int) -> int:
    text = fields[column].strip()
    # int() alone would take "1_000", "+5" and digits of other scripts.
    if not (text.isascii() and text.isdecimal()) or len(text) > 18:
        wrong = f"{AZURE_COLUMNS[column]} is {_quote(text)}, not a whole number of 1 to 18 digits"
        raise _broken(name, number, wrong)
    return int(text)


def _split(line: str, name: str, number: int) -> list[str]:
    try:
        return next(csv.reader([line], strict=True))
    except csv.Error as error:
        raise _broken(name, number, f"{error} in {_quote(line)}") from None


def _quote(text: str) -> str:
    return repr(text if len(text) <= 60 else text[:57] + "...")


def _broken(name: str, number: int, wrong: str) -> TraceError:
    right = "2023-11-16 18:17:03.9799600,4808,10"
    return TraceError(f"{name}:{number}: {wrong}; a line is a time and two counts, as in {right}")
