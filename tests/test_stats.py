"""`vmkv stats` on caches of this process: what it shows is what they say themselves."""

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import vmkv
from published_files import Forged
from stats_support import directory, failure, stats, stats_json
from support import ROOT, run, settle, step
from vmkv import published
from vmkv.geometry import Group, Tensor

__all__ = ["directory"]
PID = os.getpid()
GEOMETRY = vmkv.Geometry(
    (
        Group("full", (0, 2), (Tensor("k", 2, 64), Tensor("v", 2, 64))),
        Group("window", (1, 3), (Tensor("k", 2, 64), Tensor("v", 2, 64)), 100, 20),
    )
)


@pytest.fixture(params=["layer", "token"])
def cache(
    device_name: str, directory: Path, request: pytest.FixtureRequest
) -> Iterator[vmkv.Cache]:
    with (
        vmkv.open(device_name) as device,
        vmkv.Cache(
            device, GEOMETRY, budget="32MiB", page="4KiB", slab="4MiB", max_slots=4,
            max_tokens=4096, layout=request.param, share=True,
        ) as cache,
    ):  # fmt: skip
        yield cache


def fill(cache: vmkv.Cache) -> list[vmkv.Sequence]:
    """Three sequences, of which one was trimmed and one has just begun."""
    sequences = [cache.open() for _ in range(3)]
    step(cache, dict(zip(sequences, (1000, 300, 1), strict=True)), busy_until=1)
    step(cache, {sequences[0]: 1200}, busy_until=2)
    cache.retire(2)
    settle(cache)
    return sequences


def test_one_line_for_each_cache(cache: vmkv.Cache) -> None:
    fill(cache)
    (told,) = stats_json()["caches"]
    real = cache.stats()
    assert (told["pid"], told["alive"], told["responding"]) == (PID, True, True)
    assert told["device"] == cache.device.info.name
    for name in (
        "budget_bytes", "slab_bytes", "mapped_bytes", "live_bytes", "warm_bytes", "retiring_bytes",
        "reserved_bytes", "sequences", "slabs", "steps", "shortages", "driver_calls", "map_calls",
        "free_clean_bytes", "free_dirty_bytes", "waste",
    ):  # fmt: skip
        assert (name, told[name]) == (name, getattr(real, name))
    assert told["shared_bytes"] == 0
    assert 0 < told["map_p50_ns"] <= told["map_p99_ns"]
    assert told["problems"] == []
    shown = stats().stdout
    assert f"{told['cache']} " in shown
    assert "reserved (virtual)" in shown


def test_a_row_for_each_sequence_and_slab(cache: vmkv.Cache) -> None:
    sequences = fill(cache)
    told = stats_json(PID)
    assert [row["sequence"] for row in told["sequences"]] == [one.id for one in sequences]
    assert [row["slot"] for row in told["sequences"]] == [one.slot for one in sequences]
    assert [row["live_tokens"] for row in told["sequences"]] == [1200, 300, 1]
    assert [row["last_step"] for row in told["sequences"]] == [2, 1, 1]
    real = cache.stats()
    for name in ("live_bytes", "mapped_bytes"):
        assert sum(row[name] for row in told["sequences"]) == getattr(real, name)
    for row in told["sequences"]:
        parts = row["live_bytes"] + row["tail_waste_bytes"] + row["dead_mapped_bytes"]
        assert parts == row["mapped_bytes"]
    assert len(told["slabs"]) == real.slabs
    assert sum(row["bytes"] for row in told["slabs"]) == real.slab_bytes
    assert sum(row["mapped_bytes"] for row in told["slabs"]) == real.mapped_bytes
    (one,) = told["caches"]
    held = real.mapped_bytes + real.warm_bytes + real.retiring_bytes + real.unmapping_bytes
    assert sum(run["bytes"] for run in one["runs"]) == held
    assert sum(bucket["calls"] for bucket in one["times"]["map"]["buckets"]) > 0
    shown = stats(PID)
    assert (shown.exit_code, shown.stderr) == (0, "")
    for sequence in sequences:
        assert f"{sequence.id:#x} " in shown.stdout


def test_every_mapping(cache: vmkv.Cache) -> None:
    sequences = fill(cache)
    told = stats_json(PID, "--maps")["mappings"]
    rows = {(row["start"], row["end"], row["slab"], row["offset"]) for row in told}
    assert len(rows) == len(told)
    assert [row["start"] for row in told] == sorted(row["start"] for row in told)
    real = set()
    for sequence in sequences:
        for layer in range(4):
            for tensor in ("k", "v"):
                for one in sequence.mappings(layer, tensor):
                    place = one.address, one.address + one.bytes, one.slab, one.slab_offset
                    # Slabs are named by an address here, and by a number there.
                    real.add(place[:2] + place[3:])
    assert {(start, end, offset) for start, end, _, offset in rows} == real
    assert {row["refcount"] for row in told} == {1}
    assert {row["sequence"] for row in told} == {one.id for one in sequences}


def test_tokens_of_mappings_are_those_at_their_addresses(cache: vmkv.Cache) -> None:
    sequence = fill(cache)[0]
    for row in stats_json(PID, "--maps", "--seq", sequence.id)["mappings"]:
        layer, tensor = row["layer"], row["tensor"]
        assert (layer is None) == (tensor is None) == (cache.layout == "token")
        span = sequence.span(layer or 0, tensor or "k", row["group"])
        stride = span.token_stride
        first, last = row["first_token"], row["last_token"]
        assert span.address + first * stride <= row["start"]
        assert row["start"] < span.address + (first + 1) * stride
        assert span.address + last * stride < row["end"]
        assert row["end"] <= span.address + (last + 1) * stride


@pytest.mark.parametrize("by", ["number", "hexadecimal", "slot"])
def test_mappings_of_one_sequence(by: str, cache: vmkv.Cache) -> None:
    sequence = fill(cache)[1]
    name = {"number": sequence.id, "hexadecimal": hex(sequence.id), "slot": sequence.slot}[by]
    told = stats_json(PID, "--maps", "--seq", name)["mappings"]
    assert told
    assert {row["sequence"] for row in told} == {sequence.id}


def test_mappings_of_one_layer(cache: vmkv.Cache) -> None:
    fill(cache)
    everything = stats_json(PID, "--maps")["mappings"]
    told = stats_json(PID, "--maps", "--layer", 1)["mappings"]
    if cache.layout == "layer":
        assert told == [row for row in everything if row["layer"] == 1]
        assert {row["tensor"] for row in told} == {"k", "v"}
    else:  # all layers lie in each mapping
        assert told == everything
    assert told
    assert failure(PID, "--maps", "--layer", 2) == "layer 2 is not there: layers are 0 to 1"
    shown = stats(PID, "--maps", "--seq", 0)
    assert shown.exit_code == 0
    assert len(shown.stdout.splitlines()) == 1 + sum(row["slot"] == 0 for row in everything)


@pytest.mark.parametrize("group", [0, 1])
@pytest.mark.parametrize("tensor", ["k", "v"])
def test_what_an_address_is(group: int, tensor: str, cache: vmkv.Cache) -> None:
    sequence = fill(cache)[0]
    span = sequence.span(1, tensor, group)
    address = span.address + 1150 * span.token_stride + 5
    told = stats_json(PID, "--address", hex(address))
    assert (told["sequence"], told["group"], told["layer"]) == (sequence.id, group, 1)
    assert (told["tensor"], told["token"], told["row_byte"]) == (tensor, 1150, 5)
    assert told["status"] == "live"
    assert told["mapping"]["start"] <= address < told["mapping"]["end"]
    kinds = [event["kind"] for event in told["events"]]
    assert kinds[0] == "open"
    assert "map" in kinds
    shown = stats(PID, "--address", f"{address:x}").stdout
    assert f"{sequence.id:#x} in slot {sequence.slot}" in shown
    assert f"group {group}, layer 1, tensor {tensor}, byte 5 of the row" in shown


def test_whose_an_address_was_last(cache: vmkv.Cache) -> None:
    sequence = fill(cache)[1]
    address = sequence.span(0, "k", 0).address
    sequence.close(3)
    cache.retire(3)
    settle(cache)
    told = stats_json(PID, "--address", hex(address))
    assert (told["sequence"], told["last_sequence"]) == (None, sequence.id)
    assert (told["layer"], told["tensor"], told["token"]) == (0, "k", 0)
    assert told["status"] in ("warm", "unmapped")
    kinds = [event["kind"] for event in told["events"]]
    assert [kind for kind in kinds if kind in ("open", "map", "close")] == ["open", "map", "close"]
    shown = stats(PID, "--address", hex(address)).stdout
    assert f"{sequence.id:#x} was in slot 1" in shown


def test_unknown_ones(cache: vmkv.Cache) -> None:
    name = stats_json()["caches"][0]["cache"]
    assert failure(1) == f"process 1 shares no cache: there are {name}"
    assert failure(f"{PID}-00000") == f"process {PID}-00000 shares no cache: there are {name}"
    assert failure(PID, "--maps", "--seq", 77) == "sequence 77 is not there: none is open"
    sequences = fill(cache)
    there = ", ".join(f"{one.id:#x} in slot {one.slot}" for one in sequences)
    assert failure(PID, "--maps", "--seq", 3) == f"sequence 3 is not there: there are {there}"
    told = failure(PID, "--address", "0x1000")
    assert told.startswith(f"address 0x1000 is in no window of process {PID}: 0x")


def test_cache_is_not_shown_after_it_was_closed(cache: vmkv.Cache) -> None:
    assert len(stats_json()["caches"]) == 1
    cache.close()
    assert stats_json() == {"caches": [], "errors": []}


def test_mirror_follows_every_call(cache: vmkv.Cache) -> None:
    with published.Reader.open(published.find(PID)[0].path) as reader:
        for _ in range(3):
            sequences = fill(cache)
            for sequence in sequences:
                snapshot = reader.look(pieces=True)
                assert published.contradictions(snapshot) == []
                real = cache.stats()
                assert snapshot.mapped_bytes == real.mapped_bytes
                assert (snapshot.steps, snapshot.live_bytes) == (real.steps, real.live_bytes)
                sequence.close()


# ---- without a device --------------------------------------------------------------------------


def test_there_are_none(directory: Path) -> None:
    result = stats()
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith("No caches are shared by processes of this user.")
    assert json.loads(stats("--json").stdout) == {"caches": [], "errors": []}
    directory.rmdir()
    assert stats().exit_code == 0
    assert failure(77) == "process 77 shares no cache: no process of this user shares one"


def test_speed_is_measured(directory: Path) -> None:
    """What it prints is right; how fast it was is not asked here."""
    tool = ROOT / "tools" / "stats_speed.py"
    told = run(sys.executable, "-P", tool, "--pages", "20000", "--looks", "2")
    pages = re.search(r"s to read the whole state: ([\d,]+) pages in [\d,]+ mappings$", told, re.M)
    assert pages
    assert int(pages[1].replace(",", "")) >= 20_000
    assert len(re.findall(r"of a core to read .+ ten times a second", told)) == 2


def test_two_caches_of_one_process(directory: Path) -> None:
    for tag in (0x00001, 0x00002):
        file = Forged()
        file.header["tag"] = tag
        file.add_sequence(tag, 100)
        file.write(directory)
    assert [one["cache"] for one in stats_json()["caches"]] == [f"{PID}-00001", f"{PID}-00002"]
    both = stats_json(PID)
    assert [(row["cache"], row["slot"]) for row in both["sequences"]] == [
        (f"{PID}-00001", 1),
        (f"{PID}-00002", 2),
    ]
    assert [row["slot"] for row in stats_json(f"{PID}-00002")["sequences"]] == [2]
    told = stats_json(PID, "--maps", "--seq", 2)
    assert {row["cache"] for row in told["mappings"]} == {f"{PID}-00002"}


def test_exact_bytes(directory: Path) -> None:
    file = Forged()
    file.add_sequence(0, 1000)
    file.write(directory)
    assert "8,388,608" in stats(PID, "--bytes").stdout  # 4 spans of 32 pages
    assert "8 MiB" in stats(PID).stdout
    assert "MiB" not in stats("--bytes").stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--maps"], "--maps needs a PID"),
        (["--address", "0x1000"], "--address needs a PID"),
        (["1", "--seq", "1"], "--seq goes with --maps"),
        (["1", "--layer", "1"], "--layer goes with --maps"),
        (["1", "--maps", "--address", "1"], "--maps and --address don't go together"),
        (["1", "--reap"], "--reap is for all processes"),
        (["abc"], "'abc' is no PID"),
        (["1-xyz-2"], "shares no cache"),
        (["--", "-1"], "'-1' is no PID"),
        (["1" * 5000], "is no PID"),
    ],
)
def test_wrong_usage(arguments: list[str], message: str, directory: Path) -> None:
    result = stats(*arguments)
    assert result.exit_code == (1 if message == "shares no cache" else 2)
    assert message in " ".join(result.stderr.split())


@pytest.mark.parametrize("text", ["", "xyz", "0x", "-5", "1" * 5000, "0x10000000000000000"])
def test_what_is_no_address(text: str, directory: Path) -> None:
    Forged().write(directory)
    result = stats(PID, "--address", text)
    assert result.exit_code == 2
    assert "is no number" in " ".join(result.stderr.split())
