"""Options and fixtures of the whole test suite."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import hardware_support
import mesa_support
from emulate_support import Build, building
from support import NATIVE_COVERAGE, ROOT

# The tests are of the installed package. `python -m pytest` here, and `python -c` in a process of a
# test, would put the source tree first on the path, where there is no extension module.
sys.path[:] = [entry for entry in sys.path if Path(entry or ".").resolve() != ROOT]
os.environ["PYTHONSAFEPATH"] = "1"
# In the background of a shell SIGINT is ignored, by programs that tests start and interrupt too.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

import vmkv  # noqa: E402

# Those that --device gave.
GIVEN: list[str] = []


def device_names() -> list[str]:
    """The devices of this machine that the common tests run on, as vmkv.open takes them."""
    return GIVEN or ["host", "emulated:gfx1201?vram=8GiB&identity=1"]


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


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "device_name" in metafunc.fixturenames:
        cards = hardware_support.targets_for(metafunc.config, metafunc.module.__name__)
        targets = [hardware_support.Target(name) for name in device_names()] + [
            pytest.param(card, marks=pytest.mark.hardware) if card.is_real else card
            for card in cards
        ]
        metafunc.parametrize("device_name", targets, indirect=True, ids=str)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    spared = set(hardware_support.spared(items, HOST_ONLY))
    if spared:
        config.hook.pytest_deselected(items=list(spared))
        items[:] = [item for item in items if item not in spared]


@pytest.fixture
def device_name(request: pytest.FixtureRequest) -> str:
    target: hardware_support.Target = request.param
    test = request.node.originalname
    needs = HOST_ONLY.get(test)
    if needs and target.name != "host":
        pytest.skip(f"needs {needs}: host has it")
    needs = hardware_support.missing(target, test)
    if needs:
        pytest.skip(needs)
    return target.name


@pytest.fixture(scope="session")
def seed(pytestconfig: pytest.Config) -> int:
    """Where random tests begin: the same unless --seed says otherwise."""
    return int(pytestconfig.getoption("--seed"))


@pytest.fixture(scope="session")
def runs(pytestconfig: pytest.Config) -> int:
    """How often doctor looks at each emulated card; 0: at some of them."""
    return int(pytestconfig.getoption("--runs"))


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Compile a program of tests/native."""
    return building(tmp_path_factory.mktemp("programs"))


@pytest.fixture(scope="session")
def radv(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables with which programs find RADV of today, and its libdrm."""
    return mesa_support.radv(tmp_path_factory.mktemp("mesa"))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=1, help="where random tests begin (default: 1)")
    parser.addoption(
        "--runs",
        type=int,
        default=0,
        metavar="N",
        help="let doctor look at every emulated card so many times, sound and with each fault"
        " (default: 20 times in all, each)",
    )
    parser.addoption(
        "--device",
        action="append",
        default=[],
        metavar="NAME",
        help="run the common tests on this device, as vmkv.open takes it, such as"
        " 'host?safe=no-alias'; may be given several times (default: host and an emulated card)",
    )


def pytest_configure(config: pytest.Config) -> None:
    GIVEN[:] = config.getoption("--device")


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
    if hardware_support.is_asked_for(config):
        devices = ", ".join(map(str, hardware_support.real_targets()))
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
