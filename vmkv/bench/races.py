"""Growth through vmkv against the bare driver calls of the same plan."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from vmkv import errors
from vmkv._names import DeviceName
from vmkv.bench.figures import PROMPT_TOKENS, Figure
from vmkv.bench.floors import Amdgpu, Floor, Round, floor_for
from vmkv.bench.ioctls import Counter, Counts
from vmkv.bench.places import serving_cache
from vmkv.device import Device, open_device
from vmkv.loads import Array, Load, Plan, in_turn, plan_of, together

# What an ioctl takes on an emulated card while growth is measured, unless its name says otherwise.
IOCTL_US = 5


@dataclass(frozen=True)
class Race:
    """The same growth through vmkv_step and as bare calls, by turns: the time of each step of each
    round, in ns."""

    plan: Plan
    page_bytes: int
    ours: npt.NDArray[np.uint64]  # a row for each round
    floor: npt.NDArray[np.uint64]
    cpu_ns: npt.NDArray[np.float64]  # of the rounds, ours in a row and the floor's in one
    ioctls: Counts  # of a round of ours
    floor_ioctls: Counts

    @property
    def pages(self) -> int:
        return int(self.plan.pieces["bytes"].sum()) // self.page_bytes

    def best(self, first: int = 0, last: int | None = None) -> float:
        """Ours to the floor over the steps [first, last), each step's shortest of all rounds: it
        does the same work each time, and what else the machine does only adds to it."""
        ours, floor = (side.min(axis=0)[first:last].sum() for side in (self.ours, self.floor))
        return float(ours / floor)

    def ratios(self, first: int = 0, last: int | None = None) -> npt.NDArray[np.float64]:
        """Ours to the floor over the steps [first, last), of each round."""
        ours, floor = (side[:, first:last].sum(axis=1) for side in (self.ours, self.floor))
        return np.asarray(ours / floor)

    def share_ns(self) -> float:
        """What the manager adds to a page: the median over rounds."""
        more = self.ours.sum(axis=1).astype(float) - self.floor.sum(axis=1)
        return float(np.median(more)) / self.pages

    def cpu_share_ns(self) -> float:
        """The same in CPU time."""
        return float(np.median(self.cpu_ns[0] - self.cpu_ns[1])) / self.pages


def race(device: Device, floor: Floor, agents: int, script: Array, pairs: int) -> Race:
    """Run a script through vmkv_step and the calls of its plan bare, by turns."""
    most = int(script["tokens"].max())
    with serving_cache(device, agents, max_tokens=most) as recorded:
        load = Load(recorded, agents)
        plan = plan_of(load, load.record(script, max_pieces=1 << 16), len(script))
        page_bytes = recorded.info.page_bytes
        if len(plan.pieces) != recorded.stats().map_calls:
            raise errors.Error("the recorded pieces are not the driver calls that were made")
    sides = (_managed(device, agents, script), floor)
    rounds: tuple[list[Round], list[Round]] = ([], [])
    for pair in range(pairs):
        # By turns who begins: the first may find the machine in another state.
        for side in (1, 0) if pair % 2 else (0, 1):
            rounds[side].append(sides[side](plan))
    managed, bare = rounds
    for name in ("GEM_VA", "GEM_VA map", "CS"):
        if managed[-1].ioctls.get(name) != bare[-1].ioctls.get(name):
            raise errors.Error(f"the bare calls are not as many {name} as vmkv makes")
    return Race(
        plan,
        page_bytes,
        ours=np.array([one.ns for one in managed]),
        floor=np.array([one.ns for one in bare]),
        cpu_ns=np.array([[one.cpu_ns for one in side] for side in rounds]),
        ioctls=managed[-1].ioctls,
        floor_ioctls=bare[-1].ioctls,
    )


def _managed(device: Device, agents: int, script: Array) -> Floor:
    """What runs the script through vmkv_step, in a cache of its own each time."""
    counter = Counter(device)

    def run(plan: Plan) -> Round:
        with serving_cache(device, agents, max_tokens=int(script["tokens"].max())) as cache:
            load = Load(cache, agents)
            with counter.during() as ioctls:
                begin = time.thread_time_ns()
                times = load.run(script)
                cpu_ns = time.thread_time_ns() - begin
            if cache.stats().map_calls != len(plan.pieces):
                raise errors.Error("the same growth did not make the same driver calls")
            return Round(times, cpu_ns, ioctls)

    return run


def growth(
    device: Device,
    plans: dict[str, Counts] | None = None,
    agents: int = 8,
    tokens: int = PROMPT_TOKENS,
    decoded: int = 512,
    many: int = 64,
    pairs: int | None = None,
) -> list[Figure]:
    """Prefill in one step each, then decode together. Adds the ioctls to `plans`, if they can be
    counted."""
    floor = floor_for(device)
    if floor is None:
        text = "there is no floor for this kind of device and its options yet"
        return [Figure("growth_ratio", None, text, 1.10)]
    script = np.concatenate(
        [in_turn(agents, [tokens]), together(agents, range(tokens + 1, tokens + decoded + 1))]
    )
    what = f"{agents} prefills of {tokens:,} tokens, {decoded} decoded by all"
    if isinstance(floor, Amdgpu):
        return _on_card(device, {} if plans is None else plans, agents, script, pairs or 25, what)
    pairs = pairs or 81
    mixed = race(device, floor, agents, script, pairs)
    first = race(device, floor, many, together(many, [1]), max(pairs // 4, 1))
    text = f"time of growing to that of the bare driver calls: {what}"
    return [
        Figure("growth_ratio", mixed.best(), text, 1.10),
        Figure("growth_ratio_prefill", mixed.best(last=agents), "the same, prefills alone"),
        Figure("growth_ratio_decode", mixed.best(first=agents), "the same, decoding alone"),
        Figure("growth_ratio_first", first.best(), f"the same, first token of {many} in one step"),
        *_sizes(mixed, np.min, "shortest times"),
    ]


def _sizes(mixed: Race, pick: Callable[..., Any], of: str) -> list[Figure]:
    pieces = len(mixed.plan.pieces)
    ours, floor = (float(pick(side, axis=0).sum()) for side in (mixed.ours, mixed.floor))
    return [
        Figure("growth_pieces", pieces, "pieces mapped by that growth (without the last) ..."),
        Figure("growth_slabs", mixed.plan.slabs, "... out of so many slabs"),
        Figure("growth_ns_per_piece", ours / pieces, f"ns a piece with vmkv ({of}) ..."),
        Figure("growth_floor_ns_per_piece", floor / pieces, "... and bare"),
    ]


# ---- amdgpu ----------------------------------------------------------------------------------


@contextmanager
def _slow(device: Device) -> Iterator[Device]:
    """The device, or where it is an emulated card without one, the same with a latency model."""
    name = DeviceName.parse(device.name)
    if name.kind != "emulated" or name.option("ioctl_us") is not None:
        yield device
        return
    with open_device(str(name.with_option("ioctl_us", str(IOCTL_US)))) as slow:
        yield slow


def _on_card(
    device: Device,
    plans: dict[str, Counts],
    agents: int,
    script: Array,
    pairs: int,
    what: str,
) -> list[Figure]:
    with _slow(device) as slow:
        mixed = race(slow, Amdgpu(slow), agents, script, pairs)
        name = slow.name
    if mixed.ioctls:
        plans.update(growth=mixed.ioctls, growth_floor=mixed.floor_ioctls)
    ratios = mixed.ratios()
    text = f"time of growing to that of the bare libdrm calls on {name}: {what}, median of {pairs}"
    figures = [
        Figure("growth_ratio", float(np.median(ratios)), text, 1.15),
        Figure("growth_ratio_quarter", float(np.quantile(ratios, 0.25)), "lower quartile"),
        Figure("growth_ratio_three_quarters", float(np.quantile(ratios, 0.75)), "upper quartile"),
        Figure(
            "growth_ratio_prefill",
            float(np.median(mixed.ratios(last=agents))),
            "the same median, prefills alone",
        ),
        Figure(
            "growth_ratio_decode",
            float(np.median(mixed.ratios(first=agents))),
            "the same median, decoding alone",
        ),
        Figure(
            "growth_ratio_cpu",
            float(np.median(mixed.cpu_ns[0] / mixed.cpu_ns[1])),
            "the same median of the thread's CPU time, which other programs don't disturb",
        ),
        *_shares(mixed, ""),
        Figure("growth_pages", mixed.pages, "pages mapped by that growth ..."),
        *_sizes(mixed, np.median, "medians"),
    ]
    if name == device.name:
        return figures
    quick = race(device, Amdgpu(device), agents, script, pairs)
    return [
        *figures,
        Figure(
            "growth_ratio_no_latency",
            float(np.median(quick.ratios())),
            "the same ratio with ioctls that take only what the emulator takes",
        ),
        *_shares(quick, "_no_latency"),
    ]


def _shares(race: Race, suffix: str) -> list[Figure]:
    text = "the manager's own ns a page, then (median of all less the bare calls)"
    return [
        Figure(f"growth_manager_ns_per_page{suffix}", race.share_ns(), text),
        Figure(f"growth_manager_cpu_ns_per_page{suffix}", race.cpu_share_ns(), "in CPU time"),
    ]
