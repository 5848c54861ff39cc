"""The C test programs, each a test, under the compiler's sanitizers; and their line coverage."""

import json
import os
import shutil
import subprocess
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support import NATIVE_COVERAGE, ROOT, environment, needed, needs_libdrm, run

SOURCES = sorted((ROOT / "tests" / "native").glob("test_*.c"))
ADDRESS = "address,undefined"
THREAD = "thread"
# Counting lines makes the sanitizers several times slower: a build of its own costs less.
COVERAGE = "coverage"
# All three set the same options: a build directory that is used again keeps what isn't set.
OPTIONS = {
    ADDRESS: {"sanitize": "address,undefined", "coverage": "false"},
    THREAD: {"sanitize": "thread", "coverage": "false"},
    COVERAGE: {"sanitize": "none", "coverage": "true"},
}


def starts_threads(source: Path) -> bool:
    """Itself, or by an emulated card, whose jobs run in a thread."""
    if source.stem == "test_emulated_faults":
        return False  # minutes, and no thread that test_emulated_lives and test_threads lack
    text = source.read_text(encoding="utf-8")
    return "pthread_create" in text or "emulator" in text


def launcher(sanitizer: str, directory: Path) -> list[str]:
    """What to put before a program for the sanitizer's run-time to work; skips if nothing helps."""
    source = directory / "probe.c"
    program = str(directory / "probe")
    source.write_text("int main(void) { return 0; }\n", encoding="utf-8")
    compiler = os.environ.get("CC", "cc")
    attempts = [
        [compiler, f"-fsanitize={sanitizer}", str(source), "-o", program],
        [program],
        # With many random bits in addresses, older run-times find theirs taken.
        [needed("setarch"), "-R", program],
    ]
    for command in attempts:
        done = subprocess.run(command, env=environment(), capture_output=True, text=True)
        if done.returncode != 0 and command is not attempts[1]:
            break
        if done.returncode == 0 and command is not attempts[0]:
            return command[:-1]
    reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
    pytest.skip(f"needs a run-time of -fsanitize={sanitizer} that works here: {reason}")


class Build:
    """A build directory of the test programs, kept between runs of pytest."""

    def __init__(self, kind: str, directory: Path) -> None:
        self.directory = directory
        self.prefix = [] if kind == COVERAGE else launcher(kind, directory)
        self.build = directory / "build"
        meson = needed("meson")
        setup = [meson, "setup", "--buildtype=debug", "-Doptimization=1", "-Dwerror=true"]
        setup += [f"-Db_{option}={value}" for option, value in OPTIONS[kind].items()]
        setup += [str(self.build), str(ROOT)]
        again = [*setup[:2], "--reconfigure", *setup[2:]]
        done = subprocess.run(again, env=environment(), capture_output=True)
        if done.returncode != 0:
            # There is none yet, or it was configured by tools that are gone: begin anew.
            shutil.rmtree(self.build, ignore_errors=True)
            run(*setup)
        for counts in self.build.rglob("*.gcda"):
            counts.unlink()
        tests = json.loads(run(meson, "introspect", "--tests", self.build))
        self.tests: dict[str, dict[str, Any]] = {test["name"]: test for test in tests}

    def run(self, name: str, seed: int, *arguments: str, device: str = "") -> None:
        """Build a test program and run it as tests/native/meson.build says, on a device if it is
        for several."""
        assert name in self.tests, f"{name}.c is not listed in tests/native/meson.build"
        test = self.tests[name]
        program = Path(test["cmd"][0])
        run(needed("ninja"), "-C", self.build, program.relative_to(self.build))
        variables = test["env"] | {"VMKV_TEST_SEED": str(seed), "VMKV_TEST_DEVICE": device}
        command = [*self.prefix, *test["cmd"], *arguments]
        run(*command, cwd=self.directory, variables=variables)


@pytest.fixture(scope="session")
def build(pytestconfig: pytest.Config) -> Iterator[Callable[[str], Build]]:
    builds: dict[str, Build] = {}

    def get(kind: str) -> Build:
        if kind not in builds:
            name = "vmkv-native-" + kind.replace(",", "-")
            builds[kind] = Build(kind, pytestconfig.cache.mkdir(name))
        return builds[kind]

    yield get
    if COVERAGE in builds:
        pytestconfig.stash[NATIVE_COVERAGE] = line_coverage(builds[COVERAGE].build)


@pytest.mark.parametrize(
    ("kind", "name"),
    [(kind, source.stem) for kind in (ADDRESS, COVERAGE) for source in SOURCES]
    + [(THREAD, source.stem) for source in SOURCES if starts_threads(source)],
)
def test_program(build: Callable[[str], Build], seed: int, kind: str, name: str) -> None:
    build(kind).run(name, seed)


CARD = "emulated:gfx1201?vram=8GiB"
IDENTITY = f"{CARD}&identity=1"  # the tests' own pointers work too
OLD = "emulated:gfx1100?vram=8GiB&kernel=6.1"
NEW = f"{CARD}&kernel=7.2"
BY_BUFFER = f"{NEW}&commit=bo"
# Faults of a card, each with the safe mode that it is for, or with none where none is needed.
SURVIVED = (
    "stale-translation&safe=never-reuse-addresses",
    "late-visibility&safe=wait-after-map",
    "alias-diverges&safe=no-alias",
    "stale-translation,late-visibility,alias-diverges"
    "&safe=never-reuse-addresses,wait-after-map,no-alias",
    "transient-enomem",
    "silent-gtt",
)
# Those that know nothing of the device that they are on.
COMMON = (
    "budget", "cache", "cache_errors", "device", "device_checking", "device_checking_modes",
    "lagging", "lost", "middle", "seq", "shortage", "step", "warm", "windows",
)  # fmt: skip
ON_CARDS: list[tuple[str, str, str, tuple[str, ...]]] = [
    *((ADDRESS, f"test_{name}", IDENTITY, ()) for name in COMMON),
    (ADDRESS, "test_model", IDENTITY, ("--operations", "20000")),
    (ADDRESS, "test_faults", IDENTITY, ()),
    (ADDRESS, "test_threads", CARD, ()),
    (ADDRESS, "test_emulated_leaks", CARD, ("100000",)),
    *((ADDRESS, f"test_publish{name}", CARD, arguments)
      for name, arguments in (("", ()), ("_kill", ("100",)), ("_model", ()), ("_stop", ()))),
    # Contents are read by the copy engine alone.
    *((ADDRESS, "test_model", device, ("--operations", "4400"))
      for device in (CARD, OLD, NEW, BY_BUFFER, f"{CARD}&slabs=listed", f"{CARD}&seed=1")),
    *((ADDRESS, "test_model", f"{CARD}&inject={faults}", ("--operations", "1100"))
      for faults in SURVIVED),
    *((ADDRESS, name, device, ())
      for device in (OLD, BY_BUFFER) for name in ("test_emulated_leaks", "test_emulated_lives")),
    (THREAD, "test_threads", IDENTITY, ()),
]  # fmt: skip


@needs_libdrm
@pytest.mark.parametrize(("kind", "name", "device", "arguments"), ON_CARDS)
def test_program_on_a_card(
    build: Callable[[str], Build],
    seed: int,
    kind: str,
    name: str,
    device: str,
    arguments: tuple[str, ...],
) -> None:
    if name == "test_model":
        arguments += ("--seed", str(seed))
    build(kind).run(name, seed, *arguments, device=device)


def missed(lines: dict[int, int]) -> str:
    """The lines that were never run, as ranges; the first few."""
    ranges: list[list[int]] = []
    begun = False
    for line, count in sorted(lines.items()):
        if count == 0 and begun:
            ranges[-1][1] = line
        elif count == 0:
            ranges.append([line, line])
        begun = count == 0
    shown = [str(first) if first == last else f"{first}-{last}" for first, last in ranges[:8]]
    return " ".join(shown) + (" ..." if len(ranges) > 8 else "")


def line_coverage(build: Path) -> str:
    """A table of which lines of the core the programs in a build directory have run."""
    notes = sorted((build / "tests" / "native" / "libvmkv_checked.a.p").glob("*.gcno"))
    printed = run(needed("gcov"), "--json-format", "--stdout", *notes, cwd=build)
    counts: dict[Path, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for report in printed.splitlines():
        unit: dict[str, Any] = json.loads(report)
        for file in unit["files"]:
            path = Path(unit["current_working_directory"], file["file"]).resolve()
            for line in file["lines"]:
                counts[path][line["line_number"]] += line["count"]
    rows = []
    total = covered = 0
    for path in sorted(path for path in counts if path.is_relative_to(ROOT / "native")):
        lines = counts[path]
        hit = sum(count != 0 for count in lines.values())
        name = str(path.relative_to(ROOT))
        rows.append(f"{name:34} {len(lines):6} {hit / len(lines):6.1%}  {missed(lines)}")
        total += len(lines)
        covered += hit
    rows.append(f"{'TOTAL':34} {total:6} {covered / max(total, 1):6.1%}")
    return "\n".join(rows)
