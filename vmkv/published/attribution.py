"""What addresses are: from a mapping, or a single address, to sequence, layer, tensor and token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from vmkv.published import layout
from vmkv.published.layout import Array

if TYPE_CHECKING:
    from collections.abc import Iterator

    from vmkv.published.snapshot import Snapshot


@dataclass(frozen=True)
class Mapping:
    """One contiguous piece of a slab at one range of addresses.

    Attributes:
        start, end: virtual addresses [start, end).
        slab, offset: where the memory is: which slab, and the byte in it.
        refcount: sequences that use it.
        state: "mapped", "warm", "retiring" or "unmapping".
        slot: whose addresses they are.
        sequence: the open sequence, or the last one if it is on its way back; None for memory that
            waits for another.
        group, layer, tensor: indexes of the group and of the layer in it, and the tensor's name.
            The last two None where several share the addresses: the token layout, states.
        first_token, last_token: those with a row in it, both included; None for states.
    """

    start: int
    end: int
    slab: int
    offset: int
    refcount: int
    state: str
    slot: int
    sequence: int | None
    group: int
    layer: int | None
    tensor: str | None
    first_token: int | None
    last_token: int | None


def tensor_name(group: Array, tensor: int) -> str:
    """What people call a tensor: the C library knows but its index.

    In a group of two they are k and v, a single one is a latent, those of states have numbers.
    """
    count = int(group["tensors"])
    if layout.POLICIES[int(group["policy"])] != "state":
        if count == 2:
            return ("k", "v")[tensor]
        if count == 1:
            return "latent"
    return str(tensor)


class Places:
    """The tensors of a geometry by region, as arrays."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.regions, self.groups = snapshot.regions, snapshot.groups
        self.of_region: list[Array] = [
            snapshot.places[snapshot.places["region"] == number]
            for number in range(len(self.regions))
        ]
        reserved, align = snapshot.header.max_tokens, max(1, snapshot.header.read_align_tokens)
        self.reserved_tokens = -(-reserved // align) * align

    def group(self, region: int) -> Array:
        """The group of a region."""
        group: Array = self.groups[int(self.regions[region]["group"])]
        return group

    def only(self, region: int) -> tuple[int | None, str | None]:
        """Layer and tensor of a region; None, None if it has several."""
        places = self.of_region[region]
        if len(places) != 1:
            return None, None
        layer, tensor = int(places[0]["layer"]), int(places[0]["tensor"])
        return layer, tensor_name(self.group(region), tensor)

    def has_layer(self, region: int, layer: int) -> bool:
        """Whether rows of a layer lie in a region."""
        return bool((self.of_region[region]["layer"] == layer).any())

    def tokens(self, region: int, first_byte: int, end_byte: int) -> tuple[int | None, int | None]:
        """First and last token with a row among bytes of a span."""
        token_bytes = int(self.regions[region]["token_bytes"])
        if not token_bytes:
            return None, None
        last = min(-(-end_byte // token_bytes), self.reserved_tokens) - 1
        return min(first_byte // token_bytes, last), last


def mappings(
    snapshot: Snapshot, *, slot: int | None = None, layer: int | None = None
) -> Iterator[Mapping]:
    """The mappings of a snapshot that was taken with its pieces, in order of address.

    Args:
        slot: only those at this slot's addresses.
        layer: only those with rows of this layer, an index within its group.
    """
    assert snapshot.pieces is not None
    places = Places(snapshot)
    rows = snapshot.pieces
    chosen = np.ones(len(rows), bool)
    if slot is not None:
        chosen &= rows["slot"] == slot
    if layer is not None:
        having = [places.has_layer(region, layer) for region in range(len(places.regions))]
        chosen &= np.array(having)[rows["region"]]
    order = snapshot.by_address
    for index in order[chosen[order]].tolist():
        yield _mapping(places, index)


def _mapping(places: Places, index: int) -> Mapping:
    snapshot = places.snapshot
    assert snapshot.pieces is not None
    row, start = snapshot.pieces[index], int(snapshot.starts[index])
    page_bytes, region = snapshot.header.page_bytes, int(row["region"])
    first_byte, size = int(row["page"]) * page_bytes, int(row["pages"]) * page_bytes
    layer, tensor = places.only(region)
    first_token, last_token = places.tokens(region, first_byte, first_byte + size)
    slab, page = divmod(int(row["phys"]), snapshot.header.slab_pages)
    return Mapping(
        start=start,
        end=start + size,
        slab=slab,
        offset=page * page_bytes,
        refcount=int(row["refcount"]),
        state=layout.PIECE_STATES[int(row["state"])],
        slot=int(row["slot"]),
        sequence=_owner(snapshot, row),
        group=int(snapshot.regions[region]["group"]),
        layer=layer,
        tensor=tensor,
        first_token=first_token,
        last_token=last_token,
    )


def _owner(snapshot: Snapshot, row: Array) -> int | None:
    slot = snapshot.slots[int(row["slot"])]
    if int(slot["state"]) != layout.SLOT_OPEN and int(row["state"]) == layout.PIECE_WARM:
        return None
    return int(slot["seq"]) or None


# ---- a single address -------------------------------------------------------------------------


@dataclass(frozen=True)
class Spot:
    """What one address is.

    Attributes:
        address: as asked for.
        through_alias: it lies in a slab's own mapping, through which memory is filled: the rest is
            about the sequence that has the same memory at `mapping`, if any has.
        slab, offset: the memory behind it; None if there is none.
        mapping: what maps it; None if nothing does.
        slot, group, layer, tensor, token: whose it is by its place. layer and tensor None: between
            rows, or in the padding behind the last one; token None: states.
        row_byte: which byte of the tensor's row.
        sequence: the open sequence of the slot; last_sequence: the one before it was closed.
        status: "live", "trimmed" (a window has passed it), "ahead" (memory that no token has yet),
            "warm", "retiring", "unmapping" or "unmapped".
    """

    address: int
    through_alias: bool
    slab: int | None
    offset: int | None
    mapping: Mapping | None
    slot: int | None
    group: int | None
    layer: int | None
    tensor: str | None
    token: int | None
    row_byte: int | None
    sequence: int | None
    last_sequence: int | None
    status: str


def locate(snapshot: Snapshot, address: int) -> Spot | None:
    """What an address is, of a snapshot that was taken with its pieces; None: it is outside all
    windows."""
    if not 0 <= address < 1 << 64:
        return None
    regions = snapshot.regions
    ends = regions["base"] + regions["slot_stride"] * np.uint64(snapshot.header.slot_count)
    # A window that ends with the address space ends at 0.
    inside = (regions["base"] <= address) & ((ends > address) | (ends == 0))
    if inside.any():
        return _in_region(snapshot, address, int(np.flatnonzero(inside)[0]))
    slabs = snapshot.slabs
    for slab in np.flatnonzero((slabs["alias"] > 0) & (slabs["bytes"] > 0)).tolist():
        offset = address - int(slabs["alias"][slab])
        if 0 <= offset < int(slabs["bytes"][slab]):
            return _in_slab(snapshot, address, slab, offset)
    return None


def windows(snapshot: Snapshot) -> list[tuple[int, int]]:
    """Ranges of addresses [begin, end) that a cache's tensors have, those that touch joined."""
    count = snapshot.header.slot_count
    ranges = sorted(
        (int(region["base"]), int(region["base"]) + count * int(region["slot_stride"]))
        for region in snapshot.regions
    )
    joined: list[tuple[int, int]] = []
    for begin, end in ranges:
        if joined and begin <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(end, joined[-1][1])
        else:
            joined.append((begin, end))
    return joined


def _in_slab(snapshot: Snapshot, address: int, slab: int, offset: int) -> Spot:
    """An address in the alias of a slab: what the same memory is elsewhere."""
    assert snapshot.pieces is not None
    page_bytes = snapshot.header.page_bytes
    page = slab * snapshot.header.slab_pages + offset // page_bytes
    index = int(np.searchsorted(snapshot.pieces["phys"], page, "right")) - 1
    before = page - int(snapshot.pieces["phys"][index]) if index >= 0 else 0
    if index >= 0 and before < int(snapshot.pieces[index]["pages"]):
        behind = before * page_bytes + offset % page_bytes
        there = int(snapshot.starts[index]) + behind
        spot = _in_region(snapshot, there, int(snapshot.pieces[index]["region"]))
        return Spot(**{**vars(spot), "address": address, "through_alias": True})
    return Spot(
        address=address,
        through_alias=True,
        slab=slab,
        offset=offset,
        mapping=None,
        slot=None,
        group=None,
        layer=None,
        tensor=None,
        token=None,
        row_byte=None,
        sequence=None,
        last_sequence=None,
        status="unmapped",
    )


def _in_region(snapshot: Snapshot, address: int, region: int) -> Spot:
    places = Places(snapshot)
    described = snapshot.regions[region]
    slot, offset = divmod(address - int(described["base"]), int(described["slot_stride"]))
    found = _mapping_at(places, slot, region, offset)
    token_bytes = int(described["token_bytes"])
    token, byte = divmod(offset, token_bytes) if token_bytes else (None, offset)
    if token is not None and token >= places.reserved_tokens:
        token, place = None, None
    else:
        place = _place(places.of_region[region], byte)
    group = places.group(region)
    record = snapshot.slots[slot]
    opened = int(record["state"]) == layout.SLOT_OPEN
    sequence = int(record["seq"]) or None
    return Spot(
        address=address,
        through_alias=False,
        slab=found.slab if found else None,
        offset=found.offset + address - found.start if found else None,
        mapping=found,
        slot=slot,
        group=int(described["group"]),
        layer=int(place["layer"]) if place is not None else None,
        tensor=tensor_name(group, int(place["tensor"])) if place is not None else None,
        token=token,
        row_byte=byte - int(place["offset"]) if place is not None else None,
        sequence=sequence if opened else None,
        last_sequence=None if opened else sequence,
        status=_status(snapshot, group, slot, token, found),
    )


def _place(places: Array, byte: int) -> Array | None:
    """Whose row a byte of a token is."""
    inside = (places["offset"] <= byte) & (byte < places["offset"] + places["row_bytes"])
    place: Array | None = places[np.flatnonzero(inside)[0]] if inside.any() else None
    return place


def _mapping_at(places: Places, slot: int, region: int, offset: int) -> Mapping | None:
    snapshot = places.snapshot
    assert snapshot.pieces is not None
    rows, page = snapshot.pieces, offset // snapshot.header.page_bytes
    found = (rows["slot"] == slot) & (rows["region"] == region) & (rows["page"] <= page)
    found &= page < rows["page"].astype(np.uint64) + rows["pages"]
    if not found.any():
        return None
    return _mapping(places, int(np.flatnonzero(found)[0]))


def _status(
    snapshot: Snapshot, group: Array, slot: int, token: int | None, found: Mapping | None
) -> str:
    if found is None:
        return "unmapped"
    if found.state != "mapped":
        return found.state
    if not group["token_bytes"]:
        return "live"
    if token is None or token >= int(snapshot.lives["tokens"][slot]):
        return "ahead"
    return "trimmed" if token < int(snapshot.dead_tokens(group)[slot]) else "live"


def events_at(snapshot: Snapshot, spot: Spot) -> Array:
    """Events of a snapshot that was taken with them which are about an address, oldest first: those
    of its range, and those of its slot as a whole."""
    assert snapshot.events is not None
    events = snapshot.events
    address = spot.address
    if spot.through_alias and spot.mapping is not None and spot.offset is not None:
        address = spot.mapping.start + spot.offset - spot.mapping.offset
    covered = (events["address"] > 0) & (events["address"] <= address)
    covered &= address - events["address"] < events["bytes"]
    whole = [number for number, name in layout.EVENT_KINDS.items() if name in _OF_SLOT]
    if spot.slot is not None:
        of_slot = np.isin(events["kind"], whole) & (events["slot"] == spot.slot)
        covered |= of_slot & (events["region"] == 0xFFFFFFFF)
    return events[covered]


_OF_SLOT = ("open", "close", "retire")
