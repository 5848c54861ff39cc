"""The formats of request traces, and what is made of their lines.

azure: CSV with TIMESTAMP, ContextTokens, GeneratedTokens. Azure/AzurePublicDataset.

mooncake: JSON lines with timestamp, input_length, output_length, hash_ids (one for each block of
512 tokens of the prompt, chained, so that equal ids mean equal prompts up to there).
kvcache-ai/Mooncake, FAST'25.

tracelab: CSV with session_id, arrival_time, round_idx, prefix_len, input_len, output_len,
tool_wait_after_ms, a line for each round of an agent's session. uw-syfi/TraceLab.

tracelab-rounds: JSON lines with session_id, round_index, input_tokens_total, output_tokens, tools
and more, a line for each round of a real session. uw-syfi/TraceLab.

Times of arrival are not looked at.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from vmkv.errors import InvalidError

Lines = Iterator[tuple[int, str]]

_AZURE_HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
_TRACELAB_HEADER = (
    "session_id,arrival_time,round_idx,prefix_len,input_len,output_len,tool_wait_after_ms"
)
# What a line looks like, for those who have to mend one.
_RIGHT = {
    "azure": "a line is a time and two counts, as in 2023-11-16 18:17:03.9799600,4808,10",
    "mooncake": 'a line is as {"timestamp": 0, "input_length": 700, "output_length": 5, '
    '"hash_ids": [0, 1]}',
    "tracelab": f"a line is {_TRACELAB_HEADER}, as in 0,117,1,2518,348,131,154",
    "tracelab-rounds": 'a line is as {"session_id": "a", "round_index": 0, '
    '"input_tokens_total": 700, "output_tokens": 5, "tools": [{"tool_wall_latency_ms": 860}]}',
}


class TraceError(InvalidError):
    """A trace that can't be read; the text names the file, the line and what would be right."""


@dataclass(frozen=True, slots=True)
class Round:
    """One call of the model: a prompt, what was generated, and a wait for tools.

    line is where it stands in its file, from 1. prompt_tokens is the length of the sequence once
    the prompt is in: what it held before, and what is new. wait_ms is how long the sequence is kept
    as it is before the next round. cut: the context was cut since the round before, so that this
    one begins on an empty sequence.
    """

    line: int
    prompt_tokens: int
    output_tokens: int
    wait_ms: int = 0
    cut: bool = False

    @property
    def total_tokens(self) -> int:
        """Length of the sequence at the end of the round."""
        return self.prompt_tokens + self.output_tokens


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a trace, or a session: a request that goes on for more rounds.

    index counts the requests of the trace from 0; line is where it stands in its file, from 1.
    prompt_tokens is at least 1; output_tokens may be 0 (only the prompt was processed). They and
    wait_ms are of the first round; later holds the others. hash_ids has an id for each block of 512
    tokens of the prompt, the last of which may be partly empty: where two requests begin with the
    same ids, their prompts begin with the same tokens.
    """

    index: int
    line: int
    prompt_tokens: int
    output_tokens: int
    wait_ms: int = 0
    later: tuple[Round, ...] = ()
    hash_ids: tuple[int, ...] = ()

    @property
    def rounds(self) -> tuple[Round, ...]:
        """All rounds, the first included."""
        first = Round(self.line, self.prompt_tokens, self.output_tokens, self.wait_ms)
        return (first, *self.later)

    @property
    def total_tokens(self) -> int:
        """How long its sequence gets."""
        return max(each.total_tokens for each in self.rounds)


def parse(lines: Lines, name: str, format_name: str | None) -> Iterator[Request]:
    """The requests of a file's numbered lines; name is the file's, for errors."""
    number, first = next(lines, (0, ""))
    if not number:
        raise TraceError(f"{name}: the file is empty; {_begins(format_name)}")
    format_name = format_name or _detect(first, name, number)
    reader = FORMATS[format_name](name, format_name)
    count = 0
    for request in reader.read(chain([(number, first)], lines)):
        yield request
        count += 1
    if not count:
        raise TraceError(f"{name}: no requests; {_RIGHT[format_name]}")


def _detect(line: str, name: str, number: int) -> str:
    """The format of a file, by its first line."""
    if line.startswith("{"):
        # Not parsed: a line that is broken further on has to be told as one of its format.
        if '"hash_ids"' in line or '"input_length"' in line:
            return "mooncake"
        if '"input_tokens_total"' in line or '"round_index"' in line:
            return "tracelab-rounds"
    else:
        columns = {column.strip(' "') for column in line.split(",")}
        if "ContextTokens" in columns:
            return "azure"
        if "prefix_len" in columns:
            return "tracelab"
    raise TraceError(
        f"{name}:{number}: the line is {_quote(line)}, which no format begins with; {_begins(None)}"
    )


def _begins(format_name: str | None) -> str:
    beginnings = {
        "azure": f"an Azure trace begins with the line {_AZURE_HEADER}",
        "mooncake": "Mooncake's lines are JSON with hash_ids",
        "tracelab": f"a TraceLab trace begins with the line {_TRACELAB_HEADER}",
        "tracelab-rounds": "lines of TraceLab rounds are JSON with input_tokens_total",
    }
    return beginnings[format_name] if format_name else "; ".join(beginnings.values())


def _quote(text: object) -> str:
    shown = text if isinstance(text, str) else json.dumps(text)
    return repr(shown if len(shown) <= 60 else shown[:57] + "...")


@dataclass
class _Session:
    """A session, as far as it was read."""

    line: int
    last_index: int
    rounds: list[Round] = field(default_factory=list)

    @property
    def held_tokens(self) -> int:
        """Length of its sequence after the rounds up to now."""
        return self.rounds[-1].total_tokens if self.rounds else 0


class _Format:
    """Reads the lines of one format."""

    def __init__(self, name: str, format_name: str) -> None:
        self.name = name
        self.format_name = format_name

    def read(self, lines: Lines) -> Iterator[Request]:
        """The requests of all lines, the first included."""
        raise NotImplementedError

    def broken(self, number: int, wrong: str) -> TraceError:
        return TraceError(f"{self.name}:{number}: {wrong}; {_RIGHT[self.format_name]}")

    def check_prompt(self, key: str, tokens: int, number: int) -> int:
        if not tokens:
            raise self.broken(number, f"{key} is 0, but a request has at least one token")
        return tokens

    # ---- CSV

    def records(self, header: str, lines: Lines) -> Iterator[tuple[int, dict[str, str]]]:
        """Numbered lines below a header that must be this one, by column."""
        columns = header.split(",")
        number, line = next(lines)
        if [column.strip() for column in self._split(number, line)] != columns:
            begins = _begins(self.format_name)
            raise TraceError(f"{self.name}:{number}: the line is {_quote(line)}, but {begins}")
        for number, line in lines:
            fields = self._split(number, line)
            if len(fields) != len(columns):
                raise self.broken(number, f"{len(fields)} fields in {_quote(line)}")
            yield number, {key: text.strip() for key, text in zip(columns, fields, strict=True)}

    def _split(self, number: int, line: str) -> list[str]:
        try:
            return next(csv.reader([line], strict=True))
        except csv.Error as error:
            raise self.broken(number, f"{error} in {_quote(line)}") from None

    def count(self, record: dict[str, str], key: str, number: int) -> int:
        text = record[key]
        # int() alone would take "1_000", "+5" and digits of other scripts.
        if not (text.isascii() and text.isdecimal()) or len(text) > 18:
            wrong = f"{key} is {_quote(text)}, not a whole number of 1 to 18 digits"
            raise self.broken(number, wrong)
        return int(text)

    # ---- JSON lines

    def objects(self, lines: Lines) -> Iterator[tuple[int, dict[str, Any]]]:
        """Numbered lines, each of which must be a JSON object."""
        for number, line in lines:
            try:
                value = json.loads(line)
            except (ValueError, RecursionError):
                raise self.broken(number, f"{_quote(line)} is not JSON") from None
            if not isinstance(value, dict):
                raise self.broken(number, f"{_quote(line)} is not a JSON object")
            yield number, value

    def field(self, value: dict[str, Any], key: str, number: int) -> Any:
        if key not in value:
            raise self.broken(number, f"no {key}")
        return value[key]

    def number(self, value: dict[str, Any], key: str, number: int) -> int:
        return self.whole(key, self.field(value, key, number), number)

    def whole(self, key: str, value: Any, number: int) -> int:
        if type(value) is not int or not 0 <= value < 10**18:
            wrong = f"{key} is {_quote(value)}, not a whole number of 1 to 18 digits"
            raise self.broken(number, wrong)
        return value


class _Azure(_Format):
    def read(self, lines: Lines) -> Iterator[Request]:
        records = self.records(_AZURE_HEADER, lines)
        for index, (number, record) in enumerate(records):
            prompt = self.count(record, "ContextTokens", number)
            self.check_prompt("ContextTokens", prompt, number)
            yield Request(index, number, prompt, self.count(record, "GeneratedTokens", number))


class _Mooncake(_Format):
    def read(self, lines: Lines) -> Iterator[Request]:
        for index, (number, value) in enumerate(self.objects(lines)):
            prompt = self.number(value, "input_length", number)
            self.check_prompt("input_length", prompt, number)
            output = self.number(value, "output_length", number)
            ids = self.field(value, "hash_ids", number)
            if not isinstance(ids, list):
                raise self.broken(number, f"hash_ids is {_quote(ids)}, not a list")
            whole = tuple(self.whole("one of hash_ids", item, number) for item in ids)
            yield Request(index, number, prompt, output, hash_ids=whole)


class _Sessions(_Format):
    """A line for each round. Sessions come in the order of their first lines, rounds in that of
    their numbers; lines of other sessions may lie between them."""

    def read(self, lines: Lines) -> Iterator[Request]:
        sessions: dict[str, _Session] = {}
        for key, round_index, number, value in self.rounds(lines):
            session = sessions.setdefault(key, _Session(number, -1))
            if round_index <= session.last_index:
                raise self.broken(
                    number,
                    f"round {round_index} of session {_quote(key)} comes after its round "
                    f"{session.last_index}",
                )
            session.last_index = round_index
            session.rounds.append(self.round(session.held_tokens, number, value))
        for index, session in enumerate(sessions.values()):
            first, *later = session.rounds
            yield Request(
                index,
                session.line,
                first.prompt_tokens,
                first.output_tokens,
                first.wait_ms,
                tuple(later),
            )

    def rounds(self, lines: Lines) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
        """Session, number of the round, number of the line, and what it says."""
        raise NotImplementedError

    def round(self, held_tokens: int, number: int, value: dict[str, Any]) -> Round:
        """The round of a line; the session's sequence holds so many tokens before it."""
        raise NotImplementedError


class _TraceLab(_Sessions):
    """A round continues on prefix_len tokens of the session. If its sequence holds more, the
    context was cut; if it holds less, the rest came from elsewhere and is new as the input is."""

    def rounds(self, lines: Lines) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
        for number, record in self.records(_TRACELAB_HEADER, lines):
            if not record["session_id"]:
                raise self.broken(number, "session_id is empty")
            yield record["session_id"], self.count(record, "round_idx", number), number, record

    def round(self, held_tokens: int, number: int, value: dict[str, Any]) -> Round:
        prefix = self.count(value, "prefix_len", number)
        prompt = prefix + self.count(value, "input_len", number)
        return Round(
            number,
            self.check_prompt("the sum of prefix_len and input_len", prompt, number),
            self.count(value, "output_len", number),
            self.count(value, "tool_wait_after_ms", number),
            cut=prefix < held_tokens,
        )


class _TraceLabRounds(_Sessions):
    """A round's context is input_tokens_total. If the sequence holds more, it was cut.

    prefix_tokens is not what is left of the context but what the provider's cache had of it
    (TraceLab's docs/prompt_cache_accounting.md): it never has the last output, and nothing at all
    after a while. Tools of one round run side by side, so that the slowest one is the wait.
    """

    def rounds(self, lines: Lines) -> Iterator[tuple[str, int, int, dict[str, Any]]]:
        for number, value in self.objects(lines):
            key = self.field(value, "session_id", number)
            if not isinstance(key, str) or not key:
                raise self.broken(number, f"session_id is {_quote(key)}, not a name")
            yield key, self.number(value, "round_index", number), number, value

    def round(self, held_tokens: int, number: int, value: dict[str, Any]) -> Round:
        prompt = self.number(value, "input_tokens_total", number)
        return Round(
            number,
            self.check_prompt("input_tokens_total", prompt, number),
            self.number(value, "output_tokens", number),
            self._wait_ms(value.get("tools"), number),
            cut=prompt < held_tokens,
        )

    def _wait_ms(self, tools: Any, number: int) -> int:
        """A tool that tells no latency, because it never ended, is not waited for."""
        tools = [] if tools is None else tools
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise self.broken(number, f"tools is {_quote(tools)}, not a list of objects")
        told = [tool.get("tool_wall_latency_ms") for tool in tools]
        key = "tool_wall_latency_ms"
        return max((self.whole(key, wait, number) for wait in told if wait is not None), default=0)


FORMATS: dict[str, type[_Format]] = {
    "azure": _Azure,
    "mooncake": _Mooncake,
    "tracelab": _TraceLab,
    "tracelab-rounds": _TraceLabRounds,
}
