"""Packets of the SDMA engines: copies, fills and writes by GPU addresses.

Each function returns a packet as a list of dwords. Formats: SDMA 4 (gfx9) to SDMA 7 (gfx12), as the
kernel's drivers of those engines (sdma_v4_0.c to sdma_v7_0.c) and Mesa write them.
"""

from __future__ import annotations

from vmkv import errors
from vmkv._values import check_count

_NOP = 0
_COPY = 1
_WRITE = 2
_FENCE = 5
_CONST_FILL = 11

_FILL_DWORDS = 2 << 30
_FENCE_UNCACHED = 3 << 16

_WRITE_MAX_DWORDS = 1 << 20


def max_bytes(version: tuple[int, int]) -> int:
    """How much one copy or fill packet does at most, on an engine of that (major, minor) version:
    their fields for a count have 22 bits before 5.2, and 30 from then on."""
    return 1 << 30 if version >= (5, 2) else 1 << 22


def nop(dwords: int = 1) -> list[int]:
    """So many packets that do nothing."""
    return [_NOP] * check_count("dwords", dwords)


def _address(name: str, address: int, align: int = 1) -> list[int]:
    number = check_count(name, address, 64)
    if number % align:
        raise errors.InvalidError(f"{name} is {number:#x}: it is a multiple of {align}")
    return [number & 0xFFFFFFFF, number >> 32]


def _bytes(size: int, version: tuple[int, int], align: int = 1) -> int:
    number = check_count("size", size, 64)
    if not 0 < number <= max_bytes(version) or number % align:
        raise errors.InvalidError(
            f"size is {number}: it is 1 to {max_bytes(version)} bytes, a multiple of {align}"
        )
    return number


def copy(destination: int, source: int, size: int, version: tuple[int, int]) -> list[int]:
    """Copy size bytes from one address to another."""
    count = _bytes(size, version) - 1
    return [_COPY, count, 0, *_address("source", source), *_address("destination", destination)]


def fill(address: int, size: int, value: int, version: tuple[int, int]) -> list[int]:
    """Fill size bytes with a value of 32 bits; both are multiples of 4."""
    count = _bytes(size, version, 4) - 1
    return [
        _CONST_FILL | _FILL_DWORDS,
        *_address("address", address, 4),
        check_count("value", value),
        count,
    ]


def write(address: int, data: bytes | list[int]) -> list[int]:
    """Write data that is part of the packet: bytes, a multiple of 4 of them, or dwords."""
    if isinstance(data, bytes):
        if len(data) % 4:
            raise errors.InvalidError(f"data has {len(data)} bytes: it has a multiple of 4")
        dwords = [int.from_bytes(data[i : i + 4], "little") for i in range(0, len(data), 4)]
    else:
        dwords = [check_count("a dword", dword) for dword in data]
    if not 0 < len(dwords) <= _WRITE_MAX_DWORDS:
        raise errors.InvalidError(f"{len(dwords)} dwords: they are 1 to {_WRITE_MAX_DWORDS}")
    return [_WRITE, *_address("address", address, 4), len(dwords) - 1, *dwords]


def fence(address: int, value: int, version: tuple[int, int]) -> list[int]:
    """Write a value of 32 bits once all before it is done."""
    header = _FENCE | (_FENCE_UNCACHED if version[0] >= 5 else 0)
    return [header, *_address("address", address, 4), check_count("value", value)]
