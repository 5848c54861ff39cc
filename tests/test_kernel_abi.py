"""The headers of the kernel's interface, against libdrm's where they are installed.

Both are compiled, and what both know must be equal: the places of fields, the values of
constants. A newer struct may only go on where an older one ends.
"""

import re
from functools import cache
from pathlib import Path

import pytest

from support import ROOT, needed, run

OURS = ROOT / "native" / "abi"
THEIRS = Path("/usr/include/libdrm")
COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
CONSTANT = re.compile(r"^#\s*define\s+((?:AMDGPU|DRM)_[A-Z]\w*)[ \t]+(\S.*)$", re.MULTILINE)
TOP = re.compile(r"^(struct|union)\s+(drm_\w+)\s*\{(.*?)^\};", re.MULTILINE | re.DOTALL)
FIELD = re.compile(r"\*?(\w+)\s*((?:\[\w+\])*)$")
# These count what there is, and grow.
GROWING = {"AMDGPU_GEM_DOMAIN_MASK", "AMDGPU_HW_IP_NUM"}
# Of an ioctl's number, the bits without the argument's size.
WITHOUT_BYTES = 0xC000FFFF


def read(directory: Path) -> str:
    names = ["drm.h", "amdgpu.h", "amdgpu_info.h", "amdgpu_ioctl.h"]
    if directory == THEIRS:
        names = ["drm.h", "amdgpu_drm.h"]
    return COMMENT.sub("", "".join((directory / name).read_text("utf-8") for name in names))


def members(body: str, prefix: str = "") -> list[str]:
    """The paths of all fields, those within structs in the struct too."""
    found: list[str] = []
    statement, depth, inner = "", 0, ""
    for character in body:
        if character == "{":
            depth += 1
            inner += character if depth > 1 else ""
        elif character == "}":
            depth -= 1
            inner += character if depth else ""
        elif depth:
            inner += character
        elif character != ";":
            statement += character
        else:
            name = FIELD.search(statement.strip())
            path = prefix + (name.group(1) if name else "")
            if inner:
                anonymous = path.endswith(("struct", "union"))
                element = "[0]" if name and name.group(2) else ""
                found += members(inner, prefix if anonymous else f"{path}{element}.")
            elif name:
                found.append(path)
            statement, inner = "", ""
    return found


@cache
def structs(directory: Path) -> dict[str, list[str]]:
    return {
        f"{kind} {name}": members(re.sub(r"^\s*#.*$", "", body, flags=re.MULTILINE))
        for kind, name, body in TOP.findall(read(directory))
    }


@cache
def constants(directory: Path) -> set[str]:
    return {name for name, _ in CONSTANT.findall(read(directory))}


def evaluate(directory: Path, expressions: list[str], work: Path) -> dict[str, int]:
    """What C makes of each of them with that directory's headers."""
    header = "amdgpu_drm.h" if directory == THEIRS else "amdgpu.h"
    source = work / f"{directory.name}.c"
    lines = "".join(
        f'\tprintf("%s=%llu\\n", "{text}", (unsigned long long)({text}));\n' for text in expressions
    )
    source.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include <fcntl.h>\n#include "{header}"\n'
        f"int main(void)\n{{\n{lines}\treturn 0;\n}}\n"
    )
    program = work / directory.name
    run(needed("cc"), "-w", f"-I{directory}", "-o", program, source)
    return {
        name: int(value)
        for name, value in (line.rsplit("=", 1) for line in run(program).splitlines())
    }


@pytest.fixture
def installed() -> None:
    if not (THEIRS / "amdgpu_drm.h").exists():
        pytest.skip(f"needs libdrm's headers in {THEIRS}")


@pytest.mark.usefixtures("installed")
def test_fields_have_the_kernel_s_places(tmp_path: Path) -> None:
    common = {
        name: [field for field in fields if field in structs(THEIRS).get(name, ())]
        for name, fields in structs(OURS).items()
    }
    expressions = [f"offsetof({name}, {field})" for name, of in common.items() for field in of]
    assert len(expressions) > 200
    assert evaluate(OURS, expressions, tmp_path) == evaluate(THEIRS, expressions, tmp_path)


@pytest.mark.usefixtures("installed")
def test_structs_only_grow_at_the_end(tmp_path: Path) -> None:
    names = [name for name in structs(OURS) if name in structs(THEIRS)]
    assert len(names) > 60
    ours = evaluate(OURS, [f"sizeof({name})" for name in names], tmp_path)
    theirs = evaluate(THEIRS, [f"sizeof({name})" for name in names], tmp_path)
    for name in names:
        same = structs(OURS)[name] == structs(THEIRS)[name]
        if same:
            assert ours[f"sizeof({name})"] == theirs[f"sizeof({name})"], name
        else:
            assert ours[f"sizeof({name})"] >= theirs[f"sizeof({name})"], name


@pytest.mark.usefixtures("installed")
def test_constants_have_the_kernel_s_values(tmp_path: Path) -> None:
    names = sorted(constants(OURS) & constants(THEIRS) - GROWING)
    assert len(names) > 250
    ours, theirs = evaluate(OURS, names, tmp_path), evaluate(THEIRS, names, tmp_path)
    for name in names:
        mask = WITHOUT_BYTES if name.startswith("DRM_IOCTL_") else -1
        assert ours[name] & mask == theirs[name] & mask, name
