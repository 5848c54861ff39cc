"""How many agents a memory admits: three ways to keep their KV caches, in pure arithmetic.

All of the memory counted here is physical. A contiguous scheme reserves it when an agent starts,
for the longest that the agent may get; a paged pool and vmkv take it as the agent grows. Only
`Scheme.address_bytes` is virtual.

Contiguous and paged are modelled, at their best: nothing is lost to an allocator, to padding of
rows, or to tables, and in sliding-window layers they keep no more than the window. What is counted
for vmkv is what the library maps: to the byte, and at most in sliding windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from vmkv.errors import InvalidError, SizeError
from vmkv.geometry import Geometry, Group, Tensor
from vmkv.sizes import MAX_BYTES, count, human, human_decimal

BLOCK_TOKENS = 16  # vLLM's default block size, --block-size
CARD_GIB = (8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 80, 96)

# Limits and defaults of the library: native/include/vmkv.h and native/src/layout.c.
_PAGE_MIN_BYTES, _PAGE_MAX_BYTES = 4 << 10, 2 << 20
_WINDOW_MAPPING_BYTES = 256 << 10
_SPAN_ALIGN_BYTES = 2 << 20
_STATE_ALIGN_BYTES = 256
_SPAN_PAGES_MAX = 2**31 - 1
_ROW_MAX_BYTES = 2**40
_TOKENS_MAX = 2**32 - 2
_LAYOUTS = ("layer", "token")


def _up(number: int, multiple: int) -> int:
    """Whole multiples, rounded up: how many."""
    return -(-number // multiple)


@dataclass(frozen=True)
class Demand:
    """Who comes.

    Attributes:
        agents: how many are there at the same time.
        context_tokens: how long one may get; what a contiguous scheme reserves.
        average_tokens: how long they are on average.
        second_cap_tokens: what a second contiguous scheme reserves; None: half of context_tokens.
        chunk_tokens: by how much one grows in a step at most. It matters to sliding windows only: a
            step holds the window and what it adds. 1 is an agent that decodes.

    Raises:
        InvalidError: numbers that contradict each other, or are below 1.
    """

    agents: int = 8
    context_tokens: int = 16000
    average_tokens: int = 3000
    second_cap_tokens: int | None = None
    chunk_tokens: int = 1

    def __post_init__(self) -> None:
        for name, value in asdict(self).items():
            if value is not None and value < 1:
                raise InvalidError(f"{_words(name)} is at least 1, not {value}")
        if self.context_tokens > _TOKENS_MAX:
            raise SizeError(f"context is {self.context_tokens}: it is at most {_TOKENS_MAX}")
        for name in ("average_tokens", "second_cap_tokens"):
            value = getattr(self, name)
            if value is not None and value > self.context_tokens:
                raise InvalidError(
                    f"{_words(name)} of {count(value, 'token')} is more than the context of "
                    f"{self.context_tokens:,}"
                )

    @property
    def caps(self) -> tuple[int, int]:
        """What the two contiguous schemes reserve, in tokens."""
        return self.context_tokens, self.second_cap_tokens or max(self.context_tokens // 2, 1)


def _words(name: str) -> str:
    return name.removesuffix("_tokens").replace("_", " ")


@dataclass(frozen=True)
class Options:
    """How vmkv is set up: as the arguments of `vmkv.Cache` of these names.

    Raises:
        InvalidError: an option outside its range.
    """

    page_bytes: int = 64 << 10
    layout: str = "layer"
    read_align_tokens: int = 1

    def __post_init__(self) -> None:
        page = self.page_bytes
        if not _PAGE_MIN_BYTES <= page <= _PAGE_MAX_BYTES or page & (page - 1):
            raise InvalidError(
                f"page is a power of two from 4 KiB to 2 MiB, not {count(page, 'byte')}"
            )
        if self.layout not in _LAYOUTS:
            raise InvalidError(f"unknown layout {self.layout!r}: it is 'layer' or 'token'")
        if not 1 <= self.read_align_tokens <= _TOKENS_MAX:
            raise InvalidError(
                f"read align is 1 to {_TOKENS_MAX} tokens, not {self.read_align_tokens}"
            )


def opaque(bytes_per_token: int) -> Geometry:
    """A model of which no more is known than what a token takes: one tensor, in one span.

    Raises:
        InvalidError: 0 bytes.
    """
    if bytes_per_token < 1:
        raise InvalidError("a token is at least 1 byte, not 0")
    return Geometry(
        (Group("full", (0,), (Tensor("kv", dtype="none", row_bytes=bytes_per_token),)),)
    )


# ---- what an agent takes


def _kept(group: Group, tokens: int, chunk_tokens: int) -> int:
    """Tokens of a sequence that a group keeps while a step adds the last of them. In a window that
    is the window without the newest token, and what the step adds: vLLM's
    `SlidingWindowSpec.max_memory_usage_bytes` (vllm/v1/kv_cache_interface.py); llama.cpp keeps one
    more (size_swa in src/llama-kv-cache-iswa.cpp)."""
    if group.policy == "window":
        return min(tokens, group.window_tokens + group.slack_tokens - 1 + chunk_tokens)
    return tokens


def _sum(geometry: Geometry, tokens: Callable[[Group], int]) -> int:
    """Bytes of so many tokens of each group, and of the states."""
    return sum(
        group.token_bytes * (1 if group.policy == "state" else tokens(group))
        for group in geometry.groups
    )


def live_bytes(geometry: Geometry, tokens: int) -> int:
    """Bytes of a sequence that exist, which is what any scheme has to hold: tokens x bytes of a
    token in full groups, min(tokens, window + slack) x bytes in windows, and the states.

    >>> live_bytes(Geometry.preset("qwen3-8b"), 3000)
    442368000
    """
    return _sum(geometry, lambda group: _kept(group, tokens, 1))


def contiguous_bytes(geometry: Geometry, cap_tokens: int, chunk_tokens: int = 1) -> int:
    """Physical bytes of a contiguous reservation for cap_tokens tokens. This is what engines did
    before paging: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
    PagedAttention" (SOSP 2023), section 3.1.

    >>> contiguous_bytes(Geometry.preset("qwen3-8b"), 16000)
    2359296000
    """
    return _sum(geometry, lambda group: _kept(group, cap_tokens, chunk_tokens))


def paged_bytes(geometry: Geometry, tokens: int, chunk_tokens: int = 1) -> int:
    """Physical bytes of a sequence in blocks of 16 tokens, of which the last is partly empty: Kwon
    et al., section 4.2. A window can begin and end within a block, so it takes one more: vLLM's
    `SlidingWindowSpec.max_memory_usage_bytes`.

    >>> paged_bytes(Geometry.preset("qwen3-8b"), 3000) == 188 * 16 * 147456
    True
    """

    def blocks(group: Group) -> int:
        all_of_it = _up(tokens, BLOCK_TOKENS)
        if group.policy != "window":
            return all_of_it
        return min(all_of_it, _up(_kept(group, tokens, chunk_tokens), BLOCK_TOKENS) + 1)

    return _sum(geometry, lambda group: BLOCK_TOKENS * blocks(group))


@dataclass(frozen=True)
class _Spans:
    """Spans of a sequence that are alike: `struct vmkv_region` of native/src/layout.h.

    Attributes:
        count: how many.
        token_bytes: from one token to the next; 0 for a state.
        fixed_bytes: a state's; else 0.
        window_tokens: window and slack; 0: every token stays.
    """

    count: int
    token_bytes: int
    fixed_bytes: int = 0
    window_tokens: int = 0

    def bytes_of(self, tokens: int) -> int:
        return self.fixed_bytes or tokens * self.token_bytes

    def pages(self, tokens: int, chunk_tokens: int, options: Options) -> int:
        """`vmkv_layout_need_pages` of native/src/layout.c, for one span."""
        align, page = options.read_align_tokens, options.page_bytes
        pages = _up(self.bytes_of(_up(tokens, align) * align), page)
        if self.window_tokens:
            kept = self.window_tokens + 3 * min(chunk_tokens, tokens) + align
            mapping_pages = max(_WINDOW_MAPPING_BYTES // page, 1)
            pages = min(pages, kept * self.token_bytes // page + 1 + mapping_pages)
        return pages


def _spans(geometry: Geometry, layout: str) -> Iterator[_Spans]:
    """The spans of a sequence: a layer's tensor, or a group, or a state (group_lay of
    native/src/layout.c)."""
    for group in geometry.groups:
        count, rows = len(group.layers), [tensor.row_bytes for tensor in group.tensors]
        if max(rows) > _ROW_MAX_BYTES:
            raise SizeError(f"a row of {human(max(rows))} is more than 1 TiB")
        if group.policy == "state":
            aligned = sum(_up(row, _STATE_ALIGN_BYTES) * _STATE_ALIGN_BYTES for row in rows)
            yield _Spans(1, 0, fixed_bytes=count * aligned)
            continue
        kept = group.window_tokens + group.slack_tokens
        if layout == "token":
            yield _Spans(1, count * sum(rows), window_tokens=kept)
        else:
            yield from (_Spans(count, row, window_tokens=kept) for row in rows)


def span_count(geometry: Geometry, layout: str) -> int:
    """Spans of a sequence: each has its own pages, and so its own partly filled last one."""
    return sum(spans.count for spans in _spans(geometry, layout))


def need_bytes(geometry: Geometry, options: Options, tokens: int, chunk_tokens: int = 1) -> int:
    """Physical bytes that a sequence of vmkv needs at most on its way to so many tokens: what
    `Cache.need_bytes` says. Without windows, which are given back in whole mappings, it is exactly
    what is mapped: every span's bytes, rounded up to pages.

    >>> need_bytes(Geometry.preset("qwen3-8b"), Options(), 3000) == 72 * 94 * 65536
    True

    Raises:
        SizeError: a row of more than 1 TiB.
    """
    return options.page_bytes * sum(
        spans.count * spans.pages(tokens, chunk_tokens, options)
        for spans in _spans(geometry, options.layout)
    )


def address_bytes(geometry: Geometry, options: Options, context_tokens: int, slots: int) -> int:
    """Addresses that vmkv reserves for so many slots: every span as long as the longest sequence,
    in multiples of 2 MiB. Virtual: no memory.

    Raises:
        SizeError: a span of more than 2^31 - 1 pages, or more addresses than 64 bits hold.
    """
    align = options.read_align_tokens
    longest = _up(context_tokens, align) * align
    total = 0
    for spans in _spans(geometry, options.layout):
        size = spans.bytes_of(longest)
        if size > _SPAN_PAGES_MAX * options.page_bytes:
            raise SizeError(
                f"a span of {human(size)} is more than 2^31 - 1 pages: lower the context or raise "
                f"the page"
            )
        total += spans.count * _up(size, _SPAN_ALIGN_BYTES) * _SPAN_ALIGN_BYTES
    if slots * total > MAX_BYTES:
        raise SizeError(
            f"addresses for {slots:,} slots of {count(context_tokens, 'token')} are more than "
            f"64 bits hold"
        )
    return slots * total


# ---- the plan


@dataclass(frozen=True)
class Scheme:
    """What one way to keep KV caches makes of a budget.

    Attributes:
        scheme: "contiguous", "paged" or "vmkv".
        tokens: what a contiguous scheme reserves for an agent; None for the others.
        agent_bytes: physical memory of one agent.
        reserved_bytes: physical memory of all agents that were asked for, whether it fits or not.
        address_bytes: addresses for them, of which vmkv has more than memory.
        wasted_bytes: what of reserved_bytes holds no token and no state.
        long_enough: whether the average agent is no longer than `tokens`.
        fits: whether they fit; never if it isn't long enough.
        admitted: how many agents fit, of any number; 0 if it isn't long enough.
    """

    scheme: str
    tokens: int | None
    agent_bytes: int
    reserved_bytes: int
    address_bytes: int
    wasted_bytes: int
    long_enough: bool
    fits: bool
    admitted: int

    @property
    def name(self) -> str:
        """What people call it: "reserve 16k" for a contiguous scheme of 16,000 tokens."""
        return self.scheme if self.tokens is None else f"reserve {short_tokens(self.tokens)}"

    @property
    def wasted_fraction(self) -> float:
        """The part of reserved_bytes that is wasted."""
        return self.wasted_bytes / self.reserved_bytes

    @property
    def wasted_percent(self) -> str:
        """The same for people: whole percents, or tenths below ten; half rounds up.

        >>> Scheme("contiguous", 8000, 8000, 8000, 8000, 5000, True, True, 1).wasted_percent
        '63%'
        """
        wasted, reserved = self.wasted_bytes, self.reserved_bytes
        if not wasted:
            return "0%"
        tenths = (2000 * wasted + reserved) // (2 * reserved)
        if tenths >= 100:
            return f"{(200 * wasted + reserved) // (2 * reserved)}%"
        return f"{tenths // 10}.{tenths % 10}%" if tenths else "<0.1%"


def short_tokens(tokens: int) -> str:
    """A number of tokens: thousands as k where it has nothing else.

    >>> short_tokens(16000), short_tokens(16384)
    ('16k', '16,384')
    """
    return f"{tokens:,}" if tokens % 1000 else f"{tokens // 1000:,}k"


@dataclass(frozen=True)
class Plan:
    """What each scheme makes of a budget.

    Attributes:
        bytes_per_token: by which an agent grows with each token.
        fixed_bytes: that a long agent holds however long it is: full windows, and states.
        live_bytes: that exist of all agents that were asked for, at their average length.
        budget_bytes: physical memory for KV caches.
        budget_tokens: tokens that it holds, states and windows aside; 0 if agents don't grow.
        demand, options: what was asked for.
        schemes: contiguous at two caps, paged, vmkv.
    """

    bytes_per_token: int
    fixed_bytes: int
    live_bytes: int
    budget_bytes: int
    budget_tokens: int
    demand: Demand
    options: Options
    schemes: tuple[Scheme, ...]

    @property
    def agent_live_bytes(self) -> int:
        """Those of one agent, which is what any scheme needs for it."""
        return self.live_bytes // self.demand.agents

    @property
    def holds_an_agent(self) -> bool:
        """Whether one could have one agent in the budget, if nothing were wasted."""
        return self.budget_bytes >= self.agent_live_bytes

    @property
    def per_token(self) -> str:
        """What an agent consists of, in words. What is fixed comes bit by bit where it is windows,
        and an average agent may have less of it."""
        text = f"{count(self.bytes_per_token, 'byte')} a token"
        if not self.fixed_bytes:
            return text
        full = self.bytes_per_token * self.demand.average_tokens + self.fixed_bytes
        rest = "" if self.agent_live_bytes >= full else " once its windows are full"
        return f"{text} and {human_decimal(self.fixed_bytes)} fixed{rest}"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        schemes = [
            asdict(scheme) | {"wasted_fraction": scheme.wasted_fraction} for scheme in self.schemes
        ]
        asked: dict[str, Any] = {
            **asdict(self.demand),
            "second_cap_tokens": self.demand.caps[1],
            **asdict(self.options),
            "block_tokens": BLOCK_TOKENS,
        }
        own = {key: value for key, value in asdict(self).items() if isinstance(value, int)}
        return own | asked | {"schemes": schemes}


@dataclass(frozen=True)
class Card:
    """What a card admits.

    Attributes:
        card_bytes: its memory.
        budget_bytes: what the model's weights leave of it.
        schemes: as those of a plan.
    """

    card_bytes: int
    budget_bytes: int
    schemes: tuple[Scheme, ...]

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        admitted = [
            {"scheme": scheme.scheme, "tokens": scheme.tokens, "admitted": scheme.admitted}
            for scheme in self.schemes
        ]
        return asdict(self) | {"schemes": admitted}


def make_plan(geometry: Geometry, budget_bytes: int, demand: Demand, options: Options) -> Plan:
    """What each scheme makes of a budget.

    >>> plan = make_plan(opaque(140_000), 10**10, Demand(), Options(layout="token"))
    >>> [(scheme.name, scheme.admitted, scheme.wasted_percent) for scheme in plan.schemes[:3]]
    [('reserve 16k', 4, '81%'), ('reserve 8k', 8, '63%'), ('paged', 23, '0.3%')]

    Raises:
        SizeError: sizes that 64 bits, or the library's limits, don't hold.
    """
    per_token = geometry.bytes_per_token
    return Plan(
        bytes_per_token=per_token,
        fixed_bytes=geometry.fixed_bytes,
        live_bytes=demand.agents * live_bytes(geometry, demand.average_tokens),
        budget_bytes=budget_bytes,
        budget_tokens=budget_bytes // per_token if per_token else 0,
        demand=demand,
        options=options,
        schemes=_schemes(geometry, budget_bytes, demand, options),
    )


def make_cards(
    geometry: Geometry, weights_bytes: int, demand: Demand, options: Options
) -> tuple[Card, ...]:
    """What cards of 8 to 96 GiB admit besides a model's weights. What a driver or an engine takes
    for itself is not subtracted.

    Raises:
        SizeError: as `make_plan`.
    """
    cards = []
    for gib in CARD_GIB:
        budget = max((gib << 30) - weights_bytes, 0)
        cards.append(Card(gib << 30, budget, _schemes(geometry, budget, demand, options)))
    return tuple(cards)


def _schemes(
    geometry: Geometry, budget_bytes: int, demand: Demand, options: Options
) -> tuple[Scheme, ...]:
    average, chunk, agents = demand.average_tokens, demand.chunk_tokens, demand.agents

    def scheme(name: str, agent: int, tokens: int | None = None, addresses: int = 0) -> Scheme:
        long_enough = tokens is None or tokens >= average
        reserved = agents * agent
        if reserved > MAX_BYTES:
            raise SizeError(
                f"{human(agent)} for each of {count(agents, 'agent')} is more than 64 bits hold"
            )
        live = live_bytes(geometry, average if tokens is None else min(average, tokens))
        return Scheme(
            scheme=name,
            tokens=tokens,
            agent_bytes=agent,
            reserved_bytes=reserved,
            address_bytes=addresses or reserved,
            wasted_bytes=reserved - agents * live,
            long_enough=long_enough,
            fits=long_enough and reserved <= budget_bytes,
            admitted=budget_bytes // agent if long_enough else 0,
        )

    schemes = [
        scheme("contiguous", contiguous_bytes(geometry, cap, chunk), cap) for cap in demand.caps
    ]
    schemes.append(scheme("paged", paged_bytes(geometry, average, chunk)))
    # The library has two slots for each sequence unless told otherwise.
    addresses = address_bytes(geometry, options, demand.context_tokens, 2 * agents)
    own = need_bytes(geometry, options, average, chunk)
    schemes.append(scheme("vmkv", own, addresses=addresses))
    return tuple(schemes)
