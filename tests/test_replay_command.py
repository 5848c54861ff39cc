"""`vmkv replay`: its options, its output and its exit codes."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click.testing
import pytest
from rich.console import Console

import vmkv.commands.replay
from vmkv.commands import main
from vmkv.rows import Part

KEYS = (
    "device",
    "requests",
    "skipped",
    "admitted_peak",
    "live_bytes_peak",
    "mapped_bytes_peak",
    "reserved_bytes",
    "waste_mean",
    "waste_p99",
    "waste_max",
    "shortages",
    "driver_calls",
    "mappings",
    "mappings_peak",
    "checks_done",
    "checks_failed",
)


def invoke(*arguments: str | Path) -> click.testing.Result:
    return click.testing.CliRunner().invoke(main, ["replay", *map(str, arguments)])


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "small.csv"
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens", "0,300,4", "1,20,30", "2,900,2", "3,5000,1"]
    path.write_text("\n".join(lines) + "\n")
    return path


OPTIONS = ("--model", "gpt-oss-20b", "--budget", "256MiB", "--agents", "2", "--max-tokens", "2048")


@pytest.mark.parametrize("layout", ["layer", "token"])
def test_json(device_name: str, trace: Path, layout: str) -> None:
    """gpt-oss has windows in half of its layers."""
    result = invoke(trace, "--device", device_name, "--layout", layout, "--json", *OPTIONS)
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert set(KEYS) <= set(report)
    assert result.stderr == ""
    assert (report["requests"], report["skipped"], report["checks_failed"]) == (3, 1, 0)
    assert (report["model"], report["layout"]) == ("gpt-oss-20b", layout)
    assert report["admitted_peak"] == 2
    assert (report["budget_bytes"], report["page_bytes"]) == (256 << 20, 65536)
    assert report["live_bytes_peak"] <= report["mapped_bytes_peak"]
    again = json.loads(
        invoke(trace, "--device", device_name, "--layout", layout, "--json", *OPTIONS).stdout
    )
    assert {key: again[key] for key in KEYS} == {key: report[key] for key in KEYS}


def test_table(device_name: str, trace: Path) -> None:
    result = invoke(trace, "--device", device_name, *OPTIONS, "--page", "16KiB", "--limit", "2")
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    assert "small.csv on host: gpt-oss-20b, layer layout, pages of 16 KiB" in result.stdout
    assert "\x1b" not in result.stdout
    [line] = [line for line in result.stdout.splitlines() if line.startswith("requests ")]
    assert line.split() == ["requests", "2", "completed"]


def test_table_is_whole_where_it_is_narrow(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    result = invoke(trace, *OPTIONS, "--limit", "1")
    assert result.exit_code == 0, result.stderr
    assert max(map(len, result.stdout.splitlines())) <= 40
    assert "…" not in result.stdout


def test_progress_lines(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vmkv.commands.replay, "_SECONDS_BETWEEN_LINES", 0.0)
    result = invoke(trace, *OPTIONS, "--json")
    assert result.exit_code == 0, result.stderr
    lines = result.stderr.splitlines()
    assert len(lines) == json.loads(result.stdout)["steps"]
    assert lines[-1].startswith("replay: 4 of 4 requests, ")
    assert lines[-1].endswith(" MiB written")


def test_progress_bar(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a terminal; it goes to stderr, and stdout stays whole."""

    def console(stderr: bool = False, **named: Any) -> Console:
        return Console(stderr=stderr, force_terminal=stderr, **named)

    monkeypatch.setattr(vmkv.commands.replay, "Console", console)
    result = invoke(trace, *OPTIONS, "--json")
    assert result.exit_code == 0, result.stderr
    assert json.loads(result.stdout)["requests"] == 3
    assert "4/4" in result.stderr


def test_default_trace_and_budget() -> None:
    result = invoke("--limit", "1", "--model", "gpt-oss-20b", "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["requests"], report["tokens_written"]) == (1, 4818)
    assert report["budget_bytes"] <= 4 << 30


def test_failed_checks_exit_1(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Part, "write", lambda part, first, last: 0)
    result = invoke(trace, "--json", *OPTIONS)
    assert result.exit_code == 1
    assert json.loads(result.stdout)["checks_failed"] > 0
    assert "checks failed, the first: " in result.stderr
    assert len(result.stderr.splitlines()) == 1


def test_broken_line_exits_1(trace: Path) -> None:
    trace.write_text(trace.read_text() + "4,many,1\n")
    result = invoke(trace)
    assert result.exit_code == 1
    assert f"{trace}:6: ContextTokens is 'many'" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    assert result.stdout == ""


def test_budget_beyond_memory(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Refused only if the trace could use it."""
    monkeypatch.setattr(vmkv.commands.replay, "available_bytes", lambda: 64 << 20)
    small = ("--model", "gpt-oss-20b", "--budget", "1GiB", "--agents", "2", "--max-tokens", "10000")
    result = invoke(trace, *small)
    assert result.exit_code == 1
    assert "64 MiB of memory is free here: give --budget 48MiB or less" in result.stderr
    assert len(result.stderr.splitlines()) == 1
    monkeypatch.setattr(vmkv.commands.replay, "available_bytes", lambda: 1 << 29)
    assert invoke(trace, *small).exit_code == 0
    # The default budget is half of what is free.
    report = json.loads(invoke(trace, "--limit", "1", "--model", "gpt-oss-20b", "--json").stdout)
    assert report["budget_bytes"] == 1 << 28


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (["no-such-file.csv"], "no-such-file.csv"),
        (["--model", "qwen9"], "qwen9"),
        (["--budget", "lots"], "lots"),
        (["--page", "64KB/s"], "64KB/s"),
        (["--layout", "flat"], "flat"),
        (["--agents", "0"], "0"),
        (["--limit", "0"], "0"),
        (["--max-tokens", "-1"], "-1"),
        (["--seed", "x"], "x"),
        (["--page", "5000"], "page"),
        (["--budget", "1MiB"], "budget"),
        (["--device", "host?bogus=1"], "bogus"),
        (["--bogus"], "--bogus"),
    ],
)
def test_usage(arguments: list[str], wrong: str) -> None:
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert wrong in result.stderr.splitlines()[-1]
    assert result.stdout == ""


def test_unknown_device() -> None:
    result = invoke("--device", "no-such-device", "--limit", "1")
    assert result.exit_code == 2
    assert "no-such-device" in result.stderr.splitlines()[-1]


def test_help_has_examples() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert "vmkv replay --layout token --limit 300" in result.stdout
    assert "half of what is free" in " ".join(result.stdout.split())


@pytest.mark.parametrize("option", [("--limit", str(2**63)), ("--max-tokens", str(2**32 - 1))])
def test_options_out_of_range(option: tuple[str, str]) -> None:
    result = invoke(*option)
    assert result.exit_code == 2
    assert "is not in the range" in result.stderr


def test_a_replay_that_completes_nothing_says_why() -> None:
    result = invoke("--limit", "2", "--max-tokens", "10")
    assert result.exit_code == 0
    assert "none of the 2 could ever fit" in result.stderr
    result = invoke("--limit", "2", "--budget", "1GiB", "--device", "host?memory=4MiB")
    assert result.exit_code == 1
    assert "the device has too little memory or too few mappings" in result.stderr


def test_a_limit_of_the_process_is_no_wrong_usage() -> None:
    program = (
        "import resource\n"
        "from vmkv.commands import main\n"
        "resource.setrlimit(resource.RLIMIT_AS, (3 << 30, 3 << 30))\n"
        "main(['replay', '--limit', '2', '--budget', '256MiB'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert done.stderr.startswith("Error: ")
    assert done.stderr.count("\n") == 1
