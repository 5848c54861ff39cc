"""vmkv: KV-cache memory for engines that want flat spans.

An engine opens a sequence and gets, for every layer and tensor, one contiguous range of GPU
addresses. vmkv puts physical memory behind exactly the part that the sequence uses, and takes it
away again.

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

try:
    from vmkv._native import lib as _lib
except ModuleNotFoundError as error:
    raise ImportError(
        "this vmkv is the source tree, which has no extension module: to import the installed "
        "package, start Python in another directory, or as python -P"
    ) from error
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

_VERSION = _lib.vmkv_version()
__version__ = f"{_VERSION >> 16}.{_VERSION >> 8 & 0xFF}.{_VERSION & 0xFF}"

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
