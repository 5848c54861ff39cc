"""Reading traces: what is taken, and how broken lines are named."""

import importlib.resources
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vmkv
from vmkv.traces import FORMATS, Request, Round, TraceError, default_trace, read_trace

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
    assert list(read_trace(write(content))) == [Request(0, 2, 4808, 10), Request(1, 3, 1, 0)]


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
    ],
)
def test_broken_line(write: Write, line: str, wrong: str) -> None:
    path = write(f"{HEADER}\n{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(TraceError) as caught:
        list(read_trace(path))
    assert str(caught.value).startswith(f"{path}:3: {wrong}")
    assert GOOD in str(caught.value)  # what would be right
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 250


@pytest.mark.parametrize(
    ("line", "wrong"), [("", "a blank line"), ("x" * 2**20 + "x", "longer than 1,048,576 bytes")]
)
def test_line_of_no_format(write: Write, line: str, wrong: str) -> None:
    path = write(f"{HEADER}\n{GOOD}\n{line}\n{GOOD}\n")
    with pytest.raises(TraceError, match=rf"trace\.csv:3: {wrong}$"):
        list(read_trace(path))


def test_binary_line(write: Write) -> None:
    path = write(f"{HEADER}\n{GOOD}\n".encode() + b"\xff\xfe\x00,1,1\n")
    with pytest.raises(TraceError, match=r"trace\.csv:3: not UTF-8 text"):
        list(read_trace(path))


@pytest.mark.parametrize("content", ["", "\n", "\r\n\r\n", "\ufeff"])
def test_empty_file(write: Write, content: str) -> None:
    path = write(content)
    with pytest.raises(TraceError, match=f"the file is empty; .* begins with the line {HEADER}"):
        list(read_trace(path))
    with pytest.raises(TraceError, match="the file is empty; Mooncake's lines are JSON"):
        list(read_trace(path, "mooncake"))


def test_no_requests(write: Write) -> None:
    with pytest.raises(TraceError, match="no requests; a line is a time and two counts"):
        list(read_trace(write(f"{HEADER}\n")))


@pytest.mark.parametrize(
    "header", ["time,prompt,output", GOOD, '{"timestamp": 27482}', HEADER + ",x"]
)
def test_other_header(write: Write, header: str) -> None:
    with pytest.raises(
        TraceError, match=rf"trace\.csv:1: .*an Azure trace begins with the line {HEADER}"
    ):
        list(read_trace(write(f"{header}\n{GOOD}\n"), "azure"))


def test_unreadable(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"no\.csv: can't be read: No such file or directory"):
        list(read_trace(tmp_path / "no.csv"))
    with pytest.raises(TraceError, match="can't be read: Is a directory"):
        list(read_trace(str(tmp_path)))


def test_trace_error_is_in_the_tree() -> None:
    assert issubclass(TraceError, vmkv.Error)
    assert issubclass(TraceError, ValueError)


def test_limit_reads_no_further(write: Write) -> None:
    path = write(f"{HEADER}\n{GOOD}\n{GOOD}\nbroken\n")
    assert len(list(read_trace(path, limit=2))) == 2
    with pytest.raises(TraceError):
        list(read_trace(path, limit=3))
    with pytest.raises(ValueError, match="limit is 0"):
        read_trace(path, limit=0)
    with pytest.raises(ValueError, match="unknown format 'csv': it is one of azure, mooncake, "):
        read_trace(path, "csv")


def test_streams(write: Write) -> None:
    """Requests come before the rest of the file is looked at."""
    requests = read_trace(write(f"{HEADER}\n{GOOD}\nbroken\n"))
    assert next(requests) == Request(0, 2, 4808, 10)
    with pytest.raises(TraceError):
        next(requests)


# ---- Mooncake


def mooncake(*rows: tuple[int, int, list[int]]) -> str:
    keys = ("input_length", "output_length", "hash_ids")
    objects = [{"timestamp": 0, **dict(zip(keys, row, strict=True))} for row in rows]
    return "".join(json.dumps(each) + "\n" for each in objects)


def test_mooncake(write: Write) -> None:
    path = write(mooncake((700, 5, [0, 1]), (1, 0, [])))
    assert list(read_trace(path)) == [
        Request(0, 1, 700, 5, hash_ids=(0, 1)),
        Request(1, 2, 1, 0),
    ]
    assert list(read_trace(path, "mooncake", limit=1)) == list(read_trace(path))[:1]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ('{"input_length": 7', """'{"input_length": 7' is not JSON"""),
        ("[7, 5]", "'[7, 5]' is not a JSON object"),
        ("[" * 50_000, "'[[[[[[[["),
        ('{"input_length": 7, "output_length": 5}', "no hash_ids"),
        ('{"output_length": 5, "hash_ids": []}', "no input_length"),
        ('{"input_length": 0, "output_length": 5, "hash_ids": []}', "input_length is 0, but a"),
        ('{"input_length": 7.0, "output_length": 5, "hash_ids": []}', "input_length is '7.0', not"),
        ('{"input_length": true, "output_length": 5, "hash_ids": []}', "input_length is 'true'"),
        ('{"input_length": 7, "output_length": -5, "hash_ids": []}', "output_length is '-5', not"),
        ('{"input_length": 7, "output_length": "5", "hash_ids": []}', "output_length is '5', not"),
        ('{"input_length": 7, "output_length": null, "hash_ids": []}', "output_length is 'null'"),
        ('{"input_length": 7, "output_length": 5, "hash_ids": 3}', "hash_ids is '3', not a list"),
        ('{"input_length": 7, "output_length": 5, "hash_ids": [0, "a"]}', "one of hash_ids is 'a'"),
    ],
)
def test_broken_mooncake(write: Write, line: str, wrong: str) -> None:
    path = write(mooncake((700, 5, [0, 1])) + line + "\n")
    with pytest.raises(TraceError) as caught:
        list(read_trace(path))
    assert str(caught.value).startswith(f"{path}:2: {wrong}")
    assert str(caught.value).endswith('"hash_ids": [0, 1]}')
    assert len(str(caught.value)) < len(str(path)) + 250


# ---- TraceLab

TRACELAB = "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms"


def test_tracelab(write: Write) -> None:
    """Session b comes in between. Its second round continues on 30 of its 35 tokens, so that it was
    cut; its third on 8 more than there are."""
    lines = [
        "a,117,0,0,20,5,300",
        "b,118,0,10,20,5,0",
        "a,117,1,25,7,3,41",
        "b,118,1,30,4,6,1",
        "a,117,3,35,0,1,0",
        "b,118,2,48,2,0,9",
    ]
    path = write("\n".join([TRACELAB, *lines]))
    assert list(read_trace(path)) == [
        Request(0, 2, 20, 5, 300, (Round(4, 32, 3, 41), Round(6, 35, 1))),
        Request(1, 3, 30, 5, 0, (Round(5, 34, 6, 1, cut=True), Round(7, 50, 0, 9))),
    ]
    first, second = read_trace(path)
    assert [each.total_tokens for each in first.rounds] == [25, 35, 36]
    assert (first.total_tokens, second.total_tokens) == (36, 50)
    assert list(read_trace(path, limit=1)) == [first]


def test_longest_round_may_be_before_a_cut(write: Write) -> None:
    path = write(f"{TRACELAB}\n0,0,0,0,90,10,0\n0,0,1,20,5,1,0\n")
    [request] = read_trace(path)
    assert request.total_tokens == 100


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("a,0,1,25,5,1", "6 fields in 'a,0,1,25,5,1'"),
        (",0,1,25,5,1,0", "session_id is empty"),
        ("a,0,x,25,5,1,0", "round_idx is 'x', not a whole number"),
        ("a,0,1,-25,5,1,0", "prefix_len is '-25', not a whole number"),
        ("a,0,1,25,5.5,1,0", "input_len is '5.5', not a whole number"),
        ("a,0,1,25,5,,0", "output_len is '', not a whole number"),
        ("a,0,1,25,5,1,1e3", "tool_wait_after_ms is '1e3', not a whole number"),
        ("a,0,1,0,0,1,0", "the sum of prefix_len and input_len is 0, but a request has"),
        ("a,0,0,25,5,1,0", "round 0 of session 'a' comes after its round 0"),
    ],
)
def test_broken_tracelab(write: Write, line: str, wrong: str) -> None:
    path = write(f"{TRACELAB}\na,0,0,0,20,5,300\n{line}\n")
    with pytest.raises(TraceError) as caught:
        list(read_trace(path))
    assert str(caught.value).startswith(f"{path}:3: {wrong}")
    assert str(caught.value).endswith("0,117,1,2518,348,131,154")


# ---- TraceLab rounds


def one_round(index: int, total: int, output: int, *waits: int | None, **more: Any) -> str:
    tools = [{"tool_name": "Bash", "tool_wall_latency_ms": wait} for wait in waits]
    fields = {"session_id": "a", "round_index": index, "input_tokens_total": total}
    counts = {"prefix_tokens": 0, "newly_append_tokens": total, "output_tokens": output}
    return json.dumps({"provider": "x", **fields, **counts, "tools": tools, **more})


def test_tracelab_rounds(write: Write) -> None:
    """The slowest tool is waited for; one that tells nothing isn't. What the provider's cache had
    of the context doesn't matter; a context shorter than the sequence was cut."""
    lines = [
        one_round(0, 100, 10, 860, 19291, None, prefix_tokens=90),
        one_round(1, 120, 0, session_id="b", tools=None),
        one_round(1, 110, 5, None),
        one_round(2, 114, 6, 7),
        one_round(3, 120, 1),
    ]
    assert list(read_trace(write("\n".join(lines)))) == [
        Request(
            0,
            1,
            100,
            10,
            19291,
            (Round(3, 110, 5), Round(4, 114, 6, 7, cut=True), Round(5, 120, 1)),
        ),
        Request(1, 2, 120, 0),
    ]


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        ("{", "'{' is not JSON"),
        ('{"session_id": "a"}', "no round_index"),
        (one_round(1, 0, 5), "input_tokens_total is 0, but a request has at least one token"),
        (one_round(1, 5, -5), "output_tokens is '-5', not a whole number"),
        (one_round(1, 5, 5, session_id=3), "session_id is '3', not a name"),
        (one_round(1, 5, 5, tools=3), "tools is '3', not a list of objects"),
        (one_round(1, 5, 5, tools=[3]), "tools is '[3]', not a list of objects"),
        (one_round(1, 5, 5, -1), "tool_wall_latency_ms is '-1', not a whole number"),
        (one_round(0, 5, 5), "round 0 of session 'a' comes after its round 0"),
    ],
)
def test_broken_tracelab_rounds(write: Write, line: str, wrong: str) -> None:
    path = write(f"{one_round(0, 100, 10)}\n{line}\n")
    with pytest.raises(TraceError) as caught:
        list(read_trace(path))
    assert str(caught.value).startswith(f"{path}:2: {wrong}")
    assert '"input_tokens_total": 700' in str(caught.value)


# ---- which format it is

FILES = {
    "azure": f"{HEADER}\n{GOOD}\n",
    "mooncake": mooncake((700, 5, [0, 1])),
    "tracelab": f"{TRACELAB}\n0,117,0,0,2318,200,300\n",
    "tracelab-rounds": one_round(0, 100, 10) + "\n",
}


@pytest.mark.parametrize("name", FORMATS)
def test_format_is_detected_from_content(write: Write, name: str) -> None:
    path = write(FILES[name])
    assert list(read_trace(path)) == list(read_trace(path, name))
    for other in set(FORMATS) - {name}:
        with pytest.raises(TraceError, match=r"trace\.csv:1: "):
            list(read_trace(path, other))


@pytest.mark.parametrize("first", ["time,prompt,output", GOOD, "{}", "[]", "\x00"])
def test_unknown_format(write: Write, first: str) -> None:
    with pytest.raises(TraceError, match=r"trace\.csv:1: .* no format begins with; an Azure trace"):
        list(read_trace(write(f"{first}\n{GOOD}\n")))


# ---- the trace of the package


def test_default_trace() -> None:
    requests = list(read_trace())
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
