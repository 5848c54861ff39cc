"""What a card, its kernel driver and its memory tell of themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vmkv._native import ffi, lib

IP_TYPES = {
    "gfx": lib.AMDGPU_HW_IP_GFX,
    "compute": lib.AMDGPU_HW_IP_COMPUTE,
    "dma": lib.AMDGPU_HW_IP_DMA,
    "uvd": lib.AMDGPU_HW_IP_UVD,
    "vce": lib.AMDGPU_HW_IP_VCE,
    "uvd_enc": lib.AMDGPU_HW_IP_UVD_ENC,
    "vcn_dec": lib.AMDGPU_HW_IP_VCN_DEC,
    "vcn_enc": lib.AMDGPU_HW_IP_VCN_ENC,
    "vcn_jpeg": lib.AMDGPU_HW_IP_VCN_JPEG,
    "vpe": lib.AMDGPU_HW_IP_VPE,
}

DOMAINS = {
    "cpu": lib.AMDGPU_GEM_DOMAIN_CPU,
    "gtt": lib.AMDGPU_GEM_DOMAIN_GTT,
    "vram": lib.AMDGPU_GEM_DOMAIN_VRAM,
    "gds": lib.AMDGPU_GEM_DOMAIN_GDS,
    "gws": lib.AMDGPU_GEM_DOMAIN_GWS,
    "oa": lib.AMDGPU_GEM_DOMAIN_OA,
    "doorbell": lib.AMDGPU_GEM_DOMAIN_DOORBELL,
}

# Single numbers of 64 bits that INFO answers.
COUNTERS = {
    "bytes_moved": lib.AMDGPU_INFO_NUM_BYTES_MOVED,
    "evictions": lib.AMDGPU_INFO_NUM_EVICTIONS,
    "vram_usage": lib.AMDGPU_INFO_VRAM_USAGE,
    "visible_vram_usage": lib.AMDGPU_INFO_VIS_VRAM_USAGE,
    "gtt_usage": lib.AMDGPU_INFO_GTT_USAGE,
    "vram_cpu_page_faults": lib.AMDGPU_INFO_NUM_VRAM_CPU_PAGE_FAULTS,
    "timestamp": lib.AMDGPU_INFO_TIMESTAMP,
}


@dataclass(frozen=True)
class Driver:
    """The kernel driver of a node: its name ("amdgpu") and version. DRM 3.49 is Linux 6.1, 3.61 is
    6.12, 3.64 is 7.2."""

    name: str
    major: int
    minor: int
    patch: int
    date: str
    description: str


@dataclass(frozen=True)
class CardInfo:
    """What DEV_INFO says of the card, by the kernel's names; clocks are in kHz, sizes in bytes.
    What the kernel doesn't tell is 0."""

    device_id: int
    chip_rev: int
    external_rev: int
    pci_rev: int
    family: int
    num_shader_engines: int
    num_shader_arrays_per_engine: int
    cu_active_number: int
    max_engine_clock: int
    max_memory_clock: int
    ids_flags: int
    virtual_address_offset: int
    virtual_address_max: int
    virtual_address_alignment: int
    high_va_offset: int
    high_va_max: int
    pte_fragment_size: int
    gart_page_size: int
    vram_type: int
    vram_bit_width: int
    wave_front_size: int
    pcie_gen: int
    pcie_num_lanes: int
    mall_size: int


@dataclass(frozen=True)
class Heap:
    """Bytes of one kind of memory: all there is, what buffers can have of it, what they have, and
    the longest one that can be asked for."""

    total: int
    usable: int
    used: int
    max_allocation: int


@dataclass(frozen=True)
class Memory:
    """The card's memory, the part of it that the CPU reaches, and the system's memory for it."""

    vram: Heap
    visible_vram: Heap
    gtt: Heap


@dataclass(frozen=True)
class HwIp:
    """A kind of engine: version of its block, alignment of indirect buffers in bytes, its rings (a
    mask), and its version as the card itself tells it (0 where the kernel doesn't)."""

    name: str
    version_major: int
    version_minor: int
    ib_start_alignment: int
    ib_size_alignment: int
    rings: int
    discovery_version: int

    @property
    def ring_count(self) -> int:
        """How many rings submissions can name."""
        return self.rings.bit_count()


@dataclass(frozen=True)
class Fault:
    """The last access that had no mapping, or not the right, in this device's address space."""

    address: int
    status: int
    vmhub: int


def read_memory(answer: Any) -> Memory:
    """From a `struct drm_amdgpu_memory_info`."""
    heaps = (answer.vram, answer.cpu_accessible_vram, answer.gtt)
    return Memory(
        *(
            Heap(
                heap.total_heap_size,
                heap.usable_heap_size,
                heap.heap_usage,
                heap.max_allocation,
            )
            for heap in heaps
        )
    )


def read_hw_ip(name: str, answer: Any) -> HwIp:
    """From a `struct drm_amdgpu_info_hw_ip`."""
    return HwIp(
        name,
        answer.hw_ip_version_major,
        answer.hw_ip_version_minor,
        answer.ib_start_alignment,
        answer.ib_size_alignment,
        answer.available_rings,
        answer.ip_discovery_version,
    )


def read_driver(version: Any) -> Driver:
    """From a `drmVersion`."""

    def text(pointer: Any, size: int) -> str:
        return ffi.unpack(pointer, size).decode(errors="replace") if pointer and size > 0 else ""

    return Driver(
        text(version.name, version.name_len),
        version.version_major,
        version.version_minor,
        version.version_patchlevel,
        text(version.date, version.date_len),
        text(version.desc, version.desc_len),
    )
