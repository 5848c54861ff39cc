"""What the commands share: parameter types, options, JSON, and errors as exit codes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click
from click.shell_completion import CompletionItem

from vmkv import errors, sizes, svg
from vmkv._names import DeviceName
from vmkv.device import Device
from vmkv.geometry import Geometry
from vmkv.safety import safe_name

if TYPE_CHECKING:
    IntType = click.ParamType[int]
    ModelParamType = click.ParamType["Model"]
else:  # older clicks have no generic types
    IntType = ModelParamType = click.ParamType

Command = TypeVar("Command", bound=Callable[..., Any])

EXIT_FAILURE = 1
EXIT_USAGE = 2

MODEL_HELP = f"a config.json, a .gguf file, or one of {', '.join(Geometry.presets())}"


class Failure(click.ClickException):
    """Ends a command with one line on stderr and exit code 1."""

    exit_code = EXIT_FAILURE

    def show(self, file: IO[Any] | None = None) -> None:
        click.echo(f"Error: {' '.join(self.message.split())}", file=file, err=True)


class SizeType(IntType):
    """A size such as 10GB, 10GiB, 64KiB or a number of bytes; the command gets an int."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            return sizes.parse(value)
        except errors.Error as error:
            self.fail(str(error), param, ctx)


@dataclass(frozen=True)
class Model:
    """What --model says: a model by name, or a file that describes one.

    Attributes:
        name: as listed, or the path as given.
        path: the file; None for a model by name.
    """

    name: str
    path: Path | None = None

    def geometry(
        self, dtype: str = "f16", *, v_dtype: str | None = None, state_dtype: str = "f32"
    ) -> Geometry:
        """What it caches; the arguments and errors are those of Geometry.from_config."""
        if self.path is None:
            return Geometry.preset(self.name, dtype, v_dtype=v_dtype, state_dtype=state_dtype)
        read = Geometry.from_gguf if _is_gguf(self.path) else Geometry.from_config
        return read(self.path, dtype, v_dtype=v_dtype, state_dtype=state_dtype)

    def __str__(self) -> str:
        return self.name


def _is_gguf(path: Path) -> bool:
    if path.is_dir():
        return False
    if path.suffix.lower() == ".gguf":
        return True
    with path.open("rb") as file:
        return file.read(4) == b"GGUF"


class ModelType(ModelParamType):
    """The name of a model whose geometry ships with vmkv, or the path of a config.json, of the
    directory that has it, or of a GGUF file; the command gets a Model."""

    name = "model"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Model:
        if not value.strip():
            known = ", ".join(Geometry.presets())
            self.fail(f"no name is given: it is one of {known}, or a file's", param, ctx)
        try:
            return Model(Geometry.preset_name(value))
        except errors.Error as error:
            path = Path(value)
            if path.exists():
                return Model(str(value), path)
            if os.sep in value or path.suffix.lower() in (".json", ".gguf"):
                # A repository on a hub is no file, but its model may be known.
                known = path.name.lower()
                hint = f"; did you mean {known}?" if known in Geometry.presets() else ""
                self.fail(f"{value}: there is no such file{hint}", param, ctx)
            self.fail(f"{error}; or give the path of a config.json or .gguf file", param, ctx)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The models by name, and files."""
        names = [name for name in Geometry.presets() if name.startswith(incomplete)]
        return [*map(CompletionItem, names), CompletionItem(incomplete, type="file")]


class PictureType(click.Path):
    """A file to write a picture to, .svg or .png; the command gets a Path."""

    name = "file"

    def __init__(self) -> None:
        super().__init__(dir_okay=False, writable=True, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        path = super().convert(value, param, ctx)
        try:
            svg.check_path(Path(os.fsdecode(path)))
        except errors.Error as error:
            self.fail(str(error), param, ctx)
        return path


SIZE = SizeType()
MODEL = ModelType()
PICTURE = PictureType()


def device_option(command: Command) -> Command:
    """--device NAME, for the parameter `device`."""
    option = click.option(
        "--device", default="auto", show_default=True, metavar="NAME", help="The device to use."
    )
    return option(command)


def open_device(name: str, *, touches: bool = True) -> Device:
    """Open a device; a name that means nothing is wrong usage, one that isn't there a failure. What
    an emulated card maps is shown to the CPU, if that touches memory. A real card is examined
    before, and opened in the safe modes that it needs; "auto" is the host, where the CPU reaches
    everything."""
    wanted = DeviceName.parse(name)
    if touches and wanted.kind == "emulated" and wanted.option("identity") is None:
        name = str(wanted.with_option("identity", "1"))
    try:
        return Device(name if name == "auto" else safe_name(name))
    except errors.InvalidError as error:
        raise click.UsageError(str(error)) from error
    except errors.DeviceNotFoundError as error:
        if str(error).startswith("unknown device"):
            raise click.UsageError(str(error)) from error
        raise


def json_option(command: Command) -> Command:
    """--json, for the parameter `as_json`."""
    option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
    return option(command)


def print_json(value: Any) -> None:
    """Print a value as JSON on stdout; numpy's numbers are taken as plain ones."""
    click.echo(json.dumps(value, indent=2, default=_plain))


def print_line(value: Any) -> None:
    """Print a value as one line of JSON on stdout, at once."""
    click.echo(json.dumps(value, default=_plain))


def _plain(value: Any) -> Any:
    """What json can't write by itself: numpy's scalars and arrays."""
    if hasattr(value, "tolist"):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} can't be written as JSON")


@contextmanager
def errors_to_exit() -> Iterator[None]:
    """Turn what a user can meet into one line and an exit code, never a traceback. The group wraps
    every command in it; `@errors_to_exit()` does the same for a function."""
    try:
        yield
    except BrokenPipeError:
        # Whoever read the output has seen enough, as in `vmkv replay | head`. Python flushes
        # stdout once more at exit, so give it something that can be written to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise click.exceptions.Exit(EXIT_FAILURE) from None
    except errors.Error as error:
        raise Failure(str(error)) from error
    except OSError as error:
        raise Failure(_describe(error)) from error
    except MemoryError as error:
        raise Failure(str(error) or "out of host memory") from error


def _describe(error: OSError) -> str:
    text = error.strerror or str(error)
    return f"{error.filename}: {text}" if error.filename else text
