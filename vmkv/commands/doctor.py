"""``vmkv doctor``: whether a card can be trusted, and how."""

from __future__ import annotations

from collections.abc import Iterator

import click
from rich.console import Console
from rich.text import Text

from vmkv import doctor, errors
from vmkv.commands.common import EXIT_FAILURE, json_option, print_json
from vmkv.commands.printing import facts_table
from vmkv.sizes import count, human

_RISK = (
    "Warning: --risky reads memory that isn't mapped. A card can fault on that, hang or be reset, "
    "with all that runs on it: save your work first."
)


@click.command("doctor")
@click.option(
    "--device",
    default="amdgpu",
    show_default=True,
    metavar="NAME",
    help="The card: amdgpu (the first), amdgpu:/dev/dri/renderD129, or an emulated one, "
    "emulated:gfx1201.",
)
@json_option
@click.option(
    "--risky",
    is_flag=True,
    help="Also try what can make a card fault or hang: unmapped reads, holes.",
)
@click.pass_context
def command(context: click.Context, device: str, as_json: bool, risky: bool) -> None:
    """Prove a Radeon before trusting it.

    Says what the machine has (render nodes and who may use them, libdrm, kernel, card, memory),
    then tries on the card what is known to go wrong on some: mappings that are seen late, addresses
    that keep their old page, pages that differ by address, memory that isn't zero or isn't where it
    was asked for, unmaps and timelines that are ignored, calls that are refused for a moment. Each
    probe says what was tried, what was seen and what that means.

    Nothing but memory of its own is touched, and it takes a few seconds. No root is needed.

    \b
    Exit code: 0  the card may be trusted, in the safe modes named
               1  it may not, or there is none
               2  wrong usage
    """
    if risky:
        click.echo(_RISK, err=True)
    try:
        report = doctor.examine(
            device, risky=risky, progress=lambda text: click.echo(f"{text} ...", err=True)
        )
    except errors.InvalidError as error:
        raise click.UsageError(str(error)) from error
    if as_json:
        print_json(report.as_json())
    else:
        _print(report)
    if not report.trusted:
        context.exit(EXIT_FAILURE)


def _print(report: doctor.Report) -> None:
    console = Console(highlight=False)
    if console.is_terminal:
        _show(console, report)
        return
    with console.capture() as text:  # to be posted: without the blanks that fill cells
        _show(console, report)
    click.echo("\n".join(line.rstrip() for line in text.get().splitlines()))


def _show(console: Console, report: doctor.Report) -> None:
    console.print(facts_table(_facts(report)))
    if report.findings:
        console.print()
        console.print(facts_table(_lines(report)))
    console.print()
    console.print(_verdict(report))


# ---- what there is --------------------------------------------------------------------------


def _facts(report: doctor.Report) -> Iterator[tuple[str, str]]:
    machine = report.machine
    yield "kernel", f"Linux {machine.kernel}"
    yield "libdrm", _libdrm(machine.libdrm)
    for node in machine.nodes:
        yield "node", _node(node, machine.user)
    if machine.problem:
        yield "node", f"unknown: {machine.problem}"
    elif not machine.nodes:
        yield "node", "none in /dev/dri"
    if report.device:
        yield "device", report.device
    if report.card:
        yield from _card(report.card)


def _libdrm(libdrm: doctor.Libdrm) -> str:
    if libdrm.problem:
        return "none"
    text = f"{libdrm.release} ({libdrm.path})" if libdrm.path else libdrm.release
    if libdrm.others:
        text += f"; also loaded, and of no use to this one: {', '.join(libdrm.others)}"
    return text


def _node(node: doctor.Node, user: str) -> str:
    if not node.mode:
        return f"{node.path}, which can't be looked at"
    may = "may" if node.usable else "may not"
    return (
        f"{node.path}, {node.driver or 'unknown driver'}, group {node.group} {node.mode}: "
        f"{user} {may} use it"
    )


def _card(card: doctor.Card) -> list[tuple[str, str]]:
    emulated = "emulated, no hardware: " if card.emulated else ""
    if card.resizable_bar:
        reach = "all of it in the CPU's reach (resizable BAR)"
    else:
        reach = f"{human(card.visible_vram_bytes)} in the CPU's reach (no resizable BAR)"
    rings = count(card.sdma_rings, "SDMA ring")
    return [
        ("card", f"{emulated}{card.name}, {card.family}, device {card.device_id}, {rings}"),
        ("DRM", f"amdgpu {card.drm_version}{', of the emulated kernel' * card.emulated}"),
        ("VRAM", f"{human(card.vram_bytes)}, {human(card.vram_used_bytes)} in use; {reach}"),
        ("GTT", f"{human(card.gtt_bytes)}, {human(card.gtt_used_bytes)} in use"),
    ]


# ---- what was found -------------------------------------------------------------------------


def _lines(report: doctor.Report) -> Iterator[tuple[Text, Text]]:
    for finding in report.findings:
        text = Text(f"{finding.name}: {finding.tried}. ")
        text.append(f"Seen: {finding.seen}. ")
        if finding.passed is not None or finding.harmless:
            text.append(f"Means: {finding.meaning}.", style="dim" if finding.passed else "bold")
        yield _mark(finding, report.verdict), text


def _mark(finding: doctor.Finding, verdict: doctor.Verdict) -> Text:
    if finding.passed:
        return Text("ok", style="green")
    if finding in verdict.refusals:
        return Text("FAULT" if finding.failed else "?", style="bold red")
    return Text("note" if finding in verdict.notes else "safe mode", style="yellow")


# ---- what follows ---------------------------------------------------------------------------


def _verdict(report: doctor.Report) -> Text:
    verdict, text = report.verdict, Text()
    if report.failure is not None:
        text.append(f"Not examined: {report.failure}.", style="bold")
        for remedy in report.remedies:
            text.append(f"\n  - {remedy}")
    elif not verdict.trusted:
        text.append(f"Not trusted: vmkv won't run on this card. {_why(verdict)}", style="bold red")
        text.append("\nPlease report this output, with the lines of amdgpu from dmesg.")
    elif not verdict.safe_modes:
        text.append("Trusted: no safe mode is needed.", style="bold green")
    else:
        modes = ", ".join(verdict.safe_modes)
        wait = f" ({verdict.wait_us:,} us)" if verdict.wait_us else ""
        text.append(f"Trusted in safe modes: {modes}{wait}.", style="bold yellow")
        text.append("\nvmkv.open uses them by itself (safety='auto'); in C, the name's option is ")
        text.append(_options(verdict))
    if report.card and report.card.emulated:
        text.append("\nThis card is emulated: none of it says anything of hardware.")
    return text


def _why(verdict: doctor.Verdict) -> str:
    """What was found, and what couldn't be looked for: that isn't named as if it were found."""
    found = [f"{one.name} ({one.fault})" for one in verdict.refusals if one.failed]
    untried = [one.name for one in verdict.refusals if not one.failed]
    text = f"{', '.join(found)}. " if found else ""
    return text + (f"Not tried, or not to the end: {', '.join(untried)}." if untried else "")


def _options(verdict: doctor.Verdict) -> str:
    wait = f"&wait_us={verdict.wait_us}" if verdict.wait_us else ""
    return f"?safe={','.join(verdict.safe_modes)}{wait}"
