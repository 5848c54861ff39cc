"""`vmkv bench` on an emulated card: its ioctls, counted exactly. Nothing here looks at how long
something took."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

import vmkv
from support import needs_libdrm
from vmkv import bench, loads
from vmkv._native import lib
from vmkv._values import new_struct
from vmkv.bench import floors
from vmkv.bench.ioctls import Counter, serve
from vmkv.commands import main

SPANS = 72  # of qwen3-8b; a page of 64 KiB is 32 tokens


def values(figures: list[bench.Figure]) -> dict[str, float | None]:
    return {figure.key: figure.value for figure in figures}


@pytest.fixture
def card() -> Iterator[vmkv.Device]:
    with vmkv.open("emulated:gfx1201") as device:
        yield device


@needs_libdrm
def test_ioctls_of_a_sequences_life_are_exact(card: vmkv.Device) -> None:
    with vmkv.Cache(card, vmkv.Geometry.preset("qwen3-8b"), budget="10GB") as cache:
        slab_bytes = cache.info.slab_bytes
    slabs = -(-SPANS * (2 << 20) // slab_bytes)  # each span begins a stretch of 2 MiB
    assert slabs == 3
    assert serve(card, tokens=100) == {
        "prefill": {
            "GEM_VA": SPANS + slabs,  # four pages a span in one piece; an alias a slab
            "GEM_VA map": SPANS + slabs,
            "CS": 1,
            # Room is asked for, memory taken, and looked at where it landed.
            "INFO": 2 * slabs,
            "GEM_CREATE": slabs,
            "GEM_OP": slabs,
            "GEM_METADATA": slabs,
        },
        "decode": {},
        "decode_new_page": {"GEM_VA": SPANS, "GEM_VA map": SPANS, "CS": 1},
        "close": {"GEM_VA": SPANS, "GEM_VA clear": SPANS, "CS": 1},
    }


@needs_libdrm
def test_figures_of_a_sequences_life(card: vmkv.Device) -> None:
    plans: dict[str, dict[str, int]] = {}
    figures = bench.lives(card, plans, tokens=100)
    assert values(figures) == {
        "prefill_gem_va_per_span": (SPANS + 3) / SPANS,
        "prefill_cs": 1,
        "decode_ioctls": 0,
        "decode_page_cs": 1,
        "close_clears_per_span": 1,
        "close_cs": 1,
    }
    assert all(figure.met for figure in figures)
    assert list(plans) == ["prefill", "decode", "decode_new_page", "close"]


def delayed_maps(counter: Counter) -> int:
    stats = new_struct("vmkv_emulator_stats")
    assert lib.vmkv_emulator_stats(counter._card, stats) == 0
    return int(stats.delayed_maps)


@needs_libdrm
def test_floor_makes_the_same_calls_and_nothing_else(card: vmkv.Device) -> None:
    plans: dict[str, dict[str, int]] = {}
    figures = values(bench.growth(card, plans, agents=2, tokens=200, decoded=64, pairs=2))
    slabs = figures["growth_slabs"]
    assert slabs == 5
    pieces = 2 * SPANS * (1 + 2)
    assert figures["growth_pieces"] == pieces
    assert figures["growth_pages"] == 2 * SPANS * 9
    made = {
        "GEM_VA": pieces + slabs,
        "GEM_VA map": pieces + slabs,
        "CS": 4,  # two prefills, and two of the 64 steps that follow
        "GEM_CREATE": slabs,
    }
    assert plans["growth_floor"] == made
    assert plans["growth"] == {**made, "INFO": 2 * slabs, "GEM_OP": slabs, "GEM_METADATA": slabs}
    for key in ("growth_ratio", "growth_ratio_cpu", "growth_ratio_no_latency"):
        assert (figures[key] or 0) > 0
    assert figures["growth_manager_ns_per_page"] is not None


@needs_libdrm
def test_floor_leaves_the_card_as_it_was(card: vmkv.Device) -> None:
    with vmkv.Cache(
        card, vmkv.Geometry.full(layers=2, heads=8, head_dim=128), budget="1GiB", zero=False
    ) as cache:
        load = loads.Load(cache, 1)
        plan = loads.plan_of(load, load.record(loads.in_turn(1, [32]), 100), 1)
    floor, counter = floors.Amdgpu(card), Counter(card)
    delayed = delayed_maps(counter)
    with counter.during() as first:
        floor(plan)
    # Every map is one with DELAY.
    assert delayed_maps(counter) - delayed == first["GEM_VA map"] == first["GEM_VA"]
    with counter.during() as second:
        floor(plan)
    assert first == second
    assert first["GEM_CLOSE"] == first["GEM_CREATE"] == plan.slabs + 1  # and the packets' own
    assert first["SYNCOBJ_DESTROY"] == first["SYNCOBJ_CREATE"] == 1


@needs_libdrm
@pytest.mark.parametrize(("field", "value"), [("slab", 1000), ("step", 1000)])
def test_floor_refuses_a_plan_that_contradicts_itself(
    card: vmkv.Device, field: str, value: int
) -> None:
    with vmkv.Cache(
        card, vmkv.Geometry.full(layers=2, heads=8, head_dim=128), budget="1GiB", zero=False
    ) as cache:
        load = loads.Load(cache, 1)
        plan = loads.plan_of(load, load.record(loads.in_turn(1, [32]), 100), 1)
    plan.pieces[field][-1] = value
    with pytest.raises(vmkv.InvalidError):
        floors.Amdgpu(card)(plan)


@needs_libdrm
def test_latency_is_the_users_to_say() -> None:
    with vmkv.open("emulated:gfx1201?ioctl_us=1") as card:
        figures = bench.growth(card, agents=1, tokens=10, decoded=1, pairs=1)
    found = values(figures)
    assert "growth_ratio_no_latency" not in found
    assert "ioctl_us=1" in figures[0].text


@needs_libdrm
@pytest.mark.parametrize("options", ["commit=bo", "slabs=listed"])
def test_options_without_a_floor_have_no_ratio(options: str) -> None:
    with vmkv.open(f"emulated:gfx1201?{options}") as card:
        (figure,) = bench.growth(card, agents=1, tokens=10, decoded=1, pairs=1)
    assert figure.key == "growth_ratio"
    assert figure.value is None


@needs_libdrm
def test_commit_by_the_engine_makes_no_submission() -> None:
    plans: dict[str, dict[str, int]] = {}
    with vmkv.open("emulated:gfx1201?commit=engine") as card:
        bench.growth(card, plans, agents=1, tokens=100, decoded=1, pairs=1)
    assert "CS" not in plans["growth"]
    assert "CS" not in plans["growth_floor"]


@needs_libdrm
def test_steps_with_nothing_to_map_make_no_ioctl(card: vmkv.Device) -> None:
    found = values(bench.no_growth(card, agents=4, rounds=1))
    assert found["no_growth_ioctls"] == 0
    assert found["growth_syscalls"] is None
    # One more step, of one sequence, to a new page.
    assert (found["growth_ioctls"] or 0) >= SPANS + 1
    assert found["growth_syscalls_pieces"] == SPANS


@needs_libdrm
def test_a_small_card_says_what_it_is_too_small_for(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("lives", "growth", "chunked", "decode", "tables", "scale"):
        monkeypatch.setattr(bench, name, lambda *args: [])
    with vmkv.open("emulated:gfx1201?vram=2GiB") as card:
        report = bench.measure(card)
    found = report.as_json()
    assert "too little memory" in found["unknown"]["no_growth_ns_per_sequence"]
    assert found["agents_admitted"] == 4
    assert found["met"]["agents_admitted"] is False


@needs_libdrm
def test_command_prints_ioctls_of_an_emulated_card(monkeypatch: pytest.MonkeyPatch) -> None:
    growth = bench.growth
    monkeypatch.setattr(
        bench,
        "growth",
        lambda device, plans: growth(device, plans, agents=1, tokens=100, decoded=1, pairs=1),
    )
    for name in ("decode", "tables"):
        monkeypatch.setattr(bench, name, lambda *args: [])
    result = CliRunner().invoke(main, ["bench", "--device", "emulated:gfx1201", "--json"])
    assert result.exit_code == 0, result.stderr
    found = json.loads(result.stdout)
    assert found["device"] == "emulated:gfx1201"
    lives = [found["ioctls_by_plan"][name] for name in ("prefill", "decode_new_page", "close")]
    grown = found["ioctls_by_plan"]["growth"]
    assert found["ioctls"]["CS"] == 3 + grown["CS"]
    assert found["ioctls"]["GEM_VA"] == sum(life["GEM_VA"] for life in lives) + grown["GEM_VA"]
    assert found["ioctls_by_plan"]["growth_floor"]["GEM_VA"] == grown["GEM_VA"]
    assert found["met"]["decode_ioctls"]
    assert found["met"]["close_clears_per_span"]
    assert found["growth_syscalls"] is None
    assert "emulated card's" in found["unknown"]["growth_syscalls"]
