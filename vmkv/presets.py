"""The shapes of models that are known by name: their KV heads, not their attention heads."""

from __future__ import annotations

import difflib
from typing import NamedTuple

from vmkv.errors import InvalidError


class Shape(NamedTuple):
    """One group of a model's layers."""

    layers: tuple[int, ...]
    heads: int
    head_dim: int
    window_tokens: int = 0  # 0: every token stays
    tensors: tuple[str, ...] = ("k", "v")


def _uniform(layers: int, heads: int, head_dim: int) -> tuple[Shape, ...]:
    return (Shape(tuple(range(layers)), heads, head_dim),)


def _gpt_oss(layers: int) -> tuple[Shape, ...]:
    """Sliding and full attention in turn, beginning with a sliding layer."""
    return (
        Shape(tuple(range(1, layers, 2)), 8, 64),
        Shape(tuple(range(0, layers, 2)), 8, 64, window_tokens=128),
    )


def _gemma_3_27b() -> tuple[Shape, ...]:
    """Five sliding layers, then one with full attention."""
    full = tuple(layer for layer in range(62) if (layer + 1) % 6 == 0)
    sliding = tuple(layer for layer in range(62) if (layer + 1) % 6)
    return (Shape(full, 16, 128), Shape(sliding, 16, 128, window_tokens=1024))


SHAPES: dict[str, tuple[Shape, ...]] = {
    # MLA: a latent of 512 elements and a rotary key of 64, in one row.
    "deepseek-v3": (Shape(tuple(range(61)), 1, 576, tensors=("latent",)),),
    "gemma-3-27b": _gemma_3_27b(),
    "gpt-oss-20b": _gpt_oss(24),
    "gpt-oss-120b": _gpt_oss(36),
    "llama-3.1-8b": _uniform(32, 8, 128),
    "llama-3.1-70b": _uniform(80, 8, 128),
    "qwen3-8b": _uniform(36, 8, 128),
    "qwen3-14b": _uniform(40, 8, 128),
    "qwen3-30b-a3b": _uniform(48, 4, 128),
    "qwen3-32b": _uniform(64, 8, 128),
}


def find_name(name: str) -> str:
    """The listed name of a model, whatever its case.

    >>> find_name("Qwen3-8B")
    'qwen3-8b'

    Raises:
        InvalidError: an unknown model; the message lists those that are known.
    """
    wanted = str(name).strip().lower()
    if wanted in SHAPES:
        return wanted
    close = difflib.get_close_matches(wanted, SHAPES, n=2)
    hint = f"did you mean {' or '.join(close)}? " if close else ""
    raise InvalidError(f"unknown model {name!r}: {hint}known are {', '.join(sorted(SHAPES))}")
