"""The table of libdrm's functions: that it is libdrm's own, and what is said if one is missing."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from support import ROOT, environment, needed, run
from vmkv._native import ffi, lib
from vmkv.drm._base import libdrm

TABLE = ROOT / "native" / "src" / "libdrm.h"
REAL = ("amdgpu_drm.h", "amdgpu.h", "xf86drm.h")
OPTIONAL = {
    "amdgpu_device_initialize2": "2.4.121",
    "amdgpu_query_gpuvm_fault_info": "2.4.117",
    "amdgpu_va_get_start_addr": "2.4.119",
    "amdgpu_va_manager_alloc": "2.4.121",
    "amdgpu_va_manager_init": "2.4.121",
    "amdgpu_va_manager_deinit": "2.4.121",
    "amdgpu_va_range_alloc2": "2.4.121",
    "amdgpu_bo_va_op_raw2": "2.4.125",
}


def text() -> str:
    return re.sub(r"/\*.*?\*/", " ", TABLE.read_text(encoding="utf-8"), flags=re.DOTALL)


def functions() -> list[str]:
    return re.findall(r"\(\*(\w+)\)\(", text())


def structs() -> dict[str, list[str]]:
    """The structs that are declared as libdrm has them, and the names of their fields."""
    found = re.findall(r"^(?:typedef )?struct (\w+) \{(.*?)^\}", text(), re.DOTALL | re.MULTILINE)
    return {
        name: re.findall(r"(\w+)(?:\[\d+\])?;", body)
        for name, body in found
        if name != "vmkv_libdrm"
    }


def constants() -> list[str]:
    return re.findall(r"\b(\w+) = \w+", text())


@pytest.fixture(scope="module")
def includes(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Compiler's options for libdrm's own headers; skips if they aren't installed."""
    directory = tmp_path_factory.mktemp("includes")
    source = directory / "probe.c"
    source.write_text("".join(f"#include <{name}>\n" for name in REAL), encoding="utf-8")
    options = ["-I/usr/include/libdrm"]
    command = [needed("cc"), "-fsyntax-only", *options, str(source)]
    if subprocess.run(command, capture_output=True, env=environment()).returncode:
        pytest.skip("needs libdrm's headers (libdrm-dev)")
    return options


def compile_and_run(directory: Path, source: str, options: list[str]) -> str:
    path, program = directory / "test.c", directory / "test"
    path.write_text(source, encoding="utf-8")
    run(needed("cc"), "-std=gnu11", *options, f"-I{TABLE.parent}", path, "-o", program)
    return run(program)


def test_functions_have_the_types_of_libdrms_headers(tmp_path: Path, includes: list[str]) -> None:
    headers = "".join(f"#include <{name}>\n" for name in REAL)
    path = tmp_path / "headers.c"
    path.write_text(headers, encoding="utf-8")
    declared = set(re.findall(r"\w+(?=\s*\()", run(needed("cc"), "-E", *includes, path)))
    known = [name for name in functions() if name in declared]
    assert set(functions()) - set(known) <= set(OPTIONAL)
    checks = "".join(
        f"_Static_assert(__builtin_types_compatible_p(__typeof__(table->{name}), "
        f'__typeof__(&{name})), "{name}");\n'
        for name in known
    )
    manager = "typedef struct amdgpu_va_manager *ours;\n"
    source = f'{headers}{manager}#include "libdrm.h"\nstatic struct vmkv_libdrm *table;\n{checks}'
    compile_and_run(tmp_path, source + "int main(void) { return table != 0; }\n", includes)


def test_structs_and_constants_are_those_of_libdrms_headers(
    tmp_path: Path, includes: list[str]
) -> None:
    assert len(structs()) == 7
    lines = [f'printf("%d\\n", (int){name});' for name in constants()]
    for name, fields in structs().items():
        lines.append(f'printf("{name} %zu\\n", sizeof(struct {name}));')
        lines += [
            f'printf("%zu %zu\\n", offsetof(struct {name}, {field}), '
            f"sizeof(((struct {name} *)0)->{field}));"
            for field in fields
        ]
    main = '#include "libdrm.h"\n#include <stdio.h>\nint main(void)\n{\n' + "\n".join(lines) + "}\n"
    ours = compile_and_run(tmp_path, main, [])
    theirs = "".join(f"#include <{name}>\n" for name in REAL)
    assert ours == compile_and_run(tmp_path, theirs + main, includes)


def test_all_that_must_be_there_is() -> None:
    table = libdrm()
    names = functions()
    assert {name for name, _ in ffi.typeof(table[0]).fields} == {
        *names,
        "amdgpu_library",
        "drm_library",
    }
    missing = {name for name in names if not getattr(table, name)}
    assert missing <= set(OPTIONAL)


def test_each_function_has_its_first_release() -> None:
    releases = {
        name: ffi.string(lib.vmkv_libdrm_release(name.encode())).decode() for name in functions()
    }
    assert {name: release for name, release in releases.items() if name in OPTIONAL} == OPTIONAL
    assert {release for name, release in releases.items() if name not in OPTIONAL} == {"2.4.114"}
    assert lib.vmkv_libdrm_release(b"amdgpu_bo_paint") == ffi.NULL


def test_results_are_errnos() -> None:
    for value in (0, 5, -22):
        assert lib.vmkv_libdrm_result(value) == value
    ffi.errno = 13
    assert lib.vmkv_libdrm_result(-1) == -13
    ffi.errno = 0
    assert lib.vmkv_libdrm_result(-1) == -1


LOAD = """
import vmkv
from vmkv import drm
try:
    drm.driver_of(0)
except vmkv.UnsupportedError as error:
    print(error.errno, error)
"""


def load_with(directory: Path) -> str:
    """What loading says if libdrm is what lies in a directory."""
    return run(sys.executable, "-c", LOAD, variables={"LD_LIBRARY_PATH": str(directory)})


def test_a_libdrm_that_cant_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "libdrm_amdgpu.so.1").touch()
    said = load_with(tmp_path)
    assert said.startswith("2 libdrm with its amdgpu part, 2.4.114 or newer, is needed: ")
    assert "libdrm_amdgpu.so.1" in said
    assert said.count("\n") == 1


@pytest.mark.parametrize("missing", ["amdgpu_cs_submit_raw2", "drmPrimeFDToHandle"])
def test_a_libdrm_that_lacks_a_function(tmp_path: Path, missing: str) -> None:
    for library, prefix in (("libdrm_amdgpu.so.1", "amdgpu_"), ("libdrm.so.2", "drm")):
        names = [
            name
            for name in functions()
            if name.startswith(prefix) and name not in OPTIONAL and name != missing
        ]
        source = tmp_path / "stub.c"
        source.write_text("".join(f"void {name}(void) {{}}\n" for name in names), encoding="utf-8")
        run(needed("cc"), "-shared", "-fPIC", source, "-o", tmp_path / library)
    said = load_with(tmp_path)
    library = "libdrm_amdgpu.so.1" if missing.startswith("amdgpu_") else "libdrm.so.2"
    assert said == f"38 {library} has no {missing}: libdrm 2.4.114 or newer is needed\n"


# ---- devices, with a libdrm that lacks something or tells of what isn't there --------------------


OPEN = """
import sys
import vmkv
try:
    vmkv.Device(sys.argv[1])
except vmkv.Error as error:
    print(type(error).__name__, error.errno, error)
"""

# One whose cards are what its environment says.
STUB = r"""
#include <stdlib.h>

static struct version { int major, minor, patch, name_bytes; char *name; } version;

static int number(const char *name, int usual)
{
	const char *text = getenv(name);

	return text ? atoi(text) : usual;
}

struct version *drmGetVersion(int fd)
{
	(void)fd;
	version.major = number("STUB_MAJOR", 3);
	version.minor = number("STUB_MINOR", 61);
	version.name = getenv("STUB_DRIVER") ? getenv("STUB_DRIVER") : (char *)"amdgpu";
	return &version;
}

int amdgpu_device_initialize(int fd, unsigned *major, unsigned *minor, void **device)
{
	(void)fd;
	*major = *minor = 0;
	*device = &version;
	return -number("STUB_ERROR", 0);
}
"""


def open_with(directory: Path, name: str, **variables: str) -> str:
    """What opening a device says if libdrm is what lies in a directory."""
    paths = {"LD_LIBRARY_PATH": str(directory)}
    return run(sys.executable, "-c", OPEN, name, variables=paths | variables)


@pytest.fixture(scope="module")
def stub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("stub")
    source = directory / "stub.c"
    others = [name for name in functions() if name not in OPTIONAL and f"{name}(int fd" not in STUB]
    rest = "".join(f"int {name}(void) {{ return 0; }}\n" for name in others)
    source.write_text(STUB + rest, encoding="utf-8")
    for library in ("libdrm_amdgpu.so.1", "libdrm.so.2"):
        run(needed("cc"), "-shared", "-fPIC", source, "-o", directory / library)
    return directory


@pytest.mark.parametrize("name", ["emulated:gfx1201", "amdgpu:/dev/null"])
def test_no_device_without_libdrm(tmp_path: Path, name: str) -> None:
    (tmp_path / "libdrm_amdgpu.so.1").touch()
    said = open_with(tmp_path, name)
    assert " 2 libdrm with its amdgpu part, 2.4.114 or newer, is needed: " in said
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        (
            {"STUB_DRIVER": "i915"},
            "DeviceNotFoundError 19 /dev/null is a node of driver i915, not of amdgpu",
        ),
        ({"STUB_MINOR": "32"}, "the kernel's amdgpu interface is 3.32: 3.33 or newer (Linux 5.2)"),
        ({"STUB_MAJOR": "2"}, "the kernel's amdgpu interface is 2.61: 3.33 or newer (Linux 5.2)"),
        ({"STUB_ERROR": "9"}, "acceleration doesn't work on this card: dmesg tells why"),
        ({"STUB_ERROR": "13"}, "libdrm_amdgpu can't drive the card: Permission denied"),
        ({}, "the card offers no SDMA ring, which commits and fills need"),
    ],
)
def test_a_card_that_lacks_something(stub: Path, variables: dict[str, str], said: str) -> None:
    printed = open_with(stub, "amdgpu:/dev/null", **variables)
    assert said in printed
    assert printed.count("\n") == 1


def test_no_node_of_a_card() -> None:
    if list(Path("/dev/dri").glob("renderD*")):
        pytest.skip("needs a machine without render nodes")
    said = run(sys.executable, "-c", OPEN, "amdgpu")
    assert said.startswith("DeviceNotFoundError 19 no render node of an amdgpu card in /dev/dri: ")
    assert said.count("\n") == 1
