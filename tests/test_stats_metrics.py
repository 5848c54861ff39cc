"""`vmkv stats --prometheus`: names and units as Prometheus wants them, and fresh figures."""

import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import vmkv
from published_files import PAGE_BYTES, Forged
from stats_support import directory, failure, stats
from support import environment

pytest.importorskip("prometheus_client", reason="needs prometheus-client")
from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from vmkv.published import Found
from vmkv.published.prometheus import Collector
from vmkv.published.watching import Watched

__all__ = ["directory"]
PID = os.getpid()
PROGRAM = Path(sysconfig.get_path("scripts"), "vmkv")
UNITS = ("_bytes", "_seconds", "_total", "_info", "_bucket", "_sum", "_count")
# Counts of things that are there have no unit.
COUNTS = {
    "vmkv_up", "vmkv_stopped", "vmkv_sequences", "vmkv_mappings", "vmkv_slabs",
    "vmkv_device_lost", "vmkv_unreadable_files",
}  # fmt: skip


def written(path: Path) -> dict[str, Metric]:
    assert stats("--prometheus", path).exit_code == 0
    return parsed(path.read_text(encoding="utf-8"))


def parsed(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Metric], name: str, **labels: str) -> float:
    (found,) = [
        sample.value
        for family in families.values()
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    ]
    return float(found)


def test_names_units_and_labels(directory: Path, tmp_path: Path) -> None:
    Forged().write(directory)
    for family in written(tmp_path / "vmkv.prom").values():
        assert family.documentation.endswith(".")
        for sample in family.samples:
            assert re.fullmatch(r"vmkv(_[a-z]+)+", sample.name)
            assert sample.name.endswith(UNITS) or sample.name in COUNTS, sample.name
            assert (family.type == "counter") == sample.name.endswith("_total")
            if sample.name != "vmkv_unreadable_files":
                assert sample.labels["pid"] == str(PID)
                assert sample.labels["device"] == "host"
        if family.samples[0].name.endswith("_bytes"):
            virtual = "virtual" in family.name
            assert ("virtual" in family.documentation) == virtual
            physical = "Physical" in family.documentation or "Host" in family.documentation
            assert physical is not virtual, family.name


def test_every_family_has_help_and_type_once(directory: Path, tmp_path: Path) -> None:
    file = Forged()
    file.write(directory)
    file.header["tag"] = 7
    file.write(directory)
    written(tmp_path / "vmkv.prom")
    lines = (tmp_path / "vmkv.prom").read_text(encoding="utf-8").splitlines()
    for what in ("HELP", "TYPE"):
        names = [line.split()[2] for line in lines if line.startswith(f"# {what} ")]
        assert len(names) == len(set(names)) > 10
    samples = [line.rpartition(" ")[0] for line in lines if not line.startswith("#")]
    assert len(samples) == len(set(samples))


def test_figures_are_those_of_the_cache(directory: Path, tmp_path: Path) -> None:
    geometry = vmkv.Geometry.full(layers=2, heads=8, head_dim=128)
    with (
        vmkv.open("host") as device,
        vmkv.Cache(device, geometry, budget="64MiB", share=True) as cache,
    ):
        cache.step({cache.open(): 1000, cache.open(): 77}, busy_until=1)
        with pytest.raises(vmkv.Shortage):
            cache.step({cache.open(): 16000})
        told, real = written(tmp_path / "vmkv.prom"), cache.stats()
        reserved = cache.info.reserved_bytes
    for name in ("budget_bytes", "slab_bytes", "live_bytes", "sequences", "mappings", "slabs"):
        assert value(told, f"vmkv_{name}") == getattr(real, name)
    for name in ("steps", "growing_steps", "shortages"):
        assert value(told, f"vmkv_{name}_total") == getattr(real, name)
    assert value(told, "vmkv_reserved_virtual_bytes") == reserved
    assert value(told, "vmkv_memory_bytes", state="mapped") == real.mapped_bytes
    states = [sample.value for sample in told["vmkv_memory_bytes"].samples]
    assert sum(states) == real.slab_bytes
    assert value(told, "vmkv_driver_calls_total", call="map") == real.map_calls > 0
    calls = value(told, "vmkv_driver_call_duration_seconds_count", call="map")
    assert calls == value(told, "vmkv_driver_call_duration_seconds_bucket", call="map", le="+Inf")
    assert calls > 0
    assert value(told, "vmkv_driver_call_duration_seconds_sum", call="map") > 0


def test_histogram_grows_with_its_bounds(directory: Path, tmp_path: Path) -> None:
    file = Forged()
    times = file.sections["times"][0, 0]
    times["buckets"][[0, 7, 10, 33, 40]] = 1, 2, 3, 4, 5
    times["sum_ns"] = 1_500_000_000
    file.write(directory)
    family = written(tmp_path / "vmkv.prom")["vmkv_driver_call_duration_seconds"]
    buckets = [
        (float(sample.labels["le"]), sample.value)
        for sample in family.samples
        if sample.name.endswith("_bucket") and sample.labels["call"] == "map"
    ]
    assert buckets == sorted(buckets)
    counts = dict(buckets)
    assert counts[256e-9] == 3
    assert counts[1024e-9] == 3
    assert counts[2048e-9] == 6
    assert counts[(1 << 34) / 1e9] == 10
    assert counts[float("inf")] == 15
    assert value({"": family}, "vmkv_driver_call_duration_seconds_sum", call="map") == 1.5


def test_dead_ones_have_no_memory(directory: Path, tmp_path: Path) -> None:
    file = Forged()
    file.add_sequence(0, 3000)
    file.header["start_ticks"] += 1  # another process had this number
    file.write(directory)
    told = written(tmp_path / "vmkv.prom")
    assert value(told, "vmkv_up") == 0
    assert told["vmkv_memory_bytes"].samples == []
    (directory / "4194000-00001.kv").write_bytes(b"")
    told = written(tmp_path / "vmkv.prom")
    assert value(told, "vmkv_unreadable_files") == 1


def test_file_is_replaced_whole(directory: Path, tmp_path: Path) -> None:
    file = Forged()
    file.write(directory)
    path = tmp_path / "vmkv.prom"
    written(path)
    with path.open(encoding="utf-8") as before:
        file.add_sequence(0, 3000)
        file.write(directory)
        assert value(written(path), "vmkv_sequences") == 1
        assert value(parsed(before.read()), "vmkv_sequences") == 0
    assert path.stat().st_mode & 0o777 == 0o644
    assert list(tmp_path.glob(".*")) == []


def test_file_that_cannot_be_written(directory: Path, tmp_path: Path) -> None:
    path = tmp_path / "no" / "vmkv.prom"
    assert failure("--prometheus", path) == f"{path}: No such file or directory"
    (tmp_path / "vmkv.prom").mkdir()
    assert "vmkv.prom" in failure("--prometheus", tmp_path / "vmkv.prom")
    assert list(tmp_path.glob(".*")) == []


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def scraped(port: int, seconds: float = 60) -> dict[str, Metric]:
    end = time.monotonic() + seconds
    while True:
        try:
            url = f"http://127.0.0.1:{port}/metrics"
            with urllib.request.urlopen(url, timeout=seconds) as answer:
                return parsed(answer.read().decode())
        except OSError:
            assert time.monotonic() < end
            time.sleep(0.05)


def test_each_scrape_is_fresh(directory: Path) -> None:
    file, port = Forged(), free_port()
    command = [str(PROGRAM), "stats", "--prometheus", str(port)]
    with subprocess.Popen(command, env=environment(), stderr=subprocess.PIPE, text=True) as process:
        try:
            mine = {"pid": str(PID)}  # in /dev/shm there may be others' caches
            assert "vmkv_up" in scraped(port)
            path = file.write(directory)
            assert value(scraped(port), "vmkv_sequences", **mine) == 0
            file.add_sequence(0, 3000)
            file.header["epoch"] += 1
            file.sections["state"]["epoch"][0, 0] = file.header["epoch"]
            path.write_bytes(file.to_bytes())
            told = scraped(port)
            assert value(told, "vmkv_sequences", **mine) == 1
            assert value(told, "vmkv_memory_bytes", state="mapped", **mine) == 376 * PAGE_BYTES
            with ThreadPoolExecutor(8) as pool:
                several = [pool.submit(scraped, port) for _ in range(40)]
                for one in several:
                    assert value(one.result(), "vmkv_sequences", **mine) == 1
            path.unlink()
            left = scraped(port)["vmkv_sequences"].samples
            assert all(sample.labels["pid"] != str(PID) for sample in left)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 0
    assert errors.strip() == f"metrics are at http://127.0.0.1:{port}/metrics"


def test_scrapes_take_turns(directory: Path) -> None:
    """Readers are of one thread at a time."""
    inside = []

    class Slow(Watched):
        def now(self, patience_seconds: float = 0.0) -> list[Found]:
            del patience_seconds
            inside.append(1)
            time.sleep(0.05)
            assert inside.pop() == 1
            assert inside == []
            return []

    collector = Collector(Slow())
    with ThreadPoolExecutor(4) as pool:
        several = [pool.submit(lambda: list(collector.collect())) for _ in range(8)]
        assert all(one.result() for one in several)


def test_port_that_is_taken(directory: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert failure("--prometheus", port) == (
            f"127.0.0.1:{port} can't be listened at: Address already in use"
        )


def test_without_the_extra(directory: Path, tmp_path: Path) -> None:
    """One line, that says what to install."""
    program = (
        "import sys; sys.modules['prometheus_client'] = None; sys.argv[0] = 'vmkv';"
        "from vmkv.commands import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", program, "stats", "--prometheus", "9470"],
        env=environment(), capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr == "Error: --prometheus needs prometheus-client: install vmkv[metrics]\n"
