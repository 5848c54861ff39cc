"""Files that no cache has written: each is one clear line, and nothing else happens."""

import os
import random
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from published_files import Forged
from stats_support import directory, failure, stats
from vmkv import published
from vmkv.published import PublishedError, Reader, figures, layout

__all__ = ["directory"]
PID = os.getpid()


def forged() -> Forged:
    file = Forged()
    file.add_sequence(0, 3000)
    file.add_sequence(3, 100)
    return file


def test_a_whole_one_is_read(directory: Path) -> None:
    forged().write(directory)
    with Reader.open(next(directory.iterdir())) as reader:
        snapshot = reader.look(pieces=True, events=True)
    assert published.contradictions(snapshot) == []
    assert snapshot.open_slots.tolist() == [0, 3]


def put(file: Forged, field: str, value: object) -> None:
    file.header[field] = value


HEADERS: dict[str, tuple[dict[str, object], str]] = {
    "magic": ({"magic": 1}, "it doesn't begin as a cache's file does"),
    "major": ({"version_major": 3, "version_minor": 7}, "it has format 3.7, and this vmkv reads"),
    "page": ({"page_bytes": 65537}, "pages of 65,537 bytes"),
    "page 0": ({"page_bytes": 0}, "pages of 0 bytes"),
    "slab": ({"slab_bytes": 2**64 - 1}, "slabs of 18,446,744,073,709,551,615 bytes"),
    "stretches": ({"stretch_pages": 33}, "slabs of 1,024 pages in parts of 33"),
    "stretches of 0": ({"stretch_pages": 0}, "slabs of 1,024 pages in parts of 0"),
    "bits": ({"page_bits": 32}, "places of 64 bits"),
    "many bits": ({"page_bits": 33, "slot_bits": 0}, "places of 57 bits"),
    "layout": ({"layout": 9}, "a layout with number 9"),
    "slots": ({"slot_count": 2**32 - 1}, "4,294,967,295 slots"),
    "slots 0": ({"slot_count": 0}, "it tells of 0 slots"),
    "fewer slots": ({"slot_count": 7}, "8 live entries of as many slots"),
    "pid": ({"pid": 2**32 - 1}, "a process with number 4,294,967,295"),
}


@pytest.mark.parametrize("name", HEADERS)
def test_wrong_header(name: str, directory: Path) -> None:
    fields, message = HEADERS[name]
    file = forged()
    path = file.write(directory)
    for field, value in fields.items():
        file.header[field] = value
    path.write_bytes(file.to_bytes())
    assert message in failure(PID)


def table_of(data: bytearray) -> layout.Array:
    """The table of sections within a file's bytes, to be changed in place."""
    kind, first = layout.dtype("section"), layout.dtype("header").itemsize
    return np.frombuffer(data, kind, len(layout.SECTIONS), first)


HUGE = 2**64 - 1
SECTIONS: dict[str, tuple[int, str, int, str]] = {
    "offset": (3, "offset", HUGE - 63, "reach beyond its end"),
    "offset between": (3, "offset", 3, "slot entries at byte 3"),
    "count": (4, "count", HUGE, "reach beyond its end"),
    # 2^58 entries of 2 x 32 bytes are 2^64 bytes: nothing, in 64 bits.
    "count that overflows": (4, "count", 2**58, "reach beyond its end"),
    "entry": (2, "entry_bytes", HUGE - 7, "live entries of 18,446,744,073,709,551,608 bytes"),
    "entry 0": (2, "entry_bytes", 0, "live entries of 0 bytes"),
    "versions": (2, "versions", 2**32 - 1, "4,294,967,295 versions of each live entry"),
    "versions 0": (2, "versions", 0, "0 versions of each live entry"),
    "twice": (3, "id", 2, "two sections of live entries"),
    "missing": (2, "id", 99, "it has no section of live entries"),
    "no groups": (8, "count", 0, "it tells of 0 group entries"),
    "ring": (6, "count", 5, "a ring of 5 events"),
}


@pytest.mark.parametrize("name", SECTIONS)
def test_wrong_section(name: str, directory: Path) -> None:
    number, field, value, message = SECTIONS[name]
    file = forged()
    data = bytearray(file.to_bytes())
    table = table_of(data)
    table[field][table["id"] == number] = value
    file.write(directory, bytes(data))
    assert re.search(message, failure(PID))


# A file with a hole in it can say so, and takes no room.
@pytest.mark.parametrize("name", ["slab", "place", "live"])
def test_section_that_would_take_all_memory(name: str, directory: Path) -> None:
    data, (number,) = (
        bytearray(forged().to_bytes()),
        [number for number, (section, _) in layout.SECTIONS.items() if section == name],
    )
    table, size = table_of(data), 8 << 30
    table["offset"][table["id"] == number] = -(-len(data) // 64) * 64
    table["count"][table["id"] == number] = 1 << 18
    table["entry_bytes"][table["id"] == number] = 4096
    np.frombuffer(data, layout.dtype("header"), 1)["file_bytes"] = size
    os.truncate(forged().write(directory, bytes(data)), size)
    assert f"262,144 {name} entries, more than any cache's" in failure(PID)


def test_slab_that_would_take_all_memory(directory: Path) -> None:
    file = forged()
    path = file.write(directory)
    file.header["page_bytes"], file.header["slab_pages"] = 4096, 1 << 26
    file.header["slab_bytes"] = 4096 << 26
    path.write_bytes(file.to_bytes())
    assert "slabs of 67,108,864 pages, more than any cache's" in failure(PID)


@pytest.mark.parametrize(
    ("section", "field", "value", "message"),
    [
        ("region", "base", HUGE - 5, "addresses beyond the end of 64 bits"),
        ("region", "slot_stride", HUGE - 65535, "bytes of addresses"),
        ("region", "slot_stride", 0, "slots of 0 bytes of addresses"),
        ("region", "group", 5, "a region of no group"),
        ("region", "token_bytes", HUGE, "tokens that are longer"),
        ("place", "offset", HUGE, "a tensor outside its region"),
        ("place", "region", 77, "a tensor in no region"),
        ("place", "group", 77, "a tensor in no region"),
        ("place", "tensor", 2, "a tensor that its group hasn't"),
        ("place", "layer", 2, "a tensor that its group hasn't"),
        ("group", "policy", 7, "a group of layers that can't be"),
        ("group", "layers", 2**31, "a group with more tensors than there are"),
        ("slab", "bytes", HUGE, "a slab that is longer"),
        ("slot", "state", 9, "a slot in a state that there isn't"),
        ("live", "tokens", 2**32 - 1, "a sequence of more than 32,768 tokens"),
        ("piece", "slot", 255, "a mapping at page 0"),
        ("piece", "region", 255, "a mapping at page 0"),
        ("piece", "page", 65535, "a mapping at page 0"),
        ("piece", "pages", 65535, "a mapping at page 0"),
        ("piece", "pages", 0, "a mapping at page 0"),
        ("piece", "state", 7, "a mapping at page 0"),
        ("state", "steps", HUGE, "more steps than changes"),
    ],
)
def test_wrong_entry(section: str, field: str, value: int, message: str, directory: Path) -> None:
    file = forged()
    file.sections[section][field][0, 0] = value
    file.write(directory)
    assert message in failure(PID)


@pytest.mark.parametrize(
    ("section", "field", "change", "message"),
    [
        ("state", "mapped_bytes", 65536, "mapped bytes of slots"),
        ("state", "sequences", 1, "open sequences: 3 in all, 2 counted"),
        ("state", "live_bytes", 1, "live bytes"),
        ("slot", "mapped_pages", 1, "mapped pages of slot 0"),
        ("slab", "pieces", 1, "mappings of slabs"),
        ("piece", "pages", 1, "a physical page belongs to two mappings"),
        ("live", "tokens", 500, "slot 0 has no memory for some of its 3,500 live tokens"),
    ],
)
def test_contradictions_are_shown_and_said(
    section: str, field: str, change: int, message: str, directory: Path
) -> None:
    file = forged()
    file.sections[section][field][0, 0] += change
    file.write(directory)
    result = stats(PID)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: the file contradicts itself: ")
    assert message in result.stderr
    assert result.stderr.count("\n") == 1
    assert f"{PID}-abcde: forged on host" in result.stdout


# ---- what is no file of ours --------------------------------------------------------------------


def as_fifo(path: Path) -> None:
    os.mkfifo(path)


def as_link(path: Path) -> None:
    other = path.parent.parent / "elsewhere"
    other.write_bytes(forged().to_bytes())
    other.chmod(0o600)
    path.symlink_to(other)


def as_directory(path: Path) -> None:
    path.mkdir()


def as_others(path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("needs root, to make another user's file")
    path.write_bytes(forged().to_bytes())
    path.chmod(0o600)
    os.chown(path, 12345, 12345)


def as_open_to_all(path: Path) -> None:
    path.write_bytes(forged().to_bytes())
    path.chmod(0o622)


def as_empty(path: Path) -> None:
    path.touch(0o600)


def as_cut(path: Path) -> None:
    path.write_bytes(forged().to_bytes()[:100_000])


def as_sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


KINDS: list[tuple[Callable[[Path], None], str]] = [
    (as_fifo, "it is a FIFO, and is not read"),
    (as_link, "it is a symbolic link, and is not read"),
    (as_directory, "it is a directory, and is not read"),
    (as_others, "it is owned by user 12345, and is not read"),
    (as_open_to_all, "others may write to it, and it is not read"),
    (as_empty, "it has 0 bytes, less than a header"),
    (as_cut, "it has 100,000 bytes and should have"),
    (as_sparse, "it has 1,099,511,627,776 bytes, more than any cache's"),
]


@pytest.mark.parametrize(("make", "message"), KINDS, ids=[make.__name__ for make, _ in KINDS])
def test_no_file_of_ours(make: Callable[[Path], None], message: str, directory: Path) -> None:
    make(directory / "4194000-00001.kv")
    forged().write(directory)
    assert failure(4194000) == f"4194000-00001.kv: {message}" or message in failure(4194000)
    result = stats()  # in its place; the others are shown still
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert any(line.startswith(f"{PID}-abcde ") for line in lines)
    assert any(line.startswith("4194000-00001: ") and message in line for line in lines)
    assert result.stderr == ""


@pytest.mark.parametrize("make", [as_fifo, as_link, as_directory], ids=lambda make: make.__name__)
def test_file_that_is_exchanged_before_it_is_opened(
    make: Callable[[Path], None], directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    regular = os.stat(forged().write(directory))
    path = directory / "4194000-00001.kv"
    make(path)
    monkeypatch.setattr(os, "stat", lambda *path, **how: regular)
    with pytest.raises((PublishedError, OSError), match=r"and is not read|symbolic links"):
        Reader.open(path)


@pytest.mark.parametrize("mode", [0o770, 0o707])
def test_directory_of_others(mode: int, directory: Path) -> None:
    forged().write(directory)
    directory.chmod(mode)
    result = stats()
    assert result.exit_code == 1
    assert f"others may write to {directory}: nothing in it is believed" in result.stdout


def test_directory_that_is_a_link(directory: Path) -> None:
    forged().write(directory)
    elsewhere = directory.rename(directory.parent / "elsewhere")
    directory.symlink_to(elsewhere)
    result = stats()
    assert result.exit_code == 1
    assert f"{directory} is a symbolic link: nothing in it is believed" in result.stdout


def test_name_that_would_write_to_the_terminal(directory: Path) -> None:
    file = forged()
    file.header["program"] = b"\x1b]0;gotcha\x07"
    file.write(directory)
    (directory / "\x1b[2J.kv").write_bytes(b"")
    result = stats()
    assert "\x1b" not in result.stdout
    assert "?]0;gotcha?" in result.stdout
    assert "?[2J: it has 0 bytes" in result.stdout


@pytest.mark.parametrize("name", ["x[bold]", "a[/b]", ":smile:"])
def test_name_that_means_something_to_what_draws_tables(name: str, directory: Path) -> None:
    file = forged()
    file.header["program"] = file.header["driver"] = name.encode()
    file.header["device"] = f"{name}?vram={name}".encode()
    path = file.write(directory)
    for arguments in ((), (PID,)):
        shown = stats(*arguments)
        assert shown.exit_code == 0
        assert name in shown.stdout
    row = next(line for line in stats().stdout.splitlines() if line.startswith(path.stem))
    assert row.split()[1:3] == [name, f"{name}?vram={name}"]


def test_file_that_is_cut_while_it_is_open(directory: Path) -> None:
    path = forged().write(directory)
    with Reader.open(path) as reader:
        reader.look(pieces=True)
        os.truncate(path, 5000)
        with pytest.raises(PublishedError, match=r"it was cut short at byte \d"):
            reader.look(pieces=True)


# ---- at random ----------------------------------------------------------------------------------


def look_all_over(path: Path) -> None:
    """Everything that `vmkv stats` does with a file."""
    with Reader.open(path) as reader:
        snapshot = reader.look(pieces=True, events=True)
        figures.of_cache(snapshot, published.Condition.DEAD)
        published.contradictions(snapshot)
        figures.of_sequences(snapshot)
        figures.of_slabs(snapshot)
        figures.of_runs(snapshot)
        figures.of_times(snapshot)
        for index, mapping in enumerate(published.mappings(snapshot)):
            if index > 20:
                break
            spot = published.locate(snapshot, mapping.start)
            assert spot is not None
            published.events_at(snapshot, spot)
        published.windows(snapshot)


def refused(path: Path) -> str:
    """Why a file is refused; "" if it isn't."""
    try:
        look_all_over(path)
    except PublishedError as error:
        return str(error)
    return ""


def spoil(random_: random.Random, data: bytearray) -> None:
    """Change some of it: bytes anywhere, numbers where they count, or whole parts."""
    first = layout.dtype("header").itemsize
    interesting = [0, 1, 2**31, 2**32 - 1, 2**63, HUGE, HUGE - 63, 2**58, 4096, 64]
    for _ in range(random_.choice((1, 1, 1, 3, 10))):
        kind = random_.randrange(5)
        if kind == 0:
            data[random_.randrange(len(data))] = random_.randrange(256)
        elif kind == 1:
            at = random_.randrange((first + 40 * len(layout.SECTIONS)) // 8) * 8
            data[at : at + 8] = random_.choice(interesting).to_bytes(8, "little")
        elif kind == 2:
            at = random_.randrange((first + 40 * len(layout.SECTIONS)) // 4) * 4
            data[at : at + 4] = (random_.choice(interesting) & 0xFFFFFFFF).to_bytes(4, "little")
        elif kind == 3:
            at, size = random_.randrange(len(data)), random_.randrange(1, 5000)
            data[at : at + size] = random_.randbytes(len(data[at : at + size]))
        else:
            offsets = table_of(bytearray(data))["offset"].tolist()
            at = min(random_.choice(offsets) + 8 * random_.randrange(40), len(data) - 8)
            data[at : at + 8] = random_.choice(interesting).to_bytes(8, "little")


def test_random_files(directory: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    print(f"seed {seed}")
    # Nobody writes to them: they don't get better by waiting.
    monkeypatch.setattr("vmkv.published.reader.PATIENCE_SECONDS", 0.001)
    random_, whole = random.Random(seed), forged().to_bytes()
    told = {"read": 0, "refused": 0}
    path = forged().write(directory)
    for _ in range(400):
        data = bytearray(whole)
        spoil(random_, data)
        if random_.random() < 0.1:
            del data[random_.randrange(len(data)) :]
        path.write_bytes(data)
        refusal = refused(path)
        told["refused" if refusal else "read"] += 1
        assert "\n" not in refusal
        assert refusal == "" or refusal.startswith(str(path))
    assert min(told.values()) > 20, told


def test_nothing_but_noise(directory: Path, seed: int) -> None:
    random_ = random.Random(seed)
    path = forged().write(directory)
    for size in (0, 1, 8, 100, 1000, 100_000):
        for begin in (b"", layout.MAGIC.to_bytes(8, "little")):
            path.write_bytes((begin + random_.randbytes(size))[: max(size, len(begin))])
            with pytest.raises(PublishedError):
                look_all_over(path)
            assert failure(PID)
