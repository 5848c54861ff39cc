"""The files of /dev and /sys that show an emulated card, as a directory tree.

Programs under `vmkv emulate` are shown the tree in place of the system's files: the card's own
directory, links to it, and, where its place lists other devices too, links to those of the machine.
"""

from __future__ import annotations

import os
from pathlib import Path

from vmkv.emulator import Identity

_PCI = "sys/devices/pci0000:00"
_BUS = "sys/bus/pci"
_RENDER, _PRIMARY = "renderD128", "card0"
_NODES = {_RENDER: "226:128", _PRIMARY: "226:0"}
_DISPLAY_CLASS = 0x030000


def write_tree(root: Path, identity: Identity, system: Path = Path("/")) -> None:
    """Write the tree of a card; `system` is where the machine's own files are. A device of the
    machine in the card's slot is hidden."""
    slot = identity.pci_slot
    card = root / _PCI / slot
    (root / "dev/dri/by-path").mkdir(parents=True)
    for node in _NODES:
        placeholder = root / "dev/dri" / node
        placeholder.touch()
        placeholder.chmod(0o666)
    for name, node in (("render", _RENDER), ("card", _PRIMARY)):
        (root / f"dev/dri/by-path/pci-{slot}-{name}").symlink_to(f"../{node}")
    _write_card(card, identity)
    for node, number in _NODES.items():
        _write_node(root, card, node, number)
    _link_all(system / "sys/class", root / "sys/class")
    _write_bus(root, slot, system)


def _write_card(card: Path, identity: Identity) -> None:
    ids = f"{identity.vendor_id:04X}:{identity.device_id:04X}"
    subsystem = f"{identity.subsystem_vendor_id:04X}:{identity.subsystem_device_id:04X}"
    modalias = (
        f"pci:v{identity.vendor_id:08X}d{identity.device_id:08X}"
        f"sv{identity.subsystem_vendor_id:08X}sd{identity.subsystem_device_id:08X}"
        f"bc03sc00i00"
    )
    texts = {
        "vendor": f"{identity.vendor_id:#06x}",
        "device": f"{identity.device_id:#06x}",
        "subsystem_vendor": f"{identity.subsystem_vendor_id:#06x}",
        "subsystem_device": f"{identity.subsystem_device_id:#06x}",
        "revision": f"{identity.revision:#04x}",
        "class": f"{_DISPLAY_CLASS:#08x}",
        "modalias": modalias,
        "enable": "1",
        "boot_vga": "0",
        "numa_node": "-1",
        "irq": "0",
        "power_state": "D0",
        "resource": "\n".join(["0x0000000000000000 " * 2 + "0x0000000000000000"] * 13),
        "mem_info_vram_total": f"{identity.vram_bytes}",
        "mem_info_vis_vram_total": f"{identity.vram_bytes}",
        "mem_info_gtt_total": f"{identity.gtt_bytes}",
        # Those that change are written as they are opened.
        "mem_info_vram_used": "0",
        "mem_info_vis_vram_used": "0",
        "mem_info_gtt_used": "0",
        "uevent": f"DRIVER=amdgpu\nPCI_CLASS={_DISPLAY_CLASS:X}\nPCI_ID={ids}\n"
        f"PCI_SUBSYS_ID={subsystem}\nPCI_SLOT_NAME={identity.pci_slot}\nMODALIAS={modalias}",
    }
    card.mkdir(parents=True)
    for name, text in texts.items():
        (card / name).write_text(text + "\n")
    (card / "config").write_bytes(_config(identity))
    (card / "subsystem").symlink_to("../../../bus/pci")
    (card / "driver").symlink_to("../../../bus/pci/drivers/amdgpu")


def _config(identity: Identity) -> bytes:
    """The first 64 bytes of PCI configuration space: ids, class and no capability."""
    config = bytearray(64)
    config[0:2] = identity.vendor_id.to_bytes(2, "little")
    config[2:4] = identity.device_id.to_bytes(2, "little")
    config[8] = identity.revision
    config[9:12] = _DISPLAY_CLASS.to_bytes(3, "little")
    config[0x2C:0x2E] = identity.subsystem_vendor_id.to_bytes(2, "little")
    config[0x2E:0x30] = identity.subsystem_device_id.to_bytes(2, "little")
    return bytes(config)


def _write_node(root: Path, card: Path, node: str, number: str) -> None:
    directory = card / "drm" / node
    directory.mkdir(parents=True)
    major, minor = number.split(":")
    (directory / "dev").write_text(f"{number}\n")
    (directory / "uevent").write_text(
        f"MAJOR={major}\nMINOR={minor}\nDEVNAME=dri/{node}\nDEVTYPE=drm_minor\n"
    )
    (directory / "device").symlink_to("../../../" + card.name)
    (directory / "subsystem").symlink_to("../../../../../class/drm")
    path = directory.relative_to(root / "sys")
    for place, name in (("dev/char", number), ("class/drm", node)):
        (root / "sys" / place).mkdir(parents=True, exist_ok=True)
        (root / "sys" / place / name).symlink_to(Path("../..") / path)


def _write_bus(root: Path, slot: str, system: Path) -> None:
    bus = root / _BUS
    for name in ("devices", "drivers"):
        _link_all(system / _BUS / name, bus / name)
    _link_all(system / _BUS, bus)
    (bus / "devices" / slot).unlink(missing_ok=True)
    (bus / "devices" / slot).symlink_to(f"../../../devices/pci0000:00/{slot}")
    driver = bus / "drivers/amdgpu"
    driver.unlink(missing_ok=True)  # the machine's own
    driver.mkdir()
    (driver / slot).symlink_to(f"../../../../devices/pci0000:00/{slot}")
    module = root / "sys/module/amdgpu"
    module.mkdir(parents=True)
    (module / "refcnt").write_text("1\n")
    (driver / "module").symlink_to("../../../../module/amdgpu")


def _link_all(source: Path, target: Path) -> None:
    """Link what is in a directory of the machine, but for what the tree has."""
    target.mkdir(parents=True, exist_ok=True)
    names = os.listdir(source) if source.is_dir() else []
    for name in names:
        if not os.path.lexists(target / name):
            (target / name).symlink_to((source / name).resolve())
