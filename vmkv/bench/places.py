"""Where memory lies after prefill and decoding, and what keeping the books of it costs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from vmkv import errors
from vmkv.bench.figures import BUDGET, CHUNK_TOKENS, MODEL, PROMPT_TOKENS, Figure
from vmkv.cache import Cache
from vmkv.device import Device
from vmkv.geometry import Geometry, Group, Tensor
from vmkv.loads import Load, chunks, in_turn


def serving_cache(device: Device, agents: int, **options: Any) -> Cache:
    """A cache as an engine would make it, whose memory is never touched."""
    return Cache(
        device,
        Geometry.preset(MODEL),
        **{
            "budget": BUDGET,
            "max_slots": agents,
            "max_tokens": 16_000,
            "zero": False,
            "warm": "off",
            **options,
        },
    )


def prefill(device: Device, agents: int = 8, tokens: int = PROMPT_TOKENS) -> list[Figure]:
    """Whole prompts in one step each."""
    admitted = 0
    with serving_cache(device, agents) as cache:
        load = Load(cache, agents)
        for sequence in load.sequences:
            try:
                cache.step({sequence: tokens})
            except errors.Shortage:
                if admitted == 0:
                    raise
                break
            admitted += 1
        stats = cache.stats()
        layout = load.look()
        page_bytes = cache.info.page_bytes
    with serving_cache(device, agents, layout="token") as cache:
        load = Load(cache, admitted)
        load.run(in_turn(admitted, [tokens]))
        token_layout = load.look()
    pages = stats.mapped_bytes // page_bytes
    what = f"a prefill of {tokens:,} tokens in one step"
    return [
        Figure("mappings_per_span", layout.mappings_max, f"most mappings a span: {what}", 4),
        Figure(
            "token_mappings_per_sequence",
            token_layout.mappings_max,
            f"token layout, most mappings a sequence: {what}",
            16,
        ),
        Figure("prefill_pages", pages // admitted, f"pages: {what}"),
        Figure(
            "agents_admitted",
            admitted,
            f"agents of {tokens:,} tokens admitted in {BUDGET}",
            agents,
            at_least=True,
        ),
        Figure("waste", stats.waste, "share of mapped bytes that is not live, then", 0.01),
        Figure(
            "table_bytes_per_page_64kib",
            stats.table_bytes / pages,
            "bytes of tables a mapped page, then",
            24,
        ),
    ]


def chunked(device: Device, agents: int = 8, tokens: int = PROMPT_TOKENS) -> list[Figure]:
    """Prompts that grow in turn, by chunks."""
    script = in_turn(agents, chunks(tokens, CHUNK_TOKENS))
    layouts = {}
    for name in ("layer", "token"):
        with serving_cache(device, agents, layout=name) as cache:
            load = Load(cache, agents)
            load.run(script)
            layouts[name] = load.look()
    what = f"{agents} agents in turn by {CHUNK_TOKENS} to {tokens:,} tokens"
    layer, token = layouts["layer"], layouts["token"]
    return [
        Figure("chunked_mappings_per_span", layer.mappings_max, f"most mappings a span: {what}", 6),
        Figure("chunked_runs_per_span", layer.runs_max, f"most runs a span: {what}", 4),
        Figure(
            "chunked_token_mappings_per_sequence",
            token.mappings_max,
            f"token layout, most mappings a sequence: {what}",
            24,
        ),
    ]


def decode(device: Device, agents: int, tokens: int, key: str, bar: float | None) -> list[Figure]:
    """Sequences that grow in turn, a token each."""
    with serving_cache(device, agents, max_tokens=tokens) as cache:
        load = Load(cache, agents)
        load.run(in_turn(agents, range(1, tokens + 1)), batch=agents)
        layout = load.look()
        stats = cache.stats()
        pages = layout.bytes // cache.info.page_bytes
    what = f"{agents} agents decoding in turn for {tokens:,} tokens in {BUDGET}"
    return [
        Figure(key, pages / layout.runs, f"mean run of pages: {what}", bar, at_least=True),
        Figure(
            f"table_bytes_per_page_decode_{agents}",
            stats.table_bytes / pages,
            "bytes of tables a mapped page, then",
            24,
        ),
    ]


# ---- scale -----------------------------------------------------------------------------------


def tables(device: Device, pages: int = 1_000_000, agents: int = 8) -> list[Figure]:
    """Bookkeeping for many small pages: mapped one by one, which takes most, and in long pieces."""
    geometry = Geometry.preset(MODEL)
    group = geometry.groups[0]
    spans = len(group.layers) * len(group.tensors)
    page_tokens = 4096 // group.tensors[0].row_bytes
    tokens = -(-pages // (spans * agents)) * page_tokens

    def per_page(lengths: Iterable[int]) -> float:
        with serving_cache(
            device, agents, page="4KiB", max_tokens=tokens, budget=2 * pages * 4096
        ) as cache:
            Load(cache, agents).run(in_turn(agents, lengths))
            stats = cache.stats()
            if stats.mapped_bytes < pages * 4096:
                raise errors.Error("fewer pages were mapped than were meant to be")
            return stats.table_bytes / (stats.mapped_bytes // 4096)

    what = f"bytes of tables a mapped page, {pages:,} pages of 4 KiB mapped"
    single = per_page(range(page_tokens, tokens + 1, page_tokens))
    return [
        Figure("table_bytes_per_page", single, f"{what} one by one", 24),
        Figure("table_bytes_per_page_long", per_page([tokens]), f"{what} in long pieces", 24),
    ]


def scale(
    device: Device, small: int = 10_000, big: int = 1_000_000, agents: int = 64, rounds: int = 40
) -> list[Figure]:
    """A step that maps one page, in a cache that holds few pages and in one that holds many, by
    turns."""
    # One row is one page and there is one span, so that nothing but the manager differs.
    row = Tensor(name="kv", heads=0, head_dim=0, dtype="none", row_bytes=4096)
    geometry = Geometry(groups=(Group(policy="full", layers=(0,), tensors=(row,)),))
    options: dict[str, Any] = {
        "budget": 2 * big * 4096,
        "page": "4KiB",
        "max_slots": agents,
        "zero": False,
        "warm": "off",
        "max_tokens": -(-big // agents) + rounds,
    }
    held = [-(-pages // agents) for pages in (small, big)]
    times: list[list[float]] = [[], []]
    with Cache(device, geometry, **options) as first, Cache(device, geometry, **options) as second:
        loads = [Load(first, agents), Load(second, agents)]
        for load, tokens in zip(loads, held, strict=True):
            load.run(in_turn(agents, [tokens]))
        for grown in range(1, rounds + 1):
            for load, tokens, ns in zip(loads, held, times, strict=True):
                ns.append(float(np.median(load.run(in_turn(agents, [tokens + grown])))))
    few, many = np.array(times)
    return [
        Figure(
            "scale_ratio",
            float(np.median(many / few)),
            f"a step that maps one page: time with {held[1] * agents:,} pages held to that with "
            f"{held[0] * agents:,} (median of {rounds} pairs)",
            1.3,
        ),
        Figure("scale_small_ns", float(np.median(few)), "ns of that step with few ..."),
        Figure("scale_big_ns", float(np.median(many)), "... and with many pages held"),
    ]
