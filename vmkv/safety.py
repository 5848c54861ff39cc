"""Opening cards that may not be sound: which safe modes a device is opened in."""

from __future__ import annotations

import warnings
from collections.abc import Iterable

from vmkv import errors
from vmkv._names import DeviceName
from vmkv._native import lib

_BITS = {
    "never-reuse-addresses": int(lib.VMKV_SAFE_NEVER_REUSE_ADDRESSES),
    "wait-after-map": int(lib.VMKV_SAFE_WAIT_AFTER_MAP),
    "no-alias": int(lib.VMKV_SAFE_NO_ALIAS),
}
MODES = tuple(_BITS)

Safety = str | Iterable[str] | None


def modes_of(bits: int) -> tuple[str, ...]:
    """The safe modes that bits of `enum vmkv_safe` stand for."""
    return tuple(name for name, bit in _BITS.items() if bits & bit)


def safe_name(name: str, safety: Safety = None) -> str:
    """The name under which a device is opened: with the safe modes that `safety` says; see
    `vmkv.open`, whose arguments and errors these are.

    >>> safe_name("host"), safe_name("host", ["no-alias"])
    ('host', 'host?safe=no-alias')
    """
    wanted = DeviceName.parse(name)
    if safety is None:
        safety = "auto" if wanted.kind in ("auto", "amdgpu") else "none"
    if safety == "none":
        return name
    if safety != "auto":
        if wanted.kind == "auto":
            raise errors.InvalidError("device 'auto' takes no safe modes: name the device")
        return str(_with_modes(wanted, _checked(safety), 0))
    if wanted.kind == "auto":
        return _best(wanted)
    if wanted.kind not in ("amdgpu", "emulated"):
        return name  # nothing of a card is in it
    return str(_examined(wanted))


def _checked(safety: str | Iterable[str]) -> tuple[str, ...]:
    """Safe modes as given."""
    if isinstance(safety, str | bytes) or not isinstance(safety, Iterable):
        raise errors.InvalidError(
            f"safety is {safety!r}: it is 'auto', 'none' or a tuple of {', '.join(MODES)}"
        )
    modes = tuple(safety)
    for mode in modes:
        if mode not in MODES:
            raise errors.InvalidError(f"safe mode {mode!r} is none of {', '.join(MODES)}")
    return modes


def _with_modes(name: DeviceName, modes: Iterable[str], wait_us: int) -> DeviceName:
    """A name with these safe modes, and those that it has already. A wait that it names stays,
    unless that is too short. What is malformed stays, for whoever opens it to refuse."""
    if [key for key, _ in name.options].count("safe") > 1:
        return name
    value = name.option("safe")
    given = value.split(",") if value is not None else []
    every = [mode for mode in MODES if mode in {*modes, *given}]
    if every:
        name = name.with_option("safe", ",".join([*every, *sorted(set(given) - {*MODES})]))
    own = name.option("wait_us") or "0"
    if wait_us and not (own.isdecimal() and int(own) >= wait_us):
        name = name.with_option("wait_us", str(wait_us))
    return name


def _examined(name: DeviceName) -> DeviceName:
    """A card's name with the safe modes that doctor finds needed.

    Raises:
        DeviceNotFoundError: there is no such card. DeviceLostError: it was lost meanwhile.
        UnsupportedError: it can't be trusted, or not with the options of the name.
    """
    from vmkv import doctor

    report = doctor.examine(str(name))
    if report.refusal is not None:
        raise report.refusal
    verdict = report.verdict
    if name.option("commit") == "bo" and "timeline-ignored" in verdict.faults:
        raise errors.UnsupportedError(
            f"{report.device} can't be used with commit=bo: probe timeline failed "
            "(timeline-ignored). Use commit=cs"
        )
    if name.option("commit") == "engine" and "wait-after-map" in verdict.safe_modes:
        raise errors.UnsupportedError(
            f"{report.device} can't be used with commit=engine: probe late-visibility failed, and "
            "vmkv can't wait for what the engine submits. Use commit=cs"
        )
    if name.kind == "amdgpu":  # that very card, if no other was meant
        name = DeviceName("amdgpu", DeviceName.parse(str(report.device)).place, name.options)
    return _with_modes(name, verdict.safe_modes, verdict.wait_us)


def _best(name: DeviceName) -> str:
    """The device for "auto": the first Radeon that can be trusted, else the host."""
    from vmkv.drm import render_nodes  # looks at /dev alone

    if name.place or name.options:
        return str(name)  # which is refused
    try:
        paths = render_nodes()
    except errors.DeviceError as error:
        paths = []
        warnings.warn(f"cards aren't looked for: {error}", RuntimeWarning, stacklevel=4)
    for path in paths:
        card = DeviceName("amdgpu", path)
        try:
            return str(_examined(card))
        except errors.DeviceNotFoundError:
            continue  # not one of amdgpu
        except errors.DeviceError as error:
            warnings.warn(f"{card} isn't used: {error}", RuntimeWarning, stacklevel=4)
    return str(name)
