"""How the program begins and ends: interrupts at any moment, and what the package imports."""

import importlib
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import vmkv
from vmkv import entry

# The program, as its console script runs it; it tells when it begins.
PROGRAM = """
import sys
from vmkv.entry import main
print("begun", flush=True)
sys.argv[0] = "vmkv"
sys.exit(main())
"""


def start(directory: Path, *arguments: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *arguments],
        cwd=directory, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


@pytest.mark.parametrize("arguments", [("--help",), ("plan",)])
def test_an_interrupt_at_any_moment(arguments: tuple[str, ...], seed: int, tmp_path: Path) -> None:
    """It exits 130, or was done already, and never prints a traceback."""
    moments = random.Random(seed)
    codes = []
    for _ in range(20):
        with start(tmp_path, *arguments) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            time.sleep(moments.uniform(0, 0.3))
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        assert errors.strip() == ""
        # A process that is all but gone has Python's handlers no more.
        assert process.returncode in (0, entry.EXIT_INTERRUPTED, -signal.SIGINT)
        codes.append(process.returncode)
    assert entry.EXIT_INTERRUPTED in codes


def test_an_interrupt_while_modules_load(tmp_path: Path) -> None:
    """One that swallows exceptions can't swallow it, nor have it printed."""
    (tmp_path / "numpy.py").write_text(
        "import time\nprint('loading', flush=True)\ntry:\n    time.sleep(60)\n"
        "except BaseException:\n    raise ImportError('swallowed') from None\n"
    )
    program = "import sys\nsys.path.insert(0, '')\n" + PROGRAM
    with subprocess.Popen(
        [sys.executable, "-c", program, "plan"],
        cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == ["begun\n", "loading\n"]
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors.strip()) == (entry.EXIT_INTERRUPTED, "")


def test_an_interrupt_that_is_ignored_stays_so(tmp_path: Path) -> None:
    """As of a job that a shell runs in the background."""
    handled = "print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    program = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)
from vmkv.entry import main
sys.argv = ["vmkv", "--version"]
try:
    main()
finally:
    {handled}
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == f"vmkv, version {vmkv.__version__}\nTrue\n"


def test_text_that_the_output_cannot_hold(tmp_path: Path) -> None:
    path = tmp_path / "\u00e9.json"
    path.write_text(
        '{"model_type": "llama", "num_hidden_layers": 1, "num_key_value_heads": 1, "head_dim": 8}'
    )
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "plan", "--model", path.name],
        cwd=tmp_path, env={**os.environ, "PYTHONIOENCODING": "ascii"},
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\xe9.json: 32 bytes a token" in done.stdout


# ---- the package


def test_the_program_loads_next_to_nothing_before_it_handles_interrupts(tmp_path: Path) -> None:
    program = "import signal, sys; before = set(sys.modules); import vmkv.entry; "
    program += "print(*sorted(set(sys.modules) - before))"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "vmkv vmkv.entry\n"


def test_all_names_of_the_package() -> None:
    assert set(vmkv.__all__) <= set(dir(vmkv))
    for name in vmkv.__all__:
        value = getattr(vmkv, name)
        if isinstance(value, type):
            assert value.__name__ == name
            assert value.__module__.startswith("vmkv.")
    assert vmkv.open.__name__ == "open_device"
    scope: dict[str, object] = {}
    exec("from vmkv import *", scope)
    assert set(vmkv.__all__) <= set(scope)


def test_modules_and_names_that_are_not_there() -> None:
    assert vmkv.errors is importlib.import_module("vmkv.errors")
    assert vmkv.errors.Shortage is vmkv.Shortage
    with pytest.raises(AttributeError, match="module 'vmkv' has no attribute 'nonsense'"):
        vmkv.nonsense  # type: ignore[attr-defined] # noqa: B018
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec("from vmkv import nonsense")
