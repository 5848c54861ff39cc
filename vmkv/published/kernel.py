"""What the kernel says of a process's GPU memory, and of the card: the other side of ours."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from vmkv.published.processes import PROC

_SYSFS = Path("/sys/bus/pci/devices")
_UNITS = {"": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30}
# drm-memory-REGION is amdgpu's older name of drm-resident-REGION; drm-total is what it asked for.
_KEYS = {
    "vram_bytes": ("drm-resident-vram", "drm-memory-vram"),
    "gtt_bytes": ("drm-resident-gtt", "drm-memory-gtt"),
    "evicted_bytes": ("amd-evicted-vram",),
    "requested_bytes": ("amd-requested-vram",),
}
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)


@dataclass(frozen=True)
class ClientMemory:
    """Physical bytes of one process on one card, by its kernel. None: the kernel doesn't tell.

    Attributes:
        vram_bytes: in VRAM now.
        gtt_bytes: in system memory that the card reaches.
        evicted_bytes: wanted in VRAM, and moved out of it.
        requested_bytes: wanted in VRAM.
    """

    vram_bytes: int | None = None
    gtt_bytes: int | None = None
    evicted_bytes: int | None = None
    requested_bytes: int | None = None


@dataclass(frozen=True)
class CardMemory:
    """Physical bytes of a card, over all processes. None: the kernel doesn't tell."""

    vram_bytes: int | None = None
    vram_used_bytes: int | None = None
    gtt_bytes: int | None = None
    gtt_used_bytes: int | None = None


def read_client(pid: int, pci_id: str, proc: Path = PROC) -> ClientMemory | None:
    """What a process holds on the card with this PCI id, over all its DRM files.

    None: it has none open there, or they are not ours to look at.
    """
    directory = proc / str(pid) / "fdinfo"
    clients: dict[str, dict[str, int]] = {}
    try:
        names = os.listdir(directory)
    except OSError:
        return None
    for name in names:
        try:
            # A file of DRM tells less than this; others can tell without end.
            with (directory / name).open("rb") as file:
                pairs = parse_fdinfo(file.read(1 << 16).decode(errors="replace"))
        except OSError:
            continue
        if pairs.get("drm-pdev", "").lower() != pci_id.lower() or "drm-client-id" not in pairs:
            continue
        # Several descriptors can be of one client: it counts once.
        clients[pairs["drm-client-id"]] = _amounts(pairs)
    if not clients:
        return None
    sums: dict[str, int | None] = {}
    for field in _KEYS:
        told = [amounts[field] for amounts in clients.values() if field in amounts]
        sums[field] = sum(told) if told else None
    return ClientMemory(**sums)


def parse_fdinfo(text: str) -> dict[str, str]:
    """Keys and values of a file in /proc/PID/fdinfo.

    >>> parse_fdinfo("pos:\\t0\\ndrm-pdev:\\t0000:03:00.0\\n")
    {'pos': '0', 'drm-pdev': '0000:03:00.0'}
    """
    pairs = (line.partition(":") for line in text.splitlines())
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def _amounts(pairs: dict[str, str]) -> dict[str, int]:
    amounts = {}
    for field, keys in _KEYS.items():
        for key in keys:
            number, _, unit = pairs.get(key, "").partition(" ")
            if number.isascii() and number.isdigit() and unit.strip().lower() in _UNITS:
                amounts[field] = int(number) * _UNITS[unit.strip().lower()]
                break
    return amounts


def read_card(pci_id: str, sysfs: Path = _SYSFS) -> CardMemory | None:
    """A card's memory in all; None where sysfs tells nothing of it."""
    if not _PCI.fullmatch(pci_id):
        return None
    names = ("vram_total", "vram_used", "gtt_total", "gtt_used")
    values = [_read_number(sysfs / pci_id / f"mem_info_{name}") for name in names]
    return CardMemory(*values) if any(value is not None for value in values) else None


def _read_number(path: Path) -> int | None:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def difference(held_bytes: int, client: ClientMemory) -> str:
    """What shouldn't be between the memory that a cache holds in VRAM and what the kernel says; ""
    if nothing. That the kernel knows of more is as it should be: an engine has weights, too."""
    # The kernel counts whole KiB, and moves buffers while both are read.
    if client.vram_bytes is not None and client.vram_bytes < held_bytes:
        return "less in VRAM than the cache holds"
    if client.evicted_bytes:
        return "memory was moved out of VRAM"
    return ""
