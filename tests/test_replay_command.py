"""`vmkv replay`: its options, its output and its exit codes."""

import contextlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click.testing
import pytest
from rich.console import Console

import vmkv.commands.replay
from vmkv.commands import main
from vmkv.rows import Writer

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
    lines = [line.split() for line in result.stdout.splitlines()]
    # 2,048 tokens are reserved, and 1,024; both requests go together.
    assert [line[:6] for line in lines if line[:1] == ["reserve"]] == [
        ["reserve", "2,048", "*", "2", "2", "0"],
        ["reserve", "1,024", "*", "2", "2", "0"],
    ]
    assert next(line[:5] for line in lines if line[:1] == ["vmkv"]) == ["vmkv", "2", "2", "0", "0"]
    assert "* modelled" in result.stdout
    text = " ".join(result.stdout.split())
    assert "With vmkv 2 agents at once had room in 256 MiB (all that were asked for)" in text


def test_table_is_whole_where_it_is_narrow(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    result = invoke(trace, *OPTIONS, "--limit", "1")
    assert result.exit_code == 0, result.stderr
    assert "…" not in result.stdout
    lines = result.stdout.splitlines()
    # Of the comparison each line is one, however wide that makes it.
    schemes = [line for line in lines if re.match(r"reserve [\d,]+ \*|paged by 16 \*|vmkv  ", line)]
    assert len(schemes) == 4
    for line in schemes:
        assert len(re.findall(r"\d+(?:\.\d+)?%|\d+ [KMG]iB|\d+\.\d+ [KMG]iB", line)) == 2
    assert (
        max(len(line) for line in lines if "%  " not in line and "agents  done" not in line) <= 40
    )


def test_nobody_served_has_no_waste(trace: Path) -> None:
    """A reservation of 2,048 tokens is 60 MiB; one of 1,024 fits."""
    options = (*OPTIONS[:2], "--budget", "50MiB", "--agents", "2", "--max-tokens", "2048")
    report = json.loads(invoke(trace, *options, "--json").stdout)
    longest, shorter = report["modelled"]["contiguous"]
    assert (longest["requests"], longest["waste_mean"]) == (0, None)
    assert shorter["waste_mean"] > 0
    lines = [line.split() for line in invoke(trace, *options).stdout.splitlines()]
    assert next(line[-1] for line in lines if line[:2] == ["reserve", "2,048"]) == "-"
    result = invoke(trace, *options, "--limit", "1", "--max-tokens", "10")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert next(line[1] for line in lines if line[:1] == ["waste"]) == "-"
    assert "0.0%" not in result.stdout


def test_floor(trace: Path) -> None:
    report = json.loads(invoke(trace, *OPTIONS, "--floor", "--json").stdout)
    assert report["write_ratio"] == report["floor_seconds"] / report["write_seconds"] > 0
    assert "of the speed of a plain loop in C" in invoke(trace, *OPTIONS, "--floor").stdout
    report = json.loads(invoke(trace, *OPTIONS, "--json").stdout)
    assert (report["floor_seconds"], report["write_ratio"]) == (None, None)
    assert "plain loop" not in invoke(trace, *OPTIONS).stdout


def test_floor_takes_as_much_memory_again(trace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vmkv.commands.replay, "available_bytes", lambda: 300 << 20)
    assert invoke(trace, *OPTIONS).exit_code == 0
    result = invoke(trace, *OPTIONS, "--floor")
    assert result.exit_code == 1
    assert "but 300 MiB of memory is free here: give --budget 112MiB or less" in result.stderr


def memory_of(process: int) -> int:
    """Bytes that a process has taken. What RssShmem tells counts a memfd's page once for each of
    its mappings, so the file is asked instead."""
    root = Path("/proc", str(process))
    fields = dict(line.split(":") for line in (root / "status").read_text().splitlines())
    own = sum(int(fields[name].split()[0]) for name in ("RssAnon", "RssFile", "VmPTE")) * 1024
    files = {
        (status := path.stat()).st_ino: status.st_blocks * 512
        for path in (root / "fd").iterdir()
        if str(path.readlink()).startswith("/memfd:vmkv")
    }
    return own + sum(files.values())


@pytest.mark.parametrize("layout", ["layer", "token"])
def test_memory_is_the_budget_and_little_more(layout: str) -> None:
    """At most 300 MB, with all of the budget in use."""
    options = ["--budget", "1GiB", "--limit", "20", "--layout", layout, "--json"]
    program = f"from vmkv.commands import main\nmain({['replay', *options]})"
    peak = 0
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE) as process:
        while process.poll() is None:
            # It may end in between.
            with contextlib.suppress(OSError, KeyError):
                peak = max(peak, memory_of(process.pid))
            time.sleep(0.01)
        assert process.stdout is not None
        report = json.load(process.stdout)
    assert report["requests"] > 0
    assert report["mapped_bytes_peak"] > 0.8 * (1 << 30)
    assert report["mapped_bytes_peak"] < peak <= (1 << 30) + 300_000_000


def test_modelled(trace: Path) -> None:
    """gpt-oss-20b: 12 full layers and 12 with a window of 128, 2 KiB a token in each. Reserving
    2,048 tokens takes 48 MiB and 12 windows of 127 + 512 tokens: 16,380 KiB more than 48 MiB less
    what isn't kept. One such fits the budget; two of 1,024 tokens do."""
    layer = 2048
    longest = 12 * layer * 2048 + 12 * layer * (127 + 512)
    shorter = 12 * layer * 1024 + 12 * layer * (127 + 512)
    options = ("--model", "gpt-oss-20b", "--agents", "2", "--max-tokens", "2048", "--json")
    result = invoke(trace, "--budget", "80MiB", *options)
    assert result.exit_code == 0, result.stderr
    modelled = json.loads(result.stdout)["modelled"]
    assert [each["tokens"] for each in modelled["contiguous"]] == [2048, 1024]
    assert [each["admitted_peak"] for each in modelled["contiguous"]] == [1, 2]
    assert [each["bytes_peak"] for each in modelled["contiguous"]] == [longest, 2 * shorter]
    assert [each["requests"] for each in modelled["contiguous"]] == [3, 3]
    assert [each["shortages"] for each in modelled["contiguous"]] == [2, 0]
    assert modelled["paged"]["requests"] == 3
    assert modelled["paged"]["tokens"] is None
    assert modelled["paged"]["waste_mean"] < modelled["contiguous"][1]["waste_mean"]


def test_session_trace(tmp_path: Path) -> None:
    path = tmp_path / "sessions.txt"
    header = "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms"
    path.write_text(f"{header}\n0,0,0,0,20,5,60\n0,0,1,25,9,2,0\n0,0,2,4,9,2,0\n1,0,0,0,7,7,0\n")
    result = invoke(path, *OPTIONS, "--json")
    assert result.exit_code == 0, result.stderr
    report = json.loads(result.stdout)
    assert (report["requests"], report["rounds"], report["cuts"]) == (2, 4, 1)
    assert report["steps"] == 6 + 3 + 3 + 3
    assert report["modelled"]["paged"]["rounds"] == 4
    lines = [line.split() for line in invoke(path, *OPTIONS).stdout.splitlines()]
    assert ["4", "rounds", "of", "them:", "sessions", "stay", "between", "rounds"] in lines
    assert ["1", "times", "the", "context", "of", "one", "was", "cut"] in lines
    result = invoke(path, "--format", "azure")
    assert result.exit_code == 1
    assert "sessions.txt:1: the line is 'session_id," in result.stderr


def test_shareable(tmp_path: Path) -> None:
    path = tmp_path / "mooncake.txt"
    line = '{"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [4, %d]}\n'
    path.write_text(line % 5 + line % 6)
    report = json.loads(invoke(path, *OPTIONS, "--json").stdout)
    assert (report["shareable_tokens"], report["active_shareable_tokens"]) == (512, 512)
    assert report["shareable_bytes"] == 512 * 24 * 2048
    lines = [line.split() for line in invoke(path, *OPTIONS).stdout.splitlines()]
    assert ["shareable", "512", "tokens"] in [line[:3] for line in lines]


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
    monkeypatch.setattr(Writer, "write", lambda writer, first, last: 0)
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
        (["--format", "csv"], "csv"),
        (["--page", "5000"], "--page 5,000 B is not a power of two from 4 KiB to 2 MiB"),
        (["--page", "4MiB"], "--page 4 MiB is not a power of two"),
        (["--budget", "1MiB"], "--budget of 1 MiB is less than one page for every span"),
        (["--budget", "1"], "--budget of 1 B is less than one page for every span of a sequence: "),
        (["--budget", "1"], "sequence: 72 spans x 64 KiB = 4.50 MiB"),
        (
            ["--layout", "token", "--max-tokens", str(2**32 - 2)],
            "a span of 4,294,967,294 tokens x 144 KiB is more than 2^31 pages: "
            "lower --max-tokens or raise --page",
        ),
        (
            ["--agents", "65536", "--max-tokens", str(2**32 - 2)],
            "for 131,072 slots of 4,294,967,294 tokens pass 64 bits: "
            "lower --max-tokens or --agents",
        ),
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
    assert "none of the 2 could ever fit, as each is longer than --max-tokens 10" in result.stderr
    result = invoke("--limit", "1", "--max-tokens", "10")
    assert "the only one could never fit, as it is longer than --max-tokens 10" in result.stderr
    result = invoke("--limit", "2", "--budget", "1GiB", "--device", "host?memory=4MiB")
    assert result.exit_code == 1
    assert "the device has too little memory or too few mappings" in result.stderr


def test_too_many_addresses() -> None:
    result = invoke("--agents", "65536", "--page", "4KiB")
    assert result.exit_code == 1
    assert "288 TiB of addresses for 131,072 slots of 16,384 tokens" in result.stderr
    assert "in one piece; lower --max-tokens or --agents" in result.stderr


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
