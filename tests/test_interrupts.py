"""Signals whose handlers raise, as Ctrl-C's does: nothing is lost, and nothing is swallowed."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import vmkv
from vmkv import Cache, Device, Geometry
from vmkv._native import lib

SMALL = Geometry.full(layers=2, heads=8, head_dim=128)

PROGRAM = """
import signal, sys, vmkv

fired = 0

def interrupt(*_):
    global fired
    fired += 1
    raise KeyboardInterrupt

signal.signal(signal.SIGALRM, interrupt)
geometry = vmkv.Geometry.full(layers=2, heads=8, head_dim=128)
raised = 0
for turn in range(300):
    device = vmkv.open("host")
    cache = vmkv.Cache(device, geometry, budget="64MiB")
    sequence = cache.open()
    cache.step({sequence: 200})
    try:
        signal.setitimer(signal.ITIMER_REAL, 2e-6 + (turn % 150) * 3e-6)
        END
        for _ in range(10**7):
            pass
    except KeyboardInterrupt:
        raised += 1
    LATER
    device.close()
assert raised == fired == 300, (raised, fired)
"""


@pytest.mark.parametrize(
    ("end", "later"),
    [
        ("cache.close()", "cache.close(); assert cache.closed"),
        ("del cache, sequence", "cache = sequence = None"),
        ("cache.close(); device.close()", "cache.close()"),
        (
            "other = vmkv.Cache(device, geometry, budget='64MiB'); other.close()",
            "other = None; cache.close()",
        ),
    ],
)
def test_interrupts_at_the_end(end: str, later: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("END", end).replace("LATER", later)],
        cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, "")


def test_an_interrupt_while_close_waits_leaves_it_open(
    device_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    with vmkv.open(device_name) as device:
        cache = Cache(device, SMALL, budget="64MiB")
        inside = cache._pointer  # what a call that is inside holds
        with monkeypatch.context() as patch:
            patch.setattr("time.sleep", interrupt)
            with pytest.raises(KeyboardInterrupt):
                cache.close()
        assert not cache.closed
        assert cache.stats().sequences == 0
        del inside
        cache.close()


def interrupt_after(call: Callable[..., int]) -> Callable[..., int]:
    def interrupted(*args: Any) -> int:
        assert call(*args) == 0
        raise KeyboardInterrupt

    return interrupted


def test_an_interrupt_after_it_was_made(device_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody gets to know what was made, so it is destroyed."""

    class Library:
        def __getattr__(self, name: str) -> Any:
            found = getattr(lib, name)
            made = ("vmkv_cache_create", "vmkv_seq_open", "vmkv_device_open")
            return interrupt_after(found) if name in made else found

    with vmkv.open(device_name) as device:
        with Cache(device, SMALL, budget="64MiB") as cache, monkeypatch.context() as patch:
            patch.setattr("vmkv.cache.lib", Library())
            with pytest.raises(KeyboardInterrupt):
                cache.open()
            with pytest.raises(KeyboardInterrupt):
                Cache(device, SMALL, budget="64MiB")
            assert cache.stats().sequences == 0
        monkeypatch.setattr("vmkv.device.lib", Library())
        with pytest.raises(KeyboardInterrupt):
            Device(device_name)
