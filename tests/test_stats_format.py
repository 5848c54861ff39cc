"""The format: what Python takes it for is what the C header of this tree says."""

import re

import numpy as np
import pytest

from published_files import Forged
from support import ROOT
from vmkv.published import layout

HEADER = (ROOT / "native" / "src" / "publish_format.h").read_text(encoding="utf-8")
CODE = re.sub(r"/\*.*?\*/", " ", HEADER, flags=re.DOTALL)
STRUCTS = {
    name: re.findall(r"(\w+)\s+([^;]+);", body)
    for name, body in re.findall(r"struct vmkv_published_(\w+) \{(.*?)\};", CODE, re.DOTALL)
}
CONSTANTS = {name: int(value) for name, value in re.findall(r"#define (\w+) (\d+)\s", CODE)}
BYTES = {"uint64_t": 8, "uint32_t": 4, "uint16_t": 2, "uint8_t": 1, "char": 1}


def members(name: str) -> list[tuple[str, int, int]]:
    """Names, sizes and counts of a struct's members, in order."""
    found = []
    for kind, declared in STRUCTS[name]:
        for one in declared.split(","):
            match = re.fullmatch(r"\s*(\w+)(?:\[(\w+)\])?\s*", one)
            assert match
            length = match[2] or "1"
            found.append((match[1], BYTES[kind], int(CONSTANTS.get(length) or length)))
    return found


def test_all_structs_are_known() -> None:
    used = {name for name, _ in layout.SECTIONS.values()} | {"header", "section"}
    assert used == set(STRUCTS)


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_struct_is_as_the_header_has_it(name: str) -> None:
    kind, offset = layout.dtype(name), 0
    fields = dict(kind.fields or {})
    told = members(name)
    assert kind.names == tuple(member for member, _, _ in told)
    for member, size, length in told:
        offset = -(-offset // size) * size
        field = fields[member]
        assert (member, field[1], field[0].itemsize) == (member, offset, size * length)
        offset += size * length
    assert kind.itemsize == -(-offset // 8) * 8


def test_sections_and_names_are_as_the_header_has_them() -> None:
    numbers = dict(re.findall(r"VMKV_PUBLISHED_(\w+) = (\d+)", CODE))
    sections = {int(numbers[name]) for name in (
        "STATE", "LIVES", "SLOTS", "PIECES", "SLABS", "RING", "TIMES", "GROUPS", "REGIONS", "PLACES"
    )}  # fmt: skip
    assert sections == set(layout.SECTIONS)
    for prefix, known in (
        ("SLOT_", layout.SLOT_STATES),
        ("PIECE_", layout.PIECE_STATES),
        ("EVENT_", layout.EVENT_KINDS),
        ("CALL_", layout.CALLS),
    ):
        told = {
            int(number): name.removeprefix(prefix).lower()
            for name, number in numbers.items()
            if name.startswith(prefix)
        }
        assert known == told
    assert CONSTANTS["VMKV_PUBLISHED_EVENTS"] == layout.EVENTS
    assert CONSTANTS["VMKV_PUBLISHED_BUCKETS"] == layout.BUCKETS
    assert CONSTANTS["VMKV_PUBLISHED_MAJOR"] == layout.MAJOR
    magic = re.search(r'PUBLISHED_MAGIC \w+ /\* "(\w+)" \*/', HEADER)
    assert magic
    assert Forged().to_bytes()[:8] == magic[1].encode()


def test_longer_entries_keep_their_fields() -> None:
    kind = layout.widened(layout.dtype("piece"), 48)
    assert kind.itemsize == 48
    assert kind.names == layout.dtype("piece").names
    assert np.zeros(2, kind)["place"].tolist() == [0, 0]
