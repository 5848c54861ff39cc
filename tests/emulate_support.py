"""What tests of `vmkv emulate` share: running programs with it, and compiling some."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from support import ROOT, environment, needed, run

MAIN = "import sys; from vmkv.entry import main; sys.argv[0] = 'vmkv'; main()"
KERNELS = ("6.1", "6.12", "7.2")


def command(*arguments: str | Path) -> list[str]:
    return [sys.executable, "-c", MAIN, "emulate", *map(str, arguments)]


def emulate(
    *arguments: str | Path,
    code: int = 0,
    timeout: float = 120,
    variables: Mapping[str, str] | None = None,
) -> str:
    """Run it, and return what it printed on stdout; on stderr instead if it is to fail."""
    done = subprocess.run(
        command(*arguments),
        env=environment(variables), capture_output=True, text=True, timeout=timeout, check=False,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


Build = Callable[..., Path]


def building(directory: Path) -> Build:
    """What compiles a program of tests/native, once; its options may follow its name."""

    programs: dict[tuple[str, ...], Path] = {}

    def built(name: str, *options: str) -> Path:
        if (name, *options) not in programs:
            source = ROOT / "tests" / "native" / f"{name}.c"
            program = directory / f"{name}-{len(programs)}"
            run(
                needed(os.environ.get("CC", "cc")), "-Wall", "-Wextra", "-Werror", "-pthread",
                f"-I{ROOT / 'native'}", source, *options, "-o", program,
            )  # fmt: skip
            programs[(name, *options)] = program
        return programs[(name, *options)]

    return built
