"""What other ways to keep KV caches make of the requests that a replay serves.

Modelled: no memory is touched. The same requests come in by the same rule and take the same steps,
and what they hold is counted as `vmkv plan` counts it (vmkv.plan), at its best: a contiguous
reservation holds memory for `tokens` tokens from beginning to end, blocks of 16 tokens are taken as
a sequence grows, and what is given back is free at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from functools import lru_cache, partial
from typing import Any

from vmkv.geometry import Geometry
from vmkv.plan import Demand, contiguous_bytes, live_bytes, paged_bytes
from vmkv.serving import CHUNK_TOKENS, Agent, Counts, Serving
from vmkv.traces import Request

_LENGTHS_CACHED = 1 << 20

# Length, tokens that the last step added -> bytes.
HeldBytes = Callable[[int, int], int]


@dataclass(kw_only=True)
class Baseline(Counts):
    """What a scheme made of the requests.

    Attributes:
        scheme: "contiguous" or "paged".
        tokens: what a contiguous scheme reserves for an agent; None for the other.
        bytes_peak: memory held by agents, at most.
        waste_mean: 1 - live / held bytes after each step, on average; None if nobody was served.
    """

    scheme: str
    tokens: int | None
    bytes_peak: int = 0
    waste_mean: float | None = None


@dataclass(frozen=True)
class Baselines:
    """Contiguous at two caps, the longest context and half of it, and paged."""

    contiguous: tuple[Baseline, ...]
    paged: Baseline

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "contiguous": [asdict(each) for each in self.contiguous],
            "paged": asdict(self.paged),
        }


def model_baselines(
    geometry: Geometry,
    requests: Iterable[Request],
    *,
    agents: int,
    budget_bytes: int,
    max_tokens: int,
) -> Baselines:
    """Serve requests in each scheme, so many agents at a time."""
    requests = list(requests)

    def serve(scheme: str, tokens: int | None, held_bytes: HeldBytes) -> Baseline:
        baseline = Baseline(scheme=scheme, tokens=tokens)
        modelled = _Modelled(requests, agents, budget_bytes, baseline)
        modelled.run(tokens or max_tokens, held_bytes, partial(live_bytes, geometry))
        return baseline

    contiguous = []
    for cap in Demand(agents, max_tokens, 1).caps:
        reserved = contiguous_bytes(geometry, cap, CHUNK_TOKENS)
        contiguous.append(serve("contiguous", cap, partial(_reserved_bytes, reserved)))
    return Baselines(tuple(contiguous), serve("paged", None, partial(paged_bytes, geometry)))


def _reserved_bytes(reserved: int, _tokens: int, _added_tokens: int) -> int:
    return reserved


class _Modelled(Serving[Agent]):
    """Serves requests with arithmetic for memory."""

    def __init__(
        self, requests: Iterable[Request], agents: int, budget_bytes: int, baseline: Baseline
    ) -> None:
        super().__init__(requests, agents, budget_bytes, baseline)
        self.baseline = baseline
        self.waste_sum = 0.0
        self.steps = 1  # that the next one stands for, those passed over included

    def run(
        self, longest_tokens: int, held_bytes: HeldBytes, live_bytes: Callable[[int], int]
    ) -> None:
        """held_bytes tells an agent's memory from its length and what the step added to it."""
        self.longest_tokens = longest_tokens
        # Agents pass the same lengths again and again.
        self.held_bytes = lru_cache(_LENGTHS_CACHED)(held_bytes)
        self.live_bytes = lru_cache(_LENGTHS_CACHED)(live_bytes)
        self.run_rounds()
        if self.round:
            self.baseline.waste_mean = self.waste_sum / self.round

    def need_bytes(self, request: Request) -> int | None:
        total = request.total_tokens
        return self.held_bytes(total, CHUNK_TOKENS) if total <= self.longest_tokens else None

    def open(self, request: Request, need_bytes: int) -> Agent:
        return Agent(request, need_bytes)

    def serve(self) -> None:
        held = live = 0
        for agent in self.active:
            tokens = agent.progress.next_tokens
            held += self.held_bytes(tokens, max(tokens - agent.progress.tokens, 1))
            live += self.live_bytes(tokens)
        self.baseline.bytes_peak = max(self.baseline.bytes_peak, held)
        self.waste_sum += self.steps * (1 - live / held)
        self.steps = 1

    def pass_over(self, steps: int) -> None:
        self.steps += steps

    def close(self, agent: Agent) -> None:
        """There is nothing to give back: what is held is counted anew at each step."""

    def reopen(self, agent: Agent) -> None:
        """The agent's length says it all."""
