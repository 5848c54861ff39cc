"""The README's examples and commands, run as they stand."""

import re
import shlex
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from support import ROOT, run

README = ROOT / "README.md"


def blocks(language: str) -> list[Any]:
    """The fenced blocks of one language, as parameters named by their line."""
    text = README.read_text(encoding="utf-8")
    fenced = re.finditer(rf"^```{language}\n(.*?)^```$", text, flags=re.DOTALL | re.MULTILINE)
    return [
        pytest.param(match[1], id=f"line{text.count(chr(10), 0, match.start()) + 1}")
        for match in fenced
    ]


def command(name: str) -> str:
    """The one command in the block under the mark <!-- name -->."""
    text = README.read_text(encoding="utf-8")
    (block,) = re.findall(rf"^<!-- {name} -->\n```sh\n([^\n]+)\n```$", text, flags=re.MULTILINE)
    return str(block)


@pytest.mark.parametrize("block", blocks("python"))
def test_python_example(block: str, tmp_path: Path) -> None:
    example = tmp_path / "example.py"
    example.write_text(block, encoding="utf-8")
    run(sys.executable, example, cwd=tmp_path)


@pytest.mark.parametrize("block", blocks("c"))
def test_c_example(block: str, tmp_path: Path) -> None:
    (tmp_path / "example.c").write_text(block, encoding="utf-8")
    vmkv = Path(sysconfig.get_path("scripts"), "vmkv")
    flags = shlex.split(run(vmkv, "pkg-config", "--cflags", "--libs", cwd=tmp_path))
    strict = ("-std=c11", "-Wall", "-Wextra", "-Werror")
    run("cc", *strict, "example.c", "-o", "example", *flags, cwd=tmp_path)
    run(tmp_path / "example", cwd=tmp_path)


def test_there_are_examples_in_both_languages() -> None:
    assert blocks("python")
    assert blocks("c")


def test_main_job_of_the_readme_runs(tmp_path: Path) -> None:
    """Without its set-up, which is that of these tests, and with fewer requests."""
    program, *arguments = shlex.split(command("run").split(" && ")[-1])
    assert program == ".venv/bin/vmkv"
    vmkv = Path(sysconfig.get_path("scripts"), "vmkv")
    run(vmkv, *arguments, "--limit", "20", cwd=tmp_path)


def test_both_commands_set_up_the_same_way() -> None:
    steps = {name: command(name).split(" && ") for name in ("run", "test")}
    assert len(steps["run"]) == len(steps["test"])
    assert steps["test"][-1] == ".venv/bin/pytest --cov"


def test_nothing_in_the_readme_is_left_to_be_filled_in() -> None:
    text = README.read_text(encoding="utf-8")
    assert not re.findall(r"^[A-Z_]{4,}$", text, flags=re.MULTILINE)
