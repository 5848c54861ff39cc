"""Options and fixtures of the whole test suite."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import NATIVE_COVERAGE, ROOT

# The tests are of the installed package. `python -m pytest` here, and `python -c` in a process of a
# test, would put the source tree first on the path, where there is no extension module.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
os.environ["PYTHONSAFEPATH"] = "1"

import vmkv  # noqa: E402


def device_names() -> list[str]:
    """The devices of this machine that the common tests run on, as vmkv.open takes them."""
    return ["host", "emulated:gfx1201?vram=8GiB&identity=1"]


# What tests need that only the host device has.
HOST_ONLY = {
    "test_cut_session_begins_anew": "memory that is back as soon as it is given back",
    "test_repeats": "memory that is back as soon as it is given back",
    "test_device_smaller_than_budget": "the device option memory",
    "test_device_smaller_than_one_request": "the device option memory",
    "test_shareable_is_counted_once": "the device option memory",
    "test_table": "a line that is wrapped as with host's short name",
    "test_vmkv_needs_what_the_library_says_of_known_models": "hundreds of GB of addresses",
}


@pytest.fixture(params=device_names())
def device_name(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    needs = HOST_ONLY.get(request.node.originalname)
    if needs and name != "host":
        pytest.skip(f"needs {needs}: host has it")
    return name


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """Where random tests begin: the same unless --seed says otherwise."""
    return int(pytestconfig.getoption("--seed"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=1, help="where random tests begin (default: 1)")


def changed_files() -> Iterator[Path]:
    """Files of this tree that are not those that the tested package was made of."""
    package = Path(vmkv.__file__).resolve().parent
    if package == ROOT / "vmkv":
        return  # an editable install rebuilds itself
    for source in sorted((ROOT / "vmkv").rglob("*.py")):
        copy = package / source.relative_to(ROOT / "vmkv")
        if not copy.is_file() or copy.read_bytes() != source.read_bytes():
            yield source
    built = (package / "lib" / "libvmkv.so").stat().st_mtime
    for source in sorted((ROOT / "native").rglob("*.[ch]")):
        if source.stat().st_mtime > built:
            yield source


def pytest_report_header(config: pytest.Config) -> list[str]:
    package = Path(vmkv.__file__).parent
    devices = ", ".join(device_names())
    return [
        f"vmkv: {vmkv.__version__} in {package}",
        f"devices: {devices}; seed: {config.getoption('--seed')}",
    ]


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    if NATIVE_COVERAGE in config.stash:
        terminalreporter.section("line coverage of the C core by tests/native")
        terminalreporter.write_line(config.stash[NATIVE_COVERAGE])
    changed = [str(path.relative_to(ROOT)) for path in changed_files()]
    if changed:
        terminalreporter.section("the tested package is not of this tree", red=True)
        terminalreporter.write_line(f"Install it again: {len(changed)} files differ or are newer,")
        terminalreporter.write_line(f"such as {', '.join(changed[:5])}")
