"""What the layers of a model cache: what presets, config files and GGUF files all come down to."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias


class Attention(NamedTuple):
    """A key and a value of each token, in every KV head."""

    heads: int
    key_dim: int
    value_dim: int
    window_tokens: int = 0  # 0: every token stays


class Latent(NamedTuple):
    """One row a token in place of keys and values: MLA's compressed latent and rotary key."""

    width: int


class Linear(NamedTuple):
    """Linear attention (gated delta net): no rows, but a state of fixed size. It has the last
    inputs of the convolution over queries, keys and values, and a matrix of key_dim x value_dim
    for each value head."""

    conv_kernel: int
    key_heads: int
    key_dim: int
    value_heads: int
    value_dim: int

    @property
    def conv_channels(self) -> int:
        """Queries and keys have key_heads, values have value_heads."""
        return 2 * self.key_heads * self.key_dim + self.value_heads * self.value_dim

    @property
    def conv_tokens(self) -> int:
        """A step needs one input less than the kernel spans: the newest is its own."""
        return self.conv_kernel - 1


Layer: TypeAlias = Attention | Latent | Linear
# By the model's layer number; None has no cache of its own.
Layers: TypeAlias = tuple[Layer | None, ...]


def attention(heads: int, head_dim: int, window_tokens: int = 0) -> Attention:
    """Attention whose keys and values have the same width, as nearly all have.

    >>> attention(8, 128)
    Attention(heads=8, key_dim=128, value_dim=128, window_tokens=0)
    """
    return Attention(heads, head_dim, head_dim, window_tokens)
