"""Engines that run, are stopped, or were killed anywhere: what is left is a whole state."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from published_files import Forged
from stats_support import directory, engine, failure, reading, running, stats, stats_json
from vmkv import published
from vmkv.published import Condition, Process, kernel, processes

__all__ = ["directory", "engine"]
KILLS = int(os.environ.get("VMKV_KILLS", "500"))
LAYOUTS = ("layer", "token")


def wait_until_dead(process: "subprocess.Popen[str]") -> None:
    process.kill()
    process.wait(10)


def test_killed_anywhere(directory: Path, engine: Path, seed: int) -> None:
    print(f"seed {seed}")
    random_, changes, mapped = random.Random(seed), 0, 0
    for number in range(KILLS):
        layout = LAYOUTS[number % 2]
        with running(engine, "host", layout, str(random_.getrandbits(31))) as process:
            # Soon after the file is there, or later: from the first change on.
            time.sleep(random_.random() ** 3 * 0.03)
            wait_until_dead(process)
        with reading(process.pid) as reader:
            snapshot = reader.look(pieces=True, events=True)
        assert snapshot.settled
        assert published.contradictions(snapshot) == []
        changes += snapshot.epoch
        mapped += snapshot.number("mappings")
        if number % 100 == 0:
            (cache,) = stats_json()["caches"]
            assert (cache["pid"], cache["alive"]) == (process.pid, False)
            assert stats(process.pid).exit_code == 0
        # The next engine would do it, too; this is faster to look at.
        assert [path.name for path in directory.iterdir()] == [f"{snapshot.name}"]
        assert len(published.reap()[0]) == 1
    assert changes > 10 * KILLS
    assert mapped > KILLS


@pytest.mark.parametrize("layout", LAYOUTS)
def test_looked_at_while_it_runs(layout: str, directory: Path, engine: Path, seed: int) -> None:
    with running(engine, "host", layout, str(seed)) as process, reading(process.pid) as reader:
        epochs = set()
        for _ in range(200):
            snapshot = reader.look(pieces=True, events=True)
            assert snapshot.settled
            assert published.contradictions(snapshot) == []
            epochs.add(snapshot.epoch)
    assert len(epochs) > 1


def test_steps_that_grow_nothing(directory: Path, engine: Path, seed: int) -> None:
    with running(engine, "host", "layer", str(seed), "300") as process:
        time.sleep(0.2)
        with reading(process.pid) as reader:
            for _ in range(50):
                snapshot = reader.look()
                assert snapshot.settled
                assert published.contradictions(snapshot) == []
        (cache,) = stats_json()["caches"]
        assert cache["steps_per_second"] > 0
        assert cache["growing_steps"] < 400


def test_stopped_process_is_not_responding(directory: Path, engine: Path, seed: int) -> None:
    begin = time.monotonic()
    with running(engine, "host", "layer", str(seed)) as process:
        os.kill(process.pid, signal.SIGSTOP)
        while Process(process.pid).condition() is not Condition.STOPPED:
            time.sleep(0.001)
        time.sleep(0.3)
        (cache,) = stats_json()["caches"]
        passed = time.monotonic() - begin
        assert (cache["alive"], cache["condition"]) == (True, "stopped")
        assert cache["responding"] is False
        assert 0.3 <= cache["heartbeat_age_ns"] / 1e9 < passed
        assert "not responding, stopped; last heartbeat " in stats().stdout
        assert "not responding, stopped; last heartbeat " in stats(process.pid).stdout
        with reading(process.pid) as reader:
            assert published.contradictions(reader.look(pieces=True)) == []
        os.kill(process.pid, signal.SIGCONT)
        while Process(process.pid).condition() is not Condition.ALIVE:
            time.sleep(0.001)
        assert stats_json()["caches"][0]["responding"] is True


def test_dead_is_shown_until_it_is_reaped(directory: Path, engine: Path, seed: int) -> None:
    with running(engine, "host", "layer", str(seed)) as process:
        time.sleep(0.05)
        alive = stats_json(process.pid)
        assert alive["caches"][0]["alive"] is True
        assert stats("--reap").stdout == "Nothing was left by dead processes.\n"
        process.kill()
        # A zombie runs no more, though its number is taken.
        while processes.read_stat(process.pid)[0] != "Z":
            time.sleep(0.001)
        assert stats_json()["caches"][0]["alive"] is False
        process.wait()
    (cache,) = stats_json()["caches"]
    assert (cache["alive"], cache["steps_per_second"]) == (False, None)
    assert cache["mapped_bytes"] > 0
    assert "dead, last heartbeat " in stats().stdout
    told = stats("--reap").stdout
    assert told.startswith("removed ")
    assert list(directory.iterdir()) == []
    assert failure(process.pid).endswith("no process of this user shares one")


def test_next_cache_removes_what_the_dead_left(directory: Path, engine: Path) -> None:
    with running(engine, "host", "layer", "1") as first:
        wait_until_dead(first)
    with running(engine, "host", "layer", "2") as second:
        assert [cache["pid"] for cache in stats_json()["caches"]] == [second.pid]


def test_reap_keeps_what_it_cannot_tell_of(directory: Path) -> None:
    ours = Forged().write(directory)
    foreign = Forged()
    foreign.header["pid"], foreign.header["pid_namespace"] = 4194000, 5
    others = foreign.write(directory)
    (directory / "notes.txt").write_text("keep me")
    broken = directory / f"{os.getpid()}-00001.kv"
    broken.write_bytes(b"noise")
    gone = directory / "4194001-00002.kv"
    gone.write_bytes(b"noise")
    result = stats("--reap")
    assert result.stdout == f"removed {gone}\n"
    assert result.stderr == f"kept {broken}: it can't be read, and its process lives\n"
    assert sorted(directory.iterdir()) == sorted([ours, others, broken, directory / "notes.txt"])


# ---- whether a process lives ---------------------------------------------------------------------


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A /proc of our own, with processes in all states."""
    for pid, state in ((1, "S"), (2, "T"), (3, "t"), (4, "Z"), (5, "X"), (6, "D")):
        (tmp_path / str(pid)).mkdir()
        head = f"{pid} (a) b (c) {state} " + " ".join(["0"] * 18)
        (tmp_path / str(pid) / "stat").write_text(f"{head} 777 0\n")
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("this-boot\n")
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").touch()
    return tmp_path


@pytest.mark.parametrize(
    ("pid", "condition"),
    [
        (1, "alive"),
        (2, "stopped"),
        (3, "stopped"),
        (4, "dead"),
        (5, "dead"),
        (6, "alive"),
        (99, "dead"),
    ],
)
def test_condition(pid: int, condition: str, proc: Path) -> None:
    assert Process(pid, 777, "this-boot").condition(proc).value == condition


def test_number_that_is_anothers_now(proc: Path) -> None:
    assert Process(1, 778, "this-boot").condition(proc) is Condition.DEAD
    assert Process(1, 777, "last-boot").condition(proc) is Condition.DEAD
    namespace = processes.own_namespace(proc)
    assert Process(1, 777, "this-boot", namespace).condition(proc) is Condition.ALIVE
    assert Process(1, 777, "this-boot", namespace + 1).condition(proc) is Condition.UNKNOWN


def test_process_that_is_asked_again_and_again() -> None:
    with subprocess.Popen(["sleep", "1000"]) as process:
        started = processes.read_stat(process.pid)[1]
        with processes.Observed(Process(process.pid, started)) as observed:
            assert observed.condition() is Condition.ALIVE
            for number, condition in (
                (signal.SIGSTOP, Condition.STOPPED),
                (signal.SIGCONT, Condition.ALIVE),
                (signal.SIGKILL, Condition.DEAD),
            ):
                process.send_signal(number)
                while observed.condition() is not condition:
                    time.sleep(0.001)
            process.wait()
            assert observed.condition() is Condition.DEAD
    with processes.Observed(Process(os.getpid(), 1)) as observed:
        assert observed.condition() is Condition.DEAD  # its number is another's


# ---- the kernel's side ---------------------------------------------------------------------------

FDINFO = """pos:\t0
drm-driver:\tamdgpu
drm-client-id:\t{client}
drm-pdev:\t0000:03:00.0
drm-{kind}-vram:\t{vram} KiB
drm-{kind}-gtt: \t2 MiB
amd-evicted-vram:\t{evicted} KiB
amd-requested-vram:\t100 KiB
"""


def write_fdinfo(proc: Path, descriptor: int, text: str) -> None:
    directory = proc / "1" / "fdinfo"
    directory.mkdir(exist_ok=True)
    (directory / str(descriptor)).write_text(text)


@pytest.mark.parametrize("kind", ["memory", "resident"])
def test_memory_of_a_process_by_its_kernel(kind: str, proc: Path) -> None:
    one = FDINFO.format(client=7, vram=100, evicted=0, kind=kind)
    write_fdinfo(proc, 3, one)
    write_fdinfo(proc, 4, one)  # another descriptor of the same client: it counts once
    write_fdinfo(proc, 5, FDINFO.format(client=8, vram=28, evicted=5, kind=kind))
    write_fdinfo(proc, 6, one.replace("0000:03:00.0", "0000:04:00.0"))
    write_fdinfo(proc, 7, "pos:\t0\nflags:\t02\n")
    told = kernel.read_client(1, "0000:03:00.0", proc)
    assert told == kernel.ClientMemory(128 << 10, 4 << 20, 5 << 10, 200 << 10)
    assert kernel.read_client(1, "0000:05:00.0", proc) is None
    assert kernel.read_client(99, "0000:03:00.0", proc) is None


@pytest.mark.parametrize("text", ["", "drm-client-id: 1", "\0\xff" * 50, "drm-pdev: 0000:03:00.0"])
def test_fdinfo_of_something_else(text: str, proc: Path) -> None:
    write_fdinfo(proc, 3, text)
    assert kernel.read_client(1, "0000:03:00.0", proc) is None


def test_what_is_not_told_is_not_zero(proc: Path) -> None:
    write_fdinfo(proc, 3, "drm-client-id: 1\ndrm-pdev: 0000:03:00.0\ndrm-memory-vram: lots\n")
    assert kernel.read_client(1, "0000:03:00.0", proc) == kernel.ClientMemory()


@pytest.mark.parametrize(
    ("vram", "evicted", "difference"),
    [
        (2000, 0, ""),  # an engine has weights, too
        (1000, 0, ""),
        (None, None, ""),
        (999, 0, "less in VRAM than the cache holds"),
        (2000, 1, "memory was moved out of VRAM"),
    ],
)
def test_difference_that_should_not_be(
    vram: int | None, evicted: int | None, difference: str
) -> None:
    assert kernel.difference(1000, kernel.ClientMemory(vram, 0, evicted)) == difference


def test_card_in_sysfs(tmp_path: Path) -> None:
    card = tmp_path / "0000:03:00.0"
    card.mkdir()
    for number, name in enumerate(("vram_total", "vram_used", "gtt_total", "gtt_used")):
        (card / f"mem_info_{name}").write_text(f"{number}\n")
    assert kernel.read_card("0000:03:00.0", tmp_path) == kernel.CardMemory(0, 1, 2, 3)
    (card / "mem_info_vram_used").unlink()
    assert kernel.read_card("0000:03:00.0", tmp_path) == kernel.CardMemory(0, None, 2, 3)
    assert kernel.read_card("0000:04:00.0", tmp_path) is None
    assert kernel.read_card("../0000:03:00.0", tmp_path) is None


def test_kernel_is_shown_beside_ours(
    directory: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = Forged()
    file.header["driver"], file.header["pci_id"] = b"amdgpu", b"0000:03:00.0"
    file.write(directory)
    monkeypatch.setattr(
        kernel, "read_client", lambda pid, card: kernel.ClientMemory(100 << 20, 1 << 20, 28 << 20)
    )
    monkeypatch.setattr(
        kernel, "read_card", lambda card: kernel.CardMemory(16 << 30, 8 << 30, 4 << 30, 1 << 30)
    )
    told = stats(os.getpid()).stdout
    assert "this process: 100 MiB VRAM, 1 MiB GTT, 28 MiB evicted (!) less in VRAM" in told
    assert "8 GiB of 16 GiB VRAM in use, 1 GiB of 4 GiB GTT in use" in told
    (cache,) = stats_json()["caches"]
    assert cache["kernel"]["process"]["vram_bytes"] == 100 << 20
    assert cache["kernel"]["difference"] == "less in VRAM than the cache holds"
