"""Statistics of a cache, and what it was created with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class CacheInfo:
    """What a cache is; the fields of `struct vmkv_cache_info`.

    Attributes:
        page_bytes: what is accounted and recycled.
        slab_bytes: one physical allocation.
        bytes_per_token: live bytes of one token, over all full and window groups.
        fixed_bytes: live bytes of a sequence's state groups.
        reserved_bytes: address space of all slots: virtual, not memory.
        slot_count: address slots, the length of `Cache.ready_tokens`.
        max_slots: bound on open sequences.
        max_tokens: bound on the length of a sequence.
        read_align_tokens: memory is there up to the length rounded up to this.
        layout: "layer" or "token".
        group_count: groups of the geometry.
    """

    page_bytes: int
    slab_bytes: int
    bytes_per_token: int
    fixed_bytes: int
    reserved_bytes: int
    slot_count: int
    max_slots: int
    max_tokens: int
    read_align_tokens: int
    layout: str
    group_count: int


@dataclass(frozen=True)
class Stats:
    """The state of a cache at one moment; the fields of `struct vmkv_stats`.

    Physical bytes: slab = mapped + warm + retiring + unmapping + zeroing + held + free_clean +
    free_dirty, and budget >= slab unless the budget was lowered.

    Attributes:
        budget_bytes: bound on slab_bytes.
        slab_bytes: held from the device.
        mapped_bytes: behind open sequences' addresses.
        warm_bytes: behind closed slots' addresses, zeroed, for whoever opens them next.
        retiring_bytes: closed or trimmed, waiting for `Cache.retire`.
        unmapping_bytes: on their way out of the page tables.
        zeroing_bytes: being zeroed.
        held_bytes: taken by a call that is at work.
        free_clean_bytes: free and zero.
        free_dirty_bytes: free, zeroed before the next use.
        live_bytes: of the tokens that the engine said exist.
        reserved_bytes: address space: virtual, not memory.
        table_bytes: bookkeeping in host memory.
        sequences, mappings, slabs: how many there are.
        steps: steps that succeeded, since the cache was created.
        growing_steps: those of them that had something to map.
        shortages: steps that raised Shortage.
        mapped_pages: pages mapped, and mapped again.
        map_calls, unmap_calls, fill_calls, slab_calls: driver calls by kind.
        failed_calls: those of them that the driver refused.
        mapped_bytes_peak, live_bytes_peak, slab_bytes_peak, mappings_peak: greatest values.
    """

    budget_bytes: int
    slab_bytes: int
    mapped_bytes: int
    warm_bytes: int
    retiring_bytes: int
    unmapping_bytes: int
    zeroing_bytes: int
    held_bytes: int
    free_clean_bytes: int
    free_dirty_bytes: int
    live_bytes: int
    reserved_bytes: int
    table_bytes: int
    sequences: int
    mappings: int
    slabs: int
    steps: int
    growing_steps: int
    shortages: int
    mapped_pages: int
    map_calls: int
    unmap_calls: int
    fill_calls: int
    slab_calls: int
    failed_calls: int
    mapped_bytes_peak: int
    live_bytes_peak: int
    slab_bytes_peak: int
    mappings_peak: int

    @property
    def waste(self) -> float:
        """The part of the mapped memory that holds no live token: 1 - live / mapped; 0 if nothing
        is mapped. Warm memory is not in it."""
        return 1 - self.live_bytes / self.mapped_bytes if self.mapped_bytes else 0.0

    @property
    def driver_calls(self) -> int:
        """Driver calls of all kinds."""
        return self.map_calls + self.unmap_calls + self.fill_calls + self.slab_calls
