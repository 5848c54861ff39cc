"""``vmkv pkg-config``: the flags that compile and link a C program against this installation."""

import shlex
from importlib.resources import files
from pathlib import Path

import click

from vmkv import __version__
from vmkv.commands.common import Failure


def installed(*parts: str) -> Path:
    """Where a file of the package really is: those of an editable install lie elsewhere."""
    path = Path(str(files("vmkv").joinpath(*parts)))
    if not path.is_file():
        raise Failure(f"the installed package has no {'/'.join(parts)}: reinstall it")
    return path.resolve()


@click.command("pkg-config")
@click.option("--cflags", is_flag=True, help="Flags for the compiler.")
@click.option("--libs", is_flag=True, help="Flags for the linker, the run-time path included.")
@click.option("--modversion", is_flag=True, help="The version.")
@click.option("--path", is_flag=True, help="Where vmkv.pc is, for PKG_CONFIG_PATH.")
def command(cflags: bool, libs: bool, modversion: bool, path: bool) -> None:
    """Print flags for C programs that use vmkv.

    cc engine.c $(vmkv pkg-config --cflags --libs)
    """
    if not (cflags or libs or modversion or path):
        raise click.UsageError("say what to print: --cflags, --libs, --modversion or --path")
    if modversion:
        click.echo(__version__)
    if path:
        directory = installed("lib", "pkgconfig", "vmkv.pc").parent
        if directory.parent != installed("lib", "libvmkv.so").parent:
            raise Failure(
                "the vmkv.pc of an editable install leads nowhere: use --cflags and --libs"
            )
        click.echo(directory)
    flags = []
    if cflags:
        flags.append(f"-I{installed('include', 'vmkv.h').parent}")
    if libs:
        directory = installed("lib", "libvmkv.so").parent
        flags += [f"-L{directory}", f"-Wl,-rpath,{directory}", "-lvmkv"]
    if flags:
        click.echo(shlex.join(flags))
