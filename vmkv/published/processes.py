"""Processes as /proc has them: whether one that published a cache still lives, and how."""

from __future__ import annotations

import enum
import os
from dataclasses import dataclass
from pathlib import Path

from vmkv._closing import Closing

PROC = Path("/proc")


class Condition(enum.Enum):
    """What became of a process."""

    ALIVE = "alive"
    STOPPED = "stopped"  # by SIGSTOP or a debugger: it does nothing until it is continued
    DEAD = "dead"  # gone, waiting to be reaped by its parent, or its number is another's now
    UNKNOWN = "unknown"  # of another pid namespace, a container's say: it can't be told from here

    @property
    def lives(self) -> bool:
        """Whether it may go on."""
        return self is not Condition.DEAD


@dataclass(frozen=True)
class Process:
    """Which process it is: a pid alone can be another's by now.

    Attributes:
        pid: its number.
        start_ticks: when it began, field 22 of /proc/PID/stat; 0: unknown.
        boot_id: of the boot that it ran in; "": unknown.
        namespace: in which the pid is its number, the inode of /proc/self/ns/pid; 0: unknown.
    """

    pid: int
    start_ticks: int = 0
    boot_id: str = ""
    namespace: int = 0

    def condition(self, proc: Path = PROC) -> Condition:
        """How it is now."""
        boot = boot_id(proc)
        if self.boot_id and boot and self.boot_id != boot:
            return Condition.DEAD
        if self.namespace and self.namespace != own_namespace(proc):
            return Condition.UNKNOWN
        try:
            return self.judge((proc / str(self.pid) / "stat").read_bytes())
        except OSError:
            return Condition.DEAD

    def judge(self, stat: bytes) -> Condition:
        """How it is by what /proc/PID/stat says, if it is of this boot and namespace."""
        try:
            state, start_ticks = parse_stat(stat)
        except (ValueError, IndexError):
            return Condition.DEAD
        if state in "ZXx" or self.start_ticks not in (0, start_ticks):
            return Condition.DEAD
        return Condition.STOPPED if state in "Tt" else Condition.ALIVE


class Observed(Closing):
    """A process that is asked for again and again: its file in /proc stays open, and is no other's
    once it is dead.

    Attributes:
        process: which one.
    """

    def __init__(self, process: Process) -> None:
        self.process = process
        self._stat = -1

    def close(self) -> None:
        """Close the file. Nothing happens if it is closed already."""
        if self._stat >= 0:
            os.close(self._stat)
            self._stat = -1

    def condition(self) -> Condition:
        """How it is now."""
        try:
            if self._stat >= 0:
                return self.process.judge(os.pread(self._stat, 4096, 0))
            found = self.process.condition()
            if found in (Condition.ALIVE, Condition.STOPPED):
                flags = os.O_RDONLY | os.O_CLOEXEC
                self._stat = os.open(PROC / str(self.process.pid) / "stat", flags)
        except OSError:
            return Condition.DEAD
        return found


def read_stat(pid: int, proc: Path = PROC) -> tuple[str, int]:
    """State letter and start time of a process.

    Raises:
        OSError: there is none, or it is another user's and hidden. ValueError, IndexError: what is
        there is no such file.
    """
    return parse_stat((proc / str(pid) / "stat").read_bytes())


def parse_stat(stat: bytes) -> tuple[str, int]:
    """The same of what the file says."""
    # The program's name stands in brackets, and may hold any of these signs itself.
    fields = stat.rpartition(b")")[2].split()
    return fields[0].decode(errors="replace"), int(fields[19])


def boot_id(proc: Path = PROC) -> str:
    """What names this boot of the machine; "" where the kernel doesn't tell."""
    try:
        return (proc / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def own_namespace(proc: Path = PROC) -> int:
    """The pid namespace of this process; 0 where the kernel doesn't tell."""
    try:
        return (proc / "self/ns/pid").stat().st_ino
    except OSError:
        return 0
