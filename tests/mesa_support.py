"""RADV of Mesa 25 or newer: the system's, or that of Debian's backports, laid out beside it."""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
from pathlib import Path

import pytest

from emulate_support import emulate
from support import environment, needed, run

MESA = 25  # the first that knows all the cards that it is tried on
PACKAGES = ("mesa-vulkan-drivers", "libdrm-amdgpu1", "libdrm2")

# What apt says where the archive is out of reach, or has no backports.
_NO_ARCHIVE = (
    "Could not resolve", "Could not connect", "Temporary failure", "timed out",
    "Network is unreachable", "does not have a Release file",
)  # fmt: skip


def radv(directory: Path) -> dict[str, str]:
    """The variables with which programs find it, and the libdrm that belongs to it. Skips the
    test if there is none to be had."""
    if _version({}) >= MESA:
        return {}
    variables = _laid_out(_downloaded(directory), directory)
    assert _version(variables) >= MESA, "RADV of the backports isn't found"
    return variables


def _version(variables: dict[str, str]) -> int:
    """Mesa's, of RADV as a program finds it; 0: none."""
    program = needed("vulkaninfo")
    try:
        told = emulate("--", program, "--summary", variables=variables)
    except AssertionError:
        return 0  # no driver at all takes the card
    found = re.search(r"RADV GFX1201.*?driverInfo\s*= Mesa (\d+)", told, re.DOTALL)
    return int(found[1]) if found else 0


# ---- Debian's backports


def _downloaded(directory: Path) -> list[Path]:
    """The packages, from the archive that apt is set up for; nothing of the system is changed."""
    archive, codename = _archive()
    suite = f"{codename}-backports"
    source = directory / "backports.list"
    source.write_text(f"deb {archive} {suite} main\n")
    for name in ("lists/partial", "archives/partial"):
        (directory / name).mkdir(parents=True)
    settings = {
        "Dir::Etc::SourceList": source,
        "Dir::Etc::SourceParts": "-",
        "Dir::State::Lists": directory / "lists",
        "Dir::Cache": directory,
        "APT::Sandbox::User": "root",  # another one couldn't write there
        "Acquire::Check-Valid-Until": "false",  # mirrors lag; signatures are checked
        "Acquire::Retries": "3",
    }
    options = [f"-o{name}={value}" for name, value in settings.items()]
    _apt("update", "--error-on=any", *options, cwd=directory)
    _apt("download", *options, *(f"{name}/{suite}" for name in PACKAGES), cwd=directory)
    packages = sorted(directory.glob("*.deb"))
    assert len(packages) == len(PACKAGES)
    return packages


def _archive() -> tuple[str, str]:
    """Where Debian's packages come from here, and which release this is."""
    program = needed("apt-get")
    wanted = ("CREATED_BY", "ORIGIN", "LABEL", "COMPONENT", "CODENAME", "REPO_URI")
    told = run(program, "indextargets", "--format", "|".join(f"$({name})" for name in wanted))
    release = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    for line in told.splitlines():
        *kind, codename, archive = line.split("|")
        if kind == ["Packages", "Debian", "Debian", "main"] and codename == release:
            return archive, codename
    pytest.skip(f"needs RADV of Mesa {MESA} or newer, or Debian's archive in apt's configuration")


def _apt(*arguments: str | Path, cwd: Path) -> None:
    done = subprocess.run(
        [needed("apt-get"), *map(str, arguments)],
        cwd=cwd, env=environment({"LC_ALL": "C"}), capture_output=True, text=True, timeout=600,
        check=False,
    )  # fmt: skip
    why = [line for line in done.stderr.splitlines() if any(sign in line for sign in _NO_ARCHIVE)]
    if done.returncode and why:
        pytest.skip(f"needs Debian's backports: {why[0].strip()}")
    assert done.returncode == 0, done.stderr


def _laid_out(packages: list[Path], directory: Path) -> dict[str, str]:
    root = directory / "root"
    for package in packages:
        run(needed("dpkg-deb"), "-x", package, root)
    (driver,) = root.rglob("libvulkan_radeon.so")
    (told,) = root.rglob("radeon_icd*.json")
    settings = json.loads(told.read_text())
    settings["ICD"]["library_path"] = str(driver)
    told.write_text(json.dumps(settings))
    others = os.environ.get("LD_LIBRARY_PATH")
    variables = {
        "LD_LIBRARY_PATH": os.pathsep.join([str(driver.parent), *([others] if others else [])]),
        "VK_ICD_FILENAMES": str(told),  # as loaders of all ages know it
    }
    missing = re.findall(r"(\S+) => not found", run("ldd", driver, variables=variables))
    assert not missing, f"RADV of the backports lacks {missing}: install mesa-vulkan-drivers"
    return variables
