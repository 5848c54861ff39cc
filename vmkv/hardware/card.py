"""The card that is measured, and what it is."""

from __future__ import annotations

import contextlib
import datetime
from collections.abc import Iterator
from dataclasses import dataclass, field

from vmkv import __version__, drm, errors
from vmkv._closing import Closing
from vmkv._names import DeviceName
from vmkv._patience import Patience
from vmkv.doctor import machine
from vmkv.emulator import Emulator

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True)
class Facts:
    """What has to be said of where figures are from. `vmkv` is the release that measured; `kernel`
    is the running one's, or "emulated"; the date is UTC."""

    vmkv: str
    device: str
    emulated: bool
    card: str
    family: str
    device_id: str
    vram_bytes: int
    resizable_bar: bool
    kernel: str
    drm: str
    libdrm: str
    date: str


@dataclass(frozen=True)
class Card:
    """An open card, and the device name that it was opened by."""

    name: str
    device: drm.Device
    emulated: bool
    patience: Patience = field(default_factory=Patience)


@contextlib.contextmanager
def open_card(name: str) -> Iterator[Card]:
    """Open the card that a device's name means: "amdgpu", "amdgpu:/dev/dri/renderD128", "auto" (the
    first real one), or "emulated:gfx1201?kernel=7.2". Options of the device (commit=, safe=, ...)
    mean nothing to a card that is measured by itself.

    Raises:
        InvalidError: a device that is no amdgpu card, or a malformed name.
        DeviceNotFoundError: there is no such card. DeviceError: no right to open it.
    """
    wanted = DeviceName.parse(name)
    wanted.check_options()
    if wanted.kind == "emulated":
        with Emulator(wanted.card_spec()) as emulator, emulator.device() as device:
            yield Card(name, device, emulated=True)
    elif wanted.kind == "amdgpu" or name == "auto":
        with drm.Device.open(wanted.place or None) as device:
            yield Card(name, device, emulated=False)
    else:
        raise errors.InvalidError(
            f"device {name!r} is no amdgpu card: name amdgpu, or emulated:gfx1201 for a trial"
        )


def facts(card: Card) -> Facts:
    """What there is."""
    found, itself = machine.look(), machine.read_card(card.device, card.emulated)
    return Facts(
        vmkv=__version__,
        device=card.name,
        emulated=card.emulated,
        card=f"emulated {itself.name}" if card.emulated else itself.name,
        family=itself.family,
        device_id=itself.device_id,
        vram_bytes=itself.vram_bytes,
        resizable_bar=itself.resizable_bar,
        kernel="emulated" if card.emulated else found.kernel,
        drm=itself.drm_version,
        libdrm=found.libdrm.release,
        date=datetime.datetime.now(datetime.UTC).date().isoformat(),
    )


def free_vram(device: drm.Device) -> int:
    """Bytes of VRAM that nobody has."""
    vram = device.memory.vram
    return max(vram.usable - vram.used, 0)


class Addresses(Closing):
    """Gives out addresses that were never used before in this run, and keeps them until it is
    closed: there are cards that go on using the memory that was behind an address before. What is
    written here must never end up in memory that was given back.
    """

    def __init__(self, device: drm.Device) -> None:
        self._device = device
        self._scope = contextlib.ExitStack()

    def take(self, size: int) -> int:
        """The first of so many addresses; a multiple of 2 MiB."""
        return self._scope.enter_context(self._device.va_alloc(size, alignment=2 * MIB)).address

    def close(self) -> None:
        """Give all of them back."""
        self._scope.close()
