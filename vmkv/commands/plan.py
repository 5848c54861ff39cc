"""`vmkv plan`: how many agents a memory admits, and three ways to keep their KV caches."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
from click.core import ParameterSource
from rich.console import Console
from rich.table import Table

import vmkv
from vmkv import svg
from vmkv.commands.common import (
    MODEL,
    MODEL_HELP,
    PICTURE,
    SIZE,
    Command,
    Model,
    json_option,
    print_json,
)
from vmkv.commands.printing import print_whole
from vmkv.plan import (
    BLOCK_TOKENS,
    CARD_GIB,
    Card,
    Demand,
    Options,
    Plan,
    make_cards,
    make_plan,
    opaque,
    span_count,
)
from vmkv.plan_picture import draw
from vmkv.sizes import count, enough, human, human_decimal

_DEFAULT_MODEL = Model("qwen3-8b")
_DEFAULT_BUDGET_BYTES = 10 * 1000**3
_TOKENS_MAX = (1 << 32) - 2


class _Whole(click.IntRange):
    name = "whole number"


def _number(
    name: str, text: str, default: int | None = None, most: int = _TOKENS_MAX
) -> Callable[[Command], Command]:
    """An option that is a number of tokens or agents."""
    shown = default is not None
    return click.option(
        name, type=_Whole(1, most), metavar="NUMBER", default=default, show_default=shown, help=text
    )


@click.command("plan")
@click.option(
    "--model",
    type=MODEL,
    help=f"Whose KV cache: {MODEL_HELP}. [default: {_DEFAULT_MODEL}]",
)
@click.option(
    "--bytes-per-token", type=SIZE, help="Instead of a model: what a token takes, such as 0.14MB."
)
@click.option(
    "--budget",
    type=SIZE,
    help="Physical memory for KV caches. [default: 10GB]",
)
@click.option("--vram", type=SIZE, help="Instead of a budget: a card's memory; needs --weights.")
@click.option("--weights", type=SIZE, help="What the model's weights take of --vram or of --cards.")
@_number("--agents", "How many agents are there at a time.", 8, 1 << 19)
@_number(
    "--context", "How long an agent may get, in tokens: what a contiguous scheme reserves.", 16000
)
@_number("--average", "How long agents are on average, in tokens.", 3000)
@_number(
    "--second-cap",
    "What a second contiguous scheme reserves, in tokens. [default: half of the context]",
)
@_number(
    "--chunk",
    "By how many tokens an agent grows in a step at most; matters to sliding windows only.",
    1,
)
@click.option(
    "--page",
    type=SIZE,
    default="64KiB",
    show_default=True,
    help="vmkv's pages: a power of two from 4KiB to 2MiB.",
)
@click.option(
    "--layout",
    type=click.Choice(["layer", "token"]),
    help="vmkv's spans: one for each layer and tensor, or all interleaved token by token. "
    "[default: layer; token with --bytes-per-token]",
)
@_number("--read-align", "vmkv has memory up to the length rounded up to this many tokens.", 1)
@click.option("--cards", is_flag=True, help="Also for cards of 8 to 96 GiB.")
@click.option(
    "--picture",
    type=PICTURE,
    help="Draw the agents admitted, by card with --cards, else by scheme: .svg, or .png with "
    "matplotlib.",
)
@json_option
def command(
    model: Model | None,
    bytes_per_token: int | None,
    budget: int | None,
    vram: int | None,
    weights: int | None,
    agents: int,
    context: int,
    average: int,
    second_cap: int | None,
    chunk: int,
    page: int,
    layout: str | None,
    read_align: int,
    cards: bool,
    picture: Path | None,
    as_json: bool,
) -> None:
    """Work out how many agents a memory admits.

    Three ways to keep KV caches: contiguous (each agent reserves its cap when it starts; at two
    caps), paged (blocks of 16 tokens) and vmkv. All figures are physical memory: only vmkv reserves
    addresses besides, and they are told apart. Contiguous and paged are modelled, at their best;
    vmkv's figures are what the library maps: to the byte, and at most in sliding windows.

    \b
    Examples:
      vmkv plan --bytes-per-token 0.14MB --budget 10GB
      vmkv plan --model gpt-oss-20b --vram 16GiB --weights 12.8GB --average 8000
      vmkv plan --model qwen3-8b --cards --weights 5.5GB --picture cards.svg
    """
    geometry = _geometry(model, bytes_per_token, layout)
    try:
        demand = _demand(agents, context, average, second_cap, chunk)
        options = Options(page, layout or ("token" if bytes_per_token else "layer"), read_align)
        planned = make_plan(geometry, _budget(budget, vram, weights, cards), demand, options)
        by_card = make_cards(geometry, weights or 0, demand, options) if cards else ()
    except vmkv.InvalidError as error:
        raise click.UsageError(str(error)) from error
    short = "" if planned.holds_an_agent else _too_little(planned, budget, vram)
    if short and not cards:  # what cards admit has nothing to do with it
        raise click.UsageError(short)
    name = (model or _DEFAULT_MODEL).name if bytes_per_token is None else ""
    if as_json:
        given = {"model": name or None, "vram_bytes": vram}
        by_card_json = [card.as_json() for card in by_card]
        print_json(given | {"weights_bytes": weights} | planned.as_json() | {"cards": by_card_json})
    else:
        _print_plan(planned, name, geometry, short)
        if cards:
            _print_cards(by_card, weights or 0)
    if picture is not None:
        svg.save(draw(planned, name, by_card, weights or 0), picture)


def _geometry(
    model: Model | None, bytes_per_token: int | None, layout: str | None
) -> vmkv.Geometry:
    if bytes_per_token is None:
        return (model or _DEFAULT_MODEL).geometry()
    if model is not None:
        raise click.UsageError("give --model or --bytes-per-token, not both")
    if layout == "layer":
        raise click.UsageError(
            "--layout layer needs --model: --bytes-per-token doesn't say how many layers"
        )
    try:
        return opaque(bytes_per_token)
    except vmkv.InvalidError as error:
        raise click.UsageError(str(error)) from error


def _demand(agents: int, context: int, average: int, second_cap: int | None, chunk: int) -> Demand:
    try:
        return Demand(agents, context, average, second_cap, chunk)
    except vmkv.InvalidError as error:
        # Two lengths contradict each other, of which one may be nobody's.
        source = click.get_current_context().get_parameter_source
        for name in ("context", "average"):
            if source(name) is ParameterSource.DEFAULT:
                raise vmkv.InvalidError(f"{error}: give --{name} too") from error
        raise


def _budget(budget: int | None, vram: int | None, weights: int | None, cards: bool) -> int:
    if budget is not None and vram is not None:
        raise vmkv.InvalidError("give --budget, or --vram and --weights, not both")
    if weights is not None and vram is None and not cards:
        raise vmkv.InvalidError("--weights goes with --vram or --cards")
    if vram is None:
        return _DEFAULT_BUDGET_BYTES if budget is None else budget
    if weights is None:
        raise vmkv.InvalidError("--vram needs --weights, or give --budget")
    if weights >= vram:
        raise vmkv.InvalidError(
            f"weights of {human_decimal(weights)} leave nothing of {human_decimal(vram)} of VRAM"
        )
    return vram - weights


def _too_little(plan: Plan, budget: int | None, vram: int | None) -> str:
    """Why no agent fits, and what would be right."""
    what, demand, own = human_decimal(plan.budget_bytes), plan.demand, plan.schemes[-1]
    if vram is not None:
        what, remedy = f"what the weights leave, {what},", "leave"
    else:
        what = f"the default budget of {what}" if budget is None else f"a budget of {what}"
        remedy = "give --budget"
    rest = f", or {enough(own.reserved_bytes)} for all {demand.agents:,}"
    return (
        f"{what} is less than one agent of {count(demand.average_tokens, 'token')}, which is "
        f"{human_decimal(plan.agent_live_bytes)}: {remedy} {enough(own.agent_bytes)} for one with "
        f"vmkv{rest if demand.agents > 1 else ''}"
    )


# ---- tables


def _print_plan(plan: Plan, model: str, geometry: vmkv.Geometry, short: str) -> None:
    demand = plan.demand
    console = Console(highlight=False)
    _say(
        console,
        f"{model}{': ' if model else ''}{plan.per_token}, "
        f"{human_decimal(plan.agent_live_bytes)} an agent of "
        f"{count(demand.average_tokens, 'token')}",
        style="bold",
    )
    need = "needs" if demand.agents == 1 else "need"
    _say(
        console,
        f"{human_decimal(plan.budget_bytes)} of memory{_tokens_in_all(plan)}; "
        f"{count(demand.agents, 'agent')} {need} {human_decimal(plan.live_bytes)} at least",
    )
    console.print()
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for header in ("scheme", f"for {demand.agents:,}", "fits", "admits", "wasted"):
        left = header in ("scheme", "fits")
        table.add_column(header, justify="left" if left else "right", no_wrap=True)
    for scheme in plan.schemes:
        table.add_row(
            scheme.name,
            human_decimal(scheme.reserved_bytes),
            "yes" if scheme.fits else "no",
            f"{scheme.admitted:,}",
            scheme.wasted_percent,
        )
    print_whole(console, table)
    console.print()
    if short:
        _say(console, f"{short[0].upper()}{short[1:]}.")
    for line in _notes(plan, geometry):
        _say(console, line)


def _tokens_in_all(plan: Plan) -> str:
    tokens = plan.budget_tokens
    if not tokens:
        return ""
    about = (
        f"about {(tokens + 500) // 1000:,}k tokens" if tokens >= 10_000 else count(tokens, "token")
    )
    aside = ", what is fixed aside" if plan.fixed_bytes else ""
    return f": {about} in all{aside}"


def _notes(plan: Plan, geometry: vmkv.Geometry) -> Iterator[str]:
    demand, options = plan.demand, plan.options
    own = plan.schemes[-1]
    for scheme in plan.schemes:
        if not scheme.long_enough:
            average = count(demand.average_tokens, "token")
            yield f"{scheme.name}: too short for an agent of {average}."
    yield "All of it is physical memory:"
    yield "reserve: taken when an agent starts, for the longest that it may get (modelled)."
    yield f"paged: taken as agents grow, in blocks of {BLOCK_TOKENS} tokens (modelled)."
    spans = span_count(geometry, options.layout)
    each = f"each of an agent's {spans:,} spans" if spans > 1 else "an agent's span"
    align = options.read_align_tokens
    ahead = f", up to a multiple of {align:,} tokens" if align > 1 else ""
    yield (
        f"vmkv: taken as agents grow, in pages of {human(options.page_bytes)} in {each} "
        f"({options.layout} layout){ahead}. It also reserves "
        f"{human_decimal(own.address_bytes)} of addresses, with no memory behind them."
    )
    if any(group.policy == "window" for group in geometry.groups):
        added = count(demand.chunk_tokens, "token")
        yield (
            f"Sliding windows are counted at their most while a step adds {added} to an agent; "
            f"vmkv gives memory behind them back in whole mappings, and so has more of it."
        )


def _print_cards(cards: Sequence[Card], weights: int) -> None:
    console = Console(highlight=False)
    console.print()
    besides = f" besides {human_decimal(weights)} of weights" if weights else ""
    _say(
        console,
        f"Agents that a card of {CARD_GIB[0]} to {CARD_GIB[-1]} GiB admits{besides}",
        style="bold",
    )
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for header in ("card", "for KV", *(scheme.name for scheme in cards[0].schemes)):
        table.add_column(header, justify="right", no_wrap=True)
    for card in cards:
        admitted = (f"{scheme.admitted:,}" for scheme in card.schemes)
        table.add_row(human(card.card_bytes), human_decimal(card.budget_bytes), *admitted)
    print_whole(console, table)
    if not weights:
        console.print()
        _say(console, "Nothing is left for the model's weights: see --weights.")


def _say(console: Console, text: str, style: str | None = None) -> None:
    """Text in lines, without the blanks between words that rich leaves at their ends."""
    lines = textwrap.fill(text, max(console.width, 1), break_on_hyphens=False)
    console.print(lines, style=style, markup=False, emoji=False, soft_wrap=True)
