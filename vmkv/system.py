"""What the machine has to give."""

from __future__ import annotations

from pathlib import Path

_MEMINFO = Path("/proc/meminfo")
_CGROUP = Path("/sys/fs/cgroup")


def available_bytes() -> int | None:
    """Memory that a program can still take without swapping: what the kernel says is available,
    within what the control group (a container's limit) leaves. None if it can't be told."""
    found = [size for size in (_meminfo_bytes(), _cgroup_bytes()) if size is not None]
    return min(found, default=None)


def _meminfo_bytes() -> int | None:
    try:
        for line in _MEMINFO.read_text().splitlines():
            name, _, value = line.partition(":")
            if name == "MemAvailable":
                return int(value.split()[0]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    return None


def _cgroup_bytes() -> int | None:
    """Version 2, as seen from inside a container: its own group is the root."""
    try:
        limit = int((_CGROUP / "memory.max").read_text())
        used = int((_CGROUP / "memory.current").read_text())
        reclaimable = {
            name: int(value)
            for name, value in map(str.split, (_CGROUP / "memory.stat").read_text().splitlines())
        }.get("inactive_file", 0)
    except (OSError, ValueError):
        return None
    return max(limit - used + reclaimable, 0)
