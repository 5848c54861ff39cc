"""What the machine has: render nodes and who may use them, libdrm, the kernel, the card."""

from __future__ import annotations

import os
import platform
import pwd
import re
import stat
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from vmkv import drm, errors
from vmkv.drm._base import libdrm, release_of
from vmkv.drm.device import group_of

_SYSFS = Path("/sys/class/drm")
_MAPS = Path("/proc/self/maps")

# Functions that tell a libdrm's age, newest first; all have the last one.
_TELLING = (
    "amdgpu_bo_va_op_raw2",
    "amdgpu_device_initialize2",
    "amdgpu_va_get_start_addr",
    "amdgpu_query_gpuvm_fault_info",
    "amdgpu_bo_alloc",
)

# AMDGPU_FAMILY_* to what people call them.
_FAMILIES = {
    110: "Southern Islands",
    120: "Sea Islands",
    125: "Kaveri",
    130: "Volcanic Islands, Polaris",
    135: "Carrizo",
    141: "Vega, Instinct (gfx9)",
    142: "Raven (gfx9)",
    143: "Navi 1x, 2x (gfx10)",
    144: "Van Gogh (gfx10.3)",
    145: "Navi 3x (gfx11)",
    146: "Rembrandt (gfx10.3)",
    148: "Phoenix (gfx11)",
    149: "Raphael (gfx10.3)",
    150: "Strix (gfx11.5)",
    151: "Mendocino (gfx10.3)",
    152: "Navi 4x (gfx12)",
}


@dataclass(frozen=True)
class Node:
    """A render node: its path, the driver behind it ("" if sysfs doesn't tell), the group that owns
    it, and whether this user may use it."""

    path: str
    driver: str
    group: str
    mode: str
    usable: bool

    @property
    def is_amdgpu(self) -> bool:
        """Whether it may be a Radeon's: where sysfs doesn't tell, opening it will."""
        return self.driver in ("amdgpu", "")


@dataclass(frozen=True)
class Libdrm:
    """libdrm_amdgpu as it was found.

    Attributes:
        release: "2.4.124", or "2.4.121 or newer" where only its functions tell; "": none.
        path: the file that was loaded; "": unknown.
        others: further copies in this process: what they make is of no use to this one.
        problem: why there is none.
    """

    release: str = ""
    path: str = ""
    others: tuple[str, ...] = ()
    problem: str = ""


@dataclass(frozen=True)
class Machine:
    """What there is without opening a card; `problem` says why nodes couldn't be looked for."""

    kernel: str
    user: str
    nodes: tuple[Node, ...]
    libdrm: Libdrm
    problem: str = ""

    def as_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


@dataclass(frozen=True)
class Card:
    """What an open card tells of itself; bytes."""

    name: str
    family: str
    device_id: str
    drm_version: str
    vram_bytes: int
    vram_used_bytes: int
    visible_vram_bytes: int
    gtt_bytes: int
    gtt_used_bytes: int
    resizable_bar: bool
    sdma_rings: int
    emulated: bool = field(default=False)

    def as_json(self) -> dict[str, Any]:
        """Its fields."""
        return asdict(self)


def look() -> Machine:
    """See what there is."""
    try:
        paths, problem = drm.render_nodes(), ""
    except errors.DeviceError as error:
        paths, problem = [], str(error)
    nodes = tuple(_node(path) for path in paths)
    return Machine(platform.release(), _user(), nodes, _libdrm(), problem)


def _user() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())


def _node(path: str) -> Node:
    try:
        driver = os.path.basename(os.readlink(_SYSFS / Path(path).name / "device" / "driver"))
    except OSError:
        driver = ""
    try:
        status = os.stat(path)
    except OSError:
        return Node(path, driver, "unknown", "", False)
    usable = os.access(path, os.R_OK | os.W_OK)
    return Node(path, driver, group_of(status), stat.filemode(status.st_mode), usable)


def _libdrm() -> Libdrm:
    try:
        table = libdrm()
    except errors.UnsupportedError as error:
        return Libdrm(problem=str(error))
    newest = next(name for name in _TELLING if getattr(table, name))
    release = f"{release_of(newest)} or newer"
    loaded = _loaded("libdrm_amdgpu.so")
    path = loaded[0] if loaded else ""
    # From 2.4.117 on the file is called libdrm_amdgpu.so.1.MINOR.0, before .so.1.0.0.
    minor = re.search(r"\.so\.1\.(\d{3,})\.", path)
    if minor:
        release = f"2.4.{minor[1]}"
    return Libdrm(release, path, tuple(loaded[1:]))


def _loaded(name: str) -> list[str]:
    """The files of that name in this process, in order of their addresses."""
    try:
        lines = _MAPS.read_text(errors="replace").splitlines()
    except OSError:
        return []
    paths = [line.split(maxsplit=5)[-1] for line in lines if f"/{name}" in line]
    return list(dict.fromkeys(paths))


def read_card(device: drm.Device, emulated: bool) -> Card:
    """What an open card tells of itself."""
    info, memory, driver = device.card, device.memory, device.driver
    engine = device.hw_ip("dma")
    return Card(
        name=device.name or "an amdgpu card without a name",
        family=_FAMILIES.get(info.family, f"family {info.family}"),
        device_id=f"{info.device_id:#06x}",
        drm_version=f"{driver.major}.{driver.minor}.{driver.patch}",
        vram_bytes=memory.vram.total,
        vram_used_bytes=memory.vram.used,
        visible_vram_bytes=memory.visible_vram.total,
        gtt_bytes=memory.gtt.total,
        gtt_used_bytes=memory.gtt.used,
        resizable_bar=memory.visible_vram.total >= memory.vram.total,
        sdma_rings=engine.ring_count if engine else 0,
        emulated=emulated,
    )
