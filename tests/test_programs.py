"""Programs of other people on an emulated card, and ours on RADV: each on every kernel. They end as
on a real machine, and the card refuses nothing but what is listed here, with the reason."""

import json
import re
import shlex
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from emulate_support import KERNELS, Build, emulate
from support import ROOT, needed, run

# What Mesa asks, and what a kernel of that age knows no more than ours.
MAX_IBS = "INFO: there is no query 0x22"
REFUSED_TO_MESA = {"6.1": MAX_IBS}  # added in Linux 6.4; Mesa then goes by what it knows itself

Found = tuple[str, dict[str, Any]]


def shown(
    directory: Path, kernel: str, *command: str | Path, refused: str = "", **more: Any
) -> Found:
    """What a program prints, and what the card counted; checks that it ended well, refused at most
    the one call that is named, and that nothing is left on the card."""
    counts = directory / "counts.json"
    told = emulate("--kernel", kernel, "--counts", counts, *command, **more)
    counted = json.loads(counts.read_text())
    stats = counted["stats"]
    assert (stats["refused"], counted["error"]) == (1 if refused else 0, refused)
    assert stats["faults"] == 0
    left = ("files", "buffers", "handles", "mappings", "contexts", "syncobjs", "vram_used_bytes")
    assert {name: stats[name] for name in left} == dict.fromkeys(left, 0)
    return told, counted


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---- programs that come with distributions


def test_amdgpu_stress(build: Build, kernel: str, tmp_path: Path) -> None:
    """It copies and doesn't look, so what is preloaded into it does."""
    program = needed("amdgpu_stress")
    looking = build("preload_copies", *libdrm("--cflags"), "-shared", "-fPIC")
    buffers = ("-b", "v", "4m", "-b", "g", "4m", "-b", "vg", "6m")
    copies = ("-c", "1", "2", "4m", "3", "-c", "3", "1", "1m", "1")
    told, counted = shown(
        tmp_path, kernel, "--", program, *buffers, *copies,
        variables={"LD_PRELOAD": str(looking)},
    )  # fmt: skip
    assert "Submitted 3 IBs to copy from 1" in told
    assert told.splitlines()[-3:] == [
        "buffer 1 has 1048576 bytes of buffer 3",
        "buffer 2 has 4194304 bytes of buffer 1",
        "buffer 3 has 6291456 bytes of buffer 3",
    ]
    assert counted["stats"]["submissions"] == 4


RADEONTOP = """\
import subprocess, sys
import vmkv.drm
with vmkv.drm.Device.open() as card, card.alloc(256 << 20, "vram"):
    subprocess.run(sys.argv[1:], check=True)
"""


def test_radeontop(kernel: str, tmp_path: Path) -> None:
    """It sees what another program holds."""
    top = (needed("radeontop"), "-d", "-", "-l", "2", "-i", "1")
    told, counted = shown(tmp_path, kernel, "--", sys.executable, "-c", RADEONTOP, *top)
    lines = [line for line in told.splitlines() if "gpu " in line]
    assert len(lines) == 2
    for line in lines:
        assert "bus 03, gpu 0.00%" in line
        assert re.search(r"vram 1\.56% 256\.0\dmb", line)  # and the page tables
    assert counted["ioctls"]["INFO"] > 200  # it reads registers, 120 times a second


def test_vulkaninfo(radv: Mapping[str, str], kernel: str, tmp_path: Path) -> None:
    refused = REFUSED_TO_MESA.get(kernel, "")
    told, _ = shown(tmp_path, kernel, "--", needed("vulkaninfo"), refused=refused, variables=radv)
    card = told[told.index("VkPhysicalDeviceProperties:") :]
    assert re.search(r"deviceName\s*= AMD Radeon Graphics \(RADV GFX1201\)", card)
    assert re.search(r"deviceID\s*= 0x7550", card)
    for feature in ("sparseBinding", "sparseResidencyAliased", "bufferDeviceAddress"):
        assert re.search(rf"\b{feature}\s*= true", card)


# ---- our own, on RADV


def libdrm(*what: str) -> list[str]:
    return shlex.split(run(needed("pkg-config"), *what, "libdrm_amdgpu"))


@pytest.mark.parametrize("queue", ["gfx", "compute", "transfer"])
def test_sparse_buffers(
    build: Build, radv: Mapping[str, str], kernel: str, queue: str, seed: int, tmp_path: Path
) -> None:
    """Bound, aliased, rebound, unbound and copied through, with contents checked, by the packets
    of each kind of ring. RADV has queues on the SDMA ring if asked for."""
    program = build("vk_sparse", "-lvulkan")
    told, counted = shown(
        tmp_path, kernel, "--", program, queue, str(seed),
        refused=REFUSED_TO_MESA.get(kernel, ""),
        variables={**radv, "RADV_PERFTEST": "transfer_queue"},
    )  # fmt: skip
    assert told.endswith("fills: right\n")
    assert counted["ioctls"]["GEM_VA"] > 500
    assert counted["stats"]["submissions"] > 100


@pytest.mark.parametrize("gpu", ["gfx1030", "gfx1100"])  # RADV doesn't know gfx942
def test_sparse_buffers_of_other_cards(
    build: Build, radv: Mapping[str, str], gpu: str, seed: int, tmp_path: Path
) -> None:
    command = ("--gpu", gpu, "--", build("vk_sparse", "-lvulkan"), "gfx", str(seed))
    told, _ = shown(tmp_path, "6.12", *command, variables=radv)
    assert told.endswith("fills: right\n")


def test_shaders_are_refused(
    build: Build, radv: Mapping[str, str], kernel: str, tmp_path: Path
) -> None:
    counts = tmp_path / "counts.json"
    program = build("vk_shader", "-lvulkan")
    emulate("--kernel", kernel, "--counts", counts, "--", program, variables=radv)
    counted = json.loads(counts.read_text())
    assert re.search(r"^PM4 packet DISPATCH_DIRECT .* it needs shaders", counted["error"])
    assert counted["stats"]["refused"] == 1 + (kernel in REFUSED_TO_MESA)


# ---- RADV and vmkv in one process


@pytest.fixture
def shared(build: Build, radv: Mapping[str, str]) -> Path:
    vmkv = Path(sysconfig.get_path("scripts"), "vmkv")
    options = shlex.split(run(vmkv, "pkg-config", "--cflags", "--libs"))
    return build("vk_shared", *libdrm("--cflags", "--libs"), *options, "-lvulkan")


def test_example_of_the_readme(tmp_path: Path) -> None:
    """Compiled; it ends in a dispatch, and nothing here runs shaders."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"^```c vulkan\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    (tmp_path / "example.c").write_text(block, encoding="utf-8")
    vmkv = Path(sysconfig.get_path("scripts"), "vmkv")
    flags = shlex.split(run(vmkv, "pkg-config", "--cflags"))
    run("cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-c", "example.c", *flags, cwd=tmp_path)


Line = dict[str, Any]


def is_vmkvs_map(line: Line) -> bool:
    """MAP with DELAY: RADV never asks for that."""
    arguments = line["args"]
    is_map = line["ioctl"] == "GEM_VA" and arguments["operation"] == 1
    return bool(is_map and arguments["flags"] & 1)


def chunks(line: Line, kind: str, field: str) -> list[int]:
    """What a submission's chunks of a kind say."""
    found = (chunk["data"] for chunk in line["args"]["chunks"] if chunk["id"] == kind)
    return [element[field] for data in found for element in data]


def is_radvs_submission(line: Line) -> bool:
    """On the ring for graphics: vmkv's own are on the one for copies."""
    return line["ioctl"] == "CS" and 0 in chunks(line, "IB", "ip_type")


def maps_come_first(lines: list[Line]) -> bool:
    """Whether after vmkv's maps the first submission of all was RADV's."""
    maps = [i for i, line in enumerate(lines) if is_vmkvs_map(line)]
    submissions = [i for i, line in enumerate(lines) if line["ioctl"] == "CS"]
    assert len(maps) >= 4
    return max(maps) < submissions[0] and is_radvs_submission(lines[submissions[0]])


def waits_for_sync_files(lines: list[Line]) -> int:
    """How often RADV's next submission waited for the sync file that it had just imported."""
    waits, imported = 0, None
    for line in lines:
        if line["ioctl"] == "SYNCOBJ_FD_TO_HANDLE" and line["args"]["flags"] & 1:
            imported = line["out"]["handle"]
        elif imported is not None and is_radvs_submission(line):
            waits += imported in chunks(line, "SYNCOBJ_TIMELINE_WAIT", "handle")
            imported = None
    return waits


@pytest.mark.parametrize("how", ["same", "engine", "cs"])
def test_one_address_space(
    shared: Path, radv: Mapping[str, str], kernel: str, how: str, tmp_path: Path
) -> None:
    trace = tmp_path / "trace"
    shown(
        tmp_path, kernel, "--trace", trace, "--", shared, how,
        refused=REFUSED_TO_MESA.get(kernel, ""), variables=radv,
    )  # fmt: skip
    lines = [json.loads(line) for line in trace.read_text().splitlines()]
    assert len({line["file"] for line in lines if line["ioctl"] in ("GEM_VA", "CS")}) == 1
    if how == "engine":
        assert maps_come_first(lines)
    if how == "cs":
        assert waits_for_sync_files(lines) == 2


@pytest.mark.parametrize("how", ["back", "listed", "apart"])
def test_what_radv_does_not_find(
    shared: Path, radv: Mapping[str, str], kernel: str, how: str, tmp_path: Path
) -> None:
    counts = tmp_path / "counts.json"
    emulate("--kernel", kernel, "--counts", counts, "--", shared, how, variables=radv)
    counted = json.loads(counts.read_text())
    assert counted["stats"]["faults"] == 1
    assert "GPU fault: write at 0xffff8" in counted["error"]
    assert counted["stats"]["refused"] == (kernel in REFUSED_TO_MESA)
