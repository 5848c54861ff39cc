"""vmkv: KV-cache memory for engines that want flat spans.

An engine opens a sequence and gets, for every layer and tensor, one contiguous range of GPU
addresses. vmkv puts physical memory behind exactly the part that the sequence uses, and takes it
away again.

Importing vmkv loads nothing else: what is used of it loads then.

>>> import vmkv
>>> device = vmkv.open("host")
>>> cache = vmkv.Cache(device, vmkv.Geometry.preset("qwen3-8b"), budget="10GB")
>>> agent = cache.open()
>>> cache.step({agent: 3000})
0
>>> agent.span(layer=0, tensor="k").shape
(3000, 8, 128)
>>> agent.close()
>>> cache.close()
>>> device.close()
"""

import sys

# Looked for as an import does it, but not loaded yet.
if not any(
    finder.find_spec("vmkv._native", __path__)
    for finder in sys.meta_path
    if hasattr(finder, "find_spec")
):
    raise ImportError(
        "this vmkv is the source tree, which has no extension module: to import the installed "
        "package, start Python in another directory, or as python -P"
    )

# Which module has which names; the same as below, where type checkers read it.
_MODULES = {
    "cache": ("Cache",),
    "device": ("Device", "DeviceInfo", "open"),
    "errors": (
        *("AddressError", "BusyError", "ClosedError", "DeviceError", "DeviceLostError"),
        *("DeviceMemoryError", "DeviceNotFoundError", "Error", "HostMemoryError", "InvalidError"),
        *("RangeError", "Shortage", "SizeError", "StaleError", "UnreachableError"),
        *("UnsupportedError", "WaitTimeoutError"),
    ),
    "geometry": ("Geometry", "Group", "Tensor"),
    "sequence": ("Sequence",),
    "span": ("Mapping", "Span"),
    "stats": ("CacheInfo", "Stats"),
    "step": ("Batch",),
}

__all__ = [
    "AddressError",
    "Batch",
    "BusyError",
    "Cache",
    "CacheInfo",
    "ClosedError",
    "Device",
    "DeviceError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceMemoryError",
    "DeviceNotFoundError",
    "Error",
    "Geometry",
    "Group",
    "HostMemoryError",
    "InvalidError",
    "Mapping",
    "RangeError",
    "Sequence",
    "Shortage",
    "SizeError",
    "Span",
    "StaleError",
    "Stats",
    "Tensor",
    "UnreachableError",
    "UnsupportedError",
    "WaitTimeoutError",
    "__version__",
    "open",
]

TYPE_CHECKING = False  # as typing's, which takes longer to import
if TYPE_CHECKING:
    from vmkv.cache import Cache
    from vmkv.device import Device, DeviceInfo
    from vmkv.device import open_device as open  # noqa: A004 - vmkv.open is the name
    from vmkv.errors import (
        AddressError,
        BusyError,
        ClosedError,
        DeviceError,
        DeviceLostError,
        DeviceMemoryError,
        DeviceNotFoundError,
        Error,
        HostMemoryError,
        InvalidError,
        RangeError,
        Shortage,
        SizeError,
        StaleError,
        UnreachableError,
        UnsupportedError,
        WaitTimeoutError,
    )
    from vmkv.geometry import Geometry, Group, Tensor
    from vmkv.sequence import Sequence
    from vmkv.span import Mapping, Span
    from vmkv.stats import CacheInfo, Stats
    from vmkv.step import Batch

    __version__: str
else:

    def __getattr__(name: str) -> object:
        """A name of this package, or one of its modules, when it is first asked for."""
        value = _load(name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return sorted({*globals(), *_MODULES, *__all__})


def _load(name: str) -> object:
    from importlib import import_module

    if name in _MODULES:
        return import_module(f"vmkv.{name}")
    if name not in __all__:
        raise AttributeError(f"module 'vmkv' has no attribute {name!r}")
    if name == "__version__":
        version: int = import_module("vmkv._native").lib.vmkv_version()
        return f"{version >> 16}.{version >> 8 & 0xFF}.{version & 0xFF}"
    module = next(module for module, names in _MODULES.items() if name in names)
    return getattr(import_module(f"vmkv.{module}"), "open_device" if name == "open" else name)
