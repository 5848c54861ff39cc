"""What a replay's memory was like: the moment of most live memory, all steps in brief, and now."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from vmkv.cache import Cache
from vmkv.geometry import Geometry
from vmkv.sequence import Sequence
from vmkv.span import Span
from vmkv.stats import Stats

# As many samples as a picture has room for; twice as many are kept before they are thinned out.
_SAMPLES = 512


class Holding(NamedTuple):
    """An agent after a step: the index of its request, its sequence, and how long that was before
    the step, is now and will get."""

    request: int
    sequence: Sequence
    older_tokens: int
    tokens: int
    total_tokens: int


@dataclass(frozen=True)
class Share:
    """What one agent has of the memory: live_bytes of mapped_bytes exist, the rest is the unused
    part of its last pages. The step before added chunk_tokens of its tokens."""

    request: int
    tokens: int
    chunk_tokens: int
    live_bytes: int
    mapped_bytes: int


@dataclass(frozen=True)
class Moment:
    """The memory after a step, and the agents' shares of it in order of admission."""

    step: int
    stats: Stats
    shares: tuple[Share, ...]


class Sample(NamedTuple):
    """The memory after a step, in bytes. passing_bytes belong to nobody but aren't free yet."""

    step: int
    live_bytes: int
    mapped_bytes: int
    warm_bytes: int
    passing_bytes: int


def passing_bytes(stats: Stats) -> int:
    """What is between two owners: waits for the queue, is unmapped, is zeroed."""
    return stats.retiring_bytes + stats.unmapping_bytes + stats.zeroing_bytes + stats.held_bytes


def live_bytes(geometry: Geometry, holding: Holding) -> int:
    """Bytes of an agent's sequence that exist, as the library counts them: a window reaches back
    from where the last step began."""
    total = 0
    for group in geometry.groups:
        tokens = 1 if group.policy == "state" else holding.tokens
        if group.policy == "window":
            tokens -= max(holding.older_tokens - group.window_tokens - group.slack_tokens, 0)
        total += group.token_bytes * tokens
    return total


class Recorder:
    """Looks at a replay: pass it to replay(). It costs little: without window groups live memory
    only grows until a sequence closes, so the agents' shares can wait until one is about to.

    Attributes:
        cache: whose memory it is.
        steps: how many there were.
        stats: after the last step; None before the first.
        holdings: after the last step.
        stride: steps that a sample stands for: it is the one of them with the most live memory.
    """

    def __init__(self, cache: Cache) -> None:
        info = cache.info
        self.cache = cache
        self.steps = 0
        self.stats: Stats | None = None
        self.holdings: tuple[Holding, ...] = ()
        self.stride = 1
        self._samples: list[Sample] = []
        self._page_bytes = info.page_bytes
        self._align_tokens = info.read_align_tokens
        self._windows = any(group.policy == "window" for group in cache.geometry.groups)
        self._peak_bytes = -1
        self._peak: Moment | None = None
        # The peak so far, if its shares aren't read yet.
        self._pending: tuple[int, Stats, tuple[Holding, ...]] | None = None

    def add_step(self, stats: Stats, holdings: Iterable[Holding], steps: int = 1) -> None:
        """A step has succeeded: the cache's state, and all that is open. It stands for so many
        steps, all alike, of which it is the last."""
        first, self.steps = self.steps + 1, self.steps + steps
        self.stats, self.holdings = stats, tuple(holdings)
        if stats.live_bytes > self._peak_bytes:
            self._peak_bytes = stats.live_bytes
            self._pending = self.steps, stats, self.holdings
            if self._windows:
                self.before_close()
        sizes = stats.live_bytes, stats.mapped_bytes, stats.warm_bytes, passing_bytes(stats)
        while first <= self.steps:
            self._add_sample(Sample(first, *sizes))
            first += self.stride - (first - 1) % self.stride

    def before_close(self) -> None:
        """A sequence is about to be closed."""
        if self._pending:
            step, stats, holdings = self._pending
            self._pending = None
            self._peak = Moment(step, stats, tuple(map(self._share, holdings)))

    @property
    def peak(self) -> Moment | None:
        """The first step after which the most memory was live; known for sure when all sequences
        are closed. None before the first is."""
        return self._peak

    @property
    def samples(self) -> list[Sample]:
        """All steps in brief, in their order."""
        return list(self._samples)

    def _add_sample(self, sample: Sample) -> None:
        samples = self._samples
        if samples and (sample.step - 1) % self.stride:
            if sample.live_bytes > samples[-1].live_bytes:
                samples[-1] = sample
            return
        samples.append(sample)
        if len(samples) == 2 * _SAMPLES:
            self._thin_out()

    def _thin_out(self) -> None:
        pairs = zip(self._samples[::2], self._samples[1::2], strict=True)
        self._samples = [max(pair, key=lambda sample: sample.live_bytes) for pair in pairs]
        self.stride *= 2

    def _share(self, holding: Holding) -> Share:
        tokens, geometry = holding.tokens, self.cache.geometry
        mapped = sum(map(self._mapped_bytes, self._spans(holding.sequence)))
        live = live_bytes(geometry, holding)
        return Share(holding.request, tokens, tokens - holding.older_tokens, live, mapped)

    def _spans(self, sequence: Sequence) -> Iterator[Span]:
        """Those that have mappings of their own."""
        for number, group in enumerate(self.cache.geometry.groups):
            if group.policy == "state" or self.cache.layout == "token":
                yield sequence.span(0, 0, number)
                continue
            for layer in range(len(group.layers)):
                for tensor in range(len(group.tensors)):
                    yield sequence.span(layer, tensor, number)

    def _mapped_bytes(self, span: Span) -> int:
        """Without mappings that are still warm behind an open sequence: they begin past its last
        page."""
        mappings = span.sequence.mappings(span.layer, span.tensor, span.group)
        if not span.token_stride:
            return sum(mapping.bytes for mapping in mappings)
        align, page = self._align_tokens, self._page_bytes
        used_bytes = -(-span.live_tokens // align) * align * span.token_stride
        end = span.address + -(-used_bytes // page) * page
        return sum(mapping.bytes for mapping in mappings if mapping.address < end)
