"""`vmkv bench --hardware`, on emulated cards: what it asks of the driver, counted; that it leaves
nothing and takes nothing from others; and what it prints."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from hardware_support import CARDS
from support import environment, needs_libdrm
from vmkv import drm, errors, hardware
from vmkv._patience import Patience
from vmkv.commands import main
from vmkv.emulator import Emulator
from vmkv.hardware import card as cards
from vmkv.hardware.pieces import CHANGES, PIECES, Pieces
from vmkv.hardware.residency import fill_vram, reserve_of

pytestmark = needs_libdrm

MIB = 1 << 20
CYCLES = 3


@pytest.fixture
def emulated() -> Iterator[Emulator]:
    with Emulator("gfx1201?vram=1GiB&kernel=7.2") as card:
        yield card


def things(card: Emulator) -> tuple[int, ...]:
    stats = card.stats()
    return stats.buffers, stats.handles, stats.mappings, stats.contexts, stats.syncobjs


def assert_left(card: Emulator, expected: tuple[int, ...], what: object = "") -> None:
    """What was freed goes when the jobs that use it are done."""
    end = time.monotonic() + 10
    while things(card) != expected and time.monotonic() < end:
        time.sleep(0.001)
    assert things(card) == expected, what


@pytest.mark.parametrize("name", CARDS)
def test_all_is_measured(name: str) -> None:
    with hardware.open_card(name) as card:
        report = hardware.measure(card, cycles=CYCLES)
    changes = {(one.commit, one.change, one.piece_bytes) for one in report.latencies}
    assert changes == {
        (commit, change, size) for commit in ("cs", "bo") for change in CHANGES for size in PIECES
    }
    for one in report.latencies:
        assert one.samples == CYCLES
        for times in (one.call_us, one.done_us):
            assert 0 < times.p50 <= times.p99 <= times.max
        assert one.call_us.p50 <= one.done_us.p50
    fences = {one.commit: one.fence for one in report.latencies}
    by_buffer = "timeline" if "kernel=7.2" in name else "CS that follows"
    assert fences == {"cs": "CS", "bo": by_buffer}
    assert {(one.what, one.fragment_bytes) for one in report.bandwidths} == {
        (what, size) for what in ("fill", "copy") for size in (4096, 65536, 2 * MIB)
    }
    assert all(one.bytes_per_second > 0 for one in report.bandwidths)
    found = report.residency
    assert (found.stopped, found.evictions, found.outside_vram) == ("reserve", 0, 0)
    assert found.used_peak_bytes + found.reserve_bytes <= found.usable_bytes
    assert found.filled_bytes >= found.usable_bytes * 3 // 4


@pytest.mark.parametrize(
    ("kernel", "commit", "submissions"), [("6.12", "cs", 5), ("6.12", "bo", 5), ("7.2", "bo", 0)]
)
def test_a_cycle_asks_for_what_it_says(kernel: str, commit: str, submissions: int) -> None:
    """Three maps, two unmaps, a clear."""
    with (
        Emulator(f"gfx1201?vram=1GiB&kernel={kernel}") as card,
        card.device() as device,
        cards.Addresses(device) as addresses,
        Pieces(device, addresses, Patience()) as pieces,
    ):
        before, calls = card.stats(), {op: card.count("GEM_VA", op) for op in drm.OPERATIONS}
        submitted = card.count("CS")
        assert len(pieces.measure(commit, 65536, CYCLES)) == len(CHANGES)
        done = {op: card.count("GEM_VA", op) - count for op, count in calls.items()}
        assert done == {"map": 3 * CYCLES, "unmap": 2 * CYCLES, "clear": CYCLES, "replace": 0}
        assert card.count("CS") - submitted == submissions * CYCLES
        # By buffer, only the unmap of a remap is left to the map that follows.
        delayed = card.stats().delayed_maps - before.delayed_maps
        assert delayed == (6 * CYCLES if commit == "cs" else CYCLES)
        assert card.stats().mappings == before.mappings


@pytest.mark.parametrize(("kernel", "commit"), [("6.1", "cs"), ("6.1", "bo"), ("7.2", "bo")])
def test_a_change_is_done_when_the_card_has_made_it(kernel: str, commit: str) -> None:
    with (
        Emulator(f"gfx1201?vram=1GiB&kernel={kernel}&pte_us=2000") as card,
        card.device() as device,
        cards.Addresses(device) as addresses,
        Pieces(device, addresses, Patience()) as pieces,
    ):
        for one in pieces.measure(commit, 4096, 1):
            assert one.done_us.p50 >= 2000, one


def test_nothing_is_left(emulated: Emulator) -> None:
    with emulated.device() as device:
        with device.va_alloc(1 << 30) as addresses:
            first = addresses.address
        before, used = things(emulated), device.memory.vram.used
        hardware.measure(cards.Card("emulated", device, emulated=True), cycles=CYCLES)
        assert_left(emulated, before)
        assert device.memory.vram.used <= used + 2 * MIB  # page tables stay
        with device.va_alloc(1 << 30) as addresses:
            assert addresses.address == first


def test_nothing_is_left_where_it_ends_early(emulated: Emulator) -> None:
    """Whatever fails, at any moment."""
    with emulated.device() as device:
        before = things(emulated)
        card = cards.Card("emulated", device, emulated=True)
        for ioctl in ("GEM_VA", "CS", "GEM_CREATE", "SYNCOBJ_TIMELINE_WAIT", "WAIT_CS", "INFO"):
            for nth in (1, 30):
                emulated.fail(ioctl, 22, nth)
                try:
                    hardware.measure(card, cycles=1)
                except errors.Error:
                    pass
                finally:
                    emulated.fail(ioctl, 22, 0)
                assert_left(emulated, before, (ioctl, nth))


def test_the_memory_of_others_stays_where_it_is(emulated: Emulator) -> None:
    with (
        emulated.device() as device,
        device.alloc(500 * MIB, "vram") as theirs,
        drm.Sdma(device) as sdma,
        cards.Addresses(device) as addresses,
    ):
        found = fill_vram(cards.Card("emulated", device, emulated=True), sdma, addresses)
        assert found.used_before_bytes >= 500 * MIB
        assert 100 * MIB < found.filled_bytes < 500 * MIB
        assert found.used_peak_bytes <= found.usable_bytes - found.reserve_bytes
        assert device.counter("evictions") == 0
        assert theirs.domain == {"vram"}


def test_filling_ends_when_somebody_elses_memory_moves(
    emulated: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    with (
        emulated.device() as device,
        drm.Sdma(device) as sdma,
        cards.Addresses(device) as addresses,
    ):
        count = iter(range(100))
        counter = drm.Device.counter
        monkeypatch.setattr(
            drm.Device,
            "counter",
            lambda self, name: next(count) // 4 if name == "evictions" else counter(self, name),
        )
        found = fill_vram(cards.Card("emulated", device, emulated=True), sdma, addresses)
        assert found.stopped == "evictions"
        assert found.filled_bytes < 100 * MIB


def test_a_reserve_grows_with_the_card() -> None:
    assert reserve_of(256 * MIB) == 64 * MIB
    assert reserve_of(4096 * MIB) == 512 * MIB
    assert reserve_of(16384 * MIB) == 1024 * MIB


@pytest.mark.parametrize(("vram", "lacking"), [("64MiB", "136.0 MiB"), ("200MiB", "4 KiB")])
def test_too_little_free_memory_is_told(vram: str, lacking: str) -> None:
    text = f"192 MiB of free VRAM are needed, {lacking} more"
    with (
        hardware.open_card(f"emulated:gfx1201?vram={vram}") as card,
        pytest.raises(errors.DeviceMemoryError, match=text),
    ):
        hardware.measure(card)


def test_vram_that_others_took_is_told() -> None:
    with (
        hardware.open_card("emulated:gfx1201?vram=1GiB&inject=vram-stolen") as card,
        pytest.raises(errors.DeviceMemoryError, match="other programs took"),
    ):
        hardware.measure(card, cycles=CYCLES)


@pytest.mark.parametrize("kernel", ["6.1", "7.2"])
def test_a_kernel_that_refuses_for_a_moment_is_asked_again(kernel: str) -> None:
    name = f"emulated:gfx1201?vram=1GiB&kernel={kernel}&inject=transient-enomem"
    with hardware.open_card(name) as card:
        report = hardware.measure(card, cycles=CYCLES)
    assert report.refusals > 100
    assert report.residency.stopped == "reserve"
    assert f"| calls without memory at first, asked again | {report.refusals:,} |" in (
        hardware.markdown(report)
    )


def test_a_cycle_counts_refusals(emulated: Emulator) -> None:
    patience = Patience()
    with (
        emulated.device() as device,
        cards.Addresses(device) as addresses,
        Pieces(device, addresses, patience) as pieces,
    ):
        for nth, ioctl in enumerate(("GEM_VA", "CS"), 1):
            emulated.fail(ioctl, errno.ENOMEM)
            pieces.measure("cs", 4096, 1)
            assert patience.refusals == nth
        pieces.measure("cs", 4096, 1)
        assert patience.refusals == 2


def test_memory_that_lies_elsewhere_is_seen() -> None:
    """The kernel says VRAM of it; the heaps say GTT."""
    with hardware.open_card("emulated:gfx1201?vram=1GiB&inject=silent-gtt:9") as card:
        found = hardware.measure(card, cycles=CYCLES).residency
    assert (found.stopped, found.outside_vram) == ("outside VRAM", 1)


# ---- the command -------------------------------------------------------------------------------


def test_the_table_says_emulated_in_every_header(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmkv.hardware.measure.__kwdefaults__", {"cycles": CYCLES})
    monkeypatch.setenv("COLUMNS", "30")
    done = CliRunner().invoke(main, ["bench", "--hardware", "--device", CARDS[2]])
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert lines[0].startswith("### vmkv bench --hardware: emulated ")
    assert "say nothing about a card" in lines[0]
    headers = [lines[at - 1] for at, line in enumerate(lines) if line.startswith("| ---")]
    assert len(headers) == 4
    assert all(header.startswith("| emulated: ") for header in headers)
    texts = [line for line in lines[1:] if line and not line.startswith("|")]
    assert len(texts) == 3
    assert all("emulated" in text for text in texts)
    assert "10^9 bytes" in texts[1]
    assert [head for head in headers if ", us |" in head and f"of {CYCLES}." in texts[0]]
    for what in ("card", "kernel", "libdrm", "DRM", "vmkv", "date (UTC)"):
        assert any(line.startswith(f"| {what} | ") for line in lines), what
    rows = [line for line in lines if line.startswith("|")]
    assert {row.count("|") for row in rows} == {3, 5, 6}
    assert "changes of 4 KiB, commit cs ..." in done.stderr


def test_a_real_cards_table_says_nothing_of_the_kind(emulated: Emulator) -> None:
    with emulated.device() as device:
        card = cards.Card("emulated", device, emulated=True)
        report = hardware.measure(card, cycles=CYCLES)
        facts = cards.facts(dataclasses.replace(card, name="amdgpu", emulated=False))
    text = hardware.markdown(dataclasses.replace(report, facts=facts))
    assert "emulated" not in text
    assert f"| kernel | {os.uname().release} |" in text


def test_json_has_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vmkv.hardware.measure.__kwdefaults__", {"cycles": CYCLES})
    done = CliRunner().invoke(main, ["bench", "--hardware", "--json", "--device", CARDS[0]])
    assert done.exit_code == 0, done.output
    report = json.loads(done.stdout)
    assert report["facts"]["emulated"] is True
    assert report["facts"]["drm"].startswith("3.49")
    assert len(report["latencies"]) == 40
    assert set(report["latencies"][0]["done_us"]) == {"p50", "p99", "max"}
    assert report["markdown"].startswith("### ")


@pytest.mark.parametrize(
    ("device", "code", "text"),
    [
        ("host", 2, "device 'host' is no amdgpu card"),
        ("emulated:gfx9999", 2, "gfx1201"),
        ("amdgpu?bogus=1", 2, "unknown option 'bogus'"),
        ("emulated:gfx1201?kernel=7.2&inject=timeline-ignored", 1, "vmkv doctor --device 'emu"),
        ("emulated:gfx1201?inject=device-lost", 1, "What is wrong with the card: vmkv doctor"),
        ("amdgpu:/no/such/node", 1, "there is no /no/such/node"),
        ("amdgpu:/dev/null", 1, "not one of amdgpu"),
    ],
)
def test_what_cannot_be_measured_is_told_in_one_line(device: str, code: int, text: str) -> None:
    done = CliRunner().invoke(main, ["bench", "--hardware", "--device", device])
    assert done.exit_code == code
    assert done.stdout == ""
    told = [line for line in done.stderr.splitlines() if line.startswith("Error: ")]
    assert len(told) == 1
    assert text in told[0]


def test_an_interrupt_ends_it_quietly() -> None:
    program = "from vmkv.entry import main; main()"
    command = [sys.executable, "-c", program, "bench", "--hardware", "--device", CARDS[1]]
    with subprocess.Popen(
        command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for _ in range(9):  # in the middle of it
            assert process.stderr.readline()
        process.send_signal(signal.SIGINT)
        output, rest = process.communicate(timeout=60)
    assert output == ""
    assert "Traceback" not in rest
    assert process.returncode != 0
