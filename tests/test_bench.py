"""`vmkv bench`: its counts and its machinery. Nothing here looks at how long something took, but
that it was measured at all."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import vmkv
from support import descriptors
from vmkv import bench, loads
from vmkv.bench import floors, places, races
from vmkv.bench.ioctls import Counter
from vmkv.commands import main

KEYS = {
    "device",
    "no_growth_ns_per_sequence",
    "no_growth_syscalls",
    "python_step_us",
    "growth_ratio",
    "mappings_per_span",
    "mean_run_pages",
    "table_bytes_per_page",
    "scale_ratio",
}


@pytest.fixture
def device() -> Iterator[vmkv.Device]:
    with vmkv.open("host") as device:
        yield device


@pytest.fixture
def cache(device: vmkv.Device) -> Iterator[vmkv.Cache]:
    """Two layers; a page of 64 KiB is 32 rows of 2,048 bytes."""
    geometry = vmkv.Geometry.full(layers=2, heads=8, head_dim=128)
    with vmkv.Cache(
        device, geometry, budget="1GiB", max_slots=4, max_tokens=4096, zero=False, warm="off"
    ) as cache:
        yield cache


def values(figures: list[bench.Figure]) -> dict[str, float | None]:
    return {figure.key: figure.value for figure in figures}


def runs_of(mappings: list[vmkv.Mapping]) -> int:
    """Runs, counted the plain way."""
    return sum(
        i == 0
        or mapping.address != mappings[i - 1].address + mappings[i - 1].bytes
        or mapping.slab != mappings[i - 1].slab
        or mapping.slab_offset != mappings[i - 1].slab_offset + mappings[i - 1].bytes
        for i, mapping in enumerate(mappings)
    )


def test_scripts() -> None:
    assert loads.together(3, [1, 5]).tolist() == [(0, 3, 1), (0, 3, 5)]
    assert loads.in_turn(2, [1, 5]).tolist() == [(0, 1, 1), (1, 1, 1), (0, 1, 5), (1, 1, 5)]
    assert loads.chunks(3000, 512) == [512, 1024, 1536, 2048, 2560, 3000]
    assert loads.chunks(1024, 512) == [512, 1024]


def test_run_does_every_step(cache: vmkv.Cache) -> None:
    load = loads.Load(cache, 3)
    times = load.run(loads.in_turn(3, [10, 40]), batch=4)
    assert [sequence.tokens for sequence in load.sequences] == [40, 40, 40]
    assert cache.stats().steps == 6
    assert len(times) == 2
    assert (times > 0).all()


def test_run_reports_what_failed(cache: vmkv.Cache) -> None:
    with pytest.raises(vmkv.errors.RangeError):
        loads.Load(cache, 1).run(loads.together(1, [5000]))


def test_look_counts_as_the_mappings_say(cache: vmkv.Cache) -> None:
    load = loads.Load(cache, 3)
    load.run(loads.in_turn(3, [*range(1, 100), 3000]))
    layout = load.look()
    spans = [
        sequence.mappings(layer, tensor)
        for sequence in load.sequences
        for layer in range(2)
        for tensor in ("k", "v")
    ]
    stats = cache.stats()
    assert layout.spans == len(spans) == 12
    assert layout.bytes == stats.mapped_bytes
    assert layout.mappings == stats.map_calls == sum(len(span) for span in spans)
    assert layout.mappings_max == max(len(span) for span in spans)
    assert layout.runs == sum(runs_of(span) for span in spans)
    assert layout.runs_max == max(runs_of(span) for span in spans)
    assert layout.runs < layout.mappings


def test_record_lists_what_each_step_mapped(cache: vmkv.Cache) -> None:
    load = loads.Load(cache, 2)
    pieces = load.record(loads.in_turn(2, [32, 33, 60, 65]), max_pieces=100)
    assert len(pieces) == cache.stats().map_calls
    # A page for each of four spans with the 1st, 33rd and 65th token; two sequences by turns.
    assert np.bincount(pieces["step"], minlength=8).tolist() == [4, 4, 4, 4, 0, 0, 4, 4]
    listed = {
        (mapping.address, mapping.bytes, mapping.slab, mapping.slab_offset)
        for sequence in load.sequences
        for layer in range(2)
        for tensor in ("k", "v")
        for mapping in sequence.mappings(layer, tensor)
    }
    assert {tuple(piece.tolist()[:4]) for piece in pieces} == listed


def test_record_needs_room(cache: vmkv.Cache) -> None:
    with pytest.raises(vmkv.Error):
        loads.Load(cache, 2).record(loads.in_turn(2, [32]), max_pieces=7)


@pytest.mark.parametrize("layout", ["layer", "token"])
def test_plan_holds_all_pieces(device: vmkv.Device, layout: str) -> None:
    with vmkv.Cache(
        device,
        vmkv.Geometry.preset("qwen3-8b"),
        budget="2GB",
        max_slots=4,
        max_tokens=2000,
        layout=layout,
        zero=False,
        warm="off",
    ) as cache:
        load = loads.Load(cache, 4)
        script = loads.in_turn(4, [700, 1400])
        plan = loads.plan_of(load, load.record(script, 1 << 16), len(script))
        stats = cache.stats()
    pieces = plan.pieces
    assert len(pieces) == stats.map_calls
    assert pieces["bytes"].sum() == stats.mapped_bytes
    assert plan.slabs == stats.slabs
    assert sorted(set(pieces["slab"])) == list(range(plan.slabs))
    assert (pieces["slab_offset"] + pieces["bytes"] <= plan.slab_bytes).all()
    for piece in pieces:
        end = piece["address"] + piece["bytes"]
        inside = (plan.ranges["address"] <= piece["address"]) & (
            end <= plan.ranges["address"] + plan.ranges["bytes"]
        )
        assert inside.sum() == 1
    times = floors.host(plan).ns
    assert len(times) == plan.steps
    assert (times > 0).all()


def test_floor_refuses_a_piece_outside(cache: vmkv.Cache) -> None:
    load = loads.Load(cache, 1)
    plan = loads.plan_of(load, load.record(loads.in_turn(1, [32]), 100), 1)
    plan.pieces["address"][0] = 4096
    with pytest.raises(vmkv.errors.InvalidError):
        floors.host(plan)


def test_floor_leaves_nothing_behind(cache: vmkv.Cache) -> None:
    load = loads.Load(cache, 1)
    plan = loads.plan_of(load, load.record(loads.in_turn(1, [32]), 100), 1)
    floors.host(plan)

    def mapped() -> int:
        return len(Path("/proc/self/maps").read_text().splitlines())

    before, files = mapped(), descriptors()
    for _ in range(20):
        floors.host(plan)
    assert mapped() <= before + 5
    assert descriptors() == files


def test_growth_ratios_are_there(device: vmkv.Device) -> None:
    figures = values(bench.growth(device, agents=2, tokens=200, decoded=64, many=3, pairs=2))
    # 72 spans of two sequences: 7 pages in one piece, then one at a time up to 264 tokens.
    assert figures["growth_pieces"] == 2 * 72 * (1 + 2)
    for key in (
        "growth_ratio",
        "growth_ratio_prefill",
        "growth_ratio_decode",
        "growth_ratio_first",
    ):
        value = figures[key]
        assert value is not None
        assert value > 0


def test_a_device_without_a_floor_has_no_ratio(
    device: vmkv.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(races, "floor_for", lambda device: None)
    (figure,) = bench.growth(device, agents=1, tokens=10, decoded=1, pairs=1)
    assert figure.key == "growth_ratio"
    assert figure.value is None
    assert figure.met is None


def test_floors_are_found_by_the_kind_of_device() -> None:
    with vmkv.open("host?max_mappings=2000") as device:
        assert floors.floor_for(device) is floors.host


def traced(load: loads.Load) -> int:
    """What a first step of one token makes in system calls; skips where none can be seen."""
    probe = "import ctypes, sys; sys.exit(ctypes.CDLL(None).ptrace(0, 0, None, None) != 0)"
    if subprocess.run([sys.executable, "-c", probe]).returncode != 0:
        pytest.skip("no ptrace here: it is forbidden, or another tracer is at work")
    calls = load.count_syscalls(loads.together(1, [1]))
    assert calls is not None
    return calls


def test_syscalls_of_growth_are_seen(cache: vmkv.Cache) -> None:
    load = loads.Load(cache, 1)
    calls = traced(load)
    assert cache.stats().map_calls == 4
    assert calls >= 4
    # With the slab there and tables made, one mmap a piece and nothing else.
    load.run(loads.together(1, [32]))
    assert load.count_syscalls(loads.together(1, [33])) == 4


def test_steps_within_mapped_memory_make_no_syscall(cache: vmkv.Cache) -> None:
    load = loads.Load(cache, 4)
    traced(load)
    load.run(loads.together(4, [2]))
    assert load.count_syscalls(loads.together(4, range(3, 33))) == 0
    assert [sequence.tokens for sequence in load.sequences] == [32] * 4


def test_a_failing_step_is_told_under_the_tracer_too(cache: vmkv.Cache) -> None:
    load = loads.Load(cache, 1)
    traced(load)
    with pytest.raises(vmkv.errors.RangeError):
        load.count_syscalls(loads.together(1, [5000]))
    assert load.count_syscalls(loads.together(1, [33])) == 4


def test_prefill_counts(device: vmkv.Device) -> None:
    figures = bench.prefill(device)
    found = values(figures)
    assert found["prefill_pages"] == 6768
    assert found["agents_admitted"] == 8
    assert found["waste"] == pytest.approx(1 - 3000 / (94 * 32))
    assert all(figure.met is not False for figure in figures)


def test_agents_that_do_not_fit_are_not_admitted(
    device: vmkv.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(places, "BUDGET", "1GB")
    figures = {figure.key: figure for figure in bench.prefill(device)}
    assert figures["agents_admitted"].value == 2
    assert figures["agents_admitted"].met is False


def test_chunked_counts(device: vmkv.Device) -> None:
    assert all(figure.met for figure in bench.chunked(device))


def test_decode_counts(device: vmkv.Device) -> None:
    figures = bench.decode(device, 16, 500, "mean_run_pages", 16)
    assert figures[0].met


def test_tables_counts(device: vmkv.Device) -> None:
    figures = bench.tables(device, pages=20_000)
    found = values(figures)
    assert all(figure.met for figure in figures)
    # A mapping of its own for every page takes more than long ones do.
    single, long = found["table_bytes_per_page"], found["table_bytes_per_page_long"]
    assert single is not None
    assert long is not None
    assert single > long > 0


def test_scale_is_a_ratio(device: vmkv.Device) -> None:
    found = values(bench.scale(device, small=100, big=1000, agents=4, rounds=3))
    assert found["scale_ratio"] is not None
    assert found["scale_ratio"] > 0


@pytest.mark.parametrize(
    ("value", "bar", "at_least", "met"),
    [
        (1, 2, False, True),
        (2, 2, False, True),
        (3, 2, False, False),
        (1, 2, True, False),
        (2, 2, True, True),
        (None, 2, False, None),
        (1, None, False, None),
    ],
)
def test_bars(value: float | None, bar: float | None, at_least: bool, met: bool | None) -> None:
    assert bench.Figure("key", value, "text", bar, at_least).met is met


def test_command_prints_json() -> None:
    result = CliRunner().invoke(main, ["bench", "--device", "host", "--json"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found.keys() >= KEYS
    assert found["device"] == "host"
    assert found["bars"].keys() == found["met"].keys()
    assert "scale ..." in result.stderr
    assert found["no_growth_syscalls"] in (0, None)
    for key in ("no_growth_ns_per_sequence", "python_step_us", "growth_ratio", "scale_ratio"):
        assert found[key] > 0


def test_command_prints_a_table_with_unknowns(monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(device: vmkv.Device, progress: bench.Progress) -> bench.Report:
        figures = (
            bench.Figure("first", 0.25, "a share", 0.5),
            bench.Figure("second", 7, "too much", 4),
            bench.Figure("third", None, "not measured", 1),
        )
        return bench.Report(device.name, figures)

    monkeypatch.setattr(bench, "measure", measure)
    result = CliRunner().invoke(main, ["bench", "--device", "host"])
    assert result.exit_code == 0, result.stderr
    rows = [line.split("│")[1:-1] for line in result.stdout.splitlines() if line.startswith("│")]
    assert [[cell.strip() for cell in row] for row in rows] == [
        ["a share", "0.2500", "<= 0.5000", "yes"],
        ["too much", "7", "<= 4", "NO"],
        ["not measured", "unknown", "<= 1", ""],
    ]


def test_host_has_no_ioctls(device: vmkv.Device) -> None:
    plans: dict[str, dict[str, int]] = {}
    (figure,) = bench.lives(device, plans)
    assert (figure.key, figure.value, plans) == ("ioctls", None, {})
    assert not Counter(device).able


def test_a_part_that_does_not_fit_has_no_figure(
    device: vmkv.Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(device: vmkv.Device, *args: object) -> list[bench.Figure]:
        with vmkv.Cache(device, vmkv.Geometry.preset("qwen3-8b"), budget="200MiB") as cache:
            cache.step({cache.open(): 3000})
        return []

    others = ("no_growth", "lives", "growth", "publish", "prefill", "chunked", "decode", "scale")
    for name in others:
        monkeypatch.setattr(bench, name, lambda *args: [])
    monkeypatch.setattr(bench, "tables", short)
    report = bench.measure(device)
    assert [figure.key for figure in report.figures] == ["table_bytes_per_page", "seconds"]
    assert "too little memory" in report.as_json()["unknown"]["table_bytes_per_page"]


def test_command_refuses_an_unknown_device() -> None:
    result = CliRunner().invoke(main, ["bench", "--device", "nowhere"])
    assert result.exit_code == 2
    assert "nowhere" in result.stderr
    assert "Traceback" not in result.stderr
