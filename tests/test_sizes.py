"""Sizes as people write them."""

import numpy as np
import pytest

from vmkv import errors, sizes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("10GB", 10**10),
        ("10GiB", 10 * 2**30),
        ("64KiB", 65536),
        ("64kib", 65536),
        ("64 KiB ", 65536),
        ("1.5GiB", 3 * 2**29),
        ("0.1GB", 10**8),
        ("1.1KiB", 1126),
        ("2kB", 2000),
        ("3MB", 3 * 10**6),
        ("3MiB", 3 * 2**20),
        ("2TB", 2 * 10**12),
        ("2TiB", 2 * 2**40),
        ("1PiB", 2**50),
        ("15EiB", 15 * 2**60),
        ("17B", 17),
        ("4096", 4096),
        ("0", 0),
        ("18446744073709551615", 2**64 - 1),
    ],
)
def test_text(text: str, size: int) -> None:
    assert sizes.parse(text) == size


def test_integers_of_all_kinds() -> None:
    assert sizes.parse(4096) == 4096
    parsed = sizes.parse(np.uint64(2**63))
    assert parsed == 2**63
    assert type(parsed) is int


@pytest.mark.parametrize(
    ("value", "kind", "message"),
    [
        ("", errors.InvalidError, "budget '' is not a size such as 10GB"),
        ("lots", errors.InvalidError, "budget 'lots' is not a size such as 10GB"),
        ("1e9", errors.InvalidError, "is not a size"),
        ("1,000", errors.InvalidError, "is not a size"),
        ("10 G B", errors.InvalidError, "is not a size"),
        ("٣KiB", errors.InvalidError, "is not a size"),
        ("10G", errors.InvalidError, "ambiguous: write 10GB .* or 10GiB"),
        ("4k", errors.InvalidError, "ambiguous: write 4kB .* or 4KiB"),
        ("1e", errors.InvalidError, "ambiguous: write 1EB .* or 1EiB"),
        ("10g", errors.InvalidError, "ambiguous: write 10GB .* or 10GiB"),
        ("64K", errors.InvalidError, "ambiguous: write 64kB .* or 64KiB"),
        ("10GX", errors.InvalidError, "unknown unit 'GX'"),
        ("10bits", errors.InvalidError, "unknown unit 'bits'"),
        ("-1", errors.InvalidError, "budget is -1: a size can't be negative"),
        (-1, errors.InvalidError, "budget is -1: a size can't be negative"),
        ("16EiB", errors.SizeError, "at most 18446744073709551615 bytes"),
        (2**64, errors.SizeError, "at most 18446744073709551615 bytes"),
        (1.5, TypeError, "budget is a size such as .* not a float"),
        (None, TypeError, "not a NoneType"),
    ],
)
def test_what_is_no_size(value: str | int, kind: type[Exception], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        sizes.parse(value, "budget")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1 KiB"),
        (1536, "1.50 KiB"),
        (147456, "144 KiB"),
        (70272, "68.6 KiB"),
        (2**20 - 1, "1.00 MiB"),
        (10**10, "9.31 GiB"),
        (2**64, "16 EiB"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert sizes.human(size) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1 kB"),
        (1049, "1.0 kB"),
        (1050, "1.1 kB"),
        (999_949, "999.9 kB"),
        (999_950, "1.0 MB"),
        (8_960_000_000, "9.0 GB"),
        (17_920_000_000, "17.9 GB"),
        (2**64, "18.4 EB"),
        (10**22, "10000 EB"),
    ],
)
def test_decimal_sizes_for_people(size: int, text: str) -> None:
    assert sizes.human_decimal(size) == text


def test_a_size_of_thousands_of_digits_is_too_large() -> None:
    with pytest.raises(errors.SizeError, match="has 5000 digits: a size is at most"):
        sizes.parse("9" * 5000, "budget")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0B"),
        (999, "999B"),
        (1000, "1kB"),
        (1001, "1.1kB"),
        (442_368_000, "442.4MB"),
        (999_900_000, "999.9MB"),
        (999_900_001, "1GB"),
        (30_000_000_000, "30GB"),
        (2**64 - 1, "18.5EB"),
    ],
)
def test_sizes_that_are_enough(size: int, text: str) -> None:
    assert sizes.enough(size) == text
    if size < 2**64 - 1:
        assert size <= sizes.parse(text) <= 1.1 * size


def test_numbers_of_things() -> None:
    assert [sizes.count(number, "token") for number in (0, 1, 2000)] == [
        "0 tokens",
        "1 token",
        "2,000 tokens",
    ]
    assert [sizes.count(number, "entry", "entries") for number in (1, 2)] == [
        "1 entry",
        "2 entries",
    ]
