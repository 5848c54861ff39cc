"""How much memory the machine has left."""

from pathlib import Path

import pytest

from vmkv import system


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(system, "_MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(system, "_CGROUP", tmp_path)
    return tmp_path


def test_this_machine() -> None:
    available = system.available_bytes()
    assert available is not None
    assert 1 << 24 < available < 1 << 50


def test_unknown(place: Path) -> None:
    assert system.available_bytes() is None
    (place / "meminfo").write_text("MemTotal: 100 kB\n")
    assert system.available_bytes() is None
    (place / "meminfo").write_text("MemAvailable:\n")
    assert system.available_bytes() is None


def test_meminfo(place: Path) -> None:
    (place / "meminfo").write_text("MemTotal:  16000 kB\nMemAvailable:   8000 kB\n")
    assert system.available_bytes() == 8000 * 1024


def test_control_group(place: Path) -> None:
    (place / "meminfo").write_text("MemAvailable:   8000 kB\n")
    (place / "memory.max").write_text("max\n")
    assert system.available_bytes() == 8000 * 1024
    (place / "memory.max").write_text("1000000\n")
    (place / "memory.current").write_text("900000\n")
    (place / "memory.stat").write_text("anon 5\ninactive_file 50000\nfile 60000\n")
    assert system.available_bytes() == 1000000 - 900000 + 50000
    (place / "memory.current").write_text("1100000\n")
    assert system.available_bytes() == 0
