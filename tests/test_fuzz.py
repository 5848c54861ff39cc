"""The emulated kernel under random programs: a minute here, as long as one likes by hand."""

import os
import subprocess
from pathlib import Path

import pytest

from support import ROOT, environment, needed, run

SECONDS = 60
LIMITS = ("-max_len=1024", "-len_control=0", "-timeout=60", "-rss_limit_mb=6000")


@pytest.fixture(scope="session")
def fuzzer(pytestconfig: pytest.Config) -> Path:
    build = pytestconfig.cache.mkdir("vmkv-native-fuzzer") / "build"
    clang = {"CC": needed(os.environ.get("CLANG", "clang"))}
    program = build / "tests" / "native" / "fuzz_emulator"
    setup = [needed("meson"), "setup", "-Dbuildtype=debug", "-Doptimization=1"]
    setup += ["-Db_sanitize=address,undefined", "-Db_lundef=false", str(build), str(ROOT)]
    if not (build / "build.ninja").exists():
        run(*setup, variables=clang)
    targets = run(needed("ninja"), "-C", build, "-t", "targets", "all", variables=clang)
    if "fuzz_emulator:" not in targets:
        pytest.skip("needs libFuzzer, which this clang lacks")
    run(needed("ninja"), "-C", build, program.relative_to(build), variables=clang)
    return program


def test_nothing_that_a_program_does_breaks_a_card(fuzzer: Path, seed: int, tmp_path: Path) -> None:
    done = subprocess.run(
        [fuzzer, f"-seed={seed}", f"-max_total_time={SECONDS}", *LIMITS],
        cwd=tmp_path, env=environment(), capture_output=True, text=True, errors="replace",
        timeout=SECONDS + 300, check=False,
    )  # fmt: skip
    told = done.stderr.splitlines()
    # The last lines say what happened, and hold the input: base64 -d into a file, and run that.
    assert done.returncode == 0, "\n".join(told[-80:])
    assert any(line.startswith("Done ") for line in told), "\n".join(told[-20:])
