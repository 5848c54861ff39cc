"""Whole states: which of two versions counts, and what is copied again."""

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from published_files import BASE, PAGE_BYTES, ROW_BYTES, STRIDE, Forged
from stats_support import directory
from vmkv import published
from vmkv.published import PublishedError, Reader, Snapshot, events, figures, layout
from vmkv.published.file import Section
from vmkv.published.quick import QuickLook

__all__ = ["directory"]
WRITING = 2**64 - 1


def look(file: Forged, directory: Path, **what: bool) -> Snapshot:
    with Reader.open(file.write(directory)) as reader:
        return reader.look(**what)


@pytest.mark.parametrize(
    ("epochs", "counts"),
    [
        ((10, 9), 0),
        ((9, 10), 1),
        ((0, 3), 1),
        ((3, 11), 0),  # beyond the header's epoch: a change that never was whole
        ((WRITING, 3), 1),
        ((0, WRITING), 0),
        ((11, 0), 1),  # never written is a version, too: all zero
    ],
)
def test_version_that_counts(epochs: tuple[int, int], counts: int, directory: Path) -> None:
    file = Forged()
    file.add_sequence(0, 640)
    for version, epoch in enumerate(epochs):
        file.sections["live"][0, version]["epoch"] = epoch
        file.sections["live"][0, version]["tokens"] = 600 + version
    assert look(file, directory).lives["tokens"][0] == 600 + counts


@pytest.mark.parametrize(
    "first", [("times", "slab", "slot"), ("slab", "times", "state"), ("live", "state"), ("place",)]
)
def test_sections_in_any_order(first: tuple[str, ...], directory: Path) -> None:
    snapshots = []
    for order in ((), first):
        file = Forged(first=order)
        file.add_sequence(0, 640)
        file.sections["times"][1, 0]["sum_ns"] = 77
        snapshots.append(look(file, directory, pieces=True, events=True))
    for name in ("lives", "slots", "slabs", "times", "pieces", "places"):
        one, other = (getattr(snapshot, name) for snapshot in snapshots)
        assert (one == other).all()
    assert snapshots[0].state == snapshots[1].state
    assert int(snapshots[1].times[1]["sum_ns"]) == 77
    assert published.contradictions(snapshots[1]) == []


def test_file_that_is_no_state_and_stands_still(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmkv.published.reader.PATIENCE_SECONDS", 0.01)
    file = Forged()
    file.sections["slot"]["epoch"][0] = 11, WRITING
    with pytest.raises(PublishedError, match="what it holds was never one state"):
        look(file, directory)


class Writer:
    """A cache that changes its file whenever the reader has read a section of some name, were it in
    the middle of a read of several."""

    def __init__(self, reader: Reader, path: Path, file: Forged, after: str, changes: int) -> None:
        self.path, self.file, self.after, self.left = path, file, after, changes
        self.sections = [reader.file.section(name) for name, _ in layout.SECTIONS.values()]
        self.read_file = reader.file.read
        reader.quick = None  # it doesn't read by that
        self.reads: list[str] = []

    def read(self, offset: int, size: int) -> bytes:
        """Instead of `PublishedFile.read`."""
        data, at = b"", offset
        for section in sorted(self.sections, key=lambda section: section.offset):
            begin, end = max(at, section.offset), min(offset + size, section.end)
            if begin < end:
                data += self.read_file(at, begin - at)
                data += self.read_part(section, begin, end - begin)
                at = end
        return data + self.read_file(at, offset + size - at)

    def read_part(self, section: Section, offset: int, size: int) -> bytes:
        """What lies in one section."""
        part = self.read_file(offset, size)
        self.reads.append(section.name)
        if section.name == self.after and self.left:
            self.left -= 1
            self.change()
        return part

    def change(self) -> None:
        """One more step of slot 0: its entries and the state's get a new version."""
        file = self.file
        file.epoch += 1
        for name in ("live", "slot", "slab", "state", "piece"):
            versions = file.sections[name][0]
            older = int(np.argmin(versions["epoch"]))
            versions[older] = versions[1 - older]
            versions[older]["epoch"] = file.epoch
        self.newest("live")["tokens"] += 1
        self.newest("state")["steps"] += 1
        self.newest("state")["live_bytes"] += 2 * file.layers * ROW_BYTES
        file.header["epoch"] = file.epoch
        # In place: a new file of the same name would be another one to the reader.
        with self.path.open("r+b") as out:
            out.write(file.to_bytes())

    def newest(self, name: str) -> Any:
        versions = self.file.sections[name][0]
        return versions[np.argmax(versions["epoch"])]


@pytest.fixture
def forged(directory: Path) -> Iterator[tuple[Forged, Reader, Path]]:
    file = Forged()
    file.add_sequence(0, 600)
    path = file.write(directory)
    with Reader.open(path) as reader:
        yield file, reader, path


@pytest.mark.parametrize("after", ["live", "slot", "slab", "piece", "state"])
@pytest.mark.parametrize("changes", [1, 2, 3, 7])
def test_changes_meanwhile(
    after: str, changes: int, forged: tuple[Forged, Reader, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reader, path = forged
    writer = Writer(reader, path, file, after, changes)
    monkeypatch.setattr(reader.file, "read", writer.read)
    snapshot = reader.look(pieces=True)
    assert writer.left == 0 or after == "piece"
    assert snapshot.settled
    assert published.contradictions(snapshot) == []
    # Whichever state it is, the length and the number of the change are those of one moment.
    assert snapshot.lives["tokens"][0] == 600 + snapshot.epoch - 10


@pytest.mark.parametrize("name", ["live", "slot", "slab", "piece"])
def test_copy_of_what_is_just_written_is_not_believed(
    name: str, forged: tuple[Forged, Reader, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reader, path = forged
    torn: list[str] = []

    class Tearing(Writer):
        def read_part(self, section: Section, offset: int, size: int) -> bytes:
            part = super().read_part(section, offset, size)
            if section.name != name or torn:
                return part
            # Its epoch was copied before the next change but one began, the rest after that.
            torn.append(name)
            field = {"live": "tokens", "slot": "mapped_pages", "slab": "bytes", "piece": "place"}
            entries = np.frombuffer(part, section.dtype).copy()
            entries[field[name]][:2] = PAGE_BYTES
            self.change()
            self.change()
            return entries.tobytes()

    monkeypatch.setattr(reader.file, "read", Tearing(reader, path, file, "", 0).read)
    snapshot = reader.look(pieces=True)
    assert torn
    assert published.contradictions(snapshot) == []
    assert snapshot.epoch == 12


def test_cache_that_never_rests_is_shown_as_it_comes(
    forged: tuple[Forged, Reader, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reader, path = forged
    writer = Writer(reader, path, file, "live", 10**9)
    monkeypatch.setattr("vmkv.published.reader.PATIENCE_SECONDS", 0.05)
    monkeypatch.setattr(reader.file, "read", writer.read)
    snapshot = reader.look(pieces=True)
    assert not snapshot.settled
    assert published.contradictions(snapshot) == []
    assert abs(int(snapshot.lives["tokens"][0]) - 600 - snapshot.epoch + 10) <= 2


@pytest.mark.parametrize("what", ["look", "steps"])
def test_cache_that_outruns_its_reader_is_not_damaged(
    what: str, forged: tuple[Forged, Reader, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both versions of its state are newer than the epoch that was read before, for a while."""
    file, reader, path = forged
    rest = time.monotonic() + 0.15

    class Outrunning(Writer):
        def read_part(self, section: Section, offset: int, size: int) -> bytes:
            if section.name == "state" and time.monotonic() < rest:
                self.change()
                self.change()
            return super().read_part(section, offset, size)

    writer = Outrunning(reader, path, file, "", 0)
    monkeypatch.setattr("vmkv.published.reader.PATIENCE_SECONDS", 0.1)
    monkeypatch.setattr(reader.file, "read", writer.read)
    if what == "steps":
        monkeypatch.setattr("vmkv.published.reader.PATIENCE_SECONDS", 10)
        assert reader.steps()[0] == writer.newest("state")["steps"]
    else:
        assert published.contradictions(reader.look(pieces=True)) == []
    assert time.monotonic() >= rest


def test_only_what_changed_is_copied_again(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = Forged(slabs=64, slots=64)
    for slot in range(64):
        file.add_sequence(slot, 7990)
    path = file.write(directory)
    with Reader.open(path) as reader:
        writer = Writer(reader, path, file, "", 0)
        monkeypatch.setattr(reader.file, "read", writer.read)
        first = reader.look(pieces=True)
        assert writer.reads.count("piece") == 16  # 4 slabs at a time
        writer.reads.clear()
        second = reader.look(pieces=True)
        assert writer.reads.count("piece") == 0
        assert second.pieces is not None
        assert (second.pieces == first.pieces).all()
        writer.change()
        writer.reads.clear()
        third = reader.look(pieces=True)
        assert writer.reads.count("piece") == 1
        assert published.contradictions(third) == []


def test_first_try_finds_the_same(
    forged: tuple[Forged, Reader, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, reader, path = forged
    with Reader.open(path) as slow:
        slow.quick = None
        writer = Writer(slow, path, file, "", 0)
        monkeypatch.setattr(reader, "_live", None)
        monkeypatch.setattr(reader, "_tables", None)
        for change in range(4):
            snapshot, other = (one.look(pieces=change % 2 == 0) for one in (reader, slow))
            assert (snapshot.epoch, snapshot.state) == (other.epoch, other.state)
            for name in ("lives", "slots", "slabs", "times"):
                assert (getattr(snapshot, name) == getattr(other, name)).all()
            assert published.contradictions(snapshot) == []
            writer.change()


def test_first_try_leaves_to_others_what_is_not_whole(
    forged: tuple[Forged, Reader, Path],
) -> None:
    file, reader, path = forged
    assert reader.quick is not None
    assert reader.quick.live() is not None
    assert reader.quick.grown() is not None
    writer = Writer(reader, path, file, "", 0)
    quick = QuickLook(reader.file)
    assert quick.live() is not None
    writer.change()  # of more than lives
    assert quick.grown() is None
    file.sections["live"]["epoch"][0] = 12, WRITING
    path.write_bytes(file.to_bytes())
    assert quick.live() is None
    reader.close()
    assert quick.live() is None


def test_heartbeat_counts_steps_that_map_nothing(directory: Path) -> None:
    file = Forged()
    file.sections["state"][0, 0]["epoch"], file.sections["state"][0, 0]["steps"] = 7, 5
    snapshot = look(file, directory)
    assert snapshot.steps == 5 + 10 - 7


@pytest.mark.parametrize(
    ("epochs", "states", "counts"),
    [
        ((10, 9), (1, 3), 1),
        ((11, 9), (1, 3), 3),  # a change that never was whole
        ((11, 9), (0, 3), 3),
        ((11, 10), (1, 0), 0),
        ((11, 0), (1, 0), 0),  # never written before
        ((4200, 10), (1, 3), None),  # what was before 4,095 epochs is forgotten
        ((12, 11), (3, 1), None),
    ],
)
def test_state_of_a_piece_that_counts(
    epochs: tuple[int, int],
    states: tuple[int, int],
    counts: int | None,
    directory: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("vmkv.published.reader.PATIENCE_SECONDS", 0.01)
    file = Forged()
    first = file.add_piece(3, 1, 5, 4)
    for version in range(2):
        piece = file.sections["piece"][first, version]
        piece["epoch"], piece["state"] = epochs[version], states[version]
        piece["slot"], piece["region"], piece["page"], piece["pages"] = 3, 1, 5, 4
    if counts is None:
        with pytest.raises(PublishedError, match="what it holds was never one state"):
            look(file, directory, pieces=True)
        return
    pieces = look(file, directory, pieces=True).pieces
    assert pieces is not None
    told = [tuple(piece) for piece in pieces[["slot", "region", "page", "pages", "phys", "state"]]]
    assert told == ([(3, 1, 5, 4, first, counts)] if counts else [])


# ---- events --------------------------------------------------------------------------------------


def with_events(last: int) -> Forged:
    file = Forged()
    file.sections["state"][0, 0]["events"] = last
    ring = file.sections["event"][:, 0]
    for serial in range(max(1, last - layout.EVENTS + 1), last + 1):
        event = ring[(serial - 1) % layout.EVENTS]
        event["serial"], event["time_ns"], event["kind"] = serial, 1000 * serial, 1
        event["address"], event["bytes"] = BASE + serial * PAGE_BYTES, PAGE_BYTES
        event["slot"], event["region"], event["seq"] = 0, 0, 5
    return file


@pytest.mark.parametrize("last", [0, 1, 4095, 4096, 4097, 10_000])
def test_events_come_in_their_order(last: int, directory: Path) -> None:
    snapshot = look(with_events(last), directory, events=True)
    assert snapshot.events is not None
    assert snapshot.events["serial"].tolist() == list(range(max(1, last - 4095), last + 1))


def test_events_that_are_no_part_of_the_state_are_left_out(directory: Path) -> None:
    file = with_events(5000)
    file.sections["state"][0, 0]["events"] = 4990
    file.sections["event"][0, 0]["serial"] = 0  # being written: it was 4097
    snapshot = look(file, directory, events=True)
    assert snapshot.events is not None
    # Those up to 904 were overwritten by ten that are beyond the state.
    assert snapshot.events["serial"].tolist() == [n for n in range(905, 4991) if n != 4097]


def test_events_since_one_that_is_known(directory: Path) -> None:
    with Reader.open(with_events(5000).write(directory)) as reader:
        assert events.read_ring(reader.file, 5000, 4997)["serial"].tolist() == [4998, 4999, 5000]
        assert events.read_ring(reader.file, 5000, 5000)["serial"].tolist() == []
        new, lost = reader.events_since(4998)
        assert (new["serial"].tolist(), lost) == ([4999, 5000], 0)
        new, lost = reader.events_since(0)
        assert (len(new), lost) == (4096, 904)


# ---- figures -------------------------------------------------------------------------------------


def test_quantiles() -> None:
    record = np.zeros((), layout.dtype("times"))
    assert figures.quantile_ns(record, 0.5) is None
    record["buckets"][10], record["max_ns"] = 100, 2000
    assert figures.quantile_ns(record, 0.5) == 1536
    record["buckets"][20], record["max_ns"] = 2, 1_100_000
    assert 1 << 20 <= (figures.quantile_ns(record, 0.99) or 0) <= 1_100_000


def test_window_has_passed_tokens_that_are_mapped_still(directory: Path) -> None:
    file = Forged()
    file.add_sequence(2, 1000)
    file.sections["group"][0, 0]["window_tokens"] = 300
    file.sections["group"][0, 0]["policy"] = 1
    snapshot = look(file, directory, pieces=True)
    (row,) = figures.of_sequences(snapshot)
    rows = 2 * file.layers
    assert row["live_bytes"] == 300 * ROW_BYTES * rows
    assert row["dead_mapped_bytes"] == 700 * ROW_BYTES * rows
    assert row["mapped_bytes"] == 32 * PAGE_BYTES * rows
    assert row["tail_waste_bytes"] == (32 * PAGE_BYTES - 1000 * ROW_BYTES) * rows


def test_runs_go_on_through_mappings(directory: Path) -> None:
    file = Forged()
    file.add_piece(0, 0, 0, 4)
    file.add_piece(0, 0, 4, 4)  # goes on in both
    file.add_piece(0, 0, 9, 1)  # a hole in the addresses
    file.add_piece(1, 0, 0, 1)  # another slot
    snapshot = look(file, directory, pieces=True)
    runs = [(row["from_bytes"], row["runs"], row["bytes"]) for row in figures.of_runs(snapshot)]
    assert runs == [(PAGE_BYTES, 2, 2 * PAGE_BYTES), (8 * PAGE_BYTES, 1, 8 * PAGE_BYTES)]


# ---- addresses -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("offset", "status", "token"),
    [
        (0, "live", 0),
        (640 * ROW_BYTES - 1, "live", 639),
        (640 * ROW_BYTES, "ahead", 640),
        (700 * ROW_BYTES, "unmapped", 700),
    ],
)
def test_address_of_a_row(offset: int, status: str, token: int, directory: Path) -> None:
    file = Forged()
    sequence = file.add_sequence(3, 640)
    file.add_piece(3, 1, 20, 1)
    snapshot = look(file, directory, pieces=True)
    spot = published.locate(snapshot, BASE + (file.slots + 3) * STRIDE + offset)
    assert spot is not None
    assert (spot.status, spot.token, spot.row_byte) == (status, token, offset % ROW_BYTES)
    assert (spot.sequence, spot.slot, spot.group) == (sequence, 3, 0)
    assert (spot.layer, spot.tensor) == (0, "v")
    assert (spot.mapping is None) == (status == "unmapped")


def test_address_in_the_alias_of_a_slab(directory: Path) -> None:
    file = Forged()
    file.add_sequence(3, 640)
    alias = 0x1234_0000_0000
    file.sections["slab"][1, 0]["alias"], file.sections["slab"][0, 0]["alias"] = 1 << 40, alias
    snapshot = look(file, directory, pieces=True)
    spot = published.locate(snapshot, alias + 20 * PAGE_BYTES + 5)
    assert spot is not None
    assert spot.through_alias
    assert (spot.slab, spot.offset, spot.tensor) == (0, 20 * PAGE_BYTES + 5, "v")
    free = published.locate(snapshot, (1 << 40) + 5)
    assert free is not None
    assert (free.status, free.slab, free.offset, free.sequence) == ("unmapped", 1, 5, None)


@pytest.mark.parametrize("address", [0, BASE - 1, BASE + 4 * 8 * STRIDE, 2**64 - 1, 2**64, -1])
def test_address_outside_all_windows(address: int, directory: Path) -> None:
    snapshot = look(Forged(), directory, pieces=True)
    assert published.locate(snapshot, address) is None
    assert published.windows(snapshot) == [(BASE, BASE + 4 * 8 * STRIDE)]
