"""Names of devices, taken apart: kind[:place][?option=value&...]."""

from __future__ import annotations

from dataclasses import dataclass

from vmkv import errors

# Options of the amdgpu device, which an emulated card doesn't know, and those that let the CPU look
# at it or trace it.
_OF_DEVICE = frozenset({"commit", "slabs", "safe", "wait_us"})
_OF_CPU = frozenset({"identity", "window", "trace"})
_OF_AMDGPU = ("commit", "slabs", "window", "safe", "wait_us")


@dataclass(frozen=True)
class DeviceName:
    """A device's name.

    Attributes:
        kind: "host", "amdgpu", "emulated", ...
        place: what stands behind the colon: a node, a model; "" if nothing does.
        options: names and values; one without "=" has None.
    """

    kind: str
    place: str = ""
    options: tuple[tuple[str, str | None], ...] = ()

    @classmethod
    def parse(cls, name: str) -> DeviceName:
        """Take a name apart. It isn't checked: who opens it does that.

        >>> str(DeviceName.parse("emulated:gfx1201?vram=1GiB&kernel=7.2"))
        'emulated:gfx1201?vram=1GiB&kernel=7.2'
        """
        head, _, tail = name.partition("?")
        kind, _, place = head.partition(":")
        parts = [part.partition("=") for part in tail.split("&") if part]
        options = tuple((key, value if equals else None) for key, equals, value in parts)
        return cls(kind, place, options)

    def option(self, name: str) -> str | None:
        """The value of an option; None if it isn't given."""
        return dict(self.options).get(name)

    def with_option(self, name: str, value: str) -> DeviceName:
        """The name with an option in place of what it had."""
        others = tuple(item for item in self.options if item[0] != name)
        return DeviceName(self.kind, self.place, (*others, (name, value)))

    def check_options(self) -> None:
        """Of a real card: see that there are options of these names. An emulated one's are checked
        by the emulator.

        Raises:
            InvalidError: there is no such option.
        """
        for name, _ in self.options if self.kind == "amdgpu" else ():
            if name not in _OF_AMDGPU:
                raise errors.InvalidError(
                    f"unknown option {name!r} of device amdgpu: it has "
                    f"{', '.join(_OF_AMDGPU[:-1])} and {_OF_AMDGPU[-1]}"
                )

    def card_spec(self) -> str:
        """Of an emulated device: the card alone, as the emulator takes it."""
        kept = [item for item in self.options if item[0] not in _OF_DEVICE | _OF_CPU]
        return str(DeviceName(self.place, "", tuple(kept)))

    def __str__(self) -> str:
        head = f"{self.kind}:{self.place}" if self.place else self.kind
        tail = "&".join(key if value is None else f"{key}={value}" for key, value in self.options)
        return f"{head}?{tail}" if tail else head
