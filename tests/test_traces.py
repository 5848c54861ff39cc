"""Reading traces: what is taken, and how broken lines are named."""

import importlib.resources
from collections.abc import Callable
from pathlib import Path

import pytest

import vmkv
from vmkv.traces import Request, TraceError, default_trace, read_azure

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
GOOD = "2023-11-16 18:17:03.9799600,4808,10"

Write = Callable[[str | bytes], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def write(content: str | bytes) -> Path:
        path = tmp_path / "trace.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write


@pytest.mark.parametrize(
    "content",
    [
        f"{HEADER}\n{GOOD}\n\n2023-11-16 18:17:04,1,0\n".replace("\n\n", "\n"),
        f"{HEADER}\r\n{GOOD}\r\n2023-11-16 18:17:04,1,0\r\n",
        f"{HEADER}\n{GOOD}\n2023-11-16 18:17:04,1,0",
        f"{HEADER}\r\n{GOOD}\r\n2023-11-16 18:17:04,1,0\r\n\r\n  \r\n",
        f"\ufeff{HEADER}\n{GOOD}\n2023-11-16 18:17:04,1,0\n",
        f'"TIMESTAMP", ContextTokens,GeneratedTokens\n"{GOOD[:27]}","4808",10\n,1 , 0\n',
    ],
    ids=["plain", "crlf", "no-last-end", "blank-last-lines", "byte-order-mark", "quotes"],
)
def test_forms(write: Write, content: str) -> None:
    assert list(read_azure(write(content))) == [Request(0, 2, 4808, 10), Request(1, 3, 1, 0)]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("2023-11-16 18:17:03,4808", "2 fields in '2023-11-16 18:17:03,4808'"),
        ("2023-11-16 18:17:03,4808,10,3", "4 fields"),
        ("2023-11-16 18:17:03,4808,ten", "GeneratedTokens is 'ten', not a whole number"),
        ("2023-11-16 18:17:03,48.5,10", "ContextTokens is '48.5', not a whole number"),
        ("2023-11-16 18:17:03,,10", "ContextTokens is '', not a whole number"),
        ("2023-11-16 18:17:03,-4,10", "ContextTokens is '-4', not a whole number"),
        ("2023-11-16 18:17:03,4808,-1", "GeneratedTokens is '-1', not a whole number"),
        ("2023-11-16 18:17:03,0,10", "ContextTokens is 0, but a request has at least one token"),
        ("2023-11-16 18:17:03,1_000,10", "ContextTokens is '1_000', not a whole number"),
        (f"2023-11-16 18:17:03,{'9' * 30},10", f"ContextTokens is '{'9' * 30}', not a"),
        ('2023-11-16 18:17:03,"4808,10', "unexpected end of data"),
        ("", "blank"),
        ("x" * 5000, "longer than 4,096 bytes"),
    ],
)
def test_broken_line(write: Write, line: str, wrong: str) -> None:
    path = write(f"{HEADER}\n{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(TraceError) as caught:
        list(read_azure(path))
    assert str(caught.value).startswith(f"{path}:3: {wrong}")
    assert GOOD in str(caught.value)  # what would be right
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 250


def test_binary_line(write: Write) -> None:
    path = write(f"{HEADER}\n{GOOD}\n".encode() + b"\xff\xfe\x00,1,1\n")
    with pytest.raises(TraceError, match=r"trace\.csv:3: not UTF-8 text"):
        list(read_azure(path))


@pytest.mark.parametrize("content", ["", "\n", "\r\n\r\n", "\ufeff"])
def test_empty_file(write: Write, content: str) -> None:
    path = write(content)
    with pytest.raises(TraceError, match=f"the file is empty; .* begins with the line {HEADER}"):
        list(read_azure(path))


def test_no_requests(write: Write) -> None:
    with pytest.raises(TraceError, match="no requests; at least one line must follow TIMESTAMP"):
        list(read_azure(write(f"{HEADER}\n")))


@pytest.mark.parametrize(
    "header", ["time,prompt,output", GOOD, '{"timestamp": 27482}', HEADER + ",x"]
)
def test_other_header(write: Write, header: str) -> None:
    with pytest.raises(TraceError, match=rf"trace\.csv:1: .*an Azure trace begins with {HEADER}"):
        list(read_azure(write(f"{header}\n{GOOD}\n")))


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no\.csv: can't be read: No such file or directory"):
        list(read_azure(tmp_path / "no.csv"))
    with pytest.raises(TraceError, match="can't be read: Is a directory"):
        list(read_azure(str(tmp_path)))


def test_trace_error_is_in_the_tree() -> None:
    assert issubclass(TraceError, vmkv.Error)
    assert issubclass(TraceError, ValueError)


def test_limit_reads_no_further(write: Write) -> None:
    path = write(f"{HEADER}\n{GOOD}\n{GOOD}\nbroken\n")
    assert len(list(read_azure(path, limit=2))) == 2
    with pytest.raises(TraceError):
        list(read_azure(path, limit=3))
    with pytest.raises(ValueError, match="limit is 0"):
        read_azure(path, limit=0)


def test_streams(write: Write) -> None:
    """Requests come before the rest of the file is looked at."""
    requests = read_azure(write(f"{HEADER}\n{GOOD}\nbroken\n"))
    assert next(requests) == Request(0, 2, 4808, 10)
    with pytest.raises(TraceError):
        next(requests)


def test_default_trace() -> None:
    requests = list(read_azure())
    assert len(requests) == 980
    assert requests[0] == Request(0, 2, 4808, 10)
    assert requests[0].total_tokens == 4818
    assert [request.index for request in requests] == list(range(980))
    # The data's README says that it is like the whole: 2,048 and 28 tokens in the mean.
    assert sum(request.prompt_tokens for request in requests) / 980 == pytest.approx(2048, rel=0.02)
    assert sum(request.output_tokens for request in requests) / 980 == pytest.approx(28, rel=0.06)


def test_default_trace_names_its_source() -> None:
    package = importlib.resources.files("vmkv")
    text = package.joinpath("data", "README.md").read_text(encoding="utf-8")
    assert default_trace().name in text
    assert "Azure/AzurePublicDataset" in text
    assert "creativecommons.org/licenses/by/4.0" in text
