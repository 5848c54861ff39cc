"""Replays: what they count, that they repeat, and that their checks find what is wrong."""

import dataclasses
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import vmkv
from support import reuses_addresses
from vmkv.checks import Checks, attention
from vmkv.geometry import Geometry, Group, Tensor
from vmkv.replay import Report, _percentile, replay
from vmkv.rows import Part, Writer
from vmkv.traces import Request, Round

# One layer of 64-byte rows for K and V: 64 tokens fill a page of 4 KiB each.
ONE = Geometry.full(layers=1, heads=2, head_dim=16)
TWO = Geometry.full(layers=2, heads=2, head_dim=16)
PAGE = 4096

GEOMETRIES = {
    "full": TWO,
    "f32": Geometry.full(layers=3, heads=2, head_dim=32, dtype="f32"),
    "bf16": Geometry.full(layers=3, heads=2, head_dim=32, dtype="bf16"),
    "f8": Geometry.full(layers=2, heads=4, head_dim=32, dtype="f8"),
    "q8_0": Geometry.full(layers=2, heads=4, head_dim=64, dtype="q8_0"),
    "q8_0 across heads": Geometry.full(layers=2, heads=4, head_dim=16, dtype="q8_0"),
    "k is not v": Geometry(
        (Group("full", (0, 1), (Tensor("k", 2, 64), Tensor("v", 4, 32, "f32"))),)
    ),
    "padded": Geometry((Group("full", (0, 1), (Tensor("k", 2, 32, row_bytes=160),)),)),
    "padded oddly": Geometry((Group("full", (0,), (Tensor("k", 2, 32, "f32", row_bytes=258),)),)),
    "latent": Geometry((Group("full", (0, 1, 2), (Tensor("latent", 1, 576),)),)),
    "opaque": Geometry((Group("full", (0, 1), (Tensor("rows", dtype="none", row_bytes=100),)),)),
    "window": Geometry(
        (
            Group("full", (1, 3), (Tensor("k", 2, 32), Tensor("v", 2, 32))),
            Group("window", (0, 2), (Tensor("k", 2, 32), Tensor("v", 2, 32)), 100, 20),
        )
    ),
    "only window": Geometry((Group("window", (0, 1), (Tensor("k", 2, 64),), 64),)),
    "state": Geometry(
        (
            Group("full", (3,), (Tensor("k", 2, 32), Tensor("v", 2, 32))),
            Group("state", (0, 1, 2), (Tensor("s", 8, 1000, "f32"), Tensor("conv", 3, 100))),
        )
    ),
}


def make_requests(*counts: tuple[int, int]) -> list[Request]:
    return [Request(i, i + 2, prompt, output) for i, (prompt, output) in enumerate(counts)]


MIXED = make_requests(
    (600, 5), (1, 1), (1500, 20), (512, 0), (513, 40), (90, 130), (2, 0), (700, 9)
)


def run(
    device_name: str,
    requests: list[Request],
    geometry: Geometry = ONE,
    *,
    seed: int = 0,
    **options: Any,
) -> Report:
    chosen: dict[str, Any] = {"budget": "16MiB", "page": PAGE, "max_slots": 4, "slab": "2MiB"}
    chosen |= options
    with vmkv.open(device_name) as device, vmkv.Cache(device, geometry, **chosen) as cache:
        return replay(cache, requests, seed=seed)


def counts(report: Report) -> dict[str, Any]:
    """All but the times."""
    fields = dataclasses.asdict(report)
    return {name: value for name, value in fields.items() if not name.endswith("_seconds")}


# ---- what is counted


def test_hand_computed(device_name: str) -> None:
    """Eight pages. The first takes 4 of them; the second needs 6 and waits for it; the third could
    never fit; the fourth needs 2 and goes beside the second."""
    requests = make_requests((64, 64), (192, 0), (257, 0), (10, 0))
    report = run(device_name, requests, budget=8 * PAGE, max_slots=3)
    assert (report.requests, report.skipped, report.shortages, report.preempted) == (3, 1, 1, 0)
    assert report.admitted_peak == 2
    assert report.steps == 1 + 64 + 1
    assert report.tokens_written == 64 + 64 + 192 + 10
    assert report.bytes_written == report.tokens_written * 128
    assert report.live_bytes_peak == 202 * 128
    assert report.mapped_bytes_peak == 8 * PAGE
    assert report.checks_failed == 0
    assert report.failures == []


def test_delay_is_counted_once(device_name: str) -> None:
    """The second waits for 65 steps, which is one delay; who waits for a place has none."""
    report = run(device_name, make_requests((64, 64), (192, 0)), budget=8 * PAGE)
    assert report.shortages == 1
    report = run(device_name, make_requests((64, 64), (64, 0), (64, 0)), max_slots=1)
    assert (report.requests, report.shortages, report.admitted_peak) == (3, 0, 1)


def test_order_is_kept(device_name: str) -> None:
    """The third, which is small, doesn't overtake the second, which waits for the first."""
    report = run(device_name, make_requests((120, 4), (250, 2), (64, 0)), budget=8 * PAGE)
    assert report.steps == 5 + 3 + 1
    assert report.admitted_peak == 1
    assert report.shortages == 2


def test_too_long_is_skipped(device_name: str) -> None:
    report = run(device_name, make_requests((101, 0), (60, 40), (60, 41)), max_tokens=100)
    assert (report.requests, report.skipped) == (1, 2)
    report = run(device_name, make_requests((101, 0)), max_tokens=100)
    assert (report.requests, report.skipped, report.steps, report.waste_max) == (0, 1, 0, None)


def test_waste(device_name: str) -> None:
    """Half of a page of each tensor, then the other half token by token."""
    report = run(device_name, make_requests((32, 0)), warm="off")
    assert report.waste_mean == report.waste_max == report.waste_p99 == 0.5
    report = run(device_name, make_requests((64, 0)), warm="off")
    assert report.waste_mean == 0
    report = run(device_name, make_requests((32, 32)), warm="off")
    assert report.waste_mean == pytest.approx(sum((32 - i) / 64 for i in range(33)) / 33)
    assert report.waste_max == 0.5
    assert report.waste_p99 == pytest.approx(31.68 / 64)  # between the two greatest of 33


def test_prompts_come_in_chunks(device_name: str) -> None:
    assert run(device_name, make_requests((1025, 0))).steps == 3
    assert run(device_name, make_requests((1024, 3))).steps == 2 + 3
    assert run(device_name, make_requests((512, 1), (1024, 0), (1, 1))).steps == 2


# ---- sessions, and what prompts share


def test_session_keeps_its_sequence(device_name: str) -> None:
    """Each of two sessions takes 3 steps, waits for 2 and takes 3 more; a third comes after."""
    later = (Round(3, 70, 2),)
    sessions = [Request(index, 2, 60, 2, 40, later) for index in range(3)]
    report = run(device_name, sessions, max_slots=2)
    assert (report.requests, report.rounds, report.cuts) == (3, 6, 0)
    assert report.admitted_peak == 2
    assert report.steps == 2 * (3 + 2 + 3)
    assert report.tokens_written == 3 * 72
    assert report.mapped_bytes_peak == 2 * 4 * PAGE
    assert report.failures == []


@pytest.mark.parametrize("name", ["full", "state"])
def test_nothing_is_written_while_a_session_waits(device_name: str, name: str) -> None:
    first, second = (
        run(device_name, [Request(0, 2, 60, 2, wait, (Round(3, 70, 2),))], GEOMETRIES[name])
        for wait in (0, 400)
    )
    assert second.steps == first.steps + 20
    assert second.bytes_written == first.bytes_written


def test_idle_steps_are_counted_and_not_taken(
    device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Days of waiting: 3 steps before, 10^7 while all wait, of which the last is taken, and 2 after
    it. The second session is there for the first 2 only. Figures are those of all steps: in the
    wait 32 of 64 rows are empty."""
    requests = [
        Request(0, 2, 30, 2, 20 * 10_000_000, (Round(3, 34, 1),)),
        Request(1, 4, 64, 1),
    ]
    taken = 0
    step = vmkv.Batch.step

    def count(batch: vmkv.Batch, *arguments: Any, **named: Any) -> int:
        nonlocal taken
        taken += 1
        return step(batch, *arguments, **named)

    monkeypatch.setattr(vmkv.Batch, "step", count)
    report = run(device_name, requests, warm="off")
    assert (report.steps, report.idle_steps, taken) == (3 + 10_000_000 + 2, 10_000_000 - 1, 6)
    assert report.waste_mean == pytest.approx(0.5, abs=1e-6)
    assert report.waste_p99 == 0.5
    assert report.waste_max == 0.5
    assert report.failures == []


def test_no_step_is_passed_over_while_one_works(device_name: str) -> None:
    """The other takes 60 steps, so 40 of the 100 are left, of which the last is taken."""
    requests = [Request(0, 2, 30, 0, 2000, (Round(3, 31, 0),)), Request(1, 4, 1, 60)]
    report = run(device_name, requests)
    assert (report.steps, report.idle_steps) == (1 + 100 + 1, 100 - 60 - 1)


@pytest.mark.parametrize("percent", [0, 1, 50, 99, 100])
def test_percentile_of_repeated_values(percent: float) -> None:
    rng = np.random.default_rng(1)
    for _ in range(50):
        counts = rng.integers(1, 40, rng.integers(1, 8))
        values = np.sort(rng.random(len(counts)))
        expected = np.percentile(np.repeat(values, counts), percent)
        assert _percentile(values, counts, percent) == pytest.approx(expected, abs=1e-12)


def test_cut_session_begins_anew(device_name: str) -> None:
    """It keeps its place, and what it held serves it again; admission counts the longest round."""
    later = (Round(3, 65, 1, cut=True), Round(4, 10, 0, cut=True))
    sessions = [Request(0, 2, 300, 3, 0, later), Request(1, 5, 128, 0)]
    report = run(device_name, sessions, budget=12 * PAGE, max_slots=2, slot_count=2, warm="off")
    assert (report.requests, report.rounds, report.cuts) == (2, 4, 2)
    assert report.tokens_written == 303 + 66 + 10 + 128
    assert report.steps == 4 + 2 + 1 + 1
    assert (report.shortages, report.preempted) == (1, 0)
    assert report.mapped_bytes_peak == 10 * PAGE
    assert report.failures == []


@pytest.mark.parametrize("layout", ["layer", "token"])
@pytest.mark.parametrize("name", ["window", "state"])
def test_sessions_of_other_geometries(device_name: str, name: str, layout: str) -> None:
    later = (
        Round(3, 400, 9, 100),
        Round(4, 130, 2, 20, cut=True),
        Round(5, 132, 0),
        Round(6, 700, 1),
    )
    sessions = [Request(index, 2, 200, 5, 50, later) for index in range(5)]
    report = run(device_name, sessions, GEOMETRIES[name], layout=layout, max_slots=3)
    assert (report.requests, report.rounds, report.cuts) == (5, 25, 5)
    assert report.failures == []


def test_rows_of_before_a_cut_are_found(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sequence after the cut isn't written to, and the memory isn't zeroed: it holds rows of
    the same tokens of the same request."""
    if not reuses_addresses(device_name):
        pytest.skip("needs slots that are used again")
    write = Writer.write
    monkeypatch.setattr(Checks, "check_zero", lambda *_: None)
    written: set[int] = set()

    def write_once(writer: Writer, first: int, last: int) -> int:
        written.add(writer.parts[0].sequence.id)
        return write(writer, first, last) if len(written) == 1 else 0

    requests = [Request(0, 2, 200, 0, 0, (Round(3, 150, 0, cut=True),))]
    options: dict[str, Any] = {"max_slots": 1, "slot_count": 1, "zero": False}
    assert run(device_name, requests, **options).checks_failed == 0
    monkeypatch.setattr(Writer, "write", write_once)
    assert run(device_name, requests, **options).checks_failed > 0


def test_shareable(device_name: str) -> None:
    """One place: the second began as the first, which is done by then; the third as both. Two
    places: the first two are there at once, and the third comes when both are done."""
    prompts = [(1100, (7, 8, 9)), (1300, (7, 8, 4)), (600, (7, 8)), (600, ())]
    requests = [Request(i, i, n, 0, hash_ids=ids) for i, (n, ids) in enumerate(prompts)]
    for places, active in ((1, 0), (2, 1024)):
        report = run(device_name, requests, max_slots=places)
        assert report.shareable_tokens == 1024 + 600
        assert report.shareable_bytes == 1624 * 128
        assert report.active_shareable_tokens == active
        assert report.active_shareable_bytes == active * 128


def test_shareable_is_counted_once(device_name: str) -> None:
    """The second has to begin anew, because the device has less memory than the budget."""
    requests = [Request(i, i, 9000, 30, hash_ids=tuple(range(18))) for i in range(2)]
    report = run(f"{device_name}?memory=2MiB", requests, budget="32MiB")
    assert report.preempted >= 1
    assert report.shareable_tokens == report.active_shareable_tokens == 9000


# ---- kinds of geometry, and repetition


@pytest.mark.parametrize("layout", ["layer", "token"])
@pytest.mark.parametrize("name", GEOMETRIES)
def test_geometries(device_name: str, name: str, layout: str) -> None:
    """Three agents, so that memory passes from one to another."""
    report = run(device_name, MIXED, GEOMETRIES[name], layout=layout, max_slots=3, max_tokens=2000)
    assert report.failures == []
    assert (report.requests, report.skipped, report.checks_failed) == (len(MIXED), 0, 0)
    assert report.checks_done > 16 * report.steps
    assert report.live_bytes_peak <= report.mapped_bytes_peak <= report.slab_bytes_peak
    assert report.slab_bytes_peak <= report.budget_bytes
    assert report.reserved_bytes % (2 << 20) == 0
    assert 0 < report.mappings_peak <= report.mappings < report.driver_calls


@pytest.mark.parametrize("name", ["full", "window", "state"])
def test_repeats(device_name: str, name: str) -> None:
    budget = {"full": "512KiB", "window": "2MiB", "state": "640KiB"}[name]
    one, two = (run(device_name, MIXED, GEOMETRIES[name], budget=budget) for _ in range(2))
    assert counts(one) == counts(two)
    assert one.shortages > 0
    assert one.checks_failed == 0


# ---- shortages in spite of admission


def test_device_smaller_than_budget(device_name: str) -> None:
    """Each fits alone, two don't, and the budget lets expect that they do: the younger one has to
    begin anew, and no request is lost."""
    requests = make_requests((9000, 30), (9000, 30), (9000, 10), (100, 5))
    report = run(f"{device_name}?memory=2MiB", requests, budget="32MiB")
    assert (report.requests, report.skipped, report.checks_failed) == (4, 0, 0)
    assert report.preempted >= 1
    assert report.shortages >= 1
    assert report.step_shortages >= report.preempted


def test_device_smaller_than_one_request(device_name: str) -> None:
    requests = make_requests((100, 5), (16380, 4), (16380, 4), (100, 0))
    report = run(f"{device_name}?memory=2MiB", requests, budget="32MiB", max_tokens=20000)
    assert (report.requests, report.skipped, report.checks_failed) == (4, 0, 0)
    requests[1] = Request(1, 3, 17000, 0)
    report = run(f"{device_name}?memory=2MiB", requests, budget="32MiB", max_tokens=20000)
    assert (report.requests, report.skipped, report.checks_failed) == (3, 1, 0)


def test_memory_that_retires_is_waited_for(device_name: str) -> None:
    """Requests that use the whole budget, one after the other, while the queue lags."""
    report = run(device_name, make_requests(*[(256, 0)] * 40), budget=8 * PAGE, warm="off")
    assert (report.requests, report.preempted, report.checks_failed) == (40, 0, 0)
    assert report.step_shortages > 0


def test_slots_that_retire_are_waited_for(device_name: str) -> None:
    """As many slots as agents: a closed one can't be opened before the queue has passed it."""
    if not reuses_addresses(device_name):
        pytest.skip("needs slots that are used again")
    report = run(device_name, make_requests(*[(9, 0), (70, 1)] * 8), max_slots=2, slot_count=2)
    assert (report.requests, report.shortages, report.checks_failed) == (16, 0, 0)


# ---- checks find what is wrong


def harm_after_writing(
    monkeypatch: pytest.MonkeyPatch, harm: Callable[[Part, int, int], None]
) -> None:
    write = Writer.write

    def write_badly(writer: Writer, first: int, last: int) -> int:
        written = write(writer, first, last)
        for part in writer.parts:
            harm(part, first, last)
        return written

    monkeypatch.setattr(Writer, "write", write_badly)


def scribble_old(part: Part, first: int, last: int) -> None:
    if last > 100:
        part.array(0)[40, 3] ^= 1


def scribble_new(part: Part, first: int, last: int) -> None:
    part.array(0)[last - 1] = 0


def swap_rows(part: Part, first: int, last: int) -> None:
    if last - first > 32:
        rows = part.array(0)[first : first + 32].copy()
        part.array(0)[first : first + 16], part.array(0)[first + 16 : first + 32] = (
            rows[16:],
            rows[:16],
        )


@pytest.mark.parametrize("harm", [scribble_old, scribble_new, swap_rows])
@pytest.mark.parametrize("layout", ["layer", "token"])
def test_corruption_is_found(
    device_name: str,
    layout: str,
    harm: Callable[[Part, int, int], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    harm_after_writing(monkeypatch, harm)
    report = run(device_name, make_requests((200, 20)), layout=layout)
    assert report.requests == 1
    assert report.checks_failed > 0
    assert any("holds something else" in text for text in report.failures)


def test_corrupted_state_is_found(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def harm(part: Part, first: int, last: int) -> None:
        if part.is_state:
            part.array(last % part.layers)[0, -1] ^= 1

    harm_after_writing(monkeypatch, harm)
    report = run(device_name, make_requests((200, 20)), GEOMETRIES["state"])
    assert report.checks_failed > 0
    assert all(text.startswith("group 1") for text in report.failures)


def test_aliased_layers_are_found(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two layers behind one address."""
    read = vmkv.Sequence.span

    def span(sequence: vmkv.Sequence, layer: int = 0, *rest: Any, **named: Any) -> vmkv.Span:
        return read(sequence, 0, *rest, **named)

    assert run(device_name, make_requests((200, 20)), TWO).checks_failed == 0
    monkeypatch.setattr(vmkv.Sequence, "span", span)
    assert run(device_name, make_requests((200, 20)), TWO).checks_failed > 0


def test_moved_span_is_found(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    place = Part.span

    def span(part: Part, layer: int) -> vmkv.Span:
        moved = place(part, layer)
        moved.address += 64
        return moved

    monkeypatch.setattr(Part, "span", span)
    monkeypatch.setattr(Checks, "check_rows", lambda *_: None)
    monkeypatch.setattr(Checks, "check_attention", lambda *_, **__: None)
    report = run(device_name, make_requests((200, 3)))
    assert report.checks_failed > report.steps
    assert all("was at 0x" in text for text in report.failures)


def test_memory_that_is_not_zero_is_found(device_name: str) -> None:
    requests = make_requests(*[(300, 3)] * 6)
    assert run(device_name, requests, max_slots=1).checks_failed == 0
    report = run(device_name, requests, max_slots=1, zero=False)
    assert report.requests == 6
    assert report.checks_failed > 0
    assert all("isn't zero" in text for text in report.failures)


def test_leak_is_found(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vmkv.Sequence, "close", lambda sequence, busy_until=0: None)
    report = run(device_name, make_requests((100, 0)))
    assert report.checks_failed == 1
    assert report.failures[0].startswith("after the last request: sequences is 1, live_bytes is")


def test_attention_over_very_many_tokens(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It reads a stretch of them. A row of a head here is 32 bytes."""
    lengths = []

    def note(query: Any, keys: Any, values: Any) -> Any:
        lengths.append(len(keys))
        return attention(query, keys, values)

    monkeypatch.setattr("vmkv.checks._HEAD_BYTES_MAX", 32 * 100)
    monkeypatch.setattr("vmkv.checks.attention", note)
    report = run(device_name, make_requests((300, 8), (60, 8)))
    assert report.failures == []
    assert max(lengths) == 100
    assert min(lengths) < 100


def test_attention_finds_one_bit(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With no check of rows, attention alone sees a wrong value of a row."""
    monkeypatch.setattr(Checks, "check_rows", lambda *_: None)
    assert run(device_name, make_requests((300, 8))).checks_failed == 0

    def harm(part: Part, first: int, last: int) -> None:
        part.array(0)[last - 1, 1] ^= 0x10

    harm_after_writing(monkeypatch, harm)
    report = run(device_name, make_requests((300, 8)))
    assert report.checks_failed > 0
    assert all("attention of head" in text for text in report.failures)
