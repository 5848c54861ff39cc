"""What the tests of `vmkv stats` share: a directory of their own, an engine in C, the command."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import vmkv
from support import ROOT, environment, needed, run
from vmkv import commands, published

PACKAGE = Path(vmkv.__file__).parent


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where this test's caches are published, and nobody else's."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr("vmkv.published.directory._SHARED_MEMORY", str(tmp_path / "shm"))
    monkeypatch.delenv("VMKV_STATS", raising=False)
    path = tmp_path / "vmkv"
    path.mkdir(mode=0o700)
    return path


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An engine in C that never rests, see shared_engine.c."""
    program = tmp_path_factory.mktemp("engine") / "shared_engine"
    library = PACKAGE / "lib"
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror", "-pedantic"]
    link = [f"-I{PACKAGE / 'include'}", f"-L{library}", "-lvmkv", f"-Wl,-rpath,{library}"]
    compiler = needed(os.environ.get("CC", "cc"))
    run(compiler, *flags, ROOT / "tests" / "shared_engine.c", "-o", program, *link)
    return program


@contextmanager
def running(program: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """A program whose cache is there; killed in the end."""
    with subprocess.Popen(
        [program, *arguments], env=environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


@contextmanager
def reading(pid: int) -> Iterator[published.Reader]:
    """A reader of the only cache of a process."""
    found = published.find(pid)
    try:
        (one,) = found
        assert one.reader is not None, one.problem
        yield one.reader
    finally:
        published.close_all(found)


def stats(*arguments: object) -> Result:
    """Run `vmkv stats`; whatever goes wrong is no traceback."""
    told = [str(argument) for argument in arguments]
    result = CliRunner().invoke(commands.main, ["stats", *told])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def stats_json(*arguments: object) -> Any:
    """What `vmkv stats --json` prints; it must succeed."""
    result = stats(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    return json.loads(result.stdout)


def failure(*arguments: object) -> str:
    """The one line that `vmkv stats` fails with."""
    result = stats(*arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr.removeprefix("Error: ").rstrip("\n")
