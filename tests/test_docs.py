"""The examples in docstrings."""

import doctest
import importlib
import pkgutil

import pytest

import vmkv

MODULES = sorted(
    module.name
    for module in pkgutil.walk_packages(vmkv.__path__, "vmkv.")
    if not module.name.startswith("vmkv._")
)


@pytest.mark.parametrize("name", ["vmkv", *MODULES])
def test_examples(name: str) -> None:
    module = importlib.import_module(name)
    failed, _ = doctest.testmod(module, extraglobs={"vmkv": vmkv}, report=True)
    assert failed == 0


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder()
    modules = [vmkv, *map(importlib.import_module, MODULES)]
    examples = [test for module in modules for test in finder.find(module) if test.examples]
    assert len(examples) >= 10
