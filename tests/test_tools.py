"""The example in Python, on an emulated card. Those in C are built by test_install."""

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

from support import ROOT, environment, needs_libdrm, run
from vmkv import drm
from vmkv.emulator import Emulator

pytestmark = needs_libdrm

EXAMPLE = ROOT / "tools" / "on_demand.py"


@pytest.fixture
def example() -> ModuleType:
    spec = importlib.util.spec_from_file_location("on_demand", EXAMPLE)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("card", ["gfx1201", "gfx942?vram=1GiB&kernel=6.1", "gfx1030?kernel=7.2"])
def test_on_demand_runs(card: str) -> None:
    printed = run(sys.executable, "-P", EXAMPLE, f"emulated:{card}")
    assert re.search(r"^.+: 1024 MiB of addresses reserved at 0x[0-9a-f]+$", printed, re.MULTILINE)
    assert "\n24 of 24 pages of 64 KiB came on demand and held what they got\n" in printed


def test_on_demand_maps_only_what_is_used_and_leaves_nothing(
    tmp_path: Path, example: ModuleType
) -> None:
    trace = tmp_path / "trace"
    with (
        Emulator(f"gfx1201?vram=256MiB&trace={trace}") as card,
        card.device() as device,
        drm.Sdma(device) as sdma,
        device.va_alloc(example.RESERVED, alignment=2 << 20) as span,
        device.alloc(2 << 20, alignment=2 << 20, always_valid=True) as memory,
    ):
        range_ = example.OnDemand(device, memory, span)
        range_.grow(2 * example.PAGE)
        assert not card.walk(device.fd, span.address).valid  # noted, and no more
        sdma.nop().run()
        for n, valid in enumerate((1, 1, 0)):
            assert card.walk(device.fd, span.address + n * example.PAGE).valid == valid
        range_.shrink(sdma)
        assert not card.walk(device.fd, span.address).valid
        assert example.use(device, range_, sdma) == example.PAGES
        range_.shrink(sdma)
        assert not card.walk(device.fd, span.address).valid
    calls = [json.loads(line) for line in trace.read_text(encoding="utf-8").splitlines()]
    failed = Counter(call["ioctl"] for call in calls if call["result"])
    assert not failed


def test_on_demand_without_a_card_says_so() -> None:
    command = [sys.executable, "-P", str(EXAMPLE), "/dev/null"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True)
    assert done.returncode == 1
    assert re.fullmatch(r"on_demand: /dev/null is no DRM device[^\n]*\n", done.stderr)
