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
