"""The command line as a whole: help, errors, exit codes."""

import errno
import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import click
import gguf
import numpy as np
import pytest
from click.testing import CliRunner, Result

import vmkv
from published import CONFIGS
from vmkv import commands
from vmkv.commands import common

PROGRAM = Path(sysconfig.get_path("scripts"), "vmkv")
COMMANDS = ["bench", "doctor", "pkg-config", "plan", "replay", "stats"]


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [PROGRAM, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_help() -> None:
    done = run("--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Usage: vmkv ")
    for name in COMMANDS:
        assert f"  {name} " in done.stdout


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command(name: str) -> None:
    result = CliRunner().invoke(commands.main, [name, "--help"])
    assert result.exit_code == 0
    assert result.output.startswith("Usage: ")
    assert commands.main.commands == {}  # nothing is loaded before it is asked for


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"vmkv, version {vmkv.__version__}\n")


def test_commands_are_imported_when_they_are_asked_for(tmp_path: Path) -> None:
    program = "import sys, vmkv.commands; print([name for name in sys.modules if 'replay' in name])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["repaly"], "No such command 'repaly'. Did you mean replay?"),
        (["xyzzy"], "No such command 'xyzzy'. See vmkv --help."),
        (["--nonsense"], "No such option"),
        (["replay", "--nonsense"], "No such option"),
    ],
)
def test_usage_errors(arguments: list[str], message: str) -> None:
    done = run(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_failure_of_the_program() -> None:
    done = run("replay", "--device", "host?memory=4MiB", "--budget", "1GiB", "--limit", "1")
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert "too little memory" in done.stderr
    assert done.stderr.count("\n") == 1


def invoke(function: Callable[..., object], monkeypatch: pytest.MonkeyPatch, *args: str) -> Result:
    """Run a function as a command of the group."""
    command = click.command("try")(function)
    monkeypatch.setitem(commands._MODULES, "try", "try_module")
    monkeypatch.setitem(sys.modules, "try_module", SimpleNamespace(command=command))
    return CliRunner().invoke(commands.main, ["try", *args])


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (vmkv.InvalidError("what was\nwrong"), "Error: what was wrong"),
        (vmkv.DeviceLostError("it is gone", errno.ENODEV), "Error: it is gone"),
        (
            vmkv.Shortage(needed=4096, missing=1024),
            "Error: not enough memory: 4 KiB more is needed, 1 KiB of it is missing; "
            "close a sequence or raise the budget",
        ),
        (FileNotFoundError(2, "No such file or directory", "a.csv"),
         "Error: a.csv: No such file or directory"),
        (OSError("odd"), "Error: odd"),
        (MemoryError(), "Error: out of host memory"),
    ],
)  # fmt: skip
def test_failures_are_one_line_and_exit_1(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    result = invoke(fail, monkeypatch)
    assert (result.exit_code, result.output) == (1, line + "\n")


def test_the_wrapper_serves_a_function_too() -> None:
    @common.errors_to_exit()
    def fail() -> None:
        raise vmkv.InvalidError("why")

    with pytest.raises(common.Failure, match="why"):
        fail()


def test_exit_codes_of_commands_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave() -> None:
        sys.exit(3)

    def leave_by_click() -> None:
        click.get_current_context().exit(4)

    def give_back() -> int:
        return 5

    assert invoke(leave, monkeypatch).exit_code == 3
    assert invoke(leave_by_click, monkeypatch).exit_code == 4
    assert invoke(give_back, monkeypatch).exit_code == 0


def test_the_group_can_be_called_from_python() -> None:
    assert commands.main(["--version"], standalone_mode=False) == 0
    with pytest.raises(click.UsageError, match="No such command"):
        commands.main(["xyzzy"], standalone_mode=False)


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise KeyError("bug")

    assert isinstance(invoke(fail, monkeypatch).exception, KeyError)


def test_an_interrupt_exits_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    result = invoke(interrupt, monkeypatch)
    assert (result.exit_code, result.output.strip()) == (130, "")


# A program that is vmkv with one more command.
WITH_COMMAND = """
import sys, time, types
import click
from vmkv import commands

@click.command("try")
def command():
{body}

sys.modules["try_module"] = types.SimpleNamespace(command=command)
commands._MODULES["try"] = "try_module"
commands.main(["try"])
"""


def start(directory: Path, *lines: str) -> "subprocess.Popen[str]":
    body = "\n".join(f"    {line}" for line in lines)
    return subprocess.Popen(
        [sys.executable, "-c", WITH_COMMAND.format(body=body)],
        cwd=directory,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_real_interrupt_leaves_no_traceback(tmp_path: Path) -> None:
    with start(tmp_path, "print('here', flush=True)", "time.sleep(60)") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
    assert (process.returncode, errors.strip()) == (130, "")


def test_a_reader_that_leaves_is_no_failure_to_talk_about(tmp_path: Path) -> None:
    began = time.monotonic()
    with start(tmp_path, "while True: click.echo('line')") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "line\n"
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(timeout=30) == 1
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("10GB", 0, "10000000000"),
        ("64KiB", 0, "65536"),
        ("lots", 2, "'--budget': size 'lots' is not a size such as 10GB"),
        ("10G", 2, "ambiguous: write 10GB"),
        ("-5", 2, "a size can't be negative"),
        ("99EiB", 2, "a size is at most"),
    ],
)
def test_sizes(text: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.option("--budget", type=common.SIZE)
    def show(budget: int) -> None:
        click.echo(budget)

    result = invoke(show, monkeypatch, "--budget", text)
    assert result.exit_code == code
    assert said in result.output
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("Qwen3-8B", 0, "qwen3-8b\n"),
        ("qwen-8b", 2, "'--model': unknown model 'qwen-8b': did you mean qwen3-8b"),
        ("zzz", 2, "known are deepseek-v3, "),
        ("zzz", 2, "; or give the path of a config.json or .gguf file\n"),
        ("zzz.gguf", 2, "'--model': zzz.gguf: there is no such file\n"),
        (f"zzz{os.sep}", 2, f"'--model': zzz{os.sep}: there is no such file\n"),
        ("Qwen/Qwen3-8B", 2, "Qwen/Qwen3-8B: there is no such file; did you mean qwen3-8b?\n"),
        ("", 2, "'--model': no name is given: it is one of deepseek-v3, "),
        (" ", 2, "'--model': no name is given: it is one of deepseek-v3, "),
    ],
)
def test_models(
    text: str, code: int, said: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIGS["qwen3-8b"]))
    monkeypatch.chdir(tmp_path)

    @click.option("--model", type=common.MODEL)
    def show(model: common.Model) -> None:
        click.echo(model)

    result = invoke(show, monkeypatch, "--model", text)
    assert result.exit_code == code
    assert said in result.output


@pytest.mark.parametrize("name", ["config.json", "", "model.gguf", "model"])
def test_models_by_file(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A config, the directory that has it, and a GGUF file, whatever its name."""

    @click.option("--model", type=common.MODEL)
    def show(model: common.Model) -> None:
        geometry = model.geometry("q8_0", v_dtype="f16")
        click.echo(f"{model} {geometry == vmkv.Geometry.preset('qwen3-8b', 'q8_0', v_dtype='f16')}")

    path = tmp_path / name
    if name.startswith("model"):
        writer = gguf.GGUFWriter(path, "qwen3")
        writer.add_block_count(36)
        writer.add_head_count_kv(8)
        writer.add_key_length(128)
        writer.add_value_length(128)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.close()
    else:
        (tmp_path / "config.json").write_text(json.dumps(CONFIGS["qwen3-8b"]))
    result = invoke(show, monkeypatch, "--model", str(path))
    assert (result.exit_code, result.output) == (0, f"{path} True\n")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("config.json", "{", "is no JSON file: "),
        ("config.json", "{}", "no architecture is named: model_type is missing"),
        ("config.json", '{"model_type": "mamba"}', "unknown architecture 'mamba'"),
        ("config.json", '{"model_type": "qwen3"}', "architecture qwen3: missing num_hidden"),
        ("model.gguf", "{}", "is no GGUF file"),
        ("model.bin", "GGUF", "is no whole GGUF file"),
    ],
)
def test_files_that_describe_no_model_are_one_line_and_exit_1(
    name: str, content: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    @click.option("--model", type=common.MODEL)
    def show(model: common.Model) -> None:
        model.geometry()

    path = tmp_path / name
    path.write_text(content)
    result = invoke(show, monkeypatch, "--model", str(path))
    assert result.exit_code == 1
    assert result.output.startswith("Error: ")
    assert result.output.count("\n") == 1
    assert said in result.output


def test_json_takes_numpys_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    @common.json_option
    @common.device_option
    def show(as_json: bool, device: str) -> None:
        assert as_json
        common.print_json({"device": device, "one": np.uint32(1), "two": np.arange(2)})

    result = invoke(show, monkeypatch, "--json", "--device", "host")
    assert json.loads(result.output) == {"device": "host", "one": 1, "two": [0, 1]}


def test_json_refuses_what_it_cannot_show() -> None:
    with pytest.raises(TypeError, match="set can't be written as JSON"):
        common.print_json({"wrong": {1}})
