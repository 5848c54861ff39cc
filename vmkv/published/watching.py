"""Caches watched for as long as somebody looks: new ones come, others go."""

from __future__ import annotations

import os
import time
from pathlib import Path

from vmkv._closing import Closing
from vmkv.errors import Error
from vmkv.published import directory
from vmkv.published.found import Found, close_all, find

# More than the kernel's clock for files is late: a tick of at most 10 ms.
_TICK_NS = 100_000_000


class Watched(Closing):
    """The files of this user's caches, or those of one process, kept open between looks. A context
    manager.

    Args:
        pid: of whose caches; None: of all.
        name: PID-TAG of the only one wanted; "": all of them.
    """

    def __init__(self, pid: int | None = None, name: str = "") -> None:
        self._pid, self._name = pid, name
        self._known: dict[Path, Found] = {}
        self._directories = [os.fspath(path) for path in directory.directories()]
        self._listed: list[object] | None = None
        self._asked = 0.0
        self._looked_at: tuple[list[object], bool] = [], False

    def close(self) -> None:
        """Close all files."""
        close_all(list(self._known.values()))
        self._known, self._listed, self._looked_at = {}, None, ([], False)

    def now(self, patience_seconds: float = 0.0) -> list[Found]:
        """What there is now, or was so long ago at most. Readers are closed here, once their files
        have lost their names."""
        if self._known and time.monotonic() - self._asked < patience_seconds:
            return list(self._known.values())
        self._asked = time.monotonic()
        looked_at = self._look_at_directories()
        unreadable = any(one.reader is None for one in self._known.values())
        # What can't be read is tried again: it may be on its way.
        if looked_at == self._looked_at and looked_at[1] and not unreadable:
            return list(self._known.values())
        self._looked_at = looked_at
        listed = _listing()
        if unreadable or listed != self._listed or any(map(_is_gone, self._known.values())):
            self._take_over(find(self._pid))
            self._listed = listed
        return list(self._known.values())

    def _look_at_directories(self) -> tuple[list[object], bool]:
        """Something that is another when files came or went, and whether it is so for sure: its
        clock is coarse, and two changes within a tick of it look like one."""
        told: list[object] = []
        newest = 0
        for path in self._directories:
            try:
                found = os.lstat(path)
            except OSError as error:
                told.append(error.errno)
                continue
            told.append(
                (found.st_dev, found.st_ino, found.st_mode, found.st_uid, found.st_ctime_ns)
            )
            newest = max(newest, found.st_ctime_ns)
        return told, time.time_ns() - newest > _TICK_NS

    def _take_over(self, found: list[Found]) -> None:
        """Keep the readers that are there already: they know what they have copied."""
        known, self._known = self._known, {}
        for one in found:
            if self._name and one.name != self._name:
                close_all([one])
                continue
            before = known.get(one.path)
            if before is not None and before.reader is not None and not _is_gone(before):
                close_all([one])
                one = known.pop(one.path)
            self._known[one.path] = one
        close_all(list(known.values()))


def _is_gone(one: Found) -> bool:
    return one.reader is not None and one.reader.file.removed


def _listing() -> list[object]:
    """Something that is another whenever a file came or went."""
    told: list[object] = []
    for path in directory.directories():
        try:
            with directory.opened(path) as descriptor:
                told.append(directory.names(descriptor))
        except (Error, OSError) as error:
            told.append(str(error))
    return told
