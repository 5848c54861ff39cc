"""Counting the ioctls of an emulated card, and of what an engine does most."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from vmkv import drm, errors
from vmkv._native import ffi, lib
from vmkv.bench.figures import MODEL, PROMPT_TOKENS, Figure
from vmkv.bench.places import serving_cache
from vmkv.device import Device, amdgpu_info
from vmkv.emulator import Emulator
from vmkv.geometry import Geometry
from vmkv.loads import Load, in_turn

Counts = dict[str, int]

_EVERY = 2**32 - 1


class Counter:
    """Counts the ioctls of a device's card by the names of the emulator's trace, and of GEM_VA also
    each operation, as "GEM_VA map".

    `able` is false where nobody counts them: no amdgpu, or a real one.
    """

    def __init__(self, device: Device) -> None:
        info = amdgpu_info(device)
        self._card = lib.vmkv_emulator_of(info.drm_fd) if info else ffi.NULL

    @property
    def able(self) -> bool:
        return bool(self._card)

    @contextmanager
    def during(self) -> Iterator[Counts]:
        """The ioctls of the block, in the dictionary that it gets, once it has ended."""
        counts: Counts = {}
        before = self._counts()
        yield counts
        after = self._counts()
        counts.update({name: n - before[name] for name, n in after.items() if n > before[name]})

    def _counts(self) -> Counts:
        if not self.able:
            return {}
        counts = {name: self._count(name, _EVERY) for name in Emulator.ioctls()}
        for operation, number in drm.OPERATIONS.items():
            counts[f"GEM_VA {operation}"] = self._count("GEM_VA", number)
        return counts

    def _count(self, name: str, operation: int) -> int:
        ret = ffi.new("uint64_t *")
        code = lib.vmkv_emulator_count(self._card, name.encode(), operation, ret)
        if code:
            errors.fail(code, f"the emulated card doesn't count {name}")
        return int(ret[0])


def total(counts: Counts) -> int:
    """All ioctls: GEM_VA's operations are counted in GEM_VA too."""
    return sum(n for name, n in counts.items() if not name.startswith("GEM_VA "))


def serve(device: Device, tokens: int = PROMPT_TOKENS) -> dict[str, Counts]:
    """The ioctls of a sequence's life, by what it does: its prompt in one step, tokens for which
    there is memory, one for which there isn't, and its end. Empty where they can't be counted."""
    counter = Counter(device)
    if not counter.able:
        return {}
    with serving_cache(device, 1, max_tokens=2 * tokens) as cache:
        load = Load(cache, 1)
        page_tokens = cache.info.page_bytes // Geometry.preset(MODEL).groups[0].tensors[0].row_bytes
        full = -(-tokens // page_tokens) * page_tokens
        with counter.during() as prefill:
            load.run(in_turn(1, [tokens]))
        with counter.during() as decode:
            load.run(in_turn(1, range(tokens + 1, full + 1)))
        with counter.during() as page:
            load.run(in_turn(1, [full + 1]))
        with counter.during() as close:
            load.sequences[0].close()
    return {"prefill": prefill, "decode": decode, "decode_new_page": page, "close": close}


def lives(device: Device, plans: dict[str, Counts], tokens: int = PROMPT_TOKENS) -> list[Figure]:
    """`serve`, as figures. Adds what was counted to `plans`."""
    found = serve(device, tokens)
    plans.update(found)
    if not found:
        text = "no ioctls are counted: it takes an emulated card"
        return [Figure("ioctls", None, text)]
    group = Geometry.preset(MODEL).groups[0]
    spans = len(group.layers) * len(group.tensors)
    prefill, decode, page, close = found.values()
    what = f"a prefill of {tokens:,} tokens in one step"
    return [
        Figure(
            "prefill_gem_va_per_span",
            prefill.get("GEM_VA", 0) / spans,
            f"GEM_VA calls a span, aliases of slabs included: {what}",
            4,
        ),
        Figure("prefill_cs", prefill.get("CS", 0), f"submissions: {what}", 1),
        Figure("decode_ioctls", total(decode), "ioctls of steps with nothing to map", 0),
        Figure("decode_page_cs", page.get("CS", 0), "submissions of a step to a new page", 1),
        Figure(
            "close_clears_per_span",
            close.get("GEM_VA clear", 0) / spans,
            "CLEAR calls a span when a sequence closes",
            1,
        ),
        Figure("close_cs", close.get("CS", 0), "submissions, then", 1),
    ]
