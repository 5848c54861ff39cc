"""Write the C source of vmkv._native, with the declarations of the C headers as they stand.

Usage: cffi_build.py OUTPUT HEADER...
"""

import re
import sys
from pathlib import Path

from cffi import FFI


def declarations(header: str) -> str:
    """Leave of a C header what cffi's parser takes; constants get their value from the compiler."""
    text = re.sub(r"/\*.*?\*/|//[^\n]*", " ", header, flags=re.DOTALL)
    text = text.replace("\\\n", " ")
    text = re.sub(r"^#ifdef __cplusplus\n.*?^#endif\n", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"__attribute__\s*\(\(.*?\)\)(?=[\s;])", "", text)
    text = re.sub(r"^VMKV_API\b", "", text, flags=re.MULTILINE)
    text = re.sub(r"^_Static_assert\(.*?\);", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"\[[A-Z]\w*\]", "[...]", text)
    lines = []
    for line in text.splitlines():
        constant = re.match(r"#define\s+((?:VMKV|DRM|AMDGPU)_\w+)\s+[^\s\"]", line)
        if constant:
            lines.append(f"#define {constant[1]} ...")
        elif not line.startswith("#"):
            lines.append(line)
    return "\n".join(lines) + "\n"


def main(output: str, *headers: str) -> None:
    ffi = FFI()
    for header in headers:
        ffi.cdef(declarations(Path(header).read_text(encoding="utf-8")))
    includes = "".join(f'#include "{Path(header).name}"\n' for header in headers)
    ffi.set_source("vmkv._native", includes)
    ffi.emit_c_code(output)


if __name__ == "__main__":
    main(*sys.argv[1:])
