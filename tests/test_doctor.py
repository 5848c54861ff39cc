"""What doctor finds on emulated cards: sound ones, and those with each of the faults."""

import itertools
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from drm_support import Mapped
from support import descriptors, needs_libdrm
from vmkv import doctor, drm, errors
from vmkv.doctor import examination, machine, probes_kernel, workbench
from vmkv.doctor.probe import Finding, Outcome, Probe
from vmkv.doctor.verdict import judge
from vmkv.emulator import Emulator

pytestmark = needs_libdrm

RUNS = 20
MODELS = ("gfx1030", "gfx1100", "gfx1201", "gfx942")
KERNELS = ("6.1", "6.12", "7.2")
CARDS = tuple(itertools.product(MODELS, KERNELS))
# Fault -> the safe modes; None: the card is refused.
FOLLOWS: dict[str, tuple[str, ...] | None] = {
    "stale-translation": ("never-reuse-addresses",),
    "late-visibility": ("wait-after-map",),
    "alias-diverges": ("no-alias",),
    "vram-stolen": (),
    "silent-gtt": (),
    "unmap-ignored": None,
    "timeline-ignored": (),
    "device-lost": None,
    "transient-enomem": (),
}
# A run with these takes a second, most of it waiting: they have fewer, but with --runs.
SLOW = {"late-visibility": 6, "timeline-ignored": 6}
PAIRS = tuple(itertools.combinations(FOLLOWS, 2))
# Pairs of which one hides the other, or looks like it.
TELLING = {
    ("stale-translation", "late-visibility"),
    ("stale-translation", "unmap-ignored"),
    ("late-visibility", "vram-stolen"),
    ("alias-diverges", "unmap-ignored"),
    ("vram-stolen", "silent-gtt"),
    *(pair for pair in PAIRS if "device-lost" in pair),
}


def cards(runs: int, fault: str = "", kernels: tuple[str, ...] = KERNELS) -> Iterator[str]:
    """Names of 20 cards, all models and kernels in turn; the further ones run their jobs in another
    order. With --runs: each of them so many times."""
    every = [card for card in CARDS if card[1] in kernels]
    options = f"&inject={fault}" if fault else ""
    for number in range(len(every) * runs or SLOW.get(fault, RUNS)):
        model, kernel = every[number % len(every)]
        seed = f"&seed={number}" if number >= len(every) else ""
        yield f"emulated:{model}?kernel={kernel}{seed}{options}"


def faults(report: doctor.Report) -> set[str]:
    """What the probes name."""
    assert report.failure is None
    return {finding.fault for finding in report.findings if finding.failed}


# ---- what is found ---------------------------------------------------------------------------


def test_a_sound_card_is_trusted(runs: int) -> None:
    for name in cards(runs):
        report = doctor.examine(name)
        assert [finding for finding in report.findings if not finding.passed] == [], name
        assert (report.trusted, report.verdict.safe_modes) == (True, ()), name
        assert report.refusal is None


@pytest.mark.parametrize("fault", FOLLOWS)
def test_a_fault_is_named_and_no_other(fault: str, runs: int) -> None:
    kernels = ("7.2",) if fault == "timeline-ignored" else KERNELS
    modes = FOLLOWS[fault]
    for name in cards(runs, fault, kernels):
        report = doctor.examine(name)
        assert faults(report) == {fault}, name
        assert report.trusted == (modes is not None), name
        assert report.verdict.safe_modes == (modes or ()), name
        assert report.verdict.faults == {fault}, name


@pytest.mark.parametrize(
    "options",
    [
        "vm_update=cpu",
        "seed=3",
        "vram=128MiB&gtt=128MiB",
        "identity=1&commit=engine&slabs=listed",
        "ioctl_us=20&pte_us=200",
    ],
)
def test_sound_cards_of_other_kinds(options: str) -> None:
    report = doctor.examine(f"emulated:gfx1201?{options}")
    assert [finding for finding in report.findings if not finding.passed] == []


def test_several_faults_at_once() -> None:
    every = {"stale-translation", "late-visibility", "alias-diverges", "silent-gtt"}
    every.add("transient-enomem")
    report = doctor.examine(f"emulated:gfx1201?inject={','.join(sorted(every))}")
    assert faults(report) == every
    assert report.verdict.safe_modes == ("never-reuse-addresses", "wait-after-map", "no-alias")


def test_two_faults_at_once(runs: int) -> None:
    """Both are named, and no other, unless one keeps the other from being looked for."""
    for pair in PAIRS if runs else sorted(TELLING):
        report = doctor.examine(f"emulated:gfx1201?kernel=7.2&inject={','.join(pair)}")
        expected = {"device-lost"} if "device-lost" in pair else set(pair)
        assert faults(report) == report.verdict.faults == expected, pair
        assert report.trusted == all(FOLLOWS[fault] is not None for fault in pair), pair


def test_only_what_was_found_is_named() -> None:
    """After a loss nothing can be tried: that is no fault of mappings."""
    report = doctor.examine("emulated:gfx1201?inject=device-lost")
    untried = [finding for finding in report.findings if finding.passed is None]
    assert len(untried) >= 8
    assert all("card was lost" in finding.seen for finding in untried)
    assert report.verdict.faults == {"device-lost"}
    assert report.as_json()["faults"] == ["device-lost"]
    assert "remap" not in str(report.refusal)
    assert "device-lost" in str(report.refusal)


@pytest.mark.parametrize("at", [1, 40, 200, 300])
@pytest.mark.parametrize("fault", ["device-lost", "vram-stolen"])
def test_whenever_it_happens(fault: str, at: int) -> None:
    report = doctor.examine(f"emulated:gfx1201?inject={fault}:{at}")
    assert faults(report) == {fault}


@pytest.mark.parametrize(("late_us", "trusted"), [(300, True), (10_000, True), (150_000, False)])
def test_lateness_is_measured(late_us: int, trusted: bool) -> None:
    report = doctor.examine(f"emulated:gfx1201?inject=late-visibility&late_us={late_us}")
    assert faults(report) == {"late-visibility"}
    assert report.trusted == trusted
    assert report.verdict.wait_us >= min(late_us, 50_000)
    if not trusted:
        assert isinstance(report.refusal, errors.UnsupportedError)
        assert "late-visibility" in str(report.refusal)


def test_risky_probes() -> None:
    names = {probe.name for probe in examination.RISKY_PROBES}
    for model, kernel in zip(MODELS, itertools.cycle(KERNELS), strict=False):
        report = doctor.examine(f"emulated:{model}?kernel={kernel}", risky=True)
        assert names <= {finding.name for finding in report.findings}
        assert [finding for finding in report.findings if not finding.passed] == []
    for inject in ("stale-translation", "late-visibility"):
        report = doctor.examine(f"emulated:gfx1201?inject={inject}", risky=True)
        assert faults(report) == {inject}
    report = doctor.examine("emulated:gfx1201?inject=unmap-ignored", risky=True)
    failed = {finding.name for finding in report.findings if finding.failed}
    assert failed >= {"unmap", "unmapped-read"}


# ---- what it does on the way -----------------------------------------------------------------


def test_nothing_is_left_and_nothing_of_others_touched() -> None:
    """A neighbour on the same card, who has half of it, finds everything as it was."""
    files = descriptors()
    with Emulator("gfx1201?vram=512MiB") as card, card.device(private=False) as device:
        mine = device.alloc(256 << 20, "vram", always_valid=True, cpu_access=True)
        words = mine.numpy(np.uint32)
        words[:: 4096 // 4] = 0x1234567
        place = mine.domain
        before = card.stats()
        with workbench.Workbench(device) as bench:
            condition = probes_kernel.Condition.of(device)
            deadline = time.monotonic() + 60
            examination._run_all(bench, examination.PROBES, condition, deadline, lambda text: None)
        assert (words[:: 4096 // 4] == 0x1234567).all()
        assert mine.domain == place
        after = card.stats()
        for name in ("files", "buffers", "handles", "mappings", "contexts", "syncobjs"):
            assert getattr(after, name) == getattr(before, name), name
        assert (after.evictions, after.faults) == (before.evictions, 0)
        del words
        mine.close()
    assert descriptors() == files


def test_a_loss_explains_what_else_is_wrong() -> None:
    """Somebody else's work makes the card lose its memory: what a probe reads then proves nothing
    of mappings."""
    broken = Probe("any", "wrong-data", "", "", "", lambda bench: Outcome(False, "other words"))
    with (
        Emulator("gfx1201?inject=device-lost:1") as card,
        card.device() as device,
        workbench.Workbench(device) as bench,
        drm.Sdma(device) as other,
    ):
        assert examination._run_one(bench, broken)[0].passed is False
        with pytest.raises(errors.DeviceError):
            other.run()
        assert bench.is_lost()
        outcome, stopped = examination._run_one(bench, broken)
        assert (outcome.passed, stopped) == (None, "the card was lost")
        assert examination._run_one(bench, probes_kernel.LOSS)[0].passed is False


def test_packets_are_read_when_their_mapping_is_seen() -> None:
    """A new engine's first ones too: of packets that come into view while they are read the card
    sees half, and can hang."""
    late_us = int(0.9e6 * workbench.LATE_LIMIT_S)
    spec = f"gfx1201?vm_update=cpu&inject=late-visibility&late_us={late_us}"
    with (
        Emulator(spec) as card,
        card.device() as device,
        workbench.Workbench(device) as bench,
    ):
        for value in (1, 2):
            bench.sdma.fill(bench.staging.address, 64, value)
            bench.run()
            assert set(bench.staging.words[:16]) == {value}
            bench.renew()


def test_a_faultless_run_makes_no_fault() -> None:
    with Emulator("gfx1201?kernel=7.2") as card, card.device() as device:
        with workbench.Workbench(device) as bench:
            for probe in examination.PROBES:
                assert probe.run(bench).passed
                bench.tidy()
        assert (card.stats().faults, card.stats().stale_accesses, card.error) == (0, 0, "")


@pytest.mark.parametrize(("vram", "lacking"), [("64MiB", "8.00 MiB more"), ("72MiB", "4 KiB more")])
def test_full_vram_is_no_place_for_probes(vram: str, lacking: str) -> None:
    report = doctor.examine(f"emulated:gfx1201?vram={vram}")
    assert isinstance(report.failure, errors.DeviceMemoryError)
    assert "64 MiB" in str(report.failure)
    assert lacking in str(report.failure)
    assert (report.trusted, report.findings) == (False, ())


def test_vram_that_others_take_is_no_reason_to_refuse() -> None:
    """Where buffers lie can't be seen then, and nothing depends on it."""
    report = doctor.examine("emulated:gfx1201?inject=late-visibility,vram-stolen")
    (untried,) = [finding for finding in report.findings if finding.passed is None]
    assert (untried.name, untried.harmless) == ("residency", True)
    assert untried in report.verdict.notes
    assert report.trusted


@pytest.mark.parametrize("submission", [1, 3, 60])
def test_a_card_that_hangs(submission: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is told as such, by no name of a fault, and nobody waits for it to come back."""
    count, submit = itertools.count(1), drm.Sdma.submit
    opened: list[Emulator] = []
    create = Emulator.__init__

    def noted(card: Emulator, spec: str) -> None:
        create(card, spec)
        opened.append(card)

    def hanging(sdma: drm.Sdma, **options: Any) -> drm.Fence:
        if next(count) == submission:
            opened[0].pause()
        return submit(sdma, **options)

    monkeypatch.setattr(Emulator, "__init__", noted)
    monkeypatch.setattr(drm.Sdma, "submit", hanging)
    monkeypatch.setattr(workbench, "GPU_TIMEOUT_S", 0.05)
    report = doctor.examine("emulated:gfx1201")
    assert report.failure is None
    assert not report.trusted
    assert report.verdict.faults == set()
    assert "not reached in" in str(report.refusal)


def test_a_slow_card_ends_it_in_the_middle_of_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "LIMIT_S", 0.3)
    report = doctor.examine("emulated:gfx1201?pte_us=20000")
    (cut, *others) = [finding for finding in report.findings if finding.passed is None]
    assert "time for all probes is up" in cut.seen
    assert all(finding.seen.startswith("not tried") for finding in others)
    assert report.verdict.faults == set()


def test_probes_end_when_time_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(examination, "LIMIT_S", -1.0)
    report = doctor.examine("emulated:gfx1201")
    assert not report.trusted
    assert {finding.passed for finding in report.findings[: len(examination.PROBES)]} == {None}
    assert "too long" in str(report.refusal)


@pytest.mark.parametrize("ioctl", ["GEM_VA", "GEM_CREATE", "CS", "GEM_MMAP", "INFO"])
@pytest.mark.parametrize("nth", [1, 2, 9, 60])
def test_an_unforeseen_error_is_told(ioctl: str, nth: int) -> None:
    """Refused once by the kernel with an error that means nothing: no card is trusted after that,
    unless nobody needed the answer; and nothing comes up as a traceback."""
    files = descriptors()
    report = doctor.examine(f"emulated:gfx1201?kernel=7.2&inject=ioctl:{ioctl}:{nth}:EPROTO")
    assert report.trusted == (report.refusal is None)
    if not report.trusted:
        assert str(report.refusal)
    assert descriptors() == files


def test_the_engine_reads_no_packets_that_come_into_view() -> None:
    """Its own mapping is as late as any. Half of the packets may hang a card; on this one they
    would all be read as nothing, and the word stay."""
    late_s = 0.02
    with (
        Emulator(f"gfx1201?vram=256MiB&inject=late-visibility&late_us={late_s * 1e6:.0f}") as card,
        card.device() as device,
        Mapped(device, 4096) as word,
    ):
        time.sleep(2 * late_s)
        for renewed in (False, True):
            with workbench.Workbench(device) as bench:
                if renewed:
                    bench.renew()
                bench.sdma.write(word.address, [1 + renewed])
                bench.run()
            assert int(word.buffer.numpy(np.uint32)[0]) == 1 + renewed


# ---- what follows ----------------------------------------------------------------------------


def finding(fault: str, passed: bool | None) -> Finding:
    return Finding("probe", fault, "tried", passed, "seen", "meaning")


def test_what_was_not_tried_proves_nothing() -> None:
    verdict = judge([finding("stale-translation", None)], 0)
    assert (verdict.trusted, verdict.safe_modes) == (False, ())


def test_what_nobody_makes_up_for_is_refused() -> None:
    for fault in ("wrong-data", "dirty-memory", "wrong-fill", "dead-engine", "unmap-ignored"):
        assert not judge([finding(fault, False)], 0).trusted
    assert judge([finding("wrong-data", True)], 0).trusted


def test_a_lateness_that_nobody_waits_for_comes_first() -> None:
    verdict = judge([finding("wrong-data", None), finding("late-visibility", False)], 50_000)
    assert [one.fault for one in verdict.refusals] == ["late-visibility", "wrong-data"]
    assert verdict.faults == {"late-visibility"}


def test_waits_are_longer_than_what_was_seen() -> None:
    late = [finding("late-visibility", False)]
    assert judge(late, 100).wait_us == 4000
    assert judge(late, 9000).wait_us == 18000
    assert judge([finding("late-visibility", True)], 0).wait_us == 0
    assert not judge(late, 50_000).trusted


# ---- machines --------------------------------------------------------------------------------


def nodes(monkeypatch: pytest.MonkeyPatch, *found: machine.Node, user: str = "ada") -> None:
    libdrm = machine.Libdrm("2.4.124", "libdrm_amdgpu.so.1")
    whole = machine.Machine("6.12", user, found, libdrm)
    monkeypatch.setattr(examination, "look", lambda: whole)


def test_no_card(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes(monkeypatch)
    report = doctor.examine()
    assert isinstance(report.failure, errors.DeviceNotFoundError)
    assert (report.device, report.trusted) == (None, False)
    assert any("lspci" in remedy for remedy in report.remedies)


def test_card_of_another_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    nodes(monkeypatch, machine.Node("/dev/dri/renderD128", "i915", "render", "crw-rw----", True))
    report = doctor.examine()
    assert "only of i915" in str(report.failure)


def test_no_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    node = machine.Node("/dev/dri/renderD128", "amdgpu", "render", "crw-rw----", False)
    nodes(monkeypatch, node)
    report = doctor.examine()
    assert isinstance(report.failure, errors.DeviceError)
    assert "ada may not open /dev/dri/renderD128" in str(report.failure)
    assert any("sudo usermod -aG render ada" in remedy for remedy in report.remedies)


@pytest.mark.parametrize(
    ("group", "mode", "user", "remedy"),
    [
        ("root", "crw-rw----", "ada", "sudo chgrp render /dev/dri/renderD128; sudo chmod 660"),
        ("video", "crw-------", "ada", "sudo chmod g+rw /dev/dri/renderD128"),
        ("9999", "crw-rw----", "ada", "--group-add 9999"),
        ("video", "crw-rw----", "54321", "--group-add video"),
        ("unknown", "", "ada", "ls -lL /dev/dri"),
    ],
)
def test_what_to_do_about_permissions(
    group: str, mode: str, user: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes(monkeypatch, machine.Node("/dev/dri/renderD128", "amdgpu", group, mode, False), user=user)
    for name in ("amdgpu", "amdgpu:/dev/dri/renderD128"):
        (told,) = doctor.examine(name).remedies
        assert remedy in told
        assert "usermod" not in told


def test_nodes_that_nobody_may_look_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> list[str]:
        raise errors.DeviceError("no right to look into /dev/dri", 13)

    monkeypatch.setattr(drm, "render_nodes", refused)
    report = doctor.examine()
    assert "no right to look into /dev/dri" in str(report.failure)
    assert report.remedies
    assert doctor.look().nodes == ()


def test_a_render_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """A card by its path, as a real one is: here the path leads to an emulated one."""
    path = "/dev/dri/renderD128"
    nodes(monkeypatch, machine.Node(path, "amdgpu", "render", "crw-rw----", True))
    with Emulator("gfx1201?inject=alias-diverges") as card:
        fd = card.open()
        opened = drm.Device.open(fd)

        def open_node(node: str, *, private: bool) -> drm.Device:
            assert node == path
            return opened

        monkeypatch.setattr(drm.Device, "open", open_node)
        report = doctor.examine()
        assert opened.closed
        card.close_file(fd)
    assert report.device == f"amdgpu:{path}"
    assert faults(report) == {"alias-diverges"}
    assert report.card is not None
    assert not report.card.emulated


def test_the_first_card_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    mode = "crw-rw----"
    nodes(
        monkeypatch,
        machine.Node("/dev/dri/renderD128", "i915", "render", mode, True),
        machine.Node("/dev/dri/renderD129", "amdgpu", "render", mode, False),
        machine.Node("/dev/dri/renderD130", "amdgpu", "render", mode, True),
    )
    report = doctor.examine()
    assert report.device == "amdgpu:/dev/dri/renderD130"
    assert "renderD130" in str(report.failure)  # it isn't there


def test_no_libdrm(monkeypatch: pytest.MonkeyPatch) -> None:
    def lacks() -> SimpleNamespace:
        raise errors.UnsupportedError("libdrm is needed")

    monkeypatch.setattr(machine, "libdrm", lacks)
    for name in ("amdgpu", "emulated:gfx1201"):
        report = doctor.examine(name)
        assert isinstance(report.failure, errors.UnsupportedError)
        assert any("apt install libdrm-amdgpu1" in remedy for remedy in report.remedies)


def test_a_path_that_is_no_card() -> None:
    for path in ("/dev/null", "/no/such/node"):
        report = doctor.examine(f"amdgpu:{path}")
        assert isinstance(report.failure, errors.DeviceNotFoundError)
        assert path in str(report.failure)


def test_libdrm_is_found() -> None:
    found = doctor.look().libdrm
    assert found.release.startswith("2.4.")
    assert found.path.startswith("/")
    assert found.others == ()


@pytest.mark.parametrize("name", ["host", "auto", "vulkan:0", ""])
def test_what_is_no_card_is_told(name: str) -> None:
    with pytest.raises(errors.InvalidError, match="is no card"):
        doctor.examine(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("emulated:gfx9999", "gfx1201"),
        ("emulated:gfx1201?bogus=1", "commit, slabs, safe and wait_us"),
        ("emulated:gfx1201?vram=\udce9", "it takes a size"),
        ("emulated:gfx1201?vram=\0", "NUL"),
        ("amdgpu?bogus=1", "it has commit, slabs, window, safe and wait_us"),
    ],
)
def test_bad_names_are_told(name: str, text: str) -> None:
    with pytest.raises(errors.InvalidError, match=text):
        doctor.examine(name)


def test_facts_of_the_card() -> None:
    card = doctor.examine("emulated:gfx1100?vram=1GiB&kernel=7.2").card
    assert card is not None
    assert (card.vram_bytes, card.resizable_bar, card.emulated) == (1 << 30, True, True)
    assert "gfx11" in card.family
    assert card.drm_version.startswith("3.64")
