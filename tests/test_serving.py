"""Turns: how a request grows, waits and is cut, and what prompts share."""

import pytest

from vmkv.serving import Agent, Counts, Progress, Serving
from vmkv.sharing import Prefixes, most_shared_tokens, shared_tokens
from vmkv.traces import Request, Round


def lengths(request: Request) -> list[int]:
    """Of the sequence after each step."""
    progress = Progress(request)
    taken = []
    while not progress.is_done:
        taken.append(progress.next_tokens)
        progress.advance()
    return taken


def session(*rounds: Round) -> Request:
    first, *later = rounds
    return Request(0, 2, first.prompt_tokens, first.output_tokens, first.wait_ms, tuple(later))


def test_prompt_then_output() -> None:
    assert lengths(Request(0, 2, 1030, 2)) == [512, 1024, 1030, 1031, 1032]
    assert lengths(Request(0, 2, 1, 0)) == [1]


def test_rounds_continue_on_the_sequence() -> None:
    assert lengths(session(Round(2, 10, 2), Round(3, 530, 1))) == [10, 11, 12, 524, 530, 531]


@pytest.mark.parametrize(("wait_ms", "steps"), [(0, 0), (1, 1), (20, 1), (21, 2), (300, 15)])
def test_wait_is_a_step_each_20_ms(wait_ms: int, steps: int) -> None:
    """Not after the last round: then nobody comes back."""
    rounds = session(Round(2, 10, 1, wait_ms), Round(3, 15, 0, wait_ms))
    assert lengths(rounds) == [10, 11] + [11] * steps + [15]


def test_cut_begins_anew() -> None:
    rounds = session(Round(2, 10, 2, 20), Round(3, 600, 1, cut=True))
    progress = Progress(rounds)
    for tokens, cuts in [(10, 0), (11, 0), (12, 0), (0, 1), (512, 1), (600, 1), (601, 1)]:
        progress.advance()
        assert (progress.tokens, progress.cuts) == (tokens, cuts)
    assert progress.is_done


def test_round_that_adds_nothing_only_waits() -> None:
    rounds = session(Round(2, 10, 0, 20), Round(3, 10, 0, 40), Round(4, 10, 0), Round(5, 11, 0))
    assert lengths(rounds) == [10, 10, 10, 10, 11]
    assert lengths(session(Round(2, 10, 0), Round(3, 10, 0))) == [10]


class Told(Serving[Agent]):
    """Notes the lengths at each step that is taken, and the steps passed over before it."""

    def __init__(self, requests: list[Request], agents: int) -> None:
        super().__init__(requests, agents, 10, Counts())
        self.told: list[tuple[int, ...]] = []

    def need_bytes(self, request: Request) -> int:
        return 1

    def open(self, request: Request, need_bytes: int) -> Agent:
        return Agent(request, need_bytes)

    def serve(self) -> None:
        self.told.append((self.round, *(agent.progress.next_tokens for agent in self.active)))

    def close(self, agent: Agent) -> None:
        pass

    def reopen(self, agent: Agent) -> None:
        pass


def test_idle_steps_end_when_one_goes_on() -> None:
    """One waits for 10 steps from the second on, the other for 6 from the third on."""
    one = session(Round(2, 10, 0, 200), Round(3, 12, 0))
    other = session(Round(2, 20, 1, 120), Round(3, 25, 0))
    serving = Told([one, other], 2)
    serving.run_rounds()
    assert serving.told == [
        (1, 10, 20),
        (2, 10, 21),
        (8, 10, 21),
        (9, 10, 25),
        (11, 10),
        (12, 12),
    ]
    assert serving.counts.idle_steps == 5 + 1


def prompt(tokens: int, *hash_ids: int) -> Request:
    return Request(0, 1, tokens, 5, hash_ids=hash_ids)


def test_shared_tokens() -> None:
    assert shared_tokens(prompt(1100, 7, 8, 9), prompt(1300, 7, 8, 4)) == 1024
    assert shared_tokens(prompt(1100, 7, 8, 9), prompt(1300, 7, 8, 9)) == 1100
    assert shared_tokens(prompt(1100, 7, 8, 9), prompt(512, 7)) == 512
    assert shared_tokens(prompt(1100, 7, 8, 9), prompt(1100, 1, 8, 9)) == 0
    assert shared_tokens(prompt(1100), prompt(1100)) == 0
    others = [prompt(600, 7, 1), prompt(1300, 7, 8, 4), prompt(9)]
    assert most_shared_tokens(prompt(1100, 7, 8, 9), others) == 1024
    assert most_shared_tokens(prompt(1100, 7, 8, 9), []) == 0


def test_prefixes() -> None:
    """The same block behind another beginning is another one."""
    prefixes = Prefixes()
    assert prefixes.add(prompt(1100, 7, 8, 9)) == 0
    assert prefixes.add(prompt(1300, 7, 8, 4)) == 1024
    assert prefixes.add(prompt(1024, 8, 9)) == 0
    assert prefixes.add(prompt(1200, 7, 8, 9)) == 1100
    assert prefixes.add(prompt(1300, 7, 8, 9)) == 1200
    assert prefixes.add(prompt(600, 8, 9)) == 600
