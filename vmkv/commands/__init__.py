"""The command line: `vmkv COMMAND`. Each command is a module here that exports `command`, and is
imported only when it is asked for."""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Sequence
from typing import Any

import click

from vmkv import __version__, entry
from vmkv.commands.common import errors_to_exit

_MODULES = {
    "bench": "vmkv.commands.bench",
    "doctor": "vmkv.commands.doctor",
    "emulate": "vmkv.commands.emulate",
    "pkg-config": "vmkv.commands.pkg_config",
    "plan": "vmkv.commands.plan",
    "replay": "vmkv.commands.replay",
    "stats": "vmkv.commands.stats",
}


class Main(click.Group):
    """A group that imports its commands lazily and never shows a traceback to a user."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in _MODULES:
            return None
        command = importlib.import_module(_MODULES[cmd_name]).command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in _MODULES:
            close = difflib.get_close_matches(name, _MODULES)
            hint = f"Did you mean {' or '.join(close)}?" if close else "See vmkv --help."
            ctx.fail(f"No such command {name!r}. {hint}")
        found = super().resolve_command(ctx, args)
        entry.command_loaded()
        return found

    def invoke(self, ctx: click.Context) -> None:
        # What a command returns is no exit code, and must not be taken for one by main.
        with errors_to_exit():
            super().invoke(ctx)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = "vmkv",
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        """As click's, but an interrupt exits 130 and says nothing."""
        try:
            code = super().main(args, prog_name, complete_var, standalone_mode=False, **extra)
        except click.Abort:
            if not standalone_mode:
                raise
            sys.exit(entry.EXIT_INTERRUPTED)
        except click.ClickException as error:
            if not standalone_mode:
                raise
            error.show()
            sys.exit(error.exit_code)
        if standalone_mode:
            sys.exit(code if isinstance(code, int) else 0)
        return code


@click.group(cls=Main, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="vmkv")
def main() -> None:
    """KV-cache memory for engines that want flat spans.

    A sequence gets one contiguous range of GPU addresses for every layer and tensor; vmkv puts
    physical memory behind exactly the part that it uses.

    Sizes are written as 10GB (10^10 bytes), 10GiB, 64KiB or a number of bytes.
    """
