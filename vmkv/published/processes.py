"""Processes as /proc has them: whether one that published a cache still lives, and how."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from pathlib import Path

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
            state, start_ticks = read_stat(self.pid, proc)
        except (OSError, ValueError, IndexError):
            return Condition.DEAD
        if state in "ZXx" or self.start_ticks not in (0, start_ticks):
            return Condition.DEAD
        return Condition.STOPPED if state in "Tt" else Condition.ALIVE


def read_stat(pid: int, proc: Path = PROC) -> tuple[str, int]:
    """State letter and start time of a process.

    Raises:
        OSError: there is none, or it is another user's and hidden. ValueError, IndexError: what is
        there is no such file.
    """
    text = (proc / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
    # The program's name stands in brackets, and may hold any of these signs itself.
    fields = text.rpartition(")")[2].split()
    return fields[0], int(fields[19])


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
