"""`vmkv doctor` as a user meets it."""

import json
import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner

from support import needs_libdrm
from vmkv import commands

PROGRAM = Path(sysconfig.get_path("scripts"), "vmkv")


def run(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [PROGRAM, "doctor", *arguments],
        capture_output=True, text=True, timeout=120, check=False, env=os.environ | variables,
    )  # fmt: skip


@needs_libdrm
def test_json_is_pure_and_has_the_names_that_scripts_rely_on() -> None:
    done = run("--device", "emulated:gfx1201?inject=stale-translation,late-visibility", "--json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert report["device"].startswith("emulated:gfx1201")
    assert report["trusted"] is True
    assert report["safe_modes"] == ["never-reuse-addresses", "wait-after-map"]
    for probe in report["probes"]:
        assert {"name", "fault", "passed", "seen", "meaning"} <= probe.keys()
    failed = {probe["fault"] for probe in report["probes"] if not probe["passed"]}
    assert failed == {"stale-translation", "late-visibility"}
    assert "remap" in done.stderr


@needs_libdrm
@pytest.mark.parametrize(
    ("inject", "code", "verdict"),
    [
        ("", 0, "Trusted: no safe mode is needed"),
        ("?inject=alias-diverges", 0, "Trusted in safe modes: no-alias"),
        ("?inject=transient-enomem", 0, "Trusted: no safe mode is needed"),
        ("?inject=unmap-ignored", 1, "Not trusted: vmkv won't run on this card. unmap"),
        ("?inject=device-lost", 1, "card. loss (device-lost). Not tried, or not to the end: late-"),
    ],
)
def test_exit_code_and_verdict(inject: str, code: int, verdict: str) -> None:
    done = run("--device", f"emulated:gfx1201{inject}", COLUMNS="200")
    assert (done.returncode, "Traceback" in done.stderr) == (code, False)
    assert verdict in done.stdout
    assert "This card is emulated" in done.stdout.splitlines()[-1]
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())
    assert "\x1b" not in done.stdout


@needs_libdrm
@pytest.mark.parametrize("columns", [40, 80, 200])
def test_narrow_terminals(columns: int) -> None:
    done = run("--device", "emulated:gfx1201?inject=stale-translation", COLUMNS=str(columns))
    assert done.returncode == 0
    assert max(len(line) for line in done.stdout.splitlines()) <= columns
    words = " ".join(done.stdout.split())
    for text in ("safe mode", "remap", "stale" if columns < 80 else "the old page", "emulated"):
        assert text in words


@needs_libdrm
def test_what_could_not_be_tried_is_not_called_a_fault() -> None:
    done = run("--device", "emulated:gfx1201?inject=device-lost", COLUMNS="200")
    for fault in ("stale-translation", "wrong-data", "silent-gtt", "Means: nothing"):
        assert fault not in done.stdout
    report = json.loads(run("--device", "emulated:gfx1201?inject=device-lost", "--json").stdout)
    assert report["faults"] == ["device-lost"]
    assert {probe["fault"] for probe in report["probes"] if probe["passed"] is False} == {
        "device-lost"
    }


@needs_libdrm
def test_a_warning_comes_before_risks() -> None:
    done = run("--device", "emulated:gfx1201", "--risky", "--json")
    assert done.returncode == 0
    assert done.stderr.startswith("Warning: ")
    assert {"hole", "unmapped-read"} <= {p["name"] for p in json.loads(done.stdout)["probes"]}
    assert "Warning" not in run("--device", "emulated:gfx1201", "--json").stderr


@pytest.mark.skipif(Path("/dev/dri").exists(), reason="needs a machine without render nodes")
def test_a_machine_without_a_card() -> None:
    for arguments in ([], ["--device", "amdgpu"], ["--device", "amdgpu:/dev/dri/renderD128"]):
        done = run(*arguments, COLUMNS="200")
        assert (done.returncode, "Traceback" in done.stderr) == (1, False)
        assert "Not examined: " in done.stdout
        report = json.loads(run(*arguments, "--json").stdout)
        assert (report["trusted"], report["safe_modes"], report["probes"]) == (False, [], [])
        assert report["problem"]


def test_a_machine_without_libdrm(tmp_path: Path) -> None:
    """One that can't be loaded stands for none: the dynamic linker finds it first."""
    (tmp_path / "libdrm_amdgpu.so.1").touch()
    for name in ("amdgpu", "emulated:gfx1201"):
        done = run("--device", name, COLUMNS="200", LD_LIBRARY_PATH=str(tmp_path))
        assert (done.returncode, "Traceback" in done.stderr) == (1, False)
        assert "libdrm  none" in done.stdout
        assert "apt install libdrm-amdgpu1" in done.stdout


@pytest.mark.parametrize(
    "name", ["host", "", "emulated:", "emulated:gfx1201?nonsense=1", "amdgpu?nonsense=1"]
)
def test_wrong_usage(name: str) -> None:
    for command in (["doctor"], ["bench", "--hardware"]):
        result = CliRunner().invoke(commands.main, [*command, "--device", name])
        assert result.exit_code == 2
        assert "Error: " in result.output


@needs_libdrm
@pytest.mark.parametrize("command", [["doctor"], ["bench", "--hardware"]])
def test_letters_that_are_none(command: list[str]) -> None:
    """Bytes of the command line that aren't UTF-8."""
    done = subprocess.run(
        [PROGRAM, *command, "--device", b"emulated:gfx1201?vram=\xe9"],
        capture_output=True, timeout=120, check=False, env=os.environ | {"LC_ALL": "C"},
    )  # fmt: skip
    assert done.returncode == 2
    assert b"it takes a size" in done.stderr
    assert b"Traceback" not in done.stderr
