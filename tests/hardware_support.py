"""Which devices the tests of hardware run on, and what a test needs that not every one has.

On a real card these are the common tests themselves. Nothing in them reads or writes addresses that
have no memory behind them, and a card runs in the safe modes that `vmkv doctor` finds needed.
"""

from __future__ import annotations

import functools
from collections.abc import Container
from dataclasses import dataclass

import pytest

from support import has_libdrm

# conftest sees to it that the installed package is imported.
CARDS = (
    "emulated:gfx1100?vram=4GiB&kernel=6.1",
    "emulated:gfx1201?vram=4GiB&kernel=6.12",
    "emulated:gfx1201?vram=4GiB&kernel=7.2",
)

# The tests of devices, which run on a real card.
MODULES = ("test_cache", "test_step", "test_lifetime", "test_model", "test_replay")

CPU = "memory that the CPU reaches at its GPU addresses: the host and identity=1 have it"
# Tests that need it. The other ones look at memory through the copy engine.
NEED_CPU = {
    "test_arrays_keep_their_cache",
    "test_rows_without_memory_are_refused",
    "test_several_slots_as_one_batch_for_a_kernel",
    "test_corruption_is_found",
    "test_corrupted_state_is_found",
    "test_attention_finds_one_bit",
}
FAULT = "an address without memory to be used, after which a real card may hang"
NEED_FAULT = {"test_an_address_without_memory_is_told"}


@dataclass(frozen=True)
class Target:
    """A card as the tests open it; or why there is none."""

    name: str
    lacks: str = ""

    def __str__(self) -> str:
        return self.name

    @property
    def is_real(self) -> bool:
        return self.name.startswith("amdgpu")


def target_of(name: str) -> Target:
    """A card in the safe modes that it needs."""
    from vmkv import errors
    from vmkv.safety import safe_name

    try:
        return Target(safe_name(name, "auto"))
    except errors.Error as error:
        return Target(name, str(error))


@functools.cache
def real_targets() -> list[Target]:
    """Every card of this machine; if there is none, one that says what is missing."""
    from vmkv import doctor

    found = doctor.look()
    paths = [node.path for node in found.nodes if node.is_amdgpu]
    return [target_of(f"amdgpu:{path}") for path in paths] or [target_of("amdgpu")]


def is_asked_for(config: pytest.Config) -> bool:
    """Whether tests of real cards are to run: with -m hardware."""
    expression = str(config.getoption("markexpr", ""))
    return "hardware" in expression and "not hardware" not in expression


def missing(target: Target, test: str) -> str:
    """What a test needs that the card hasn't; "" if it can run."""
    is_host = target.name.startswith("host")
    if target.lacks:
        return f"needs a card: {target.lacks}"
    if not is_host and not has_libdrm():
        return "needs libdrm_amdgpu.so.1"
    if test in NEED_CPU and not is_host and "identity=1" not in target.name:
        return f"needs {CPU}"
    if target.is_real and test in NEED_FAULT:
        return f"needs {FAULT}"
    return ""


def targets_for(config: pytest.Config, module: str) -> list[Target]:
    """On which cards a test module runs: the emulated ones, or, when asked for, the real ones."""
    if module not in MODULES:
        return []
    if is_asked_for(config):
        return real_targets()
    return [] if config.getoption("--device", None) else [Target(name) for name in CARDS]


# Long tests and modules: on the emulated cards each case runs on one of so many, in turn.
SHARED_OUT = {"test_contents_survive_growth": 3, "test_random_use": 2, "test_replay": 3}


def spared(items: list[pytest.Item], host_only: Container[str]) -> list[pytest.Item]:
    """Cases that don't run on an emulated card: they can't, or run on another one."""
    cases: dict[tuple[str, str], int] = {}
    ret = []
    for item in items:
        target = parameters(item).get("device_name")
        if not isinstance(target, Target) or target.name not in CARDS:
            continue
        module, _, test = module_and_test(item).partition(".")
        unit = test if test in SHARED_OUT else module
        others = {name: value for name, value in parameters(item).items() if value is not target}
        number = cases.setdefault((unit, f"{test} {others}"), sum(key[0] == unit for key in cases))
        elsewhere = (number + CARDS.index(target.name)) % SHARED_OUT.get(unit, 1)
        if elsewhere or test in host_only or missing(target, test):
            ret.append(item)
    return ret


def parameters(item: pytest.Item) -> dict[str, object]:
    spec = getattr(item, "callspec", None)
    return dict(spec.params) if spec else {}


def module_and_test(item: pytest.Item) -> str:
    return f"{item.path.stem}.{getattr(item, 'originalname', item.name)}"
