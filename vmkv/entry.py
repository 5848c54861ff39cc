"""Where the program `vmkv` begins. Nothing is imported here that Python hasn't loaded anyway, so
that an interrupt while the rest loads finds its handler in place."""

import os
import signal
import sys
from io import TextIOWrapper

EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells do


class _Interrupts:
    """What an interrupt does. While a command works it raises KeyboardInterrupt, as Python's own
    handler does, so that the command can clear up. Before and after, while modules come and go, it
    ends the program at once: an exception could come up anywhere in them, where it may be taken
    for another or printed."""

    def __init__(self) -> None:
        self.working = False
        # At the very end modules have no names any more.
        self._write, self._leave, self._code = os.write, os._exit, EXIT_INTERRUPTED

    def __call__(self, number: int, frame: object) -> None:
        if self.working:
            raise KeyboardInterrupt
        try:
            self._write(2, b"\n")  # where a terminal shows ^C
        finally:
            self._leave(self._code)


_interrupts = _Interrupts()


def command_loaded() -> None:
    """All that a command needs is there, and its work begins."""
    _interrupts.working = True


def main() -> None:
    """The console script: it never returns, but raises SystemExit."""
    # Those who start it may have it ignore interrupts: that stays.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupts)
    if isinstance(sys.stdout, TextIOWrapper):  # a file's name can be what it has no letters for
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        from vmkv.commands import main as run

        run()
    except KeyboardInterrupt:  # in the moment between a command and here
        sys.exit(EXIT_INTERRUPTED)
    finally:
        _interrupts.working = False
