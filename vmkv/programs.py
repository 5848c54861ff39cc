"""Whether a program can be run with libraries preloaded into it."""

from __future__ import annotations

import os
import shutil
import stat
import struct
import sys
from typing import BinaryIO

from vmkv.errors import InvalidError

_SCRIPTS_MOST = 4  # interpreters that are scripts themselves
_PT_INTERP = 3
_ELF_64, _HEADER_BYTES, _ENTRY_BYTES = 2, 64, 56


def find(name: str) -> str:
    """The path of a program, looked for in PATH if the name has no slash.

    Raises:
        InvalidError: there is none, it may not be run, or it can't be preloaded.
    """
    path = shutil.which(name)
    if path is None:
        raise InvalidError(_why_not(name))
    _check(path, name)
    return path


def _why_not(name: str) -> str:
    if not name or os.sep not in name:
        return f"{name}: there is no such program in PATH"
    if os.path.isdir(name):
        return f"{name}: is a directory, not a program"
    if os.path.exists(name):
        return f"{name}: isn't executable"
    return f"{name}: there is no such program"


def _check(path: str, name: str) -> None:
    for _ in range(_SCRIPTS_MOST):
        _check_rights(path, name)
        with _opened(path, name) as file:
            start = file.read(256)
            if not start.startswith(b"#!"):
                _check_elf(file, start, name)
                return
        words = start[2:].split(b"\n")[0].split()
        if not words:
            raise InvalidError(f"{name}: its first line names no interpreter")
        path = os.fsdecode(words[0])
        if not os.path.exists(path):
            raise InvalidError(f"{name}: there is no interpreter {path}")
    raise InvalidError(f"{name}: a script whose interpreter is a script, and so on")


def _opened(path: str, name: str) -> BinaryIO:
    try:
        return open(path, "rb")
    except OSError as error:
        raise InvalidError(f"{name}: can't be read: {error.strerror}") from error


def _check_rights(path: str, name: str) -> None:
    mode = os.stat(path).st_mode
    rights = []
    if mode & stat.S_ISUID:
        rights.append("setuid")
    if mode & stat.S_ISGID:
        rights.append("setgid")
    try:
        os.getxattr(path, "security.capability")
        rights.append("given capabilities")
    except OSError:
        pass
    if rights:
        raise InvalidError(
            f"{name}: it is {' and '.join(rights)}, so nothing can be preloaded into it: run a "
            "copy without that"
        )


def _check_elf(file: BinaryIO, start: bytes, name: str) -> None:
    """A file that is neither ELF nor a script is one that execve refuses by itself."""
    if not start.startswith(b"\x7fELF"):
        raise InvalidError(f"{name}: is neither an ELF program nor a script with a first line #!")
    own = _opened(sys.executable, "Python").read(20)
    if len(start) < _HEADER_BYTES or start[4] != _ELF_64 or start[18:20] != own[18:20]:
        raise InvalidError(f"{name}: a program for another kind of machine than vmkv's")
    (offset,) = struct.unpack_from("<Q", start, 32)
    entry_bytes, count = struct.unpack_from("<HH", start, 54)
    file.seek(offset)
    table = file.read(entry_bytes * count)
    for at in range(0, len(table) - _ENTRY_BYTES + 1, entry_bytes or _ENTRY_BYTES):
        if struct.unpack_from("<I", table, at)[0] == _PT_INTERP:
            return
    raise InvalidError(
        f"{name}: is linked statically, so nothing can be preloaded into it: link it dynamically"
    )
