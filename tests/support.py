"""What several test modules share: the source tree, and running tools in a clean environment."""

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Mapping
from pathlib import Path

import pytest

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
    """Run a command that must succeed and return what it printed on stdout."""
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
