"""Tests of real cards: the C programs on them, and what is said where there is none. The common
tests run on cards by themselves, see hardware_support."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import hardware_support
from hardware_support import CARDS, Target, missing, real_targets, target_of
from support import ROOT, environment, needs_libdrm
from test_native import ADDRESS, Build, build  # noqa: F401 - a fixture
from vmkv import drm
from vmkv.doctor import machine

# Programs for any device, and what keeps them within seconds.
PROGRAMS = {
    "test_model": ("--operations", "1100"),
    "test_shortage": (),
    "test_threads": (),
}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "target" not in metafunc.fixturenames:
        return
    targets = [Target(name) for name in CARDS]
    if hardware_support.is_asked_for(metafunc.config):
        targets = real_targets()
    params = [
        pytest.param(target, program, marks=pytest.mark.hardware if target.is_real else ())
        for target in targets
        for program in PROGRAMS
        # On emulated ones all programs run with the other C tests.
        if target.is_real or program == "test_model"
    ]
    metafunc.parametrize(("target", "program"), params, ids=str)


@needs_libdrm
def test_program_on_a_card(
    build: Callable[[str], Build],  # noqa: F811
    seed: int,
    target: Target,
    program: str,
) -> None:
    if target.lacks:
        pytest.skip(missing(target, ""))
    build(ADDRESS).run(program, seed, *PROGRAMS[program], device=target.name)


# ---- what is said where there is none ----------------------------------------------------------


@pytest.fixture
def nodes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """In place of /dev/dri; the drivers of its nodes are links in "sys"."""
    (tmp_path / "dri").mkdir()
    (tmp_path / "sys").mkdir()
    monkeypatch.setattr("vmkv.drm.device._NODES", tmp_path / "dri")
    monkeypatch.setattr(machine, "_SYSFS", tmp_path / "sys")
    return tmp_path


def node_add(nodes: Path, number: int, driver: str) -> Path:
    path = nodes / "dri" / f"renderD{number}"
    path.touch(mode=0o600)
    device = nodes / "sys" / path.name / "device"
    device.mkdir(parents=True)
    (device / "driver").symlink_to(f"../drivers/{driver}")
    return path


def reasons() -> list[str]:
    real_targets.cache_clear()
    try:
        return [missing(target, "test_a_batch") for target in real_targets()]
    finally:
        real_targets.cache_clear()


@needs_libdrm
def test_no_node(nodes: Path) -> None:
    assert reasons() == ["needs a card: this machine has no render node of amdgpu"]


@needs_libdrm
def test_a_node_of_another_driver(nodes: Path) -> None:
    node_add(nodes, 128, "i915")
    assert reasons() == ["needs a card: this machine has no render node of amdgpu, only of i915"]


@needs_libdrm
def test_no_right_to_open_a_node(nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node_add(nodes, 128, "i915")
    path = node_add(nodes, 129, "amdgpu")
    monkeypatch.setattr("vmkv.doctor.machine.os.access", lambda *_: False)
    (reason,) = reasons()
    assert f"may not open {path}: it is for the group {path.group()} (-rw" in reason


@needs_libdrm
def test_every_card_is_told_of_by_itself(nodes: Path) -> None:
    for number in (128, 129):
        node_add(nodes, number, "amdgpu")
    assert [re.search(r"renderD\d+", reason)[0] for reason in reasons()] == [  # type: ignore[index]
        "renderD128",
        "renderD129",
    ]
    assert all("no DRM device" in reason for reason in reasons())


def test_no_libdrm(nodes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node_add(nodes, 128, "amdgpu")
    found = machine.Libdrm(problem="libdrm_amdgpu.so.1 can't be loaded")
    monkeypatch.setattr(machine, "_libdrm", lambda: found)
    assert reasons() == ["needs a card: libdrm_amdgpu.so.1 can't be loaded"]


@needs_libdrm
def test_no_copy_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drm.Device, "hw_ip", lambda self, name: None)
    target = target_of(CARDS[0])
    assert "offers no copy engine (SDMA)" in missing(target, "test_a_batch")


@needs_libdrm
def test_a_sound_card_is_used_as_it_is() -> None:
    assert target_of(CARDS[1]) == Target(CARDS[1])


def test_what_tests_need_of_a_card() -> None:
    real = Target("amdgpu:/dev/dri/renderD128")
    emulated = Target(CARDS[0])
    for target in (real, emulated):
        assert missing(target, "test_a_batch") == ""
        assert "the CPU reaches" in missing(target, "test_corruption_is_found")
    assert "may hang" in missing(real, "test_an_address_without_memory_is_told")
    assert missing(emulated, "test_an_address_without_memory_is_told") == ""


def test_what_is_listed_exists() -> None:
    """A test that was renamed would run where it can't."""
    texts = [path.read_text() for path in (ROOT / "tests").glob("test_*.py")]
    listed = {*hardware_support.NEED_CPU, *hardware_support.NEED_FAULT}
    for name in [*listed, *hardware_support.SHARED_OUT]:
        is_module = (ROOT / "tests" / f"{name}.py").is_file()
        assert is_module or any(f"def {name}(" in text for text in texts), name
    for module in hardware_support.MODULES:
        assert (ROOT / "tests" / f"{module}.py").is_file()


def test_a_run_without_a_card_says_why() -> None:
    """All of it is skipped, which is no failure."""
    if not all(target.lacks for target in real_targets()):
        pytest.skip("needs a machine without a card")
    command = [sys.executable, "-m", "pytest", "-m", "hardware", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "tests/test_step.py", "tests/test_replay.py", "tests/test_plan.py"],
        cwd=ROOT, env=environment(), capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert real_targets()[0].lacks in done.stdout
    assert re.search(r"= \d+ skipped, \d+ deselected in", done.stdout)
