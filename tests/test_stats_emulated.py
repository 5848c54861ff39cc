"""Caches on emulated cards, from outside: in an engine's own process, and under `vmkv emulate`."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import vmkv
from emulate_support import MAIN, command
from stats_support import directory, failure, stats, stats_json
from support import environment, needs_libdrm
from vmkv.geometry import Geometry, Group, Tensor

__all__ = ["directory"]
pytestmark = needs_libdrm

ROW = Tensor("k", 2, 64), Tensor("v", 2, 64)
GEOMETRY = Geometry((Group("full", (0, 1), ROW), Group("window", (2,), ROW, window_tokens=128)))
TOKENS, BUDGET_BYTES, VRAM_BYTES = 1000, 64 << 20, 1 << 30


@contextmanager
def shared(device_name: str) -> Iterator[tuple[vmkv.Cache, vmkv.Sequence]]:
    """A cache with one sequence of TOKENS tokens."""
    with (
        vmkv.open(device_name) as device,
        vmkv.Cache(
            device,
            GEOMETRY,
            budget=BUDGET_BYTES,
            page=65536,
            max_slots=4,
            max_tokens=4096,
            share=True,
        ) as cache,
    ):
        sequence = cache.open()
        cache.step({sequence: TOKENS})
        yield cache, sequence


@pytest.mark.parametrize(
    ("options", "modes"),
    [
        ("", []),
        ("&kernel=6.1", []),
        ("&safe=never-reuse-addresses,no-alias", ["never-reuse-addresses", "no-alias"]),
    ],
)
def test_card_in_the_engine_s_process(options: str, modes: list[str], directory: Path) -> None:
    name = f"emulated:gfx1201?vram=1GiB{options}"
    with shared(name) as (cache, sequence):
        (told,) = stats_json()["caches"]
        assert (told["device"], told["driver"]) == (name, "emulated")
        assert sorted(told["safe_modes"]) == modes
        # It is on no bus, and no kernel of this machine knows of it.
        assert (told["pci_id"], told["kernel"]) == (None, None)
        assert told["mapped_bytes"] == cache.stats().mapped_bytes
        pid = told["pid"]
        (slab,) = stats_json(pid)["slabs"]
        assert (slab["alias"] is None) == ("no-alias" in modes)
        check_maps(pid, cache, sequence)
        check_addresses(pid, sequence)
        text = stats(pid).stdout
        assert f"on {name}" in text
        assert all(mode in text for mode in modes)


def check_maps(pid: int, cache: vmkv.Cache, sequence: vmkv.Sequence) -> None:
    """Every mapping is where the engine's own spans are."""
    maps = stats_json(pid, "--maps")["mappings"]
    assert {row["sequence"] for row in maps} == {sequence.id}
    assert sum(row["end"] - row["start"] for row in maps) == cache.stats().mapped_bytes
    spans = {
        (0, layer, tensor): sequence.span(layer, tensor, 0).address
        for layer in (0, 1)
        for tensor in ("k", "v")
    }
    for row in maps:
        span = spans.get((row["group"], row["layer"], row["tensor"]))
        if span is not None and row["first_token"] == 0:
            assert row["start"] == span
    only = stats_json(pid, "--maps", "--seq", sequence.id, "--layer", 1)["mappings"]
    assert {row["layer"] for row in only} == {1}
    assert 0 < len(only) < len(maps)


def check_addresses(pid: int, sequence: vmkv.Sequence) -> None:
    """Addresses of rows are told as what they are."""
    span = sequence.span(1, "v", 0)
    for token in (0, 77, TOKENS - 1):
        spot = stats_json(pid, "--address", hex(span.address + token * span.token_stride))
        assert (spot["sequence"], spot["status"]) == (sequence.id, "live")
        assert (spot["layer"], spot["tensor"], spot["token"]) == (1, "v", token)
        assert "map" in {event["kind"] for event in spot["events"]}
    assert "is in no window of process" in failure(pid, "--address", "0x1000")


# ---- under `vmkv emulate` ------------------------------------------------------------------------

ENGINE = f"""
import json, os, subprocess, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_stats_emulated import shared
with shared("amdgpu"):
    print(os.getpid(), flush=True)
    stats = [sys.executable, "-c", {MAIN!r}, "stats", str(os.getpid())]
    for option in ("--json", "--bytes"):
        inside = subprocess.run([*stats, option], capture_output=True, text=True)
        print(json.dumps(inside.stdout), flush=True)
    sys.stdin.readline()
"""


@contextmanager
def emulated() -> Iterator[tuple[int, str, str]]:
    """An engine under `vmkv emulate`: its pid, and what `vmkv stats PID` says there, with --json
    and with --bytes."""
    told = command("--vram", "1GiB", "--", sys.executable, "-c", ENGINE)
    with subprocess.Popen(
        told, env=environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        pid = int(process.stdout.readline())
        inside, table = (json.loads(process.stdout.readline()) for _ in range(2))
        yield pid, inside, table
        process.stdin.close()
        assert process.wait(60) == 0


def test_kernel_of_an_emulated_card(directory: Path) -> None:
    with emulated() as (pid, inside, table):
        (told,) = json.loads(inside)["caches"]
        check_card(told, pid)
        held, side = told["slab_bytes"], told["kernel"]
        assert held <= side["process"]["vram_bytes"] < VRAM_BYTES
        assert side["process"]["evicted_bytes"] == 0
        assert side["card"]["vram_bytes"] == VRAM_BYTES
        assert side["difference"] == ""
        assert "amdgpu, card 0000:03:00.0" in table
        assert f"this process: {side['process']['vram_bytes']:,} VRAM" in table
        assert f"{VRAM_BYTES:,} VRAM" in table
        assert "(!)" not in table
        # Out here there is no such card, nor any descriptor of it.
        (outside,) = stats_json(pid)["caches"]
        check_card(outside, pid)
        assert outside["kernel"] is None
        assert outside["mapped_bytes"] == told["mapped_bytes"] > 0


def check_card(told: dict[str, Any], pid: int) -> None:
    assert (told["pid"], told["alive"]) == (pid, True)
    assert (told["driver"], told["pci_id"]) == ("amdgpu", "0000:03:00.0")
