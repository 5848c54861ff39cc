"""`vmkv stats --follow` and --trace: what happens in a cache, as it happens."""

import json
import os
import re
import signal
import subprocess
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from published_files import BASE, PAGE_BYTES, STRIDE, Forged
from stats_support import directory, engine, running, stats
from support import environment
from vmkv.published import Reader, layout
from vmkv.published.following import Follower

__all__ = ["directory", "engine"]
PID = os.getpid()
PROGRAM = Path(sysconfig.get_path("scripts"), "vmkv")
KIND = {name: number for number, name in layout.EVENT_KINDS.items()}
NONE = 0xFFFFFFFF


def add_event(file: Forged, kind: str, **fields: int) -> int:
    """Write an event to the ring; returns its serial."""
    state = file.sections["state"][0, 0]
    state["events"] += 1
    serial = int(state["events"])
    event = file.sections["event"][(serial - 1) % layout.EVENTS, 0]
    values = {"slot": NONE, "region": NONE, "regions": 0, "seq": 0, "address": 0, "bytes": 0}
    values |= {"duration_ns": 0, "step": serial, "time_ns": int(file.header["created_ns"]) + serial}
    for name, value in (values | fields).items():
        event[name] = value
    event["kind"], event["serial"] = KIND[kind], serial
    return serial


def forged() -> Forged:
    """An open, a map in all four regions, a shortage, a close, a slab."""
    file = Forged()
    seq = file.add_sequence(0, 3000)
    of_slot: dict[str, int] = {"slot": 0, "seq": seq}
    add_event(file, "slab", region=1, address=0x1000, bytes=64 << 20)
    add_event(file, "open", **of_slot)
    add_event(
        file, "map", region=0, regions=4, address=BASE, bytes=PAGE_BYTES, duration_ns=5000,
        **of_slot,
    )  # fmt: skip
    add_event(
        file, "map", region=2, regions=1, address=BASE + 16 * STRIDE, bytes=2 * PAGE_BYTES,
        duration_ns=5000, time_ns=int(file.header["created_ns"]) + 3, **of_slot,
    )  # fmt: skip
    add_event(file, "shortage", region=2, bytes=17, **of_slot)
    add_event(file, "shortage", region=1, bytes=1 << 20, **of_slot)
    add_event(file, "close", bytes=6 * PAGE_BYTES, **of_slot)
    return file


def rewrite(path: Path, file: Forged) -> None:
    """Change a file that is being read: a change more, whose number is written last."""
    file.header["epoch"] += 1
    file.sections["state"]["epoch"][0, 0] = file.header["epoch"]
    data = file.to_bytes()
    kind, first = layout.dtype("section"), layout.dtype("header").itemsize
    table = np.frombuffer(data, kind, len(layout.SECTIONS), first)
    begin = int(table["offset"][table["id"] == 1][0])
    end = begin + file.sections["state"].nbytes
    with path.open("r+b", buffering=0) as out:
        os.pwrite(out.fileno(), data[end:], end)
        os.pwrite(out.fileno(), data[begin:end], begin)
        os.pwrite(out.fileno(), data[:first], 0)


# ---- the follower -------------------------------------------------------------------------------


def test_each_event_is_told_once(directory: Path) -> None:
    file = forged()
    path = file.write(directory)
    with Reader.open(path) as reader:
        follower = Follower(reader, last=2)
        assert follower.look().events["serial"].tolist() == [6, 7]
        assert follower.look().events["serial"].tolist() == []
        add_event(file, "retire", slot=0)
        rewrite(path, file)
        assert follower.look().events["serial"].tolist() == [8]
        news = follower.look()
        assert (len(news.events), news.lost) == (0, 0)


def test_what_was_overwritten_is_counted(directory: Path) -> None:
    file = forged()
    path = file.write(directory)
    with Reader.open(path) as reader:
        follower = Follower(reader)
        follower.look()
        for _ in range(layout.EVENTS + 5):
            add_event(file, "retire", slot=0)
        file.sections["event"][100, 0]["serial"] = 0  # being written
        rewrite(path, file)
        news = follower.look()
        assert (len(news.events), news.lost) == (layout.EVENTS - 1, 6)


def test_what_was_overwritten_before_is_no_loss(directory: Path) -> None:
    file = forged()
    for _ in range(layout.EVENTS):
        add_event(file, "retire", slot=0)
    with Reader.open(file.write(directory)) as reader:
        news = Follower(reader, last=1 << 30).look()
        assert (len(news.events), news.lost) == (layout.EVENTS, 0)


# ---- on stdout ----------------------------------------------------------------------------------


def test_events_for_people(directory: Path) -> None:
    forged().write(directory)
    result = stats(PID, "--follow", "--for", "0")
    assert result.exit_code == 0
    titles, *lines = result.stdout.splitlines()
    assert "bytes (physical)" in titles
    assert "addresses: virtual" in titles
    assert len(lines) == 7
    expected = [
        r"slab +- - +64 MiB +-  0x1000-0x4001000, slab 1",
        r"open +0 0x\w+ +- +-",
        r"map +0 0x\w+ +256 KiB +5\.0 us  0x700000000000-0x700000010000, "
        r"and the same in 3 more regions, group 0",
        r"map +0 0x\w+ +128 KiB +5\.0 us  0x700040000000-0x700040020000, group 0, layer 1 k",
        r"shortage +0 0x\w+ +- +-  17 mappings are missing",
        r"shortage +0 0x\w+ +- +-  1 MiB are missing \(physical\)",
        r"close +0 0x\w+ +384 KiB +-",
    ]
    for line, pattern in zip(lines, expected, strict=True):
        assert re.fullmatch(rf"\d\d:\d\d:\d\d\.\d{{6}} +\d+ {pattern}", line), line


def test_events_as_json(directory: Path) -> None:
    forged().write(directory)
    result = stats(PID, "--follow", "--for", "0", "--json")
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    assert [row["serial"] for row in rows] == list(range(1, 8))
    assert (rows[2]["bytes"], rows[2]["total_bytes"]) == (PAGE_BYTES, 4 * PAGE_BYTES)
    assert (rows[3]["layer"], rows[3]["tensor"]) == (1, "k")
    assert (rows[4]["missing"], rows[4]["region"]) == ("mappings", None)
    assert all(abs(row["realtime_ns"] - time.time_ns()) < 600e9 for row in rows)


@pytest.fixture
def follower(directory: Path) -> Iterator[Any]:
    """Starts `vmkv stats PID --follow` on a file that is there."""
    started = []

    def start(*arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [PROGRAM, "stats", str(PID), "--follow", "--interval", "0.02", *arguments],
            env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_follows_until_it_is_closed(directory: Path, follower: Any) -> None:
    file = forged()
    path = file.write(directory)
    process = follower()
    lines = [process.stdout.readline() for _ in range(8)]
    assert " close " in lines[-1]
    add_event(file, "retire", slot=0)
    rewrite(path, file)
    assert " retire " in process.stdout.readline()
    for _ in range(layout.EVENTS + 10):
        add_event(file, "budget", bytes=1 << 20)
    rewrite(path, file)
    overwritten = process.stdout.readline()
    assert overwritten == "... 10 events were overwritten before they could be read\n"
    assert " budget " in process.stdout.readline()
    path.unlink()
    _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (0, "its caches were closed\n")


def test_overwritten_events_as_json(directory: Path, follower: Any) -> None:
    file = forged()
    path = file.write(directory)
    process = follower("--json")
    for _ in range(7):
        process.stdout.readline()
    for _ in range(layout.EVENTS + 10):
        add_event(file, "budget", bytes=1 << 20)
    rewrite(path, file)
    told = json.loads(process.stdout.readline())
    assert told == {"cache": f"{PID}-abcde", "kind": "overwritten", "events": 10}
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 0


def test_dead_process_is_followed_to_its_end(directory: Path) -> None:
    file = forged()
    file.header["start_ticks"] += 1
    file.write(directory)
    result = stats(PID, "--follow")
    assert result.exit_code == 0
    assert result.stderr == f"{PID}-abcde: its process is dead\n"
    assert len(result.stdout.splitlines()) == 8


# ---- traces -------------------------------------------------------------------------------------


def check_trace(path: Path) -> list[dict[str, Any]]:
    """Chrome's rules for a trace, as far as we use it: phases and their fields, slices nest."""
    entries: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    assert isinstance(entries, list)
    depth: Counter[tuple[int, int]] = Counter()
    needed = {
        "M": {"name", "pid", "args"}, "X": {"name", "pid", "tid", "ts", "dur"},
        "B": {"name", "pid", "tid", "ts"}, "E": {"pid", "tid", "ts"},
        "i": {"name", "pid", "tid", "ts", "s"}, "C": {"name", "pid", "ts", "args"},
    }  # fmt: skip
    for entry in entries:
        assert needed[entry["ph"]] <= set(entry), entry
        for field in ("pid", "tid"):
            assert isinstance(entry.get(field, 0), int)
        for field in ("ts", "dur"):
            assert isinstance(entry.get(field, 0.0), float | int)
            assert entry.get(field, 0) >= 0
        if entry["ph"] == "M":
            assert entry["name"] in ("process_name", "thread_name", "thread_sort_index")
        if entry["ph"] == "i":
            assert entry["s"] in ("g", "p", "t")
        if entry["ph"] == "C":
            assert entry["args"]
            assert all(isinstance(value, int) for value in entry["args"].values())
        track = entry["pid"], entry.get("tid", 0)
        if entry["ph"] in "BE":
            depth[track] += 1 if entry["ph"] == "B" else -1
            assert 0 <= depth[track] <= 1
    check_order(entries)
    return entries


def check_order(entries: list[dict[str, Any]]) -> None:
    """What has no name, and slices that end before they begin, nobody can look at."""
    named = {
        (entry["pid"], entry["tid"])
        for entry in entries
        if entry["ph"] == "M" and entry["name"] == "thread_name"
    }
    assert {(e["pid"], e["tid"]) for e in entries if e["ph"] != "M"} <= named
    for phases in ("BE", "X"):
        last: dict[tuple[int, int], float] = {}
        for entry in entries:
            if entry["ph"] in phases:
                track = entry["pid"], entry["tid"]
                assert entry["ts"] >= last.get(track, 0)
                last[track] = entry["ts"]


def test_trace_of_what_happened(directory: Path, tmp_path: Path) -> None:
    file = forged()
    file.write(directory)
    path = tmp_path / "growth.json"
    result = stats(PID, "--trace", path)
    assert (result.exit_code, result.stderr) == (0, f"{path}: 7 events\n")
    entries = check_trace(path)
    (process,) = [e for e in entries if e.get("name") == "process_name"]
    assert process["args"]["name"] == f"forged {PID}-abcde on host"
    (call,) = [e for e in entries if e["ph"] == "X"]  # both maps are of one driver call
    assert call["name"] == "map"
    assert call["dur"] == 5.0
    assert call["ts"] + 5 == pytest.approx((int(file.header["created_ns"]) + 3) / 1000, abs=0.01)
    assert call["args"] == {"pieces": 5, "physical bytes": 6 * PAGE_BYTES}
    begin, end = (e for e in entries if e["ph"] in "BE")
    assert begin["name"].startswith("sequence 0x")
    assert end["ts"] - begin["ts"] == pytest.approx(0.005, abs=0.002)
    names = [e["name"] for e in entries if e["ph"] == "i"]
    assert names == ["slab", "map", "map", "shortage of mappings", "shortage of bytes"]
    (count,) = [e for e in entries if e["ph"] == "C"]
    assert "physical" in count["name"]
    assert count["args"]["live"] == 3000 * 8192


def test_trace_of_sequences_whose_beginning_or_end_is_missing(
    directory: Path, tmp_path: Path
) -> None:
    file = Forged()
    add_event(file, "close", slot=1, seq=5)
    add_event(file, "open", slot=2, seq=6)
    add_event(file, "open", slot=2, seq=7)
    file.write(directory)
    assert stats(PID, "--trace", tmp_path / "t.json").exit_code == 0
    entries = check_trace(tmp_path / "t.json")
    assert [e["ph"] for e in entries if e["ph"] in "BEi"] == ["i", "B", "E", "B"]


def test_trace_of_nothing(directory: Path, tmp_path: Path) -> None:
    Forged().write(directory)
    assert stats(PID, "--trace", tmp_path / "t.json").exit_code == 0
    assert [e["ph"] for e in check_trace(tmp_path / "t.json") if e["ph"] != "M"] == ["C"]


@pytest.mark.parametrize("kind", ["layer", "token"])
def test_trace_of_a_running_engine(
    kind: str, engine: Path, directory: Path, tmp_path: Path
) -> None:
    path = tmp_path / "t.json"
    wanted, phases = {"X", "B", "E", "i", "C"}, set()
    with running(engine, "host", kind, "1") as process:
        # Until a sequence was closed: how long that takes is the machine's affair.
        for seconds in (0.5, 2, 8, 32):
            result = stats(process.pid, "--trace", path, "--for", seconds)
            assert result.exit_code == 0
            entries = check_trace(path)
            phases = {e["ph"] for e in entries}
            if wanted <= phases:
                break
    assert wanted <= phases
    kinds = {e["name"] for e in entries if e["ph"] in "Xi"}
    assert {"map", "retire"} <= kinds
    assert any("were overwritten" in e.get("name", "") for e in entries)  # it never rests


def test_trace_that_was_killed_loads(directory: Path, tmp_path: Path, follower: Any) -> None:
    forged().write(directory)
    path = tmp_path / "t.json"
    process = follower("--trace", str(path))
    for _ in range(8):
        process.stdout.readline()  # what is printed is in the file
    process.kill()
    text = path.read_text(encoding="utf-8")
    assert '"ph":"C"' in text
    # The format doesn't want the bracket; a last entry that is cut is what loaders skip.
    whole = text[: text.rindex("}") + 1] if text.endswith("}") else text[: text.rindex(",\n")]
    assert len(json.loads(whole + "]")) > 10


def test_trace_that_is_interrupted_while_it_is_written(
    directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = forged()
    for number in range(100):
        add_event(file, "budget", bytes=number)
    file.write(directory)
    path, written = tmp_path / "t.json", 0
    dumps = json.dumps

    def interrupt(entry: Any, **options: Any) -> str:
        nonlocal written
        written += 1
        if written == 40:
            signal.raise_signal(signal.SIGINT)
        return dumps(entry, **options)

    monkeypatch.setattr("vmkv.published.chrome_trace.json.dumps", interrupt)
    result = stats(PID, "--trace", path, "--for", 3600)
    assert result.exit_code == 0
    told = re.search(r"(\d+) events", result.stderr)
    assert told
    assert int(told[1]) == int(file.sections["state"]["events"][0, 0])
    serials = [entry["args"].get("serial") for entry in check_trace(path)]
    assert [serial for serial in serials if serial] == list(range(1, int(told[1]) + 1))


def test_trace_that_cannot_be_written(directory: Path, tmp_path: Path) -> None:
    forged().write(directory)
    result = stats(PID, "--trace", tmp_path / "no" / "t.json")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
