"""Caches watched for as long as somebody looks: new ones come, others go."""

from __future__ import annotations

from pathlib import Path

from vmkv._closing import Closing
from vmkv.errors import Error
from vmkv.published import directory
from vmkv.published.found import Found, close_all, find


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
        self._listed: list[object] | None = None

    def close(self) -> None:
        """Close all files."""
        close_all(list(self._known.values()))
        self._known, self._listed = {}, None

    def now(self) -> list[Found]:
        """What there is now. Readers are closed here, once their files have lost their names."""
        listed = _listing()
        known = self._known.values()
        # What can't be read is tried again: it may be on its way.
        if listed != self._listed or any(one.reader is None or _is_gone(one) for one in known):
            self._take_over(find(self._pid))
            self._listed = listed
        return list(self._known.values())

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
