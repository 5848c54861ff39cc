"""Reading the keys of a model's description: each has to be there and make sense."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from vmkv.errors import InvalidError
from vmkv.sizes import count as counted

# Far more than any model has: an absurd number must not become as many objects.
MAX_LAYERS = 4096
_MAX = (1 << 32) - 1


class Keys:
    """The keys of one model, as its architecture names them.

    Attributes:
        where: the file, for errors.
        architecture: whose keys they are.
        names: what errors call a key: this and its name.
    """

    def __init__(
        self, values: Mapping[str, Any], where: str, architecture: str, names: str = ""
    ) -> None:
        self._values = values
        self.where = where
        self.architecture = architecture
        self.names = names

    def fail(self, text: str) -> NoReturn:
        raise InvalidError(f"{self.where}: architecture {self.architecture}: {text}")

    def has(self, name: str) -> bool:
        """Whether there is a value: null is none."""
        return self._values.get(name) is not None

    def given(self, name: str) -> bool:
        """Whether the key is there at all, if only as null."""
        return name in self._values

    def need(self, *names: str) -> None:
        """Raise one error that lists those of the keys that are missing."""
        missing = [self.names + name for name in names if not self.has(name)]
        if missing:
            self.fail(f"missing {', '.join(missing)}")

    def raw(self, name: str) -> Any:
        """A key's value as it is."""
        self.need(name)
        return self._values[name]

    def count(self, name: str, least: int = 1, most: int = _MAX) -> int:
        """A whole number within bounds."""
        return self.check(name, self.raw(name), least, most)

    def check(self, name: str, value: Any, least: int = 1, most: int = _MAX) -> int:
        """A value that has to be a whole number within bounds."""
        if not isinstance(value, int) or isinstance(value, bool):
            self.fail(f"{self.names}{name} is a whole number, not {show(value)}")
        if not least <= value <= most:
            self.fail(f"{self.names}{name} is {least:,} to {most:,}, not {show(value)}")
        return value

    def flag(self, name: str) -> bool:
        """True or false; false if it is missing."""
        value = self._values.get(name)
        if value is not None and not isinstance(value, bool):
            self.fail(f"{self.names}{name} is true or false, not {show(value)}")
        return bool(value)

    def entries(self, name: str, count: int) -> list[Any]:
        """A list with an entry for each layer."""
        value = self.raw(name)
        if not isinstance(value, list):
            self.fail(f"{self.names}{name} is a list, not {show(value)}")
        if len(value) != count:
            entries = counted(len(value), "entry", "entries")
            self.fail(f"{self.names}{name} has {entries} for {counted(count, 'layer')}")
        return value


def kind(value: Any) -> str:
    """What kind of value it is, in JSON's words."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true or false"
    names = {int: "number", float: "number", str: "text"}
    return f"a {names.get(type(value), type(value).__name__)}"


def show(value: Any) -> str:
    """A value for an error: as JSON has it, and not too long."""
    if value is None or isinstance(value, bool):
        return json.dumps(value)
    if isinstance(value, int) and value.bit_length() > 64:
        return "a number of more than 64 bits"
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
