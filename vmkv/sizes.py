"""Sizes in bytes as people write them: "10GB" is 10^10 bytes, "64KiB" is 65,536."""

from __future__ import annotations

import operator
import re
from fractions import Fraction
from typing import SupportsIndex

from vmkv import errors

MAX_BYTES = 2**64 - 1
_DECIMAL_UNITS = ("B", "kB", "MB", "GB", "TB", "PB", "EB")

_UNITS = {"b": 1}
_UNITS |= {f"{letter}b": 1000**power for power, letter in enumerate("kmgtpe", 1)}
_UNITS |= {f"{letter}ib": 1024**power for power, letter in enumerate("kmgtpe", 1)}

_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE | re.ASCII)
_EXAMPLES = "such as 10GB (10^10 bytes), 10GiB, 64KiB or a number of bytes"


def parse(value: str | SupportsIndex, name: str = "size") -> int:
    """Bytes of a size: an integer, or text such as "10GB", "1.5GiB", "64KiB", "4096".

    Units are B, kB, MB, GB, TB, PB, EB (powers of 1,000) and KiB ... EiB (powers of 1,024), in
    upper or lower case. A fraction of a byte is dropped. `name` is what errors call it.

    >>> parse("64KiB"), parse("10GB"), parse("1.5 GiB"), parse(4096)
    (65536, 10000000000, 1610612736, 4096)

    Raises:
        InvalidError: not a size; negative.
        SizeError: more than 64 bits hold.
        TypeError: neither text nor an integer.
    """
    if isinstance(value, str):
        size = _parse_text(value, name)
    else:
        try:
            size = operator.index(value)
        except TypeError:
            kind = type(value).__name__
            raise TypeError(f"{name} is a size {_EXAMPLES}, not a {kind}") from None
    if size < 0:
        raise errors.InvalidError(f"{name} is {value}: a size can't be negative")
    if size > MAX_BYTES:
        raise errors.SizeError(f"{name} is {value}: a size is at most {MAX_BYTES} bytes (16 EiB)")
    return size


def _parse_text(text: str, name: str) -> int:
    match = _SIZE.fullmatch(text)
    if not match:
        if text.lstrip().startswith("-"):
            raise errors.InvalidError(f"{name} is {text}: a size can't be negative")
        raise errors.InvalidError(f"{name} {text!r} is not a size {_EXAMPLES}")
    number, unit = match.group(1), match.group(2)
    if len(number) > 100:  # Python itself refuses to read thousands of digits
        raise errors.SizeError(
            f"{name} has {len(number)} digits: a size is at most {MAX_BYTES} bytes (16 EiB)"
        )
    if unit.lower() in ("k", "m", "g", "t", "p", "e"):
        letter = unit.upper()
        raise errors.InvalidError(
            f"{name} {text!r} is ambiguous: write {number}{letter.replace('K', 'k')}B "
            f"(powers of 1,000) or {number}{letter}iB (powers of 1,024)"
        )
    factor = _UNITS.get(unit.lower() or "b")
    if factor is None:
        raise errors.InvalidError(
            f"{name} {text!r} has an unknown unit {unit!r}: write a size {_EXAMPLES}"
        )
    return int(Fraction(number) * factor)


def human(size: int) -> str:
    """A number of bytes for people, in powers of 1,024 and to three digits or so.

    >>> human(65536), human(10**10), human(999), human(0)
    ('64 KiB', '9.31 GiB', '999 B', '0 B')
    """
    value, unit = float(size), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"):
        # 1023.99 KiB is shown as 1 MiB, never as 1024 KiB.
        if round(value, 1) < 1024 or unit == "EiB":
            break
        value /= 1024
    if value == int(value):
        return f"{int(value)} {unit}"
    digits = 2 if value < 10 else 1
    return f"{value:.{digits}f} {unit}"


def human_decimal(size: int) -> str:
    """A number of bytes for people, in powers of 1,000 and to one decimal; half rounds up.

    >>> human_decimal(17_920_000_000), human_decimal(10**10), human_decimal(147_456)
    ('17.9 GB', '10 GB', '147.5 kB')
    """
    power = 0
    # 999.95 kB is shown as 1.0 MB, never as 1000.0 kB.
    while power < 6 and (size >= 1000 ** (power + 1) - 1000**power // 20):
        power += 1
    unit = _DECIMAL_UNITS[power]
    whole, rest = divmod(size, 1000**power)
    if not rest:
        return f"{whole} {unit}"
    tenths = (20 * size + 1000**power) // (2 * 1000**power)
    return f"{tenths // 10}.{tenths % 10} {unit}"


def enough(size: int) -> str:
    """A size that is at least this many bytes, as people write it, in powers of 1,000.

    >>> enough(442_368_000), enough(30_000_000_001)
    ('442.4MB', '30.1GB')
    """
    if size < 1000:
        return f"{size}B"
    power = 1
    while power < 6 and 10 * size > 9_999 * 1000**power:
        power += 1
    tenths = -(-10 * size // 1000**power)
    return f"{tenths / 10:g}{_DECIMAL_UNITS[power]}"


def count(number: int, one: str, more: str = "") -> str:
    """A number of things, whose plural ends in s unless `more` is given.

    >>> count(1, "token"), count(3000, "token"), count(2, "entry", "entries")
    ('1 token', '3,000 tokens', '2 entries')
    """
    return f"{number:,} {one if number == 1 else more or one + 's'}"
