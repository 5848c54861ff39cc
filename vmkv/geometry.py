"""What one token needs: groups of layers with the same tensors and the same policy."""

from __future__ import annotations

import operator
import os
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any, TypeVar

from vmkv import gguf_file, hf_config, presets
from vmkv._native import ffi, lib
from vmkv._values import check_index
from vmkv.errors import InvalidError, RangeError, SizeError
from vmkv.shapes import Attention, Latent, Layer, Layers

Member = TypeVar("Member")

# bytes of a block, and how many elements it holds
_BLOCKS = {"f32": (4, 1), "f16": (2, 1), "bf16": (2, 1), "f8": (1, 1), "q8_0": (34, 32)}
DTYPES = ("none", *_BLOCKS)
# Far more than any model has; a greater number is a mistake, and would be expanded to a tuple.
LAYERS_MAX = 65536
POLICIES = ("full", "window", "state")


def row_bytes(elements: int, dtype: str = "f16") -> int:
    """Bytes of a row of that many elements. q8_0 is ggml's: blocks of 32 elements in 34 bytes.

    >>> row_bytes(1024, "f16"), row_bytes(1024, "q8_0")
    (2048, 1088)

    Raises:
        InvalidError: an unknown dtype, or elements that don't fill its blocks.
    """
    if not isinstance(dtype, str) or dtype not in _BLOCKS:
        raise InvalidError(f"unknown dtype {dtype!r}: it is one of {', '.join(_BLOCKS)}")
    block_bytes, block = _BLOCKS[dtype]
    if elements % block:
        raise InvalidError(f"{dtype} takes multiples of {block} elements a row, not {elements}")
    return elements // block * block_bytes


@dataclass(frozen=True)
class Tensor:
    """One tensor of a layer: what a token's row of it looks like.

    Attributes:
        name: what spans call it: "k", "v", "latent".
        heads: KV heads; 0 for opaque rows.
        head_dim: elements of a head; 0 for opaque rows.
        dtype: "f32", "f16", "bf16", "f8", "q8_0", or "none" for opaque rows.
        row_bytes: bytes of one token in one layer (of the whole state, in a state group). Computed
            unless given; may be larger (padded rows), never smaller. Opaque rows need it.

    >>> Tensor("k", heads=8, head_dim=128).row_bytes
    2048

    Raises:
        InvalidError: a shape that makes no sense. SizeError: more than 64 bits hold.
    """

    name: str
    heads: int = 0
    head_dim: int = 0
    dtype: str = "f16"
    row_bytes: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name:
            raise InvalidError(f"a tensor's name is a text such as 'k', not {self.name!r}")
        for field, bits in (("heads", 32), ("head_dim", 32), ("row_bytes", 64)):
            what = f"{field} of tensor {self.name!r}"
            _set(self, field, _count(what, getattr(self, field), bits))
        if self.dtype not in DTYPES:
            known = ", ".join(DTYPES)
            raise InvalidError(f"tensor {self.name!r}: dtype is one of {known}, not {self.dtype!r}")
        least = self._least_row_bytes()
        if self.row_bytes == 0:
            _set(self, "row_bytes", least)
        if self.row_bytes < least:
            raise InvalidError(
                f"tensor {self.name!r}: row_bytes {self.row_bytes} is less than the {least} that "
                f"{self.heads} heads of {self.head_dim} {self.dtype} need"
            )

    def _least_row_bytes(self) -> int:
        if self.dtype == "none":
            if self.heads or self.head_dim or not self.row_bytes:
                raise InvalidError(
                    f"tensor {self.name!r}: dtype 'none' has row_bytes and no heads or head_dim"
                )
            return self.row_bytes
        if not self.heads or not self.head_dim:
            raise InvalidError(
                f"tensor {self.name!r} needs heads and head_dim of at least 1 "
                f"(or dtype='none' and row_bytes, for opaque rows)"
            )
        try:
            return row_bytes(self.heads * self.head_dim, self.dtype)
        except InvalidError as error:
            raise InvalidError(f"tensor {self.name!r}: {error}") from None


@dataclass(frozen=True)
class Group:
    """Layers with the same tensors and the same policy.

    Attributes:
        policy: "full": every token stays until the sequence closes. "window": the last
            window_tokens + slack_tokens stay. "state": fixed bytes a sequence.
        layers: the model's numbers of these layers, in order; an index within the group counts
            along it.
        tensors: what each of the layers has.
        window_tokens: "window" only, at least 1.
        slack_tokens: "window" only: how many older tokens are kept besides.

    >>> Group("window", range(0, 24, 2), (Tensor("k", 8, 64), Tensor("v", 8, 64)), 128).token_bytes
    24576

    Raises:
        InvalidError: a group that makes no sense.
    """

    policy: str
    layers: tuple[int, ...]
    tensors: tuple[Tensor, ...]
    window_tokens: int = 0
    slack_tokens: int = 0

    def __post_init__(self) -> None:
        if self.policy not in POLICIES:
            known = ", ".join(POLICIES)
            raise InvalidError(f"unknown policy {self.policy!r}: it is one of {known}")
        _set(self, "layers", _layer_numbers(self.layers))
        _set(self, "tensors", _members("tensors", self.tensors, Tensor))
        for field in ("window_tokens", "slack_tokens"):
            _set(self, field, _count(field, getattr(self, field), 32))
        if not self.layers or not self.tensors:
            raise InvalidError("a group has at least one layer and one tensor")
        if len(set(self.layers)) != len(self.layers):
            raise InvalidError(f"a layer is in a group twice: {self.layers}")
        names = [tensor.name for tensor in self.tensors]
        if len(set(names)) != len(names):
            raise InvalidError(f"two tensors of a group have one name: {', '.join(names)}")
        if self.policy == "window" and not self.window_tokens:
            raise InvalidError("a window group needs window_tokens of at least 1")
        if self.policy != "window" and (self.window_tokens or self.slack_tokens):
            raise InvalidError(f"a {self.policy} group has no window_tokens or slack_tokens")

    @property
    def token_bytes(self) -> int:
        """Bytes of one token (of one state) in all layers and tensors of the group."""
        return len(self.layers) * sum(tensor.row_bytes for tensor in self.tensors)

    def tensor_index(self, tensor: str | int) -> int:
        """The index of a tensor that is given by name or by index.

        Raises:
            RangeError: there is no such tensor.
        """
        names = [one.name for one in self.tensors]
        if isinstance(tensor, str):
            if tensor in names:
                return names.index(tensor)
        elif 0 <= check_index("tensor, if not a name,", tensor) < len(names):
            return operator.index(tensor)
        raise RangeError(f"no tensor {tensor!r}: this layer has {', '.join(map(repr, names))}")


@dataclass(frozen=True)
class Geometry:
    """What one token needs, over all layers of a model.

    >>> geometry = Geometry.preset("qwen3-8b")
    >>> geometry.bytes_per_token
    147456

    Raises:
        InvalidError: no group. SizeError: more bytes a token than 64 bits hold.
    """

    groups: tuple[Group, ...]

    def __post_init__(self) -> None:
        _set(self, "groups", _members("groups", self.groups, Group))
        if not self.groups:
            raise InvalidError("a geometry has at least one group")
        if sum(group.token_bytes for group in self.groups) >= 2**64:
            raise SizeError("one token of this geometry is more bytes than 64 bits hold")

    @property
    def bytes_per_token(self) -> int:
        """Bytes by which a sequence grows with each token: those of the full groups."""
        return sum(group.token_bytes for group in self.groups if group.policy == "full")

    @property
    def fixed_bytes(self) -> int:
        """Bytes that a long sequence holds however long it is: full windows, and states."""
        total = 0
        for group in self.groups:
            if group.policy == "window":
                total += group.token_bytes * (group.window_tokens + group.slack_tokens)
            elif group.policy == "state":
                total += group.token_bytes
        return total

    @property
    def layers(self) -> tuple[int, ...]:
        """The model's layer numbers that have something here, in order."""
        return tuple(sorted({layer for group in self.groups for layer in group.layers}))

    def locate(self, layer: int, tensor: str | int = 0) -> tuple[int, int]:
        """Where a layer of the model lies: (group, index within the group). Where several groups
        have the layer, as in models that have attention and a state in one layer, it is the first
        that has a tensor of that name.

        >>> Geometry.preset("gpt-oss-20b").locate(4)
        (1, 2)

        Raises:
            RangeError: the model has no such layer.
        """
        found = [
            (number, group.layers.index(layer))
            for number, group in enumerate(self.groups)
            if layer in group.layers
        ]
        if not found:
            known = self.layers
            text = f"there are {len(known)}, {known[0]} to {known[-1]}"
            raise RangeError(f"no layer {layer!r}: {text}")
        for number, index in found:
            names = [one.name for one in self.groups[number].tensors]
            if tensor in names:
                return number, index
        return found[0]

    @classmethod
    def full(
        cls, layers: int | Iterable[int], heads: int, head_dim: int, dtype: str = "f16"
    ) -> Geometry:
        """The usual model: one group with tensors "k" and "v" of heads x head_dim, where every
        token stays. `layers` is how many there are, or their numbers.

        >>> Geometry.full(32, 8, 128).bytes_per_token
        131072
        """
        numbers = layers if isinstance(layers, Iterable) else range(_layer_count(layers))
        tensors = (Tensor("k", heads, head_dim, dtype), Tensor("v", heads, head_dim, dtype))
        return cls((Group("full", _layer_numbers(numbers), tensors),))

    @classmethod
    def preset(
        cls, name: str, dtype: str = "f16", *, v_dtype: str | None = None, state_dtype: str = "f32"
    ) -> Geometry:
        """The geometry of a model by name, see `presets`.

        dtype is that of keys and values, or of MLA's latents; v_dtype that of values, if it is
        another; state_dtype that of the state of linear attention (see `from_config`).

        >>> Geometry.preset("qwen3.5-9b").bytes_per_token
        32768

        Raises:
            InvalidError: an unknown model or dtype; the message lists those that are known.
        """
        return cls._of(presets.MODELS[cls.preset_name(name)], dtype, v_dtype, state_dtype)

    @classmethod
    def from_config(
        cls,
        source: hf_config.Source,
        dtype: str = "f16",
        *,
        v_dtype: str | None = None,
        state_dtype: str = "f32",
    ) -> Geometry:
        """The geometry of the model that a Hugging Face config.json describes: the path of one or
        of the directory that has it, or what was read from it. The dtypes are as in `preset`.

        Full groups come first, then windows, then states. A window group keeps sliding_window
        tokens. Layers that read the cache of an earlier one (num_kv_shared_layers) have none here,
        and layers for multi-token prediction are not counted. A layer of linear attention has a
        state of two tensors: "conv", the last inputs of its convolution, (channels, kernel - 1),
        and "recurrent", (value heads, key width x value width).

        >>> config = {
        ...     "model_type": "mistral", "num_hidden_layers": 32, "num_key_value_heads": 8,
        ...     "hidden_size": 4096, "num_attention_heads": 32, "sliding_window": 4096,
        ... }
        >>> geometry = Geometry.from_config(config)
        >>> geometry.bytes_per_token, geometry.fixed_bytes
        (0, 536870912)

        Raises:
            InvalidError: it is no such config; its architecture is not known here; a key that the
            count needs is missing or makes no sense; an unknown dtype. OSError: the file can't be
            read.
        """
        return cls._of(hf_config.read_layers(source), dtype, v_dtype, state_dtype)

    @classmethod
    def from_gguf(
        cls,
        path: str | os.PathLike[str],
        dtype: str = "f16",
        *,
        v_dtype: str | None = None,
        state_dtype: str = "f32",
    ) -> Geometry:
        """The geometry of the model in a GGUF file, by its metadata; of a split model, in the first
        file. Groups and dtypes are as in `from_config`: what the weights are quantized to says
        nothing of the cache. Needs the package gguf: the extra of that name.

        Raises:
            InvalidError: no GGUF file, or not a whole one; its architecture is not known here; a
            key that the count needs is missing or makes no sense; an unknown dtype; the package
            gguf isn't there. OSError: the file can't be read.
        """
        return cls._of(gguf_file.read_layers(path), dtype, v_dtype, state_dtype)

    @classmethod
    def _of(cls, layers: Layers, dtype: str, v_dtype: str | None, state_dtype: str) -> Geometry:
        """Layers that cache the same make a group."""
        numbers: dict[Layer, list[int]] = {}
        for number, layer in enumerate(layers):
            if layer is not None:
                numbers.setdefault(layer, []).append(number)
        groups = [
            _group(layer, tuple(alike), dtype, v_dtype or dtype, state_dtype)
            for layer, alike in numbers.items()
        ]
        return cls(tuple(sorted(groups, key=lambda group: POLICIES.index(group.policy))))

    @staticmethod
    def presets() -> tuple[str, ...]:
        """The names that `preset` knows."""
        return tuple(sorted(presets.MODELS))

    @staticmethod
    def preset_name(name: str) -> str:
        """The listed name of a model, whatever its case.

        Raises:
            InvalidError: an unknown model; the message lists those that are known.
        """
        return presets.find_name(name)

    def to_c(self) -> tuple[Any, list[Any]]:
        """A `struct vmkv_geometry *`, and what has to be kept as long as it is used."""
        groups = ffi.new("struct vmkv_group[]", len(self.groups))
        keep = [groups]
        for target, group in zip(groups, self.groups, strict=True):
            tensors = ffi.new("struct vmkv_tensor[]", len(group.tensors))
            keep.append(tensors)
            for row, tensor in zip(tensors, group.tensors, strict=True):
                row.dtype = getattr(lib, f"VMKV_DTYPE_{tensor.dtype.upper()}")
                row.heads, row.head_dim = tensor.heads, tensor.head_dim
                row.row_bytes = tensor.row_bytes
            target.struct_size = ffi.sizeof("struct vmkv_group")
            target.policy = getattr(lib, f"VMKV_POLICY_{group.policy.upper()}")
            target.layers = len(group.layers)
            target.tensors, target.tensor_count = tensors, len(group.tensors)
            target.window_tokens, target.slack_tokens = group.window_tokens, group.slack_tokens
        size = ffi.sizeof("struct vmkv_geometry")
        geometry = ffi.new("struct vmkv_geometry *", [size, groups, len(self.groups), 0])
        return geometry, keep


def _group(
    layer: Layer, numbers: tuple[int, ...], dtype: str, v_dtype: str, state_dtype: str
) -> Group:
    """The group of layers that cache the same."""
    if isinstance(layer, Latent):
        return Group("full", numbers, (Tensor("latent", 1, layer.width, dtype),))
    if isinstance(layer, Attention):
        tensors = (
            Tensor("k", layer.heads, layer.key_dim, dtype),
            Tensor("v", layer.heads, layer.value_dim, v_dtype),
        )
        policy = "window" if layer.window_tokens else "full"
        return Group(policy, numbers, tensors, layer.window_tokens)
    states = (
        Tensor("conv", layer.conv_channels, layer.conv_tokens, state_dtype),
        Tensor("recurrent", layer.value_heads, layer.key_dim * layer.value_dim, state_dtype),
    )
    return Group("state", numbers, states)


def _set(instance: Any, field: str, value: Any) -> None:
    """Set a field of a frozen dataclass while it is being made."""
    object.__setattr__(instance, field, value)


def _layer_count(layers: Any) -> int:
    """How many layers there are, where that is told rather than their numbers."""
    try:
        count = operator.index(layers)
    except TypeError:
        raise InvalidError(
            f"layers is how many there are, or their numbers, not {layers!r}"
        ) from None
    if count < 0:
        raise InvalidError(f"layers is {count}: it can't be negative")
    return _check_layers(count)


def _layer_numbers(layers: Any) -> tuple[int, ...]:
    if not isinstance(layers, Iterable) or isinstance(layers, str | bytes):
        raise InvalidError(f"layers is a tuple of layer numbers, not {layers!r}")
    if isinstance(layers, range):  # how many those are is known before they are counted
        _check_layers(max(0, -((layers.start - layers.stop) // layers.step)))
    numbers = tuple(_count("a layer number", n, 32) for n in islice(layers, LAYERS_MAX + 1))
    if len(numbers) > LAYERS_MAX:
        raise InvalidError(f"layers is at most {LAYERS_MAX}, and there are more numbers than that")
    return numbers


def _check_layers(count: int) -> int:
    if count > LAYERS_MAX:
        raise InvalidError(f"layers is at most {LAYERS_MAX}, not {count}")
    return count


def _members(name: str, values: Any, kind: type[Member]) -> tuple[Member, ...]:
    """The members of a group or geometry."""
    if not isinstance(values, Iterable):
        raise InvalidError(f"{name} is a tuple of {kind.__name__}, not {values!r}")
    members = tuple(values)
    for value in members:
        if not isinstance(value, kind):
            raise InvalidError(f"{name} is a tuple of {kind.__name__}, with no {value!r} in it")
    return members


def _count(name: str, value: Any, bits: int) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidError(f"{name} is a number, not {value!r}") from None
    if not 0 <= number < 2**bits:
        raise InvalidError(f"{name} is 0 to 2^{bits} - 1, not {number}")
    return number
