"""Caches as they publish themselves, read from outside their processes: running, hung or dead ones.

>>> from vmkv import published
>>> found = published.find()                     # of all processes of this user
>>> for one in found:
...     if one.reader is not None:
...         snapshot = one.reader.look(pieces=True, events=True)
>>> published.close_all(found)

A `Reader` is kept for as long as one looks: it copies again only what has changed. A `Snapshot` is
plain numpy arrays of the C structs in native/src/publish_format.h, and outlives its reader.
"""

from vmkv.published.attribution import Mapping, Spot, events_at, locate, mappings, windows
from vmkv.published.checks import contradictions
from vmkv.published.file import Header, PublishedError, PublishedFile
from vmkv.published.found import Found, close_all, find, reap
from vmkv.published.processes import Condition, Process
from vmkv.published.reader import Reader
from vmkv.published.snapshot import Snapshot

__all__ = [
    "Condition",
    "Found",
    "Header",
    "Mapping",
    "Process",
    "PublishedError",
    "PublishedFile",
    "Reader",
    "Snapshot",
    "Spot",
    "close_all",
    "contradictions",
    "events_at",
    "find",
    "locate",
    "mappings",
    "reap",
    "windows",
]
