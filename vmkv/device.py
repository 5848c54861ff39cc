"""Devices: what gives memory and addresses."""

from __future__ import annotations

import errno as codes
from dataclasses import dataclass
from typing import Any

from vmkv import errors
from vmkv._handle import Handle, read_text, text_buffer
from vmkv._native import ffi, lib
from vmkv._values import check_count, new_struct, read_struct, timeout_ns
from vmkv.safety import Safety, modes_of, safe_name


@dataclass(frozen=True)
class DeviceInfo:
    """What a device is and can do; the fields of `struct vmkv_device_info`.

    Attributes:
        name: what `vmkv.open` would take again.
        granule_bytes: the smallest piece that can be mapped.
        memory_bytes: physical memory that it can give to slabs at most.
        max_mappings: bound on mappings that are not contiguous with the one before; 2^64 - 1 where
            no bound is known.
        mappings: how many of those there are now, over all caches.
        features: bits, see the properties.
        lost: 1 after the device was lost.
        safe: bits, see safe_modes.
        wait_after_map_us: how long wait-after-map waits; 0 if it isn't in force.
    """

    name: str
    granule_bytes: int
    memory_bytes: int
    max_mappings: int
    mappings: int
    features: int
    lost: int
    safe: int
    wait_after_map_us: int

    @property
    def cpu_addresses(self) -> bool:
        """Whether this process can read and write through a span: `Span.numpy` works."""
        return bool(self.features & lib.VMKV_FEATURE_CPU_ADDRESSES)

    @property
    def zeroed_slabs(self) -> bool:
        """Whether new memory is known to be zero."""
        return bool(self.features & lib.VMKV_FEATURE_ZEROED_SLABS)

    @property
    def asynchronous(self) -> bool:
        """Whether changes take effect later, at points other than 0."""
        return bool(self.features & lib.VMKV_FEATURE_ASYNCHRONOUS)

    @property
    def safe_modes(self) -> tuple[str, ...]:
        """The safe modes that are in force: names as in "host?safe=no-alias"."""
        return modes_of(self.safe)


class Device(Handle):
    """An open device; made by `vmkv.open`. A context manager that closes it.

    Every method may be called from any thread, at the same time as any other.
    """

    __slots__ = ()

    def __init__(self, name: str = "auto") -> None:
        if not isinstance(name, str):
            raise TypeError(f"a device's name is a text such as 'host', not {name!r}")
        if "\0" in name:
            raise errors.InvalidError(f"a device's name can't hold a NUL character: {name!r}")
        text, encoded = text_buffer(), ffi.new("char[]", name.encode(errors="surrogateescape"))
        options = new_struct("vmkv_device_options", error=text, error_bytes=len(text))
        options.name = encoded
        super().__init__(lib.vmkv_device_close)
        code = self._create(lambda ret: lib.vmkv_device_open(options, ret), "vmkv_device")
        if code:
            message = read_text(text)
            if code == -codes.ENODEV:
                raise errors.DeviceNotFoundError(message or f"no device {name!r}", -code)
            errors.fail(code, message)

    def _what(self) -> str:
        return "the device"

    def _read_error(self, text: Any, size: int) -> None:
        lib.vmkv_device_error(self._pointer, text, size)

    @property
    def info(self) -> DeviceInfo:
        """What it is and can do, as of now.

        Raises:
            ClosedError: it is closed.
        """
        struct = new_struct("vmkv_device_info")
        code = lib.vmkv_device_info(self._pointer, struct)
        if code:
            self._fail(code)
        return read_struct(DeviceInfo, struct)

    @property
    def name(self) -> str:
        """What `vmkv.open` would take again."""
        return self.info.name

    @property
    def safe_modes(self) -> tuple[str, ...]:
        """The safe modes that are in force.

        >>> with open_device("host?safe=no-alias,wait-after-map") as device:
        ...     device.safe_modes
        ('wait-after-map', 'no-alias')
        """
        return self.info.safe_modes

    def close(self) -> None:
        """Close it. Nothing happens if it is closed already. Waits for calls of other threads.

        Raises:
            BusyError: a cache still uses it, or a call didn't come back within seconds; the device
                stays open.
        """
        code = self._release()
        if code:
            self._fail(code)

    def copy(self, destination: int, source: int, nbytes: int, *, wait: bool = True) -> int:
        """Copy nbytes from one GPU address to another on the device's copy engine. The ranges must
        not overlap. Returns the point at which it is done: 0, unless wait is false.

        >>> with vmkv.open("host") as device:
        ...     geometry = vmkv.Geometry.full(layers=1, heads=8, head_dim=128)
        ...     with vmkv.Cache(device, geometry, budget="1GiB") as cache:
        ...         one, two = cache.open(), cache.open()
        ...         _ = cache.step({one: 10, two: 10})
        ...         one.span().numpy()[:] = 1
        ...         device.copy(two.span().address, one.span().address, 10 * one.span().row_bytes)
        ...         float(two.span().numpy().sum())
        0
        10240.0

        Raises:
            InvalidError: the ranges overlap or wrap around. AddressError: an address has no memory
            behind it. ClosedError, DeviceError.
        """
        target = check_count("destination", destination, 64)
        origin = check_count("source", source, 64)
        size = check_count("nbytes", nbytes, 64)
        point = ffi.NULL if wait else ffi.new("uint64_t *")
        code = lib.vmkv_copy(self._pointer, target, origin, size, point)
        if code:
            self._fail(code)
        return 0 if wait else int(point[0])

    def fill(self, address: int, nbytes: int, value: int = 0, *, wait: bool = True) -> int:
        """Fill nbytes at a GPU address with a 32-bit value; address and nbytes are multiples of 4.
        Returns the point at which it is done: 0, unless wait is false.

        Raises:
            InvalidError: not multiples of 4. AddressError: an address has no memory behind it.
            RangeError: more than 32 bits. ClosedError, DeviceError.
        """
        target = check_count("address", address, 64)
        size, word = check_count("nbytes", nbytes, 64), check_count("value", value)
        point = ffi.NULL if wait else ffi.new("uint64_t *")
        code = lib.vmkv_fill(self._pointer, target, size, word, point)
        if code:
            self._fail(code)
        return 0 if wait else int(point[0])

    def wait(self, point: int, timeout: float | None = None) -> None:
        """Wait until the device has reached a point, for at most timeout seconds (None: for ever;
        0: only look).

        Raises:
            WaitTimeoutError: not reached in that time. InvalidError: a negative timeout, or
            one that is no number. TypeError: not a number at all.
            ClosedError, DeviceError.
        """
        number = check_count("point", point, 64)
        code = lib.vmkv_wait(self._pointer, number, timeout_ns(timeout))
        if code == -codes.ETIME and not self.closed:
            raise errors.WaitTimeoutError(f"point {number} was not reached in {timeout} s", -code)
        if code:
            self._fail(code)

    def __repr__(self) -> str:
        return "<vmkv.Device closed>" if self.closed else f"<vmkv.Device {self.name!r}>"


def amdgpu_info(device: Device) -> Any:
    """The `struct vmkv_amdgpu_info *` of a device; None if it is not of amdgpu."""
    info = new_struct("vmkv_amdgpu_info")
    return info if lib.vmkv_amdgpu_info(device._pointer, info) == 0 else None


def open_device(name: str = "auto", *, safety: Safety = None) -> Device:
    """Open a device.

    Args:
        name: "host" (this process's own memory), "amdgpu" or "amdgpu:/dev/dri/renderD128" (a
            Radeon), "emulated:gfx1201" (such a card without one), or "auto": the first Radeon that
            can be trusted, else the host. Options follow a "?", as in "host?memory=8GiB"; vmkv.h
            has all of them.
        safety: "auto": examine a card first, as `vmkv doctor` does (a second or two, in an address
            space of its own where libdrm has such), open it in the safe modes that it turns out to
            need, and not at all if it can't be trusted. "none": open it as it is. A tuple of
            "never-reuse-addresses", "wait-after-map" and "no-alias": open it in these. None: "auto"
            for amdgpu and auto, "none" for the others. `Device.safe_modes` says which are in force.

    >>> with open_device("host") as device:
    ...     device.info.cpu_addresses
    True

    An engine that has examined its card before, and keeps the outcome, passes the modes on. C code
    (also with a file or handle of its own to adopt) does so by the option `safe=` of the name, with
    what `vmkv doctor --json` says: a card is the same whichever address space looks at it.

    Raises:
        InvalidError: a malformed name or option. DeviceNotFoundError: an unknown device, or none
        such on this machine. UnsupportedError: the card can't be trusted; the probe that it failed
        is named. DeviceLostError: it was lost while it was examined. DeviceError: no right to open
        it (errno EACCES).
    """
    if not isinstance(name, str):
        return Device(name)  # which says what is wrong
    return Device(safe_name(name, safety))
