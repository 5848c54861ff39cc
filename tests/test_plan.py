"""`vmkv.plan`: every figure against hand arithmetic, and vmkv's own against the library."""

import dataclasses
import random

import pytest

import vmkv
from vmkv import Geometry, Group, Tensor
from vmkv.plan import (
    CARD_GIB,
    Demand,
    Options,
    Plan,
    address_bytes,
    contiguous_bytes,
    live_bytes,
    make_cards,
    make_plan,
    need_bytes,
    opaque,
    paged_bytes,
    short_tokens,
    span_count,
)

GB = 10**9
GIB = 2**30

# Two full layers with rows of 100 bytes, three with a window of 10, 2 of slack and rows of 30
# bytes, and two with states of 1,000 and 20 bytes.
MIXED = Geometry(
    (
        Group("full", (0, 3), (Tensor("k", dtype="none", row_bytes=100),)),
        Group("window", (1, 2, 4), (Tensor("k", dtype="none", row_bytes=30),), 10, 2),
        Group(
            "state",
            (5, 6),
            (
                Tensor("conv", dtype="none", row_bytes=20),
                Tensor("ssm", dtype="none", row_bytes=1000),
            ),
        ),
    )
)


def article() -> Plan:
    return make_plan(opaque(140_000), 10 * GB, Demand(8, 16000, 3000), Options(layout="token"))


def test_the_article() -> None:
    """0.14 MB a token, 10 GB, 8 agents of 3,000 tokens with a 16,000-token limit."""
    plan = article()
    assert (plan.bytes_per_token, plan.fixed_bytes) == (140_000, 0)
    assert plan.live_bytes == 3_360_000_000  # 8 x 3,000 x 140,000
    assert plan.budget_tokens == 71_428  # 10,000,000,000 / 140,000
    long, short, paged, own = plan.schemes

    assert (long.scheme, long.tokens, long.name) == ("contiguous", 16000, "reserve 16k")
    assert long.agent_bytes == 2_240_000_000  # 16,000 x 140,000
    assert long.reserved_bytes == 17_920_000_000  # 17.9 GB
    assert (long.fits, long.admitted) == (False, 4)  # 10 / 2.24 = 4.46
    assert long.wasted_fraction == 0.8125  # 1 - 3,000 / 16,000
    assert long.wasted_percent == "81%"

    assert (short.scheme, short.tokens, short.name) == ("contiguous", 8000, "reserve 8k")
    assert short.agent_bytes == 1_120_000_000  # 8,000 x 140,000
    assert short.reserved_bytes == 8_960_000_000  # 9.0 GB
    assert (short.fits, short.admitted) == (True, 8)  # 10 / 1.12 = 8.93
    assert short.wasted_fraction == 0.625  # 1 - 3,000 / 8,000
    assert short.wasted_percent == "63%"  # half rounds up

    assert (paged.scheme, paged.tokens) == ("paged", None)
    assert paged.agent_bytes == 421_120_000  # 188 blocks x 16 tokens x 140,000
    assert paged.reserved_bytes == 3_368_960_000
    assert (paged.fits, paged.admitted) == (True, 23)  # 10 / 0.42112 = 23.7
    assert paged.wasted_fraction == pytest.approx(8 / 3008)
    assert paged.wasted_percent == "0.3%"

    assert (own.scheme, own.tokens) == ("vmkv", None)
    assert own.agent_bytes == 420_020_224  # 420,000,000 / 65,536 = 6,408.7: 6,409 pages
    assert own.reserved_bytes == 3_360_161_792
    assert (own.fits, own.admitted) == (True, 23)  # 10 / 0.420020224 = 23.8
    assert own.wasted_fraction == pytest.approx(20_224 / 420_020_224)
    assert own.wasted_percent == "<0.1%"
    assert [scheme.long_enough for scheme in plan.schemes] == [True] * 4


def test_only_vmkv_has_more_addresses_than_memory() -> None:
    *others, own = article().schemes
    assert [scheme.address_bytes for scheme in others] == [
        scheme.reserved_bytes for scheme in others
    ]
    # 16,000 x 140,000 / 2 MiB = 1,068.1: 1,069 x 2 MiB for each of 2 x 8 slots
    assert own.address_bytes == 16 * 1069 * 2_097_152


def test_qwen3_8b() -> None:
    """36 layers x K and V x 8 heads x 128 x 2 bytes."""
    plan = make_plan(Geometry.preset("qwen3-8b"), 10 * GB, Demand(8, 16000, 3000), Options())
    assert plan.bytes_per_token == 147_456
    assert plan.live_bytes == 3_538_944_000  # 8 x 3,000 x 147,456
    assert plan.budget_tokens == 67_816  # 10,000,000,000 / 147,456 = 67,816.8
    long, short, paged, own = plan.schemes
    assert long.reserved_bytes == 18_874_368_000  # 8 x 16,000 x 147,456
    assert (long.fits, long.admitted) == (False, 4)  # 10 / 2.359296 = 4.2
    assert short.reserved_bytes == 9_437_184_000
    assert (short.fits, short.admitted) == (True, 8)  # 10 / 1.179648 = 8.5
    assert paged.reserved_bytes == 3_548_381_184  # 8 x 3,008 x 147,456
    assert (paged.fits, paged.admitted) == (True, 22)  # 10 / 0.443547648 = 22.5
    # A row is 2,048 bytes, so a span has 6,144,000 bytes: 93.75, so 94 pages of 64 KiB. 72 spans.
    assert own.agent_bytes == 72 * 94 * 65_536 == 443_547_648
    assert (own.fits, own.admitted) == (True, 22)
    assert own.wasted_fraction == pytest.approx(0.25 / 94)
    # 16,000 x 2,048 / 2 MiB = 15.6: 16 x 2 MiB in each of 72 spans of 16 slots
    assert own.address_bytes == 16 * 72 * 16 * 2_097_152


def test_a_hybrid() -> None:
    """qwen3.5-9b: 8 of 32 layers have K and V, of 4 heads x 256 x 2 bytes; the rest have states."""
    geometry = Geometry.preset("qwen3.5-9b")
    [states] = [group.token_bytes for group in geometry.groups if group.policy == "state"]
    plan = make_plan(geometry, 10 * GB, Demand(8, 16000, 3000), Options())
    assert (plan.bytes_per_token, plan.fixed_bytes) == (32_768, states)
    assert plan.live_bytes == 8 * (98_304_000 + states)  # 3,000 x 32,768
    assert plan.budget_tokens == 305_175  # 10,000,000,000 / 32,768
    long, short, paged, own = plan.schemes
    assert long.agent_bytes == 524_288_000 + states  # 16,000 x 32,768
    assert short.agent_bytes == 262_144_000 + states
    assert paged.agent_bytes == 98_566_144 + states  # 3,008 x 32,768
    # A row is 2,048 bytes, so each of 16 spans has 94 pages; and all states have one span.
    assert states % 256 == 0
    assert own.agent_bytes == (16 * 94 + -(-states // 65_536)) * 65_536


@pytest.mark.parametrize(
    ("options", "agent_bytes"),
    [
        (Options(), 443_547_648),  # 72 spans x 94 pages, as above
        # One span of 3,000 x 147,456 = 442,368,000 bytes: 6,750 pages, exactly.
        (Options(layout="token"), 442_368_000),
        # 6,144,000 / 2,097,152 = 2.9: 3 pages in each of 72 spans
        (Options(page_bytes=2 << 20), 72 * 3 * 2_097_152),
        # 442,368,000 / 2,097,152 = 210.9
        (Options(page_bytes=2 << 20, layout="token"), 211 * 2_097_152),
        # 6,144,000 / 4,096 = 1,500
        (Options(page_bytes=4 << 10), 442_368_000),
        # 3,000 rounded up to 256 is 3,072; x 2,048 = 6,291,456 = 96 pages
        (Options(read_align_tokens=256), 72 * 96 * 65_536),
        (Options(layout="token", read_align_tokens=256), 3072 * 147_456),
    ],
)
def test_pages_of_every_span(options: Options, agent_bytes: int) -> None:
    assert need_bytes(Geometry.preset("qwen3-8b"), options, 3000) == agent_bytes


def test_spans() -> None:
    assert span_count(Geometry.preset("qwen3-8b"), "layer") == 72
    assert span_count(Geometry.preset("qwen3-8b"), "token") == 1
    assert span_count(MIXED, "layer") == 2 + 3 + 1
    assert span_count(MIXED, "token") == 3


def test_windows_and_states() -> None:
    """MIXED: 200 bytes a token in full layers, 90 in windows that keep 12, 2,040 of state."""
    assert (MIXED.bytes_per_token, MIXED.fixed_bytes) == (200, 12 * 90 + 2040)
    assert live_bytes(MIXED, 50) == 50 * 200 + 12 * 90 + 2040
    assert live_bytes(MIXED, 7) == 7 * 200 + 7 * 90 + 2040
    # Contiguous: the cap, the window, the states.
    assert contiguous_bytes(MIXED, 100) == 100 * 200 + 12 * 90 + 2040
    assert contiguous_bytes(MIXED, 100, chunk_tokens=21) == 100 * 200 + 32 * 90 + 2040
    assert contiguous_bytes(MIXED, 20, chunk_tokens=21) == 20 * 200 + 20 * 90 + 2040
    # Paged: 50 tokens are 4 blocks; a window of 12 is one and another, for it may begin within one.
    assert paged_bytes(MIXED, 50) == 4 * 16 * 200 + 2 * 16 * 90 + 2040
    assert paged_bytes(MIXED, 50, chunk_tokens=21) == 4 * 16 * 200 + 3 * 16 * 90 + 2040
    assert paged_bytes(MIXED, 7) == 16 * 200 + 16 * 90 + 2040
    # vmkv, 4 KiB pages: 2 spans of 50 x 100 bytes are 2 pages each, 3 of 50 x 30 are one each, and
    # states lie at multiples of 256 in one span: 2 x (256 + 1024) bytes are one page.
    assert need_bytes(MIXED, Options(page_bytes=4096), 50) == (2 * 2 + 3 * 1 + 1) * 4096
    # 1,000 tokens: 25 pages in each of 2, 8 in each of 3, where a window could hold 66 pages.
    assert need_bytes(MIXED, Options(page_bytes=4096), 1000) == (2 * 25 + 3 * 8 + 1) * 4096
    # 20,000 tokens: 489 pages in each of 2. A window keeps 12 tokens, three more for the step, for
    # what it trimmed and for what waits, and one of read_align: 16 x 30 bytes lie in one page, and
    # what isn't given back yet is at most a mapping of 64 pages.
    assert need_bytes(MIXED, Options(page_bytes=4096), 20_000) == (2 * 489 + 3 * 65 + 1) * 4096
    # Token layout: one span of 200 bytes a token, one of 90, one of states.
    own = Options(page_bytes=4096, layout="token")
    assert need_bytes(MIXED, own, 20_000) == (977 + 65 + 1) * 4096


def random_tensor(rng: random.Random, name: str) -> Tensor:
    if rng.random() < 0.3:
        return Tensor(name, dtype="none", row_bytes=rng.randint(1, 5000))
    dtype = rng.choice(["f32", "f16", "bf16", "f8", "q8_0"])
    return Tensor(name, rng.choice([1, 2, 8]), rng.choice([32, 64, 96, 128]), dtype)


def random_geometry(rng: random.Random) -> Geometry:
    groups = []
    for number in range(rng.randint(1, 3)):
        policy = rng.choice(["full", "window", "state"])
        first = 100 * number
        window = policy == "window"
        groups.append(
            Group(
                policy,
                tuple(range(first, first + rng.randint(1, 6))),
                tuple(random_tensor(rng, name) for name in "kvx"[: rng.randint(1, 3)]),
                rng.randint(1, 2000) if window else 0,
                rng.choice([0, rng.randint(0, 500)]) if window else 0,
            )
        )
    return Geometry(tuple(groups))


def random_options(rng: random.Random) -> Options:
    return Options(
        page_bytes=4096 << rng.randint(0, 9),
        layout=rng.choice(["layer", "token"]),
        read_align_tokens=rng.choice([1, 1, 16, 256, rng.randint(1, 3000)]),
    )


def open_cache(
    device: vmkv.Device, geometry: Geometry, options: Options, context: int, agents: int = 1
) -> vmkv.Cache:
    return vmkv.Cache(
        device,
        geometry,
        budget=1 << 40,
        page=options.page_bytes,
        layout=options.layout,
        read_align_tokens=options.read_align_tokens,
        max_slots=agents,
        max_tokens=context,
    )


def test_vmkv_needs_what_the_library_says(device_name: str, seed: int) -> None:
    """And reserves the addresses that it says."""
    rng = random.Random(seed)
    with vmkv.open(device_name) as device:
        for case in range(150):
            geometry, options = random_geometry(rng), random_options(rng)
            context, agents = rng.randint(1, 20_000), rng.randint(1, 4)
            where = f"seed {seed}, case {case}: {geometry}, {options}, {context}"
            with open_cache(device, geometry, options, context, agents) as cache:
                for _ in range(10):
                    tokens = rng.randint(1, context)
                    chunk = rng.choice([1, 512, rng.randint(1, context)])
                    assert need_bytes(geometry, options, tokens, chunk) == cache.need_bytes(
                        tokens, chunk
                    ), f"{where}: {tokens} in chunks of {chunk}"
                assert (
                    address_bytes(geometry, options, context, 2 * agents)
                    == cache.info.reserved_bytes
                ), where


@pytest.mark.parametrize("name", Geometry.presets())
@pytest.mark.parametrize("layout", ["layer", "token"])
def test_vmkv_needs_what_the_library_says_of_known_models(
    device_name: str, name: str, layout: str
) -> None:
    geometry, options = Geometry.preset(name), Options(layout=layout)
    with (
        vmkv.open(device_name) as device,
        open_cache(device, geometry, options, 16000, 8) as cache,
    ):
        for tokens in (1, 3000, 16000):
            need = cache.need_bytes(tokens, 1)
            assert need_bytes(geometry, options, tokens) == need
        own = make_plan(geometry, 100 * GB, Demand(), options).schemes[-1]
        assert own.reserved_bytes == 8 * cache.need_bytes(3000, 1)
        assert own.address_bytes == cache.info.reserved_bytes


def test_vmkv_maps_what_the_plan_says(device_name: str, seed: int) -> None:
    """To the byte where there are no windows; never more where there are."""
    rng = random.Random(seed)
    with vmkv.open(device_name) as device:
        for case in range(30):
            geometry, options = random_geometry(rng), random_options(rng)
            tokens = rng.randint(1, 1000)
            where = f"seed {seed}, case {case}: {geometry}, {options}, {tokens}"
            with open_cache(device, geometry, options, tokens) as cache:
                sequence = cache.open()
                for length in range(1, tokens + 1):
                    cache.step({sequence: length})
                mapped = cache.stats().mapped_bytes
                need = need_bytes(geometry, options, tokens)
                # A step trims what the one before left behind a window: a token here.
                behind = sum(
                    group.token_bytes
                    for group in geometry.groups
                    if group.policy == "window"
                    and tokens > group.window_tokens + group.slack_tokens
                )
                assert cache.stats().live_bytes == live_bytes(geometry, tokens) + behind, where
                if any(group.policy == "window" for group in geometry.groups):
                    assert mapped <= need, where
                    assert cache.stats().mapped_bytes_peak <= need, where
                else:
                    assert mapped == need, where


def test_second_cap() -> None:
    assert Demand(context_tokens=16000).caps == (16000, 8000)
    assert Demand(context_tokens=16001).caps == (16001, 8000)
    assert Demand(context_tokens=1, average_tokens=1).caps == (1, 1)
    assert Demand(context_tokens=16000, second_cap_tokens=4096).caps == (16000, 4096)
    plan = make_plan(opaque(1000), GB, Demand(8, 16000, 3000, 4096), Options())
    # 8 x 4,096 x 1,000 bytes; 1,000,000,000 / 4,096,000 = 244.1
    assert (plan.schemes[1].reserved_bytes, plan.schemes[1].admitted) == (32_768_000, 244)
    assert plan.schemes[1].name == "reserve 4,096"


def test_a_cap_below_the_average_admits_nobody() -> None:
    """Whatever the memory: the average agent would not end."""
    plan = make_plan(opaque(1000), GB, Demand(2, 16000, 9000), Options())
    long, short, *_ = plan.schemes
    assert (long.long_enough, long.fits, long.admitted) == (True, True, 62)  # 1,000 / 16
    assert (short.tokens, short.long_enough, short.fits, short.admitted) == (8000, False, False, 0)
    assert (short.reserved_bytes, short.wasted_bytes) == (16_000_000, 0)
    exact = make_plan(opaque(1000), GB, Demand(2, 16000, 8000), Options()).schemes[1]
    assert (exact.long_enough, exact.fits, exact.wasted_percent) == (True, True, "0%")


def test_fits_to_the_byte() -> None:
    demand, options = Demand(2, 10, 10), Options(page_bytes=4096)
    geometry = opaque(100)  # 10 tokens: 1,000 bytes, a block of 1,600, a page of 4,096
    for budget, fits in (
        (8192, (1, 1, 1)),
        (8191, (1, 1, 0)),
        (3200, (1, 1, 0)),
        (3199, (1, 0, 0)),
    ):
        long, _, paged, own = make_plan(geometry, budget, demand, options).schemes
        assert (long.fits, paged.fits, own.fits) == fits
    long, _, paged, own = make_plan(geometry, 1999, demand, options).schemes
    assert (long.fits, long.admitted, paged.admitted, own.admitted) == (False, 1, 1, 0)
    long, _, paged, own = make_plan(geometry, 8191, demand, options).schemes
    assert (long.admitted, paged.admitted, own.admitted) == (8, 5, 1)


def test_only_states() -> None:
    geometry = Geometry((Group("state", (0,), (Tensor("s", dtype="none", row_bytes=5000),)),))
    plan = make_plan(geometry, 100_000, Demand(), Options(page_bytes=4096))
    assert (plan.bytes_per_token, plan.fixed_bytes, plan.budget_tokens) == (0, 5000, 0)
    assert [scheme.agent_bytes for scheme in plan.schemes] == [5000, 5000, 5000, 8192]
    assert [scheme.admitted for scheme in plan.schemes] == [20, 20, 20, 12]


def test_cards() -> None:
    """qwen3-8b beside 5.5 GB of weights."""
    geometry, options = Geometry.preset("qwen3-8b"), Options()
    cards = make_cards(geometry, 5_500_000_000, Demand(8, 16000, 3000), options)
    assert [card.card_bytes for card in cards] == [gib * GIB for gib in CARD_GIB]
    assert (CARD_GIB[0], CARD_GIB[-1]) == (8, 96)
    by_size = {card.card_bytes // GIB: card for card in cards}
    admitted = {
        size: [scheme.admitted for scheme in card.schemes] for size, card in by_size.items()
    }
    # 16 GiB - 5.5 GB = 11,679,869,184 bytes
    assert by_size[16].budget_bytes == 11_679_869_184
    # / 2,359,296,000 = 4.95; / 1,179,648,000 = 9.9; / 443,547,648 = 26.3, paged and vmkv alike
    assert admitted[16] == [4, 9, 26, 26]
    # 8 GiB: 3,089,934,592 bytes; 1.3, 2.6, 6.97
    assert admitted[8] == [1, 2, 6, 6]
    # 96 GiB: 97,579,215,104 bytes; 41.4, 82.7, 219.9
    assert admitted[96] == [41, 82, 219, 219]
    for card in cards:
        plan = make_plan(geometry, card.budget_bytes, Demand(8, 16000, 3000), options)
        assert card.schemes == plan.schemes


def test_cards_too_small_for_the_weights_admit_nobody() -> None:
    cards = make_cards(opaque(100), 20 * GIB, Demand(), Options())
    assert [card.budget_bytes for card in cards[:5]] == [0] * 5
    assert [scheme.admitted for card in cards[:5] for scheme in card.schemes] == [0] * 20
    assert cards[5].budget_bytes == 4 * GIB


def test_json() -> None:
    plan = article()
    values = plan.as_json()
    keys = {"bytes_per_token", "fixed_bytes", "live_bytes", "budget_tokens", "schemes"}
    assert keys <= set(values)
    assert (values["second_cap_tokens"], values["page_bytes"]) == (8000, 65536)
    for scheme, shown in zip(plan.schemes, values["schemes"], strict=True):
        for key in ("scheme", "tokens", "reserved_bytes", "fits", "admitted", "wasted_fraction"):
            assert shown[key] == getattr(scheme, key)
    card = make_cards(opaque(140_000), 0, Demand(), Options())[0].as_json()
    assert (card["card_bytes"], card["budget_bytes"]) == (8 * GIB, 8 * GIB)
    # 8 GiB = 8,589,934,592 bytes; / 2,240,000,000 = 3.8; / 421,120,000 = 20.4
    assert card["schemes"][0] == {"scheme": "contiguous", "tokens": 16000, "admitted": 3}
    assert card["schemes"][2] == {"scheme": "paged", "tokens": None, "admitted": 20}


@pytest.mark.parametrize(
    ("wasted", "shown"),
    [
        (0, "0%"),
        (4, "<0.1%"),  # of 10,000
        (5, "0.1%"),
        (27, "0.3%"),
        (994, "9.9%"),
        (995, "10%"),
        (1049, "10%"),
        (1050, "11%"),
        (6249, "62%"),
        (6250, "63%"),
    ],
)
def test_half_rounds_up(wasted: int, shown: str) -> None:
    scheme = article().schemes[0]
    changed = dataclasses.replace(scheme, wasted_bytes=wasted, reserved_bytes=10_000)
    assert changed.wasted_percent == shown


def test_short_tokens() -> None:
    numbers = (1, 999, 1000, 16000, 16384, 1_000_000)
    assert [short_tokens(number) for number in numbers] == [
        "1",
        "999",
        "1k",
        "16k",
        "16,384",
        "1,000k",
    ]


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"agents": 0}, "agents is at least 1, not 0"),
        ({"average_tokens": -1}, "average is at least 1, not -1"),
        ({"chunk_tokens": 0}, "chunk is at least 1"),
        ({"second_cap_tokens": 0}, "second cap is at least 1"),
        ({"average_tokens": 16001}, "average of 16,001 tokens is more than the context of 16,000"),
        ({"second_cap_tokens": 16001}, "second cap of 16,001 tokens is more than the context"),
        ({"context_tokens": 2**32}, "context is 4294967296: it is at most 4294967294"),
    ],
)
def test_demands_that_make_no_sense(values: dict[str, int], wrong: str) -> None:
    with pytest.raises(vmkv.InvalidError, match=wrong):
        Demand(**values)


@pytest.mark.parametrize(
    ("values", "wrong"),
    [
        ({"page_bytes": 0}, "page is a power of two from 4 KiB to 2 MiB, not 0 bytes"),
        ({"page_bytes": 2048}, "page is a power of two"),
        ({"page_bytes": 10**6}, "page is a power of two .*, not 1,000,000 bytes"),
        ({"page_bytes": 4 << 20}, "page is a power of two"),
        ({"layout": "flat"}, "unknown layout 'flat'"),
        ({"read_align_tokens": 0}, "read align is 1 to"),
    ],
)
def test_options_that_make_no_sense(values: dict[str, int], wrong: str) -> None:
    with pytest.raises(vmkv.InvalidError, match=wrong):
        Options(**values)  # type: ignore[arg-type]


def test_a_budget_below_one_agent() -> None:
    for budget, holds in ((0, False), (419_999_999, False), (420_000_000, True)):
        plan = make_plan(opaque(140_000), budget, Demand(), Options())
        assert plan.agent_live_bytes == 420_000_000
        assert plan.holds_an_agent is holds
        assert [scheme.admitted for scheme in plan.schemes] == [0, 0, 0, 0]


def test_what_a_token_takes_in_words() -> None:
    def words(name: str, average: int) -> str:
        return make_plan(Geometry.preset(name), GB, Demand(1, 16000, average), Options()).per_token

    assert words("qwen3-8b", 1) == "147,456 bytes a token"
    assert words("qwen3.5-9b", 1) == "32,768 bytes a token and 52.7 MB fixed"
    # 24,576 x 128 = 3,145,728 in windows: full from token 128 on.
    assert words("gpt-oss-20b", 128) == "24,576 bytes a token and 3.1 MB fixed"
    assert words("gpt-oss-20b", 127) == (
        "24,576 bytes a token and 3.1 MB fixed once its windows are full"
    )
    assert make_plan(opaque(1), GB, Demand(1, 1, 1), Options()).per_token == "1 byte a token"


@pytest.mark.parametrize(
    ("geometry", "demand", "options", "wrong"),
    [
        # 2^40 bytes x 2^23 tokens
        (opaque(2**40), Demand(1, 2**23, 1), Options(), "span of 8 EiB is more than 2\\^31 - 1"),
        # 2^31 - 1 pages of 4 KiB are just less than 8 TiB.
        (opaque(2**20), Demand(1, 2**23, 1), Options(page_bytes=4096), "span of 8 TiB"),
        (opaque(2**40 + 1), Demand(), Options(), "row of 1.00 TiB is more than 1 TiB"),
        # 2^30 x 16,000 bytes an agent are 15.6 TiB; 2^64 bytes are 2^24 TiB.
        (opaque(2**30), Demand(2**21), Options(), "15.6 TiB for each of 2,097,152 agents"),
        (opaque(2**60), Demand(1), Options(), "16000 EiB for each of 1 agent "),
        # Only the addresses pass: 2 x 2^18 slots of 2^26 tokens x 2^19 bytes are 2^64.
        (opaque(2**19), Demand(2**18, 2**26, 1), Options(), "524,288 slots of 67,108,864 tokens"),
    ],
)
def test_sizes_that_pass_64_bits(
    geometry: Geometry, demand: Demand, options: Options, wrong: str
) -> None:
    with pytest.raises(vmkv.SizeError, match=wrong):
        make_plan(geometry, 2**64 - 1, demand, options)


def test_opaque_tokens() -> None:
    assert opaque(1).bytes_per_token == 1
    with pytest.raises(vmkv.InvalidError, match="at least 1 byte"):
        opaque(0)
