"""What modelled schemes make of requests, against hand arithmetic."""

import dataclasses

import pytest

from vmkv.baselines import Baseline, Baselines, model_baselines
from vmkv.commands.replay_table import conclude
from vmkv.geometry import Geometry, Group, Tensor
from vmkv.replay import Report
from vmkv.traces import Request, Round

# 128 bytes a token.
ONE = Geometry.full(layers=1, heads=2, head_dim=16)
TOKEN = 128


def model(*counts: tuple[int, int], budget_tokens: int, agents: int = 8) -> Baselines:
    requests = [Request(i, i + 2, prompt, output) for i, (prompt, output) in enumerate(counts)]
    return model_baselines(
        ONE, requests, agents=agents, budget_bytes=budget_tokens * TOKEN, max_tokens=100
    )


def figures(baseline: Baseline) -> tuple[int, int, int, int, int]:
    """Requests, skipped, shortages, agents at once, and peak in bytes."""
    return (
        baseline.requests,
        baseline.skipped,
        baseline.shortages,
        baseline.admitted_peak,
        baseline.bytes_peak,
    )


def test_hand_computed() -> None:
    """Memory for 200 tokens; none may be longer than 100, which the fourth is.

    Reserving 100: two at a time; the third waits for one step. Reserving 50: the second is too
    long, the others go together. In blocks of 16 they need 32, 64 and 16 tokens: all together.
    """
    modelled = model((17, 1), (60, 0), (10, 2), (101, 0), budget_tokens=200)
    longest, shorter = modelled.contiguous
    assert (longest.scheme, longest.tokens) == ("contiguous", 100)
    assert (shorter.scheme, shorter.tokens) == ("contiguous", 50)
    assert (modelled.paged.scheme, modelled.paged.tokens) == ("paged", None)
    assert figures(longest) == (3, 1, 1, 2, 200 * TOKEN)
    assert figures(shorter) == (2, 2, 0, 2, 100 * TOKEN)
    assert figures(modelled.paged) == (3, 1, 0, 3, 112 * TOKEN)
    # Tokens that exist: 17 + 60; 18 + 10; 11; 12.
    wasted = [1 - 77 / 200, 1 - 28 / 200, 1 - 11 / 100, 1 - 12 / 100]
    assert longest.waste_mean == pytest.approx(sum(wasted) / 4)
    wasted = [1 - 27 / 100, 1 - 29 / 100, 1 - 12 / 50]
    assert shorter.waste_mean == pytest.approx(sum(wasted) / 3)
    wasted = [1 - 87 / 112, 1 - 29 / 48, 1 - 12 / 16]
    assert modelled.paged.waste_mean == pytest.approx(sum(wasted) / 3)


def test_order_is_kept() -> None:
    """Memory for 96 tokens in blocks: the third, which is small, doesn't overtake the second."""
    paged = model((60, 4), (33, 0), (1, 0), budget_tokens=96).paged
    assert figures(paged) == (3, 0, 1, 2, 64 * TOKEN)


def test_places_limit() -> None:
    modelled = model((50, 0), (50, 0), (50, 0), budget_tokens=1000, agents=2)
    for baseline in (*modelled.contiguous, modelled.paged):
        assert (baseline.admitted_peak, baseline.shortages, baseline.requests) == (2, 0, 3)


def test_what_never_fits() -> None:
    """Memory for 90 tokens holds no reservation of 100."""
    modelled = model((20, 0), (60, 0), budget_tokens=90)
    assert figures(modelled.contiguous[0]) == (0, 2, 0, 0, 0)
    assert modelled.contiguous[0].waste_mean is None
    assert figures(modelled.contiguous[1]) == (1, 1, 0, 1, 50 * TOKEN)
    assert figures(modelled.paged) == (2, 0, 1, 1, 64 * TOKEN)


def test_session() -> None:
    """20 tokens, two steps of waiting, then cut to 10: blocks follow, a reservation doesn't."""
    later = (Round(3, 10, 0, cut=True),)
    modelled = model_baselines(
        ONE,
        [Request(0, 2, 20, 0, 40, later)],
        agents=1,
        budget_bytes=1000 * TOKEN,
        max_tokens=100,
    )
    paged = modelled.paged
    assert (paged.requests, paged.rounds, paged.cuts, paged.admitted_peak) == (1, 2, 1, 1)
    assert paged.bytes_peak == 32 * TOKEN
    assert paged.waste_mean == pytest.approx((3 * (1 - 20 / 32) + 1 - 10 / 16) / 4)
    assert modelled.contiguous[0].waste_mean == pytest.approx((3 * 0.8 + 0.9) / 4)


def test_session_that_waits_for_days() -> None:
    """10^7 steps of waiting at 20 tokens of 32, of which one is taken: all count."""
    request = Request(0, 2, 20, 0, 20 * 10**7, (Round(3, 40, 0),))
    paged = model_baselines(
        ONE, [request], agents=1, budget_bytes=1000 * TOKEN, max_tokens=100
    ).paged
    assert paged.idle_steps == 10**7 - 1
    assert paged.waste_mean == pytest.approx(1 - 20 / 32)


def test_window() -> None:
    """A window of 40 tokens: a reservation holds it and the chunk of 512, or all of 1,000 tokens if
    that is less; blocks hold what the step adds, too, in whole blocks and one more."""
    window = Geometry((Group("window", (0,), (Tensor("k", 2, 32),), 40),))
    request = Request(0, 2, 600, 1)
    modelled = model_baselines(window, [request], agents=1, budget_bytes=1 << 20, max_tokens=1000)
    assert modelled.contiguous[0].bytes_peak == (39 + 512) * TOKEN
    assert modelled.contiguous[1].requests == 0
    # 512 tokens in 32 blocks; then 88 more behind 39 are 127: 8 blocks and one; then 40: 3 and one.
    assert modelled.paged.bytes_peak == 512 * TOKEN
    wasted = [1 - 40 / 512, 1 - 40 / 144, 1 - 40 / 64]
    assert modelled.paged.waste_mean == pytest.approx(sum(wasted) / 3)


def test_json() -> None:
    told = model((17, 1), budget_tokens=200).as_json()
    assert set(told) == {"contiguous", "paged"}
    for each in (*told["contiguous"], told["paged"]):
        assert {
            "tokens",
            "admitted_peak",
            "requests",
            "shortages",
            "bytes_peak",
            "waste_mean",
        } <= set(each)


# ---- in words


def make_report(**counts: int | float) -> Report:
    report = Report(
        device="host",
        layout="layer",
        page_bytes=4096,
        budget_bytes=4 << 30,
        agents=8,
        max_tokens=16384,
        seed=0,
        requests=10,
        admitted_peak=6,
        waste_mean=0.0049,
    )
    return dataclasses.replace(report, **counts)  # type: ignore[arg-type]


def make_baselines(longest: int, shorter: int, skipped: int = 0) -> Baselines:
    def one(scheme: str, tokens: int | None, peak: int, waste: float) -> Baseline:
        return Baseline(
            scheme=scheme,
            tokens=tokens,
            admitted_peak=peak,
            waste_mean=waste,
            requests=bool(peak) * 9,
        )

    half = dataclasses.replace(one("contiguous", 8192, shorter, 0.5), skipped=skipped)
    return Baselines((one("contiguous", 16384, longest, 0.845), half), one("paged", None, 6, 0.002))


def test_conclusion() -> None:
    assert conclude(make_report(), make_baselines(1, 3)) == (
        "With vmkv 6 agents at once had room in 4 GiB, in flat ranges for 16,384 tokens each. "
        "Reserving memory for all 16,384 tokens of each has room for 1 agent, and 84% of it stays "
        "unused; reserving for 8,192 has room for 3 agents. vmkv takes memory as agents grow: 0.5% "
        "of it was unused on average (paging: 0.2%)."
    )


def test_conclusion_follows_the_figures() -> None:
    text = conclude(make_report(admitted_peak=8), make_baselines(0, 3, skipped=2))
    assert "8 agents at once had room in 4 GiB (all that were asked for)" in text
    assert "has room for no agent; reserving" in text
    assert "for 3 agents, but 2 requests are too long for that." in text
    text = conclude(make_report(waste_mean=0.0004), make_baselines(0, 3))
    assert "less than 0.1% of it was unused" in text
    unserved = Baseline(scheme="paged", tokens=None)
    nobody = dataclasses.replace(make_baselines(0, 0), paged=unserved)
    assert "was unused on average." in conclude(make_report(), nobody)
    text = conclude(make_report(skipped=1), make_baselines(6, 6, skipped=2))
    assert "but 1 request is too long for that" in text
    assert "Memory was not what limits here" in text
    assert conclude(make_report(requests=0), make_baselines(0, 0)).startswith(
        "No request was served"
    )
