"""What an engine author meets: the library as a wheel and as `meson install` bring it."""

import os
import re
import shlex
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from support import HEADER, ROOT, environment, needed, needs_libdrm, run, tree_files

ENGINE = ROOT / "tools" / "engine.c"
LIBRARIES = ("libvmkv", "libvmkv-emulator")
PRELOAD = "libvmkv-preload.so"  # of `vmkv emulate`: nobody links it, so it has no version
STRICT = ("-O2", "-Wall", "-Wextra", "-Werror", "-pedantic")
# What a library that never prints, exits or aborts has no use for.
FORBIDDEN = re.compile(
    r"_*(v?f?d?printf|f?puts|f?putc(har)?|fwrite|perror|std(out|err)|(quick_)?exit|abort|raise"
    r"|assert_(perror_)?fail|v?(err|warn)x?|v?syslog)(_chk|_unlocked)?"
)


def compiler() -> str:
    return os.environ.get("CC", "cc")


def fresh_environment(directory: Path) -> Path:
    """A new virtual environment without vmkv; the dependencies are found in this one."""
    venv.create(directory, symlinks=True)
    (site,) = directory.glob("lib/python3*/site-packages")
    here = [entry for entry in sys.path if Path(entry).name in ("site-packages", "dist-packages")]
    (site / "dependencies.pth").write_text("\n".join(here), encoding="utf-8")
    return directory


def pip_install(directory: Path, *arguments: str | Path) -> None:
    """Install into a virtual environment, whatever else it can see; nothing is fetched."""
    command = (sys.executable, "-m", "pip", "--python", directory / "bin" / "python", "install")
    run(*command, "--no-deps", "--no-index", "--ignore-installed", *arguments)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("wheel")
    options = ("--no-build-isolation", "--no-deps", "--no-index", "--wheel-dir", directory)
    strict = "--config-settings=setup-args=-Dwerror=true"
    run(sys.executable, "-m", "pip", "wheel", *options, strict, ROOT)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment with the wheel."""
    directory = fresh_environment(tmp_path_factory.mktemp("installed"))
    pip_install(directory, wheel)
    return directory


@pytest.fixture(scope="module")
def package(installed: Path) -> Path:
    (directory,) = installed.glob("lib/python3*/site-packages/vmkv")
    return directory


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where `meson install` put the library."""
    directory = tmp_path_factory.mktemp("system")
    meson = needed("meson")
    places = (f"--prefix={directory / 'prefix'}", "--libdir=lib", directory / "build", ROOT)
    told = run(meson, "setup", "-Dwerror=true", *places)
    assert "python" not in told.replace(str(directory), "").replace(str(ROOT), "").lower()
    run(meson, "install", "-C", directory / "build")
    return directory / "prefix"


@pytest.fixture(scope="module", params=["wheel", "system"])
def library(request: pytest.FixtureRequest) -> Path:
    if request.param == "wheel":
        return Path(request.getfixturevalue("package"), "lib", "libvmkv.so")
    return Path(request.getfixturevalue("prefix"), "lib", "libvmkv.so")


def pkg_config(directory: Path) -> list[str]:
    """The flags that a program called pkg-config gives for the vmkv.pc in a directory."""
    tool = needed("pkg-config")
    paths = {"PKG_CONFIG_PATH": str(directory)}
    flags = run(tool, "--cflags", "--libs", "vmkv", variables=paths)
    libdir = run(tool, "--variable=libdir", "vmkv", variables=paths).strip()
    return [*shlex.split(flags), f"-Wl,-rpath,{libdir}"]


def run_engine(directory: Path, flags: list[str]) -> str:
    """Compile the example engine with these flags alone, run it and return what it printed."""
    program = directory / "engine"
    run(compiler(), "-std=c11", *STRICT, ENGINE, "-o", program, *flags, "-lm")
    refused = subprocess.run(
        [program, "no-such-device"], env=environment(), capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert refused.stdout == ""
    assert re.fullmatch(r"engine: [^\n]*no-such-device[^\n]*\n", refused.stderr)
    return run(program, "host")


def test_wheel_holds_the_package_and_all_that_c_needs(wheel: Path) -> None:
    assert re.search(r"-cp3\d+-abi3-linux_\w+\.whl$", wheel.name)
    names = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("vmkv/")}
    built = {"vmkv/_native.abi3.so", "vmkv/lib/pkgconfig/vmkv.pc"}
    built |= {f"vmkv/lib/{name}.so" for name in LIBRARIES} | {f"vmkv/lib/{PRELOAD}"}
    sources = {
        str(path.relative_to(ROOT)) for path in tree_files() if path.is_relative_to(ROOT / "vmkv")
    }
    assert names == sources | built | {"vmkv/include/vmkv.h", "vmkv/include/vmkv_emulator.h"}


def test_extension_finds_its_library_and_agrees_with_it(installed: Path, package: Path) -> None:
    script = """
import importlib.metadata, vmkv
from vmkv._native import lib
number = lib.vmkv_version()
print(vmkv.__file__)
print(number >> 16, number >> 8 & 255, number & 255, sep=".")
print(lib.VMKV_VERSION_MAJOR, lib.VMKV_VERSION_MINOR, lib.VMKV_VERSION_PATCH, sep=".")
print(importlib.metadata.version("vmkv"))
"""
    printed = run(installed / "bin" / "python", "-P", "-c", script, cwd=installed).splitlines()
    assert printed[0] == str(package / "__init__.py")
    assert len(set(printed[1:])) == 1, printed


def test_engine_by_pkg_config_of_the_wheel(package: Path, tmp_path: Path) -> None:
    assert "checksum" in run_engine(tmp_path, pkg_config(package / "lib" / "pkgconfig"))


@needs_libdrm
def test_engine_runs_unchanged_on_gpu_addresses(package: Path, tmp_path: Path) -> None:
    host = run_engine(tmp_path, pkg_config(package / "lib" / "pkgconfig"))
    card = run(tmp_path / "engine", "emulated:gfx1201?vram=4GiB&identity=1")
    assert card.split()[-1] == host.split()[-1]


def test_wheel_can_be_moved(package: Path, tmp_path: Path) -> None:
    moved = shutil.copytree(package, tmp_path / "elsewhere")
    flags = pkg_config(moved / "lib" / "pkgconfig")
    for flag in flags[:2]:
        assert Path(flag[2:]).resolve().is_relative_to(moved), flags
    assert "checksum" in run_engine(tmp_path, flags)


def test_engine_by_vmkv_pkg_config(installed: Path, package: Path, tmp_path: Path) -> None:
    command = (installed / "bin" / "vmkv", "pkg-config")
    flags = shlex.split(run(*command, "--cflags", "--libs", cwd=tmp_path))
    assert f"-I{package / 'include'}" in flags
    assert "checksum" in run_engine(tmp_path, flags)


def test_vmkv_pkg_config_knows_version_and_path(installed: Path, package: Path) -> None:
    command = (installed / "bin" / "vmkv", "pkg-config")
    version, path = run(*command, "--path", "--modversion", cwd=installed).splitlines()
    assert path == str(package / "lib" / "pkgconfig")
    paths = {"PKG_CONFIG_PATH": path}
    assert run(needed("pkg-config"), "--modversion", "vmkv", variables=paths).strip() == version


def test_vmkv_pkg_config_must_be_asked_something(installed: Path) -> None:
    done = subprocess.run(
        [installed / "bin" / "vmkv", "pkg-config"],
        env=environment(),
        cwd=installed,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "--cflags" in done.stderr


def test_engine_of_an_editable_install(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    for path in tree_files():
        copy = tree / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    directory = fresh_environment(tmp_path / "editable")
    pip_install(directory, "--no-build-isolation", "--editable", tree)
    command = (directory / "bin" / "vmkv", "pkg-config")
    flags = shlex.split(run(*command, "--cflags", "--libs", cwd=tmp_path))
    assert f"-I{tree / 'native' / 'include'}" in flags
    assert "checksum" in run_engine(tmp_path, flags)
    refused = subprocess.run(
        [*command, "--path"], env=environment(), cwd=tmp_path, capture_output=True, text=True
    )
    assert refused.returncode == 1
    assert "editable" in refused.stderr
    assert refused.stdout == ""


def test_engine_after_meson_install(prefix: Path, tmp_path: Path) -> None:
    assert "checksum" in run_engine(tmp_path, pkg_config(prefix / "lib" / "pkgconfig"))


def test_meson_install_is_an_ordinary_c_library(prefix: Path) -> None:
    files = {str(path.relative_to(prefix)) for path in prefix.rglob("*") if not path.is_dir()}
    links = {f"lib/{name}.so{version}" for name in LIBRARIES for version in ("", ".0")}
    real = {f"lib/{name}.so.0.1.0" for name in LIBRARIES} | {f"lib/{PRELOAD}"}
    real |= {"lib/pkgconfig/vmkv.pc", "include/vmkv.h", "include/vmkv_emulator.h"}
    real.add("share/man/man1/vmkv.1")
    assert files == links | real
    assert {(prefix / link).resolve().name for link in links} == {
        f"{name}.so.0.1.0" for name in LIBRARIES
    }
    dynamic = run(needed("readelf"), "-d", prefix / "lib" / "libvmkv.so")
    assert "Library soname: [libvmkv.so.0]" in dynamic


def test_library_exports_what_the_header_declares(library: Path) -> None:
    text = re.sub(r"/\*.*?\*/", "", HEADER.read_text(encoding="utf-8"), flags=re.DOTALL)
    declared = set(re.findall(r"^VMKV_API\b[^;]*?\b(vmkv_\w+)\(", text, flags=re.MULTILINE))
    symbols = run(needed("nm"), "-D", "--defined-only", library).split("\n")
    exported = {line.split()[2].split("@")[0] for line in symbols if " T " in line}
    others = [line for line in symbols if line and " T " not in line and " A VMKV_" not in line]
    assert exported == declared
    assert others == []


def test_library_stands_on_libc_alone_and_never_prints_or_exits(library: Path) -> None:
    dynamic = run(needed("readelf"), "-d", library)
    assert set(re.findall(r"Shared library: \[([^]]+)\]", dynamic)) <= {"libc.so.6"}
    undefined = run(needed("nm"), "-D", "--undefined-only", library).split("\n")
    imported = {line.split()[-1].split("@")[0] for line in undefined if line}
    assert "mmap" in {name.removesuffix("64") for name in imported}
    assert {name for name in imported if FORBIDDEN.fullmatch(name)} == set()


@pytest.mark.parametrize(
    ("tool", "standard"), [("cc", "c11"), ("cc", "c17"), ("c++", "c++11"), ("c++", "c++20")]
)
def test_header_compiles_alone(tool: str, standard: str, tmp_path: Path) -> None:
    source = tmp_path / ("alone.c" if tool == "cc" else "alone.cpp")
    source.write_text("#include <vmkv.h>\n#include <vmkv.h>\n", encoding="utf-8")
    flags = (f"-std={standard}", "-pedantic-errors", "-Wall", "-Wextra", "-Werror")
    run(needed(tool), *flags, "-fsyntax-only", f"-I{HEADER.parent}", source)


def test_importing_the_source_tree_says_what_to_do() -> None:
    unsafe = {"PYTHONSAFEPATH": ""}
    command = [sys.executable, "-c", "import vmkv"]
    variables = environment(unsafe)
    done = subprocess.run(command, cwd=ROOT, env=variables, capture_output=True, text=True)
    assert done.returncode == 1
    assert "start Python in another directory, or as python -P" in done.stderr
