"""What the tests of vmkv.drm share: emulated cards of each kernel, and a look at this process."""

import contextlib
from collections.abc import Iterator

import pytest

from vmkv import drm
from vmkv._native import lib
from vmkv.drm._base import libdrm
from vmkv.emulator import Emulator

KERNELS = ("6.1", "6.12", "7.2")
MINORS = {"6.1": 49, "6.12": 61, "7.2": 64}
PAGE = 4096
MIB = 1 << 20

WRITEABLE = "read|write"


def emulated(kernel: str, options: str = "", model: str = "gfx1201") -> Iterator[Emulator]:
    """A small card, for a fixture."""
    with Emulator(f"{model}?vram=256MiB&gtt=256MiB&kernel={kernel}{options}") as card:
        yield card


@pytest.fixture(params=KERNELS)
def kernel(request: pytest.FixtureRequest) -> str:
    """Each kernel in turn."""
    return str(request.param)


@pytest.fixture
def card(kernel: str) -> Iterator[Emulator]:
    yield from emulated(kernel)


@pytest.fixture
def device(card: Emulator) -> Iterator[drm.Device]:
    with card.device() as device:
        yield device


@contextlib.contextmanager
def paused(card: Emulator) -> Iterator[None]:
    """A time in which the card starts no job; it ends even if a test fails."""
    card.pause()
    try:
        yield
    finally:
        card.resume()


def has_private_devices() -> bool:
    """Whether this libdrm gives devices of their own."""
    return bool(libdrm().amdgpu_device_initialize2)


class Mapped:
    """A buffer of a device and addresses where it is mapped; closed together."""

    def __init__(
        self, device: drm.Device, size: int, domain: str = "vram", *, always_valid: bool = True
    ) -> None:
        self.device = device
        self.buffer = device.alloc(size, domain, always_valid=always_valid, cleared=True)
        self.range = device.va_alloc(size, alignment=2 * MIB)
        device.map(self.buffer, self.range.address)

    @property
    def address(self) -> int:
        return self.range.address

    def close(self) -> None:
        self.device.unmap(self.buffer, self.address)
        self.range.close()
        self.buffer.close()

    def __enter__(self) -> "Mapped":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def info_number(name: str) -> int:
    """The number of an INFO query."""
    return int(getattr(lib, f"AMDGPU_INFO_{name}"))
