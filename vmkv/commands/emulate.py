"""``vmkv emulate``: run a program on an emulated card."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click

from vmkv import emulated_files, errors, programs
from vmkv.commands.common import SIZE
from vmkv.commands.pkg_config import installed
from vmkv.emulator import Emulator

_SIGNALLED = 128  # plus the signal's number, as shells do

# What a terminal or another program may send us and means for the program.
_FORWARDED = {
    signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2,
    signal.SIGALRM, signal.SIGCONT, signal.SIGWINCH,
}  # fmt: skip
# Python ignores these, and a program would inherit that.
_RESET = [signal.SIGPIPE, signal.SIGXFSZ]

# It outlives a `vmkv emulate` that is killed: its standard input then ends.
_CLEANER = 'trap "" INT TERM HUP QUIT; read -r _; exec rm -rf -- "$1"'


@click.command("emulate", context_settings={"allow_interspersed_args": False})
@click.option("--gpu", default="gfx1201", show_default=True, metavar="MODEL", help="The card.")
@click.option("--vram", type=SIZE, help="Its VRAM, such as 16GiB.  [default: the model's]")
@click.option("--kernel", default="6.12", show_default=True, help="The kernel: 6.1, 6.12 or 7.2.")
@click.option("--inject", metavar="FAULTS", help="Faults that real cards had, by commas.")
@click.option("--trace", type=click.Path(dir_okay=False), help="Gets a JSON line for each ioctl.")
@click.option(
    "--counts",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Gets, as JSON, what was on the card at the end, and how often each ioctl was called.",
)
@click.argument("program", nargs=-1, type=click.UNPROCESSED)
def command(
    gpu: str,
    vram: int | None,
    kernel: str,
    inject: str | None,
    trace: str | None,
    counts: Path | None,
    program: tuple[str, ...],
) -> None:
    """Run a program on an emulated Radeon, as if the machine had that card and no other.

    vmkv emulate --gpu gfx1100 -- vulkaninfo --summary

    The program, and those that it starts, see /dev/dri/renderD128 and card0 and what /dev, /sys and
    /proc tell of them, and share the card: its memory and, if they pass descriptors on, its
    buffers. No root is needed, and nothing is left behind. The card goes as the program ends.

    It has to be a program that loads its libraries as it starts, of this machine's kind, and
    neither setuid nor setgid. System calls that aren't made through libc don't see the card.

    \b
    Exit code: the program's own, 128 + N if signal N ended it, or
               2  wrong usage, a program that can't be run so, or no memory for the card
    """
    if not program:
        raise click.UsageError("say which program to run: vmkv emulate -- PROGRAM ARGS")
    try:
        path = programs.find(program[0])
        spec = _spec(gpu, vram, kernel, inject, trace)
        if counts:
            _check_writable(counts)
        card = Emulator(spec)
    except errors.Error as error:
        raise click.UsageError(str(error)) from error
    with card:
        code = _run(card, path, program)
        if counts:
            _write_counts(counts, card)
    sys.exit(code)


def _check_writable(path: Path) -> None:
    """Before the program runs rather than after it."""
    if path.exists() and not path.is_file():
        return  # to open a pipe may mean to wait for its reader
    try:
        path.open("a").close()
    except OSError as error:
        raise errors.InvalidError(f"{path}: {error.strerror}") from error


def _spec(gpu: str, vram: int | None, kernel: str, inject: str | None, trace: str | None) -> str:
    options = {"kernel": kernel, "vram": vram, "inject": inject}
    options["trace"] = os.path.abspath(trace) if trace else None
    for text in (gpu, *options.values()):
        if isinstance(text, str) and set("&?") & set(text):
            raise errors.InvalidError(f"{text!r}: & and ? can't be in it")
    given = "&".join(f"{name}={value}" for name, value in options.items() if value is not None)
    return f"{gpu}?{given}"


def _write_counts(path: Path, card: Emulator) -> None:
    counts = {"stats": asdict(card.stats()), "ioctls": card.counts(), "error": card.error}
    try:
        path.write_text(json.dumps(counts, indent=2) + "\n")
    except OSError as error:  # a full disk doesn't say which file
        raise OSError(error.errno, error.strerror, str(path)) from error


def _run(card: Emulator, path: str, program: tuple[str, ...]) -> int:
    server = f"vmkv-emulate-{os.getpid()}-{secrets.token_hex(8)}"
    with _directory() as directory, card.served(server):
        identity = card.identity()
        emulated_files.write_tree(directory, identity)
        environment = dict(os.environ)
        environment["VMKV_EMULATE"] = f"{server};{directory};{identity.pci_slot}"
        others = environment.get("LD_PRELOAD", "").split()
        library = str(installed("lib", "libvmkv-preload.so"))
        environment["LD_PRELOAD"] = ":".join([library, *others])
        # A program built with ASan would refuse a library before its own.
        given = os.environ.get("ASAN_OPTIONS", "")
        environment["ASAN_OPTIONS"] = f"verify_asan_link_order=0:{given}"
        return _wait(path, program, environment)


@contextmanager
def _directory() -> Iterator[Path]:
    """A directory that goes, whatever becomes of this process."""
    path = tempfile.mkdtemp(prefix="vmkv-emulate-")
    cleaner = subprocess.Popen(
        ["/bin/sh", "-c", _CLEANER, "sh", path],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        start_new_session=True,
    )  # fmt: skip
    try:
        os.chmod(path, 0o755)
        yield Path(path)
    finally:
        shutil.rmtree(path, ignore_errors=True)
        assert cleaner.stdin is not None
        cleaner.stdin.close()
        cleaner.wait()


def _wait(path: str, program: tuple[str, ...], environment: dict[str, str]) -> int:
    """Run the program, hand it the signals that we get, and tell how it ended."""
    with _caught_signals() as caught:
        try:
            child = os.posix_spawn(path, program, environment, setsigdef=_RESET)
        except OSError as error:
            raise click.UsageError(f"{program[0]}: {error.strerror}") from error
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                code = os.waitstatus_to_exitcode(status)
                return code if code >= 0 else _SIGNALLED - code
            for number in os.read(caught, 64):
                if number != signal.SIGCHLD and not _is_keyboards(number):
                    os.kill(child, number)


@contextmanager
def _caught_signals() -> Iterator[int]:
    """A descriptor from which the numbers of signals come, but for those that we were started to
    ignore. Blocking them here wouldn't do: numpy's threads would get them."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    caught = [number for number in _FORWARDED if signal.getsignal(number) != signal.SIG_IGN]
    before = {
        number: signal.signal(number, lambda _number, _frame: None)
        for number in (*caught, signal.SIGCHLD)
    }
    waker = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(waker)
        for number, handler in before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)
        os.close(reading)
        os.close(writing)


def _is_keyboards(number: int) -> bool:
    """Whether a terminal sends that signal, and to the program as well."""
    if number not in (signal.SIGINT, signal.SIGQUIT):
        return False
    try:
        with open("/dev/tty", "rb") as terminal:
            return os.tcgetpgrp(terminal.fileno()) == os.getpgrp()
    except OSError:
        return False
