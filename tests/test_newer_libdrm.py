"""The tests that libdrm matters to, once more with a newer one than the system's, where there is
such: the one that today's RADV brings along."""

import json
import re
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

from support import ROOT, run

TESTS = (
    "test_drm.py",
    "test_drm_addresses.py",
    "test_drm_buffers.py",
    "test_drm_submit.py",
    "test_drm_syncobj.py",
    "test_libdrm.py",
    "test_doctor_command.py::test_exit_code_and_verdict",
    "test_doctor.py::test_several_faults_at_once",
    "test_doctor.py::test_sound_cards_of_other_kinds",
    "test_emulate.py::test_replay_is_the_same",
    "test_emulate.py::test_drmdevice",
)


@pytest.fixture
def newer(radv: Mapping[str, str]) -> Mapping[str, str]:
    if not radv:
        pytest.skip("needs a libdrm newer than the system's: all tests ran with that")
    return radv


def test_doctor_finds_it(newer: Mapping[str, str]) -> None:
    vmkv = Path(sysconfig.get_path("scripts"), "vmkv")
    told = run(vmkv, "doctor", "--device", "emulated:gfx1201", "--json", variables=newer)
    found = json.loads(told)
    libdrm = found["machine"]["libdrm"]
    assert int(libdrm["release"].split(".")[2]) > 114
    assert libdrm["path"].startswith(newer["LD_LIBRARY_PATH"].split(":")[0])
    assert found["trusted"]
    assert found["safe_modes"] == []


def test_what_libdrm_matters_to(newer: Mapping[str, str]) -> None:
    tests = [str(ROOT / "tests" / name) for name in TESTS]
    options = ("-q", "-rs", "-p", "no:cacheprovider")
    told = run(sys.executable, "-m", "pytest", *options, *tests, cwd=ROOT, variables=newer)
    assert re.search(r"^\d+ passed", told, re.MULTILINE)
    assert "amdgpu_device_initialize2" not in told  # what needs that wasn't skipped
