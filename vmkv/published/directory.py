"""Where caches are published: this user's directories, and the files in them."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from vmkv.errors import Error

SUFFIX = ".kv"
_SHARED_MEMORY = "/dev/shm"


class UnsafeError(Error, PermissionError):
    """A directory that others could have written to: nothing in it is believed."""


def directories() -> list[Path]:
    """Where an engine of this user publishes: which one depends on its environment, so both count.
    They need not exist."""
    found = []
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.path.isabs(runtime):
        found.append(Path(runtime) / "vmkv")
    found.append(Path(_SHARED_MEMORY) / f"vmkv-{os.getuid()}")
    return found


@contextmanager
def opened(path: Path) -> Iterator[int]:
    """A descriptor of a directory that is this user's own, and nobody else's to write to.

    Raises:
        UnsafeError: it isn't. FileNotFoundError, OSError.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        descriptor = os.open(path, flags)
    except NotADirectoryError:
        what = "a symbolic link" if path.is_symlink() else "no directory"
        raise UnsafeError(f"{path} is {what}: nothing in it is believed") from None
    try:
        found = os.fstat(descriptor)
        if found.st_uid != os.getuid():
            raise UnsafeError(f"{path} is owned by user {found.st_uid}: nothing in it is believed")
        if stat.S_IMODE(found.st_mode) & 0o022:
            raise UnsafeError(f"others may write to {path}: nothing in it is believed")
        yield descriptor
    finally:
        os.close(descriptor)


def names(descriptor: int) -> list[str]:
    """Names of what looks published in an open directory, in order."""
    return sorted(
        name
        for name in os.listdir(descriptor)
        if name.endswith(SUFFIX) and not name.startswith(".")
    )
