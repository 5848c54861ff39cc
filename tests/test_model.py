"""Random use of a cache, checked after every operation against plain arrays that say what every row
must hold, and against the rules of the accounting."""

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import vmkv
from reach import Rows, reaching
from support import reached, reuses_addresses, settle
from vmkv import Cache, Device, Geometry, Group, Sequence, Span, Tensor

OPERATIONS = 2500
OPERATIONS_BY_COPIES = 1000  # where each look at a row is a copy of the device's
MAX_TOKENS = 400
PAGE = 4096
BUDGET_PAGES = 400

GEOMETRY = Geometry(
    (
        Group("full", (0, 3), (Tensor("k", 2, 64), Tensor("v", 3, 32, "f32"))),
        Group("window", (1, 4), (Tensor("latent", 2, 96, "q8_0"),), 50, slack_tokens=7),
        Group("state", (2, 5), (Tensor("state", dtype="none", row_bytes=5001),)),
    )
)

Bytes = npt.NDArray[np.uint8]


@dataclass
class Row:
    """What one span must show."""

    span: Span
    policy: str
    content: list[Bytes] = field(default_factory=list)  # a token's row each; a state is one

    def rows(self, first: int | None = None, last: int | None = None) -> Rows:
        return Rows(self.span) if self.policy == "state" else Rows(self.span, first, last)

    def write(self, first: int, last: int, source: np.random.Generator) -> None:
        """New rows are zero; from now on they hold something that is nowhere else."""
        if self.policy == "state":
            if not self.content:
                assert not self.rows().read().any()
            data = source.integers(1, 256, self.span.row_bytes, np.uint8)
            self.rows().write(data)
            self.content = [data]
            return
        rows = self.rows(first, last)
        fresh = rows.read()
        assert not fresh.any()
        data = source.integers(1, 256, (last - first, fresh[:1].nbytes), np.uint8)
        if last > first:
            rows.write(data.view(fresh.dtype).reshape(fresh.shape))
        self.content.extend(data)

    def check(self) -> None:
        """All that is still there is as it was written."""
        if self.policy == "state":
            assert not self.content or (self.rows().read() == self.content[0]).all()
            return
        first = self.span.first_token
        kept = self.content[first:]
        assert self.rows().read().tobytes() == (np.stack(kept).tobytes() if kept else b"")


@dataclass
class Agent:
    """An open sequence and what is known of it."""

    sequence: Sequence
    rows: list[Row]
    tokens: int = 0
    window_floor: int = 0  # the window must reach down to this
    until: int = 0  # greatest busy_until

    @property
    def live_bytes(self) -> int:
        full, window, state = (group.token_bytes for group in GEOMETRY.groups)
        in_window = self.tokens - self.window_floor
        return full * self.tokens + window * in_window + state * (self.tokens > 0)

    def check(self) -> None:
        assert self.sequence.tokens == self.tokens
        for row in self.rows:
            if row.policy == "full":
                assert row.span.first_token == 0
            elif row.policy == "window":
                assert row.span.first_token <= self.window_floor
            row.check()


@dataclass
class Ghost:
    """Rows that were given back while a queue may still read them."""

    until: int
    rows: Rows
    content: bytes

    def check(self) -> None:
        assert self.rows.read().tobytes() == self.content


class Model:
    """The cache and what it must do."""

    def __init__(self, device: Device, layout: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.source = np.random.default_rng(seed)
        self.asynchronous = device.info.asynchronous
        self.settling = random.Random(seed)  # its own: the operations are the same on all devices
        self.budget = BUDGET_PAGES * PAGE
        # Where addresses are used once, each sequence takes another slot.
        slot_count = 9 if reuses_addresses(device) else 4000
        self.cache = Cache(
            device, GEOMETRY, budget=self.budget, page=PAGE, slab="2MiB", layout=layout,
            max_slots=6, slot_count=slot_count, max_tokens=MAX_TOKENS, warm=self.budget // 3,
            window_mapping_max=PAGE,
        )  # fmt: skip
        self.agents: list[Agent] = []
        self.ghosts: list[Ghost] = []
        self.submitted = 0
        self.completed = 0
        self.shortages = 0

    def run(self, operations: int) -> None:
        choices = {
            self.open: 6, self.step: 40, self.step_batch: 15, self.close: 5, self.retire: 14,
            self.shrink: 2, self.change_budget: 2, self.misuse: 5,
        }  # fmt: skip
        for _ in range(operations):
            operation = self.random.choices(list(choices), list(choices.values()))[0]
            operation()
            self.check()

    def until(self) -> int:
        """Mostly a new submission, sometimes none, sometimes an old one."""
        self.submitted += 1
        return self.random.choice([self.submitted] * 3 + [0, max(0, self.submitted - 5)])

    def open(self) -> None:
        prefer = self.random.choice(["lowest", "warm"])
        expected = self.random.randrange(MAX_TOKENS)
        try:
            sequence = self.cache.open(prefer=prefer, expected_tokens=expected)
        except vmkv.Shortage as error:
            if error.kind != "slots":
                raise
            waiting = self.cache.stats().retiring_bytes or self.asynchronous
            assert len(self.agents) == 6 or waiting
            return
        rows = [
            Row(sequence.span(layer, tensor, group=number), group.policy)
            for number, group in enumerate(GEOMETRY.groups)
            for layer in range(len(group.layers))
            for tensor in range(len(group.tensors))
        ]
        self.agents.append(Agent(sequence, rows))

    def lengths(self) -> dict[Sequence, int]:
        count = self.random.randint(0, len(self.agents))
        agents = self.random.sample(self.agents, count)
        most = self.random.choice([1, 20, 100])
        return {
            agent.sequence: min(MAX_TOKENS, agent.tokens + self.random.randint(0, most))
            for agent in agents
        }

    def step(self) -> None:
        lengths, until = self.lengths(), self.until()
        self.grow(lengths, until, lambda: self.cache.step(lengths, until))

    def step_batch(self) -> None:
        lengths, until = self.lengths(), self.until()
        batch = self.cache.batch(lengths)
        batch.tokens = list(lengths.values())
        self.grow(lengths, until, lambda: batch.step(until))

    def grow(self, lengths: dict[Sequence, int], until: int, call: Any) -> None:
        before = self.cache.stats()
        agents = [agent for agent in self.agents if agent.sequence in lengths]
        leaving = [self.see_off(agent, below_window=True) for agent in agents]
        try:
            ready = call()
        except vmkv.Shortage as error:
            self.shortage(error, lengths, before)
            return
        reached(self.cache, ready)
        for agent, ghosts in zip(agents, leaving, strict=True):
            agent.until = max(agent.until, until)
            self.keep(agent, ghosts)
            old, agent.tokens = agent.tokens, lengths[agent.sequence]
            agent.window_floor = max(agent.window_floor, old - 57)
            for row in agent.rows:
                if agent.tokens > old:
                    row.write(old, agent.tokens, self.source)

    def shortage(
        self, error: vmkv.Shortage, lengths: dict[Sequence, int], before: vmkv.Stats
    ) -> None:
        """It tells the truth, and nothing has changed."""
        self.shortages += 1
        after = self.cache.stats()
        assert error.kind == "bytes"
        assert len(error.seq_needed_bytes) == len(lengths)
        assert error.needed == sum(error.seq_needed_bytes)
        in_use = before.mapped_bytes + before.retiring_bytes
        least = error.needed - max(0, self.budget - in_use)
        # Warm memory may belong to a sequence that is open and has not made its first step.
        # What is on its way through the device doesn't count before it has arrived.
        transit = before.unmapping_bytes + before.zeroing_bytes
        assert least <= error.missing <= least + before.warm_bytes + transit
        assert error.transit_bytes == after.unmapping_bytes + after.zeroing_bytes
        assert error.retiring_bytes == before.retiring_bytes
        assert (error.retiring_until > self.completed) == bool(error.retiring_bytes)
        for name in ("live_bytes", "mapped_bytes", "retiring_bytes", "sequences", "steps"):
            assert getattr(after, name) == getattr(before, name)
        if self.random.random() < 0.5:
            self.close()

    def see_off(self, agent: Agent, below_window: bool) -> list[Ghost]:
        """What this operation will give back."""
        ghosts = []
        for row in agent.rows:
            if not agent.tokens or (below_window and row.policy != "window"):
                continue
            last = max(row.span.first_token, agent.tokens - 57) if below_window else None
            rows = row.rows(None, last)
            ghosts.append(Ghost(0, rows, rows.read().tobytes()))
        return ghosts

    def keep(self, agent: Agent, ghosts: list[Ghost]) -> None:
        """Watch them until their memory may become another's."""
        if agent.until > self.completed:
            for ghost in ghosts:
                ghost.until = agent.until
            self.ghosts += ghosts

    def close(self) -> None:
        if not self.agents:
            return
        agent = self.agents.pop(self.random.randrange(len(self.agents)))
        ghosts, until = self.see_off(agent, below_window=False), self.until()
        agent.sequence.close(until)
        agent.until = max(agent.until, until)
        self.keep(agent, ghosts)

    def retire(self) -> None:
        value = max(0, self.submitted - self.random.choice([0, 1, 3, 10, 30]))
        for ghost in self.ghosts:
            ghost.check()
        self.completed = max(self.completed, value)
        self.ghosts = [ghost for ghost in self.ghosts if ghost.until > self.completed]
        self.cache.retire(value)

    def shrink(self) -> None:
        before = self.cache.stats().slab_bytes
        released = self.cache.shrink(self.random.choice([0, 1 << 20]))
        assert self.cache.stats().slab_bytes == before - released

    def change_budget(self) -> None:
        self.budget = self.random.choice([BUDGET_PAGES, BUDGET_PAGES // 2, 600]) * PAGE
        self.cache.set_budget(self.budget)

    def misuse(self) -> None:
        """What is refused changes nothing; `check` sees to that."""
        if not self.agents:
            return
        agent = self.random.choice(self.agents)
        for tokens in (agent.tokens - 1, MAX_TOKENS + 1):
            with pytest.raises(vmkv.InvalidError):
                self.cache.step({agent.sequence: tokens}, self.submitted)
        wrong = agent.sequence.id ^ 1 << self.random.randrange(64)
        if wrong not in {one.sequence.id for one in self.agents}:
            with pytest.raises(vmkv.StaleError):
                Sequence(self.cache, wrong)

    def check(self) -> None:
        settled = not self.asynchronous or self.settling.random() < 0.5
        if settled:
            settle(self.cache)
        stats = self.cache.stats()
        assert stats.sequences == len(self.agents)
        assert stats.budget_bytes == self.budget
        assert stats.slab_bytes == (
            stats.mapped_bytes + stats.warm_bytes + stats.retiring_bytes + stats.unmapping_bytes
            + stats.zeroing_bytes + stats.held_bytes + stats.free_clean_bytes
            + stats.free_dirty_bytes
        )  # fmt: skip
        assert stats.held_bytes == 0
        if settled:
            assert stats.unmapping_bytes == stats.zeroing_bytes == 0
        assert stats.live_bytes == sum(agent.live_bytes for agent in self.agents)
        assert stats.live_bytes <= stats.mapped_bytes
        if not self.ghosts and self.completed >= self.submitted:
            assert stats.retiring_bytes == 0
        ready = self.cache.ready_tokens
        open_slots = {agent.sequence.slot for agent in self.agents}
        assert all(not ready[slot] for slot in range(len(ready)) if slot not in open_slots)
        assert all(ready[agent.sequence.slot] >= agent.tokens for agent in self.agents)
        if self.agents:
            self.random.choice(self.agents).check()
        if self.ghosts:
            self.random.choice(self.ghosts).check()


@pytest.mark.parametrize("layout", ["layer", "token"])
def test_random_use(device_name: str, layout: str, seed: int) -> None:
    print(f"seed {seed}, {layout} layout")
    with vmkv.open(device_name) as device, reaching(device):
        model = Model(device, layout, seed)
        operations = OPERATIONS if device.info.cpu_addresses else OPERATIONS_BY_COPIES
        model.run(operations)
        assert model.shortages > 10
        assert model.cache.stats().growing_steps > operations // 10
        for agent in list(model.agents):
            agent.check()
            agent.sequence.close()
        model.cache.retire(model.submitted)
        stats = model.cache.stats()
        assert (stats.mapped_bytes, stats.retiring_bytes, stats.live_bytes) == (0, 0, 0)
        settle(model.cache)
        model.cache.shrink()
        settle(model.cache)
        stats = model.cache.stats()
        assert (stats.slab_bytes, stats.warm_bytes, stats.mappings) == (0, 0, 0)
        model.cache.close()
        assert device.info.mappings == 0
