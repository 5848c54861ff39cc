"""Serving requests in rounds, as an engine with continuous batching does: who comes in when, and
how far each one is. What memory they get is left to those who serve: a cache (vmkv.replay), or
arithmetic (vmkv.baselines).

The loop is closed: so many agents at a time, and when one is done the next request takes its place;
times in the trace are ignored. A prompt comes in chunks of CHUNK_TOKENS, then one token a step. All
agents advance together. A session keeps its place and its sequence between its rounds: while it
waits for tools, its sequence stays as it is for a step each WAIT_STEP_MS. While all wait, only the
last of those steps is taken; the ones before it, which would be just the same, are counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from vmkv.traces import Request

CHUNK_TOKENS = 512
WAIT_STEP_MS = 20  # about what a decode step takes


@dataclass(kw_only=True)
class Counts:
    """What came of the requests. A session is one request."""

    requests: int = 0  # completed
    rounds: int = 0  # of them
    cuts: int = 0  # how often a session's context was cut and began anew, shorter
    skipped: int = 0  # could never fit
    shortages: int = 0  # delayed at least once because memory did not fit
    admitted_peak: int = 0
    idle_steps: int = 0  # passed over, as all waited for tools; counted as steps, too


class Progress:
    """How far a request is."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tokens = 0  # its sequence's length
        self.cuts = 0
        self._rounds = request.rounds
        self._number = 0  # the round that it is at
        self.wait_steps = 0  # steps that it still waits in
        self._waited = False  # the wait of this round has begun

    @property
    def is_done(self) -> bool:
        return self._number == len(self._rounds)

    @property
    def next_tokens(self) -> int:
        """Its sequence's length after the next step."""
        if self.wait_steps:
            return self.tokens
        prompt = self._rounds[self._number].prompt_tokens
        if self.tokens < prompt:
            return min(prompt, self.tokens + CHUNK_TOKENS)
        return self.tokens + 1

    def advance(self) -> None:
        """Take a step. If `cuts` has changed then, the next one is on an empty sequence."""
        if self.wait_steps:
            self.wait_steps -= 1
        else:
            self.tokens = self.next_tokens
        while not self.is_done and self._round_is_over():
            self._number += 1
            self._waited = False
            if not self.is_done and self._rounds[self._number].cut:
                self.tokens = 0
                self.cuts += 1

    def _round_is_over(self) -> bool:
        """All tokens are there, and the tools are done; nobody waits after the last round."""
        current = self._rounds[self._number]
        if self.tokens < current.total_tokens:
            return False
        if not self._waited and self._number + 1 < len(self._rounds):
            self.wait_steps = -(-current.wait_ms // WAIT_STEP_MS)
        self._waited = True
        return not self.wait_steps


@dataclass(eq=False)
class Agent:
    """A request that is being served; need_bytes is the memory that admission counted for it."""

    request: Request
    need_bytes: int
    progress: Progress = field(init=False)

    def __post_init__(self) -> None:
        self.progress = Progress(self.request)


A = TypeVar("A", bound=Agent)


class Serving(ABC, Generic[A]):
    """Admission and turns. A request is admitted, in the order of the trace, if there is a place
    and its need and those of all who are there fit the budget; one that never can is skipped."""

    def __init__(
        self, requests: Iterable[Request], agents: int, budget_bytes: int, counts: Counts
    ) -> None:
        self.waiting = iter(requests)
        self.returned: deque[Request] = deque()  # requests that have to begin again, oldest first
        self.active: list[A] = []  # in order of admission
        self.places = agents
        self.budget_bytes = budget_bytes
        self.counts = counts
        self.delayed: set[int] = set()  # indices of requests
        self.crowded = False  # an agent had to give up; nobody comes in before one is done
        self.round = 0  # from 1

    @abstractmethod
    def need_bytes(self, request: Request) -> int | None:
        """Memory for the whole of a request; None if it is too long."""

    @abstractmethod
    def open(self, request: Request, need_bytes: int) -> A | None:
        """Let a request in; None if it has to wait."""

    @abstractmethod
    def serve(self) -> None:
        """Take a step with all who are active, up to but without `advance`."""

    @abstractmethod
    def close(self, agent: A) -> None:
        """One that is active is done, or its sequence is; it stays in `active`."""

    @abstractmethod
    def reopen(self, agent: A) -> None:
        """Give one that was closed an empty sequence, as its context was cut."""

    def admit(self) -> None:
        """Let in whom there is a place and memory for."""
        while len(self.active) < self.places and not (self.crowded and self.active):
            request = self.returned.popleft() if self.returned else next(self.waiting, None)
            if request is None:
                return
            need_bytes = self.need_bytes(request)
            if need_bytes is None or need_bytes > self.budget_bytes:
                self.counts.skipped += 1
                continue
            held_bytes = sum(agent.need_bytes for agent in self.active)
            agent = None
            if held_bytes + need_bytes > self.budget_bytes:
                self.delayed.add(request.index)
            else:
                agent = self.open(request, need_bytes)
            if agent is None:
                self.returned.appendleft(request)
                return
            self.active.append(agent)

    def run_rounds(self) -> None:
        """Serve all requests."""
        self.admit()
        while self.active:
            self._pass_over()
            self.round += 1
            self.serve()
            self.counts.admitted_peak = max(self.counts.admitted_peak, len(self.active))
            for agent in list(self.active):
                self._advance(agent)
            self.end_round()
            self.admit()
        self.counts.shortages = len(self.delayed)

    def _pass_over(self) -> None:
        """While all wait, nothing happens up to the last step before one goes on."""
        steps = min(agent.progress.wait_steps for agent in self.active) - 1
        if steps > 0:
            for agent in self.active:
                agent.progress.wait_steps -= steps
            self.round += steps
            self.counts.idle_steps += steps
            self.pass_over(steps)

    def pass_over(self, steps: int) -> None:
        """So many steps are passed over that are just like the next one, which `serve` takes."""
        return

    def end_round(self) -> None:
        """After all have advanced, before others are admitted."""
        return

    def _advance(self, agent: A) -> None:
        progress, cuts = agent.progress, agent.progress.cuts
        progress.advance()
        if progress.is_done:
            self.close(agent)
            self.active.remove(agent)
            self.counts.requests += 1
            self.counts.rounds += len(agent.request.rounds)
            self.crowded = False
        elif progress.cuts > cuts:
            self.close(agent)
            self.reopen(agent)
            self.counts.cuts += 1
