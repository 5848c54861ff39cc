"""What several test modules share: the source tree, running tools in a clean environment, and
waiting for a device."""

from __future__ import annotations

import ctypes.util
import functools
import gc
import os
import shutil
import subprocess
import sysconfig
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, SupportsIndex

import pytest

# conftest sees to it that the installed package is imported, and imports this before.
if TYPE_CHECKING:
    from vmkv import Cache, Device, Sequence

# Where test_native leaves its table for the end of the run.
NATIVE_COVERAGE = pytest.StashKey[str]()

ROOT = Path(__file__).resolve().parent.parent
HEADER = ROOT / "native" / "include" / "vmkv.h"
# What belongs to the tree, whatever else lies about in it.
TREE = (".ci", "native", "tests", "tools", "vmkv")
TREE_FILES = (".gitignore", "LICENSE", "README.md", "meson.build", "pyproject.toml")


def tree_files() -> list[Path]:
    """All files of the source tree, without what builds and caches leave there."""
    files = [ROOT / name for name in TREE_FILES]
    for directory in TREE:
        files += [
            path
            for path in sorted((ROOT / directory).rglob("*"))
            if path.is_file() and "__pycache__" not in path.parts
        ]
    return files


# The exit code of a test program that says why it can't run here, as automake and meson have it.
SKIPPED = 77


def environment(variables: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's variables, with the tools of its Python installation first on the path."""
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    clean["PATH"] = sysconfig.get_path("scripts") + os.pathsep + clean.get("PATH", os.defpath)
    return clean | dict(variables or {})


def run(
    *command: str | Path,
    cwd: Path | None = None,
    variables: Mapping[str, str] | None = None,
    timeout: float = 600,
) -> str:
    """Run a command that must succeed and return what it printed on stdout. A test program can
    say what it needs and hasn't found: then the test is skipped for that."""
    done = subprocess.run(
        command,
        cwd=cwd,
        env=environment(variables),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=timeout,
    )
    if done.returncode == SKIPPED and "skipped: " in done.stderr:
        pytest.skip(done.stderr.rpartition("skipped: ")[2].strip())
    if done.returncode != 0:
        shown = " ".join(str(part) for part in command)
        pytest.fail(f"exit {done.returncode}: {shown}\n{done.stdout}{done.stderr}", pytrace=False)
    return done.stdout


def needed(tool: str) -> str:
    """Where a program is; skips the test if it is nowhere."""
    found = shutil.which(tool, path=environment()["PATH"])
    if found is None:
        pytest.skip(f"needs the program {tool}")
    return found


@functools.cache
def has_libdrm() -> bool:
    """Whether there is one to be loaded."""
    return ctypes.util.find_library("drm_amdgpu") is not None


needs_libdrm = pytest.mark.skipif(not has_libdrm(), reason="needs libdrm_amdgpu.so.1")


def descriptors() -> int:
    """How many descriptors this process has open, without those that wait for the collector."""
    gc.collect()
    return len(os.listdir("/proc/self/fd"))


def reuses_addresses(device: Device | str) -> bool:
    """Whether a slot serves another sequence after one was closed; of a device, or of its name."""
    return "never-reuse-addresses" not in (device if isinstance(device, str) else device.name)


def reached(cache: Cache, point: int) -> None:
    """Wait until a step's memory may be touched; at once where changes take effect at once."""
    if not cache.device.info.asynchronous:
        assert point == 0
        return
    cache.device.wait(point)
    cache.retire(0)  # a call that sees it: ready_tokens shows it from here on


def step(cache: Cache, lengths: Mapping[Sequence, SupportsIndex], busy_until: int = 0) -> None:
    """Make lengths usable, and wait until they are."""
    reached(cache, cache.step(lengths, busy_until))


def settle(cache: Cache, seconds: float = 10) -> None:
    """Wait until what was given back has arrived: it may go through the device after the call.
    Where it doesn't, nothing happens, so that whatever is left on its way is seen by the test."""
    if not cache.device.info.asynchronous:
        return
    cache.retire(0)
    end = time.monotonic() + seconds
    while (stats := cache.stats()).unmapping_bytes or stats.zeroing_bytes:
        assert time.monotonic() < end, f"memory doesn't come back: {stats}"
        time.sleep(0.0001)
        cache.retire(0)
