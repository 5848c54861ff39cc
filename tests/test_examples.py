"""Every command that README, man page and --help show as an example, run as it stands.

What goes on until it is ended is given a time; files, pids and addresses that only stand for some
are there. README's Python and C run in test_readme.
"""

import importlib.util
import json
import re
import shlex
import socket
import subprocess
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from published import CONFIGS
from stats_support import directory, engine, reading, running
from support import ROOT, environment, has_libdrm, needed, run
from vmkv.commands import main
from vmkv.traces import default_trace

__all__ = ["directory", "engine"]
PID = "4711"
# What these tests are themselves, or what sets them up.
NOT_HERE = ("apt-get", "pip install", "pytest")


def of_readme() -> list[tuple[str, str]]:
    """Lines of the blocks of shell, and what the text has between backquotes."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```sh\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    lines = [line for block in blocks for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    lines += [
        line for line in re.findall(r"`(vmkv [^`]*)`", prose.replace("\n", " ")) if _whole(line)
    ]
    return [("README", line) for line in lines]


def _whole(line: str) -> bool:
    """Whether it is a command as one would type it: `vmkv plan` alone is but its name."""
    return len(line.split()) > 2


def of_manual() -> list[tuple[str, str]]:
    spec = importlib.util.spec_from_file_location("manual", ROOT / "tools" / "manual.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return [("vmkv.1", command) for _, command in module.EXAMPLES]


def of_help() -> list[tuple[str, str]]:
    """Lines of a help that are a command."""
    found = []
    context = click.Context(main)
    for name in main.list_commands(context):
        command = main.get_command(context, name)
        assert command is not None
        text = textwrap.dedent(command.help or "")
        found += [
            (name, line.strip()) for line in text.splitlines() if line.strip().startswith("vmkv ")
        ]
    return found


def examples() -> list[Any]:
    told = [*of_readme(), *of_manual(), *of_help()]
    unique = {line: source for source, line in reversed(told)}
    return [
        pytest.param(line, id=f"{source}: {line}"[:80])
        for line, source in reversed(unique.items())
        if not any(word in line for word in NOT_HERE)
    ]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A directory with the files that examples name."""
    place = tmp_path / "place"
    (place / "path" / "to").mkdir(parents=True)
    (place / "path" / "to" / "config.json").write_text(json.dumps(CONFIGS["qwen3-8b"]))
    hashes = [{"timestamp": n, "input_length": 900, "output_length": 20, "hash_ids": [n, n + 1]}
              for n in range(5)]  # fmt: skip
    (place / "trace.jsonl").write_text("".join(json.dumps(one) + "\n" for one in hashes))
    head = default_trace().read_text(encoding="utf-8").splitlines()[:20]
    (place / "trace.csv").write_text("\n".join(head) + "\n")
    (place / "engine.c").write_text((ROOT / "tools" / "engine.c").read_text(encoding="utf-8"))
    return place


@pytest.fixture
def shared(engine: Path, directory: Path) -> Iterator[str]:
    """The pid of an engine that has grown, and now does nothing that an example could miss."""
    with running(engine, "host", "layer", "1", "300") as process, reading(process.pid) as reader:
        end = time.monotonic() + 60
        while reader.steps()[0] < 1000:
            assert time.monotonic() < end
            time.sleep(0.01)
        yield str(process.pid)


def prepared(line: str, pid: str) -> str:
    """An example, made to end soon and to find what it is about."""
    line = line.replace(".venv/bin/", "").replace(PID, pid)
    if line.startswith("vmkv replay"):
        line += " --limit 5"
    if re.search(r"--(watch|follow|prometheus \d)", line) and "--for" not in line:
        line += " --for 0.5"
    line = re.sub(r"--for \d\d+", "--for 2", line)
    line = line.replace("--prometheus 9470", f"--prometheus {free_port()}")
    if "--address" in line or "--seq" in line:
        told = json.loads(run("vmkv", "stats", pid, "--maps", "--json"))["mappings"]
        mapped = next(one for one in told if one["state"] == "mapped")
        line = re.sub(r"--address 0x\w+", f"--address {mapped['start']:#x}", line)
        line = re.sub(r"--seq \w+", f"--seq {mapped['sequence']}", line)
    line = line.replace("--layer 3", "--layer 1")  # it has two
    return line + " -lm" if line.startswith("cc ") else line


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.mark.parametrize("line", examples())
def test_example(line: str, place: Path, shared: str) -> None:
    words = shlex.split(line)
    emulated = "emulated:" in line
    if emulated and not has_libdrm():
        pytest.skip("needs libdrm_amdgpu.so.1")
    if not emulated and {"amdgpu", "doctor", "--hardware"} & set(words):
        pytest.skip("needs a real amdgpu card")
    if words[:2] == ["vmkv", "emulate"]:
        needed(words[words.index("--") + 1])
    if "--prometheus" in words:
        pytest.importorskip("prometheus_client", reason="needs prometheus-client")
    done = subprocess.run(
        prepared(line, shared), shell=True, cwd=place, env=environment(), timeout=300,
        capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    for name in re.findall(r"--(?:picture|trace) (\S+)", line):
        assert (place / name).stat().st_size > 100
    if "--json" in line and "--watch" not in line:
        json.loads(done.stdout)


def test_examples_are_found() -> None:
    lines = [param.values[0] for param in examples()]
    assert sum("vmkv stats" in str(line) for line in lines) > 10
    assert sum("vmkv replay" in str(line) for line in lines) > 4
    assert all(re.match(r"(\.venv/bin/)?(vmkv|cc) ", str(line)) for line in lines), lines
