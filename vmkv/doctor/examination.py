"""Examining a card: from its name to a report."""

from __future__ import annotations

import contextlib
import errno as codes
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from vmkv import drm, errors
from vmkv._names import DeviceName
from vmkv.doctor import probes_kernel, probes_mapping, probes_memory, probes_risky
from vmkv.doctor.machine import Card, Machine, Node, look, read_card
from vmkv.doctor.probe import Finding, Outcome, Probe
from vmkv.doctor.verdict import Verdict, judge
from vmkv.doctor.workbench import NEEDED_BYTES, Workbench
from vmkv.drm._base import libdrm
from vmkv.sizes import human

LIMIT_S = 8.0

# The engine first, as the others look through it; lateness, as they wait for it; then unmaps, as
# they put other mappings in place of what was there.
PROBES = (
    probes_mapping.COPY_ENGINE,
    probes_mapping.LATE_VISIBILITY,
    probes_mapping.UNMAP,
    probes_mapping.MAP_WRITE_READ,
    probes_mapping.REMAP,
    probes_mapping.ALIAS,
    probes_memory.ZEROING,
    probes_memory.FILL,
    probes_memory.RESIDENCY,
    probes_kernel.TIMELINE,
    probes_kernel.SUBMISSIONS,
)
RISKY_PROBES = (probes_risky.HOLE, probes_risky.UNMAPPED_READ)

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Report:
    """What came of an examination.

    Attributes:
        device: the name of what was examined, as `vmkv.open` takes it; None if there was none.
        machine: what the machine has.
        card: what the card tells of itself; None if it couldn't be opened.
        findings: what the probes found.
        verdict: what follows.
        failure: why nothing could be examined; None if it could.
        remedies: what to do about that.
        seconds: how long the probes took.
    """

    device: str | None
    machine: Machine
    card: Card | None = None
    findings: tuple[Finding, ...] = ()
    verdict: Verdict = field(default_factory=lambda: Verdict(False))
    failure: errors.Error | None = None
    remedies: tuple[str, ...] = ()
    seconds: float = 0.0

    @property
    def trusted(self) -> bool:
        """Whether the card may be used, in the verdict's safe modes."""
        return self.verdict.trusted

    @property
    def refusal(self) -> errors.Error | None:
        """The error for whoever wants to use the card all the same; None if it is trusted."""
        if self.failure is not None or self.trusted:
            return self.failure
        first, lost = self.verdict.refusals[0], "device-lost" in self.verdict.faults
        kind = errors.DeviceLostError if lost else errors.UnsupportedError
        if first.failed:
            why = f"probe {first.name} failed ({first.fault}: {first.seen})"
        else:
            why = f"probe {first.name} could not be finished ({first.seen})"
        return kind(
            f"{self.device} can't be trusted: {why}. vmkv doctor --device "
            f"{shlex.quote(str(self.device))} says more; safety='none' opens it all the same",
            codes.ENODEV if lost else codes.ENOTSUP,
        )

    def as_json(self) -> dict[str, Any]:
        """All of it, for JSON."""
        return {
            "device": self.device,
            "trusted": self.trusted,
            "safe_modes": list(self.verdict.safe_modes),
            "wait_us": self.verdict.wait_us,
            "faults": sorted(self.verdict.faults),
            "probes": [finding.as_json() for finding in self.findings],
            "problem": str(self.failure) if self.failure else "",
            "remedies": list(self.remedies),
            "machine": self.machine.as_json(),
            "card": self.card.as_json() if self.card else None,
            "seconds": round(self.seconds, 3),
        }


def examine(
    name: str = "amdgpu", *, risky: bool = False, progress: Progress = lambda text: None
) -> Report:
    """Examine a card with buffers of its own, in an address space of its own (with libdrm 2.4.121
    or newer; before, in that of the process). A machine without a card is reported as such, and is
    no error.

    Args:
        name: as for `vmkv.open`: "amdgpu" (the first), "amdgpu:/dev/dri/renderD129", or an emulated
            one, "emulated:gfx1201?inject=stale-translation". Options that only concern the device
            (commit=, slabs=, safe=, ...) are passed over, whatever their values.
        risky: also read unmapped addresses and holes, which can make a card fault or hang.
        progress: called with what is done next.

    Raises:
        InvalidError: the name is none of a card, or has an option that there isn't.
    """
    wanted = DeviceName.parse(name)
    if wanted.kind not in ("amdgpu", "emulated"):
        raise errors.InvalidError(
            f"{name!r} is no card: amdgpu, amdgpu:/dev/dri/renderD128 or emulated:gfx1201 are"
        )
    wanted.check_options()
    found = look()
    failure, remedies = _obstacle(wanted, found)
    if failure:
        return Report(None, found, failure=failure, remedies=remedies)
    path = wanted.place or _first(found)
    device = str(wanted) if wanted.kind == "emulated" else f"amdgpu:{path}"
    report = None
    try:
        with _opened(wanted, path) as opened:
            card = read_card(opened, wanted.kind == "emulated")
            report = _probed(Report(device, found, card), opened, risky, progress)
    except errors.InvalidError:
        raise
    except errors.BusyError:
        if report is None:  # else the card hangs: what it works on stays open
            raise
    except errors.Error as error:
        return Report(device, found, failure=error, remedies=_remedies_of(error))
    return report


# ---- what keeps a card from being examined --------------------------------------------------


def _first(found: Machine) -> str:
    """The path of the first card that may be used."""
    return next((node.path for node in found.nodes if node.is_amdgpu and node.usable), "")


Obstacle = tuple[errors.Error | None, tuple[str, ...]]


def _obstacle(wanted: DeviceName, found: Machine) -> Obstacle:
    """Why there is nothing to open, and what to do; None if there is."""
    if found.libdrm.problem:
        return errors.UnsupportedError(found.libdrm.problem, codes.ENOENT), (
            "install it: apt install libdrm-amdgpu1 (Debian, Ubuntu), dnf install libdrm (Fedora), "
            "pacman -S libdrm (Arch)",
        )
    if wanted.kind == "emulated":
        return None, ()
    if found.problem and not wanted.place:
        remedy = "let everybody look into it: sudo chmod a+rx /dev/dri"
        return errors.DeviceError(found.problem, codes.EACCES), (remedy,)
    nodes = [node for node in found.nodes if node.is_amdgpu]
    if wanted.place:
        # Any other path may lead to a node, too: opening it tells.
        nodes = [node for node in found.nodes if node.path == wanted.place]
    elif not nodes:
        return _no_card(found)
    if nodes and not any(node.usable for node in nodes):
        return _no_permission(nodes[0], found.user)
    return None, ()


def _no_card(found: Machine) -> Obstacle:
    drivers = sorted({node.driver for node in found.nodes})
    others = f", only of {', '.join(drivers)}" if drivers else ""
    problem = f"this machine has no render node of amdgpu{others}"
    return errors.DeviceNotFoundError(problem, codes.ENODEV), (
        "see whether there is a Radeon: lspci -nn | grep -i amd",
        "load its driver: sudo modprobe amdgpu; in a container, pass /dev/dri through",
        "look at an emulated card instead: vmkv doctor --device emulated:gfx1201",
    )


def _no_permission(node: Node, user: str) -> Obstacle:
    if not node.mode:
        problem = f"{node.path} can't be looked at: it leads nowhere, or {user} may not follow it"
        return errors.DeviceError(problem, codes.ENOENT), ("see what it is: ls -lL /dev/dri",)
    problem = f"{user} may not open {node.path}: it is for the group {node.group} ({node.mode})"
    remedy = f"join the group, then log in anew: sudo usermod -aG {node.group} {user}"
    if node.group == "root":
        remedy = (
            "give the node to the group render, as udev does: "
            f"sudo chgrp render {node.path}; sudo chmod 660 {node.path}"
        )
    elif node.mode[4:6] != "rw":
        remedy = f"allow it for the group: sudo chmod g+rw {node.path}"
    elif node.group.isdecimal() or user.isdecimal():
        remedy = (
            f"in a container, start it with that group: --group-add {node.group} (docker, podman)"
        )
    return errors.DeviceError(problem, codes.EACCES), (remedy,)


# What opening a node fails with that no driver is behind, or none that can go on.
_DEAD = (codes.ENXIO, codes.ENODEV, codes.EIO)


def _remedies_of(error: errors.Error) -> tuple[str, ...]:
    if isinstance(error, errors.DeviceLostError):
        return ("look at what the kernel says: sudo dmesg | grep amdgpu; then reboot",)
    if isinstance(error, errors.DeviceMemoryError):
        return ("end programs that use the card",)
    if error.errno in _DEAD and not isinstance(error, errors.DeviceNotFoundError):
        return (
            "see whether a driver is behind it: lspci -nnk -d 1002:",
            "look at what the kernel says: sudo dmesg | grep amdgpu",
        )
    return ()


# ---- opening --------------------------------------------------------------------------------


@contextlib.contextmanager
def _opened(wanted: DeviceName, path: str) -> Iterator[drm.Device]:
    """The card as a device with an address space of its own, where libdrm has such."""
    private = bool(libdrm().amdgpu_device_initialize2)
    if wanted.kind == "emulated":
        from vmkv.emulator import Emulator

        with Emulator(wanted.card_spec()) as card, card.device(private=private) as device:
            yield device
        return
    with drm.Device.open(path, private=private) as device:
        yield device


# ---- probing --------------------------------------------------------------------------------


def _probed(report: Report, device: drm.Device, risky: bool, progress: Progress) -> Report:
    begin = time.monotonic()
    memory = device.memory.vram
    free = memory.usable - memory.used
    if report.card is None or not report.card.sdma_rings:
        problem = "the card offers no copy engine (SDMA), which vmkv needs"
        return _unable(report, errors.UnsupportedError(problem, codes.ENOTSUP))
    if free < NEEDED_BYTES:
        lacking = human(NEEDED_BYTES - max(free, 0))
        problem = f"{human(NEEDED_BYTES)} of free VRAM are needed, {lacking} more than there is"
        error = errors.DeviceMemoryError(problem, codes.ENOSPC)
        return _unable(report, error, "end programs that use the card")
    before = probes_kernel.Condition.of(device)
    with Workbench(device) as bench:
        probes = [*PROBES, *(RISKY_PROBES if risky else ())]
        findings = _run_all(bench, probes, before, begin + LIMIT_S, progress)
        late_us = bench.late_us
    verdict = judge(findings, late_us)
    return Report(
        report.device,
        report.machine,
        report.card,
        tuple(findings),
        verdict,
        seconds=time.monotonic() - begin,
    )


def _unable(report: Report, failure: errors.Error, *remedies: str) -> Report:
    return Report(report.device, report.machine, report.card, failure=failure, remedies=remedies)


def _run_all(
    bench: Workbench,
    probes: Sequence[Probe],
    before: probes_kernel.Condition,
    deadline: float,
    progress: Progress,
) -> list[Finding]:
    """Run probes in their order, and those of the whole run last. What can't work after a fault
    isn't tried."""
    findings: list[Finding] = []
    stopped = ""
    bench.deadline = deadline
    for probe in probes:
        if not stopped and time.monotonic() > deadline:
            stopped = "the probes before took too long"
        if stopped:
            findings.append(probe.finding(Outcome(None, f"not tried: {stopped}")))
            continue
        progress(f"{probe.name}: {probe.tried}")
        outcome, stopped = _run_one(bench, probe)
        findings.append(probe.finding(outcome))
    for probe in (probes_kernel.pressure_probe(before), probes_kernel.LOSS):
        findings.append(probe.finding(_run_one(bench, probe)[0]))
    return findings


def _run_one(bench: Workbench, probe: Probe) -> tuple[Outcome, str]:
    """The outcome of a probe, and why no other can follow."""
    try:
        outcome = probe.run(bench)
        bench.tidy()
    except errors.Error as error:
        with contextlib.suppress(errors.Error):
            bench.tidy()
        outcome = Outcome(None, f"ended by an error: {error}", fatal=True)
    if outcome.passed is True or probe.fault == "device-lost":
        return outcome, ""
    if bench.is_lost():
        return Outcome(None, "not finished: the card was lost meanwhile"), "the card was lost"
    verb = "failed" if outcome.passed is False else "ended by an error"
    return outcome, f"{probe.name} {verb}" if outcome.fatal else ""
