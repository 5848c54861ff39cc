"""Caches: sequences of one geometry within one budget."""

from __future__ import annotations

import errno as codes
from collections.abc import Callable, Iterable
from collections.abc import Mapping as AbstractMapping
from typing import Any, NoReturn, SupportsIndex

import numpy as np
import numpy.typing as npt

from vmkv import errors, sizes
from vmkv._handle import Handle, read_text, text_buffer
from vmkv._native import ffi, lib
from vmkv._values import check_count, new_struct, read_struct
from vmkv.device import Device
from vmkv.geometry import Geometry
from vmkv.sequence import Sequence
from vmkv.span import MemoryView
from vmkv.stats import CacheInfo, Stats
from vmkv.step import Batch, Call, read_shortage

Size = str | SupportsIndex

_LAYOUTS = {"layer": lib.VMKV_LAYOUT_LAYER, "token": lib.VMKV_LAYOUT_TOKEN}
_SHARE = {None: lib.VMKV_SHARE_DEFAULT, True: lib.VMKV_SHARE_ON, False: lib.VMKV_SHARE_OFF}
_PREFER = {"lowest": lib.VMKV_PREFER_LOWEST, "warm": lib.VMKV_PREFER_WARM}


class Cache(Handle):
    """KV-cache memory for sequences of one geometry. A context manager that closes it.

    Creating it reserves addresses; physical memory comes with steps. Sizes are bytes, or text such
    as "10GB" (10^10 bytes), "10GiB", "64KiB".

    Every method may be called from any thread, at the same time as any other.

    Args:
        device: where the memory is; it must stay open as long as the cache.
        geometry: what one token needs.
        budget: bound on physical memory; at least one page for every span of a sequence.
        page: what is accounted and recycled: a power of two, a multiple of the device's granule, at
            most 2 MiB.
        layout: "layer": an address range for each layer and tensor, rows packed. "token": all
            layers of a group interleaved token by token; a growth takes fewer mappings.
        max_slots: bound on open sequences.
        max_tokens: bound on the length of a sequence.
        slot_count: address slots; sequences that were closed keep theirs until retired. None: twice
            max_slots.
        read_align_tokens: memory is there up to the length rounded up to this, for kernels that
            read further than they use.
        zero: whether memory that comes from another sequence reads as zero.
        slab: one physical allocation, a multiple of 2 MiB.
        warm: how much may stay mapped behind closed slots. None: a quarter of the budget; 0 or
            "off": none.
        mapping_max: longest piece that is mapped by one driver call and given back whole. None:
            2 MiB in the layer layout, 32 MiB in the token layout.
        window_mapping_max: the same in window groups. None: 256 KiB or one page, whichever is more.
        share: whether `vmkv stats` can look into it, through a file that only this user can read.
            None: if the environment has VMKV_STATS=1. VMKV_STATS=0 turns it off for all.

    >>> with vmkv.open("host") as device:
    ...     with vmkv.Cache(device, vmkv.Geometry.preset("qwen3-8b"), budget="10GB") as cache:
    ...         sequence = cache.open()
    ...         ready = cache.step({sequence: 3000})
    ...         sequence.tokens, ready, f"{cache.stats().waste:.1%}"
    (3000, 0, '0.3%')

    Attributes:
        device, geometry, layout: what it was made with.

    Raises:
        InvalidError: an argument outside its range. SizeError: sizes whose product passes 64 bits,
        or more addresses than the device has. ClosedError: the device is closed. DeviceError, also
        if it can't be shared: the directory isn't this user's alone, or there is no room in it.
    """

    __slots__ = ("_cpu_addresses", "device", "geometry", "layout")

    def __init__(
        self,
        device: Device,
        geometry: Geometry,
        *,
        budget: Size,
        page: Size = "64KiB",
        layout: str = "layer",
        max_slots: int = 8,
        max_tokens: int = 16384,
        slot_count: int | None = None,
        read_align_tokens: int = 1,
        zero: bool = True,
        slab: Size = "64MiB",
        warm: Size | None = None,
        mapping_max: Size | None = None,
        window_mapping_max: Size | None = None,
        share: bool | None = None,
    ) -> None:
        if not isinstance(layout, str) or layout not in _LAYOUTS:
            raise errors.InvalidError(f"unknown layout {layout!r}: it is 'layer' or 'token'")
        if not isinstance(device, Device):
            raise TypeError(f"device is what vmkv.open returned, not {device!r}")
        if not isinstance(geometry, Geometry):
            raise TypeError(
                f"geometry is a Geometry such as Geometry.preset(...), not {geometry!r}"
            )
        if not isinstance(zero, bool | np.bool_):
            raise TypeError(f"zero is True or False, not {zero!r}")
        if not (share is None or isinstance(share, bool | np.bool_)):
            raise TypeError(f"share is True, False or None, not {share!r}")
        self.device = device
        self.geometry = geometry
        self.layout = layout
        self._cpu_addresses = device.info.cpu_addresses
        described, keep = geometry.to_c()
        options = new_struct(
            "vmkv_cache_options",
            geometry=described,
            budget_bytes=_size("budget", budget),
            page_bytes=_size("page", page),
            slab_bytes=_size("slab", slab),
            layout=_LAYOUTS[layout],
            max_slots=_positive("max_slots", max_slots),
            slot_count=_default(_positive, "slot_count", slot_count),
            max_tokens=_positive("max_tokens", max_tokens),
            read_align_tokens=_positive("read_align_tokens", read_align_tokens),
            zero=lib.VMKV_ZERO_ON if zero else lib.VMKV_ZERO_OFF,
            mapping_max_bytes=_default(_size, "mapping_max", mapping_max),
            window_mapping_max_bytes=_default(_size, "window_mapping_max", window_mapping_max),
            warm_max_bytes=_warm(warm),
            share=_SHARE[None if share is None else bool(share)],
        )
        super().__init__(lib.vmkv_cache_destroy, device)
        self._make(options)
        del keep  # the library has its own copy now

    def _make(self, options: Any) -> None:
        text = text_buffer()
        options.error, options.error_bytes = text, len(text)
        code = self._create(
            lambda ret: lib.vmkv_cache_create(self.device._pointer, options, ret), "vmkv_cache"
        )
        if code and self.device.closed:
            self.device._fail(code)
        if code:
            errors.fail(code, read_text(text))

    def _what(self) -> str:
        return "the cache"

    def _read_error(self, text: Any, size: int) -> None:
        lib.vmkv_cache_error(self._pointer, text, size)

    @property
    def info(self) -> CacheInfo:
        """What it was created with, and what follows from it.

        Raises:
            ClosedError: it is closed.
        """
        struct = new_struct("vmkv_cache_info")
        code = lib.vmkv_cache_info(self._pointer, struct)
        if code:
            self._fail(code)
        return read_struct(CacheInfo, struct, layout=self.layout)

    def close(self) -> None:
        """Destroy it with all its sequences and give everything back. Nothing happens if it is
        closed already. It is the caller's word that nothing uses the memory any more: arrays made
        by `Span.numpy` and `ready_tokens` must not be touched afterwards. Waits for calls of other
        threads.

        Raises:
            BusyError: a call didn't come back within seconds; the cache stays open.
        """
        self._release()

    def open(
        self, prefer: str = "lowest", slot: int | None = None, expected_tokens: int = 0
    ) -> Sequence:
        """Open a sequence of length 0. It takes a slot, and no memory yet.

        Args:
            prefer: "lowest": the lowest free slot, for dense batches. "warm": one that still has
                memory, the best fit to expected_tokens; else the lowest.
            slot: exactly this one.
            expected_tokens: how long it will get; 0: unknown. If the slot has more memory kept warm
                than that takes, the rest is given back first.

        Raises:
            Shortage: of kind "slots": max_slots are open, or every slot waits to be retired or
                unmapped. A slot is free once `retiring_until` is retired, or `transit_point`
                reached, if that isn't 0.
            BusyError: the slot isn't free. InvalidError, RangeError: an argument outside its range.
            ClosedError.
        """
        if not isinstance(prefer, str) or prefer not in _PREFER:
            raise errors.InvalidError(f"unknown prefer {prefer!r}: it is 'lowest' or 'warm'")
        options = new_struct(
            "vmkv_open_options",
            prefer=_PREFER[prefer],
            expected_tokens=check_count("expected_tokens", expected_tokens),
        )
        if slot is not None:
            options.prefer, options.slot = lib.VMKV_PREFER_SLOT, check_count("slot", slot)
        options.shortage = told = ffi.new("struct vmkv_shortage *")
        ret = ffi.new("vmkv_seq *")
        try:
            code = lib.vmkv_seq_open(self._pointer, options, ret)
            if code:
                self._fail_open(code, told)
            return Sequence(self, ret[0])
        except BaseException:
            if ret[0]:  # an interrupt: nobody would ever close it
                lib.vmkv_seq_close(self._pointer, ret[0], 0)
            raise

    def _fail_open(self, code: int, told: Any) -> NoReturn:
        try:
            self._fail(code)
        except errors.DeviceError as error:
            if code != -codes.ENOSPC:
                raise
            raise read_shortage(told, "slots", message=str(error)) from None

    def step(self, lengths: AbstractMapping[Sequence, SupportsIndex], busy_until: int = 0) -> int:
        """Make these lengths usable: all of them, or nothing changes. Returns the point at which
        they are: 0 means now, else see `Device.wait`.

        For the same sequences again and again, `batch` is faster.

        Args:
            lengths: absolute lengths in tokens, not below the present ones.
            busy_until: a number of the engine's: its queues may use this memory until it says, by
                `retire`, that they have passed it. Covers all that was submitted so far and what
                this step prepares. 0: nothing on a queue uses it.

        Raises:
            Shortage: too little memory, or too few mappings; it carries the numbers.
            InvalidError: a length below the present one. RangeError: one past max_tokens.
            StaleError: a sequence that is closed, or another cache's. BusyError: another call is at
            work on one of them. ClosedError, DeviceError.
        """
        if not isinstance(lengths, AbstractMapping):
            raise TypeError(f"a step takes a dict of sequences to lengths, not {lengths!r}")
        tokens = [check_count("a length in tokens", value) for value in lengths.values()]
        return Call(self, lengths, tokens).step(busy_until)

    def batch(self, sequences: Iterable[Sequence]) -> Batch:
        """Prepare steps of the same sequences, none twice: see `Batch`.

        Raises:
            InvalidError: one is there twice. StaleError: one is closed, or another cache's.
        """
        return Batch(self, sequences)

    def retire(self, completed: int) -> None:
        """Say that all queues have passed `completed`: what waited for it becomes free. Values may
        come in any order; one below an earlier one is ignored.

        Raises:
            ClosedError, InvalidError, RangeError.
        """
        code = lib.vmkv_retire(self._pointer, check_count("completed", completed, 64))
        if code:
            self._fail(code)

    def need_bytes(self, tokens: int, chunk_tokens: int = 0) -> int:
        """Physical bytes that a sequence needs at most on its way to a length, if it grows by at
        most chunk_tokens a step (0: in one step; it matters only to window groups).

        Raises:
            RangeError: tokens is past max_tokens. ClosedError, InvalidError.
        """
        lengths = check_count("tokens", tokens), check_count("chunk_tokens", chunk_tokens)
        ret = ffi.new("uint64_t *")
        code = lib.vmkv_cache_need_bytes(self._pointer, *lengths, ret)
        if code:
            self._fail(code)
        return int(ret[0])

    def set_budget(self, budget: Size) -> None:
        """Bound the physical memory anew. Lowering it gives back what is free at once; what
        sequences hold stays, and no new memory is taken until enough of it was closed.

        Raises:
            InvalidError: less than one page for every span of a sequence. ClosedError.
        """
        code = lib.vmkv_cache_set_budget(self._pointer, _size("budget", budget))
        if code:
            self._fail(code)

    def shrink(self, keep: Size = 0) -> int:
        """Give memory that no sequence uses back to the system until the cache holds at most
        `keep`, or there is nothing more to give. Returns the bytes given back.

        Raises:
            ClosedError, DeviceError.
        """
        ret = ffi.new("uint64_t *")
        code = lib.vmkv_cache_shrink(self._pointer, sizes.parse(keep, "keep"), ret)
        if code:
            self._fail(code)
        return int(ret[0])

    def stats(self) -> Stats:
        """Its state at this moment.

        Raises:
            ClosedError: it is closed.
        """
        struct = new_struct("vmkv_stats")
        code = lib.vmkv_cache_stats(self._pointer, struct)
        if code:
            self._fail(code)
        return read_struct(Stats, struct)

    @property
    def ready_tokens(self) -> npt.NDArray[np.uint32]:
        """What each slot may use right now, in tokens: a read-only array of shape (slot_count,) and
        dtype uint32 that shows the library's own memory and changes with it. A length of up to that
        many tokens needs no step for memory's sake. 0 for slots with no open sequence. Don't touch
        it after the cache was closed.

        Raises:
            ClosedError: it is closed.
        """
        count = self.info.slot_count
        address = int(ffi.cast("uintptr_t", lib.vmkv_ready_tokens(self._pointer)))
        if not address:
            self._fail(-codes.EINVAL)
        dtype = np.dtype(np.uint32)
        return np.asarray(MemoryView(self, address, (count,), (4,), dtype, readonly=True))

    def __repr__(self) -> str:
        if self.closed:
            return "<vmkv.Cache closed>"
        stats = self.stats()
        used, budget = sizes.human(stats.mapped_bytes), sizes.human(stats.budget_bytes)
        return f"<vmkv.Cache of {stats.sequences} sequences, {used} of {budget} mapped>"


def _size(name: str, value: Size) -> int:
    """Bytes of a size that can't be 0."""
    size = sizes.parse(value, name)
    if not size:
        raise errors.InvalidError(f"{name} is at least 1 byte, not 0")
    return size


def _positive(name: str, value: SupportsIndex) -> int:
    """A count that can't be 0."""
    count = check_count(name, value)
    if not count:
        raise errors.InvalidError(f"{name} is at least 1, not 0")
    return count


def _default(check: Callable[[str, Any], int], name: str, value: Any) -> int:
    """What a check makes of a value; 0, the C library's default, for None."""
    return 0 if value is None else check(name, value)


def _warm(value: Size | None) -> int:
    if value is None:
        return 0
    if isinstance(value, str) and value.strip().lower() == "off":
        return int(lib.VMKV_WARM_OFF)
    return sizes.parse(value, "warm") or int(lib.VMKV_WARM_OFF)
