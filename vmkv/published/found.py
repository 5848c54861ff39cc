"""The caches that this user's processes publish, and what dead ones left."""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from vmkv.errors import Error
from vmkv.published import directory
from vmkv.published.file import PublishedError
from vmkv.published.processes import Condition, Process
from vmkv.published.reader import Reader
from vmkv.published.words import printable

_NAME = re.compile(r"(?P<pid>[1-9]\d{0,9})-(?P<tag>[0-9a-f]{5})\.kv", re.ASCII)
# A file without its name may still be filled in for so long.
_HIDDEN_SECONDS = 60


@dataclass(frozen=True)
class Found:
    """One file.

    Attributes:
        path: where it is.
        pid: the process's number by the file's name; None if it isn't named as caches do.
        reader: looks into it; None if it can't be read: then `problem` says why, in one line.
    """

    path: Path
    pid: int | None
    reader: Reader | None
    problem: str = ""

    @property
    def name(self) -> str:
        """What it is called in tables: PID-TAG."""
        return printable(self.path.name.removesuffix(directory.SUFFIX))

    def condition(self) -> Condition:
        """Whether its process lives. Of a file that can't be read only the name tells."""
        if self.reader is not None:
            return self.reader.condition()
        if self.pid is None:
            return Condition.UNKNOWN
        return Process(self.pid).condition()


def find(pid: int | None = None) -> list[Found]:
    """All files of this user, or those of one process, by pid. The caller closes the readers, best
    with `close_all`. A directory or file that can't be believed is among them, with its problem."""
    found = []
    for path in directory.directories():
        try:
            with directory.opened(path) as descriptor:
                found += list(_files(path, descriptor, pid))
        except FileNotFoundError:
            continue
        except (Error, OSError) as error:
            found.append(Found(path, None, None, _line(error)))
    return sorted(found, key=lambda one: (one.pid or 0, one.path.name))


def close_all(found: list[Found]) -> None:
    """Close the readers of what was found."""
    for one in found:
        if one.reader is not None:
            one.reader.close()


def _files(path: Path, descriptor: int, pid: int | None) -> Iterator[Found]:
    for name in directory.names(descriptor):
        match = _NAME.fullmatch(name)
        number = int(match["pid"]) if match else None
        if pid is not None and number != pid:
            continue
        try:
            yield Found(path / name, number, Reader.open(name, descriptor))
        except FileNotFoundError:
            continue  # its cache was closed just now
        except (Error, OSError) as error:
            yield Found(path / name, number, None, _line(error))


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and not isinstance(error, Error):
        text = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    else:
        text = str(error)
    return printable(" ".join(text.split()))


# ---- what dead processes left -----------------------------------------------------------------


def reap() -> tuple[list[Path], list[Path]]:
    """Remove the files of processes that are dead. Returns what was removed, and what wasn't
    although it can't be read: it may be a living one's.

    Raises:
        OSError: a file can't be removed.
    """
    removed: list[Path] = []
    kept: list[Path] = []
    for path in directory.directories():
        try:
            with directory.opened(path) as descriptor:
                _reap_one(path, descriptor, removed, kept)
        except FileNotFoundError:
            continue
    return removed, kept


def _reap_one(path: Path, descriptor: int, removed: list[Path], kept: list[Path]) -> None:
    for name in sorted(os.listdir(descriptor)):
        match = _NAME.fullmatch(name.removeprefix("."))
        if match is None:
            continue
        try:
            before = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
            if before.st_uid != os.getuid() or not stat.S_ISREG(before.st_mode):
                continue
            if _is_dead(name, int(match["pid"]), descriptor, before):
                # The number can be a new process's that made a file of this name just now.
                now = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
                if (now.st_dev, now.st_ino) == (before.st_dev, before.st_ino):
                    os.unlink(name, dir_fd=descriptor)
                    removed.append(path / name)
            elif not name.startswith(".") and not _is_readable(name, descriptor):
                kept.append(path / name)
        except FileNotFoundError:
            continue  # somebody else removed it


def _is_dead(name: str, pid: int, descriptor: int, found: os.stat_result) -> bool:
    if name.startswith("."):
        old = time.time() - found.st_mtime > _HIDDEN_SECONDS
        return old and Process(pid).condition() is Condition.DEAD
    try:
        with Reader.open(name, descriptor) as reader:
            return reader.condition() is Condition.DEAD
    except PublishedError:
        # Damaged, or of a newer version: its name still says whose it is.
        return Process(pid).condition() is Condition.DEAD


def _is_readable(name: str, descriptor: int) -> bool:
    try:
        Reader.open(name, descriptor).close()
    except PublishedError:
        return False
    return True
