"""The man page and the completion of shells: they say what the commands say of themselves."""

import importlib.util
import os
import re
import subprocess
import sysconfig
from pathlib import Path
from types import ModuleType

import click
import pytest

from published_files import Forged
from stats_support import directory
from support import ROOT, environment, needed, run
from vmkv.commands import main
from vmkv.geometry import Geometry

__all__ = ["directory"]
PAGE = ROOT / "tools" / "vmkv.1"
PROGRAM = Path(sysconfig.get_path("scripts"), "vmkv")
PID = os.getpid()
NAMES = main.list_commands(click.Context(main))


@pytest.fixture(scope="module")
def manual() -> ModuleType:
    spec = importlib.util.spec_from_file_location("manual", ROOT / "tools" / "manual.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_page_is_what_the_commands_say(manual: ModuleType) -> None:
    assert PAGE.read_text(encoding="utf-8") == manual.page(), (
        "write it anew: python -P tools/manual.py > tools/vmkv.1"
    )


def test_page_has_every_command_and_option() -> None:
    text = PAGE.read_text(encoding="utf-8").replace("\\-", "-")
    for name in NAMES:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        (part,) = re.findall(rf"^\.SS vmkv {name} .*?(?=^\.S[SH] )", text, re.DOTALL | re.MULTILINE)
        for param in command.params:
            for option in (o for o in param.opts if o.startswith("-") and not _hidden(param)):
                assert re.search(rf"^\\fB.*{re.escape(option)}\b", part, re.MULTILINE), option


def _hidden(param: click.Parameter) -> bool:
    return bool(getattr(param, "hidden", False))


def test_page_is_formatted_without_a_warning() -> None:
    groff = needed("groff")
    done = subprocess.run(
        [groff, "-man", "-ww", "-Tutf8", PAGE], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    text = re.sub(r"\x1b\[[0-9;]*m|.\x08", "", done.stdout)
    for heading in ("NAME", "SYNOPSIS", "COMMANDS", "EXAMPLES", "SHELL COMPLETION", "FILES"):
        assert re.search(rf"^{heading}$", text, re.MULTILINE)
    assert "vmkv stats [OPTIONS] [PID]" in text


@pytest.mark.parametrize("text", ["-", "a\\b", ".so /etc/passwd", "'x", "--a-b"])
def test_no_letter_means_anything_to_roff(text: str, manual: ModuleType) -> None:
    groff = needed("groff")
    done = subprocess.run(
        [groff, "-Tascii"], input=manual.escape(text) + "\n", capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout.strip() == text


# ---- shells -------------------------------------------------------------------------------------


def completed(words: str, *, shell: str = "bash") -> list[str]:
    """What a shell is told, by click's own protocol; the last word is what is being written."""
    number = len(words.split(" ")) - 1
    variables = {"_VMKV_COMPLETE": f"{shell}_complete", "COMP_WORDS": words}
    variables |= {"COMP_CWORD": words.split(" ")[-1] if shell == "fish" else str(number)}
    return run(PROGRAM, variables=variables).splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_options_of_every_command_are_completed(name: str) -> None:
    command = main.get_command(click.Context(main), name)
    assert command is not None
    options = {
        option
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden
        for option in param.opts
        if option.startswith("--")
    }
    told = {line.split(",", 1)[1] for line in completed(f"vmkv {name} --")}
    assert told == options | {"--help"}


def test_commands_are_completed() -> None:
    told = [line.split(",", 1)[1] for line in completed("vmkv ")]
    assert told == NAMES
    assert completed("vmkv rep") == ["plain,replay"]


def test_models_are_completed() -> None:
    told = completed("vmkv plan --model qwen3-")
    models = [name for name in Geometry.presets() if name.startswith("qwen3-")]
    assert told == [f"plain,{name}" for name in models] + ["file,qwen3-"]


def test_pids_are_completed(directory: Path) -> None:
    file = Forged()
    file.write(directory)
    file.header["tag"] = 7
    file.write(directory)
    pid = str(PID)
    assert f"plain,{pid}" in completed(f"vmkv stats {pid[:1]}")
    assert completed(f"vmkv stats {pid}-") == [f"plain,{pid}-00007", f"plain,{pid}-abcde"]
    assert f"plain,{pid}\tforged" in completed(f"vmkv stats {pid}", shell="fish")


def script(shell: str) -> str:
    return run(PROGRAM, variables={"_VMKV_COMPLETE": f"{shell}_source"})


def test_bash_completes() -> None:
    bash = needed("bash")
    program = script("bash") + (
        "\nCOMP_WORDS=(vmkv stats --pro); COMP_CWORD=2; _vmkv_completion vmkv; "
        'echo "${COMPREPLY[@]}"; complete -p vmkv'
    )
    told = run(bash, "--norc", "-c", program)
    assert told.splitlines()[0] == "--prometheus"
    assert "_vmkv_completion" in told.splitlines()[1]


def test_zsh_completes(tmp_path: Path) -> None:
    """In zsh itself, without a terminal: what it would show is printed."""
    zsh = needed("zsh")
    (tmp_path / "completion").write_text(script("zsh"), encoding="utf-8")
    program = (
        "autoload -Uz compinit && compinit -D -d dump && source ./completion && "
        "_describe() { print -l -- ${(P)3} }; "
        "compdef() { :; }; words=(vmkv stats --pro); CURRENT=3; _vmkv_completion"
    )
    told = run(zsh, "-f", "-c", program, cwd=tmp_path, variables={"HOME": str(tmp_path)})
    assert "--prometheus:" in told


def test_fish_completes(tmp_path: Path) -> None:
    fish = needed("fish")
    (tmp_path / "completion").write_text(script("fish"), encoding="utf-8")
    told = run(
        fish, "--no-config", "-c", "source completion; complete -C 'vmkv stats --pro'",
        cwd=tmp_path, variables={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert told.startswith("--prometheus\t")


def test_tests_find_the_program_first() -> None:
    """Shells call vmkv by its name: that of this installation."""
    assert run("sh", "-c", "command -v vmkv").strip() == str(PROGRAM)
    assert environment()["PATH"].startswith(str(PROGRAM.parent))
