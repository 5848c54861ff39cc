"""Arguments of a wrong kind: one clear line that names them."""

import copy
import pickle
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import vmkv
from vmkv import Cache, Geometry, Group, Tensor
from vmkv.traces import read_trace

SMALL = Geometry.full(layers=2, heads=8, head_dim=128)


def make(cache: Cache, **options: Any) -> Cache:
    return Cache(cache.device, SMALL, budget="64MiB", **options)


@pytest.fixture
def cache(device_name: str) -> Iterator[Cache]:
    with vmkv.open(device_name) as device, Cache(device, SMALL, budget="64MiB") as cache:
        yield cache


@pytest.mark.parametrize(
    "name", ["budget", "page", "slab", "max_slots", "max_tokens", "read_align_tokens"]
)
def test_none_where_there_is_no_default(cache: Cache, name: str) -> None:
    options: dict[str, Any] = {"budget": "64MiB", name: None}
    with pytest.raises(TypeError, match=f"^{name} is "):
        Cache(cache.device, SMALL, **options)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda c: c.set_budget(None), "budget is a size"),
        (lambda c: c.shrink(None), "keep is a size"),
        (lambda c: c.step(None), "a step takes a dict of sequences to lengths, not None"),
        (lambda c: c.step([c.open()]), "a step takes a dict of sequences to lengths"),
        (lambda c: c.batch(None), "a batch takes sequences, not None"),
        (lambda c: c.batch([[]]), r"a batch takes sequences, not \[\]"),
        (lambda c: c.open(prefer=[]), r"unknown prefer \[\]"),
        (lambda c: c.open().span(tensor=None), "tensor, if not a name, is an integer, not None"),
        (lambda c: c.open().span(tensor=b"k"), "tensor, if not a name, is an integer, not b'k'"),
        (lambda c: c.open().span(group="x"), "group is an integer, not 'x'"),
        (lambda c: c.open().span("x", group=0), "layer is an integer, not 'x'"),
        (lambda c: c.open().span().numpy("x"), "first is an integer, not 'x'"),
        (lambda c: c.device.wait(0, "x"), "timeout is a number of seconds or None, not 'x'"),
        (lambda c: c.device.wait(0, []), r"timeout is a number of seconds or None, not \[\]"),
        (lambda c: c.device.wait(0, float("nan")), "timeout is nan: it is 0 or more seconds"),
        (lambda c: make(c, layout=[]), r"unknown layout \[\]"),
        (lambda c: make(c, zero="no"), "zero is True or False, not 'no'"),
    ],
)
def test_a_wrong_kind_is_named(cache: Cache, call: Callable[[Any], object], text: str) -> None:
    with pytest.raises((vmkv.InvalidError, TypeError), match=f"^{text}"):
        call(cache)


@pytest.mark.parametrize("layers", [10**9, 2**32, 2**70, np.int64(10**9), range(10**9)])
def test_too_many_layers(layers: Any) -> None:
    count = 10**9 if isinstance(layers, range) else layers
    with pytest.raises(vmkv.InvalidError, match=f"^layers is at most 65536, not {count}$"):
        Geometry.full(layers, 8, 128)


def test_too_many_layer_numbers() -> None:
    with pytest.raises(vmkv.InvalidError, match=r"^layers is at most 65536"):
        Geometry.full(iter(range(10**9)), 8, 128)


def test_layers_of_numpy() -> None:
    assert Geometry.full(np.int64(3), 8, 128) == Geometry.full(3, 8, 128)  # type: ignore[arg-type]
    assert Geometry.full(np.arange(3), 8, 128) == Geometry.full(3, 8, 128)
    assert Geometry.full(65536, 8, 128).layers[-1] == 65535


@pytest.mark.parametrize("layers", [1.5, None, "3", -1])
def test_layers_of_a_wrong_kind(layers: Any) -> None:
    with pytest.raises(vmkv.InvalidError, match=r"^layers is "):
        Geometry.full(layers, 8, 128)


def test_members_of_a_wrong_kind() -> None:
    members: list[Any] = ["x"]
    nothing: Any = None
    with pytest.raises(vmkv.InvalidError, match="groups is a tuple of Group, with no 'x' in it"):
        Geometry(tuple(members))
    with pytest.raises(vmkv.InvalidError, match="groups is a tuple of Group, not None"):
        Geometry(nothing)
    with pytest.raises(vmkv.InvalidError, match="tensors is a tuple of Tensor, with no 'x' in it"):
        Group("full", (0,), tuple(members))
    with pytest.raises(vmkv.InvalidError, match="layers is a tuple of layer numbers, not None"):
        Group("full", nothing, (Tensor("k", 8, 128),))


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_what_stands_for_memory_is_not_copied(
    cache: Cache, duplicate: Callable[[object], object]
) -> None:
    sequence = cache.open()
    for thing in (cache.device, cache, sequence, cache.batch([sequence]), sequence.span()):
        kind = type(thing).__name__
        with pytest.raises(TypeError, match=f"^a {kind} can't be copied or pickled"):
            duplicate(thing)


def test_the_greatest_limit_of_a_trace() -> None:
    assert next(read_trace(limit=sys.maxsize)).index == 0
    with pytest.raises(ValueError, match="limit is "):
        read_trace(limit=sys.maxsize + 1)
