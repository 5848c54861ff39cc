"""GGUF files: which layers of a model cache what, from the metadata alone.

What a key means is as in llama.cpp, src/models/*.cpp (load_arch_hparams) and src/llama-model.cpp.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from vmkv.errors import InvalidError
from vmkv.keys import MAX_LAYERS, Keys
from vmkv.shapes import Attention, Latent, Layer, Layers, Linear

_MAGIC = b"GGUF"
_ARCHITECTURE = "general.architecture"
_HEADS = "attention.head_count_kv"
_WIDTHS = ("attention.key_length", "attention.value_length")
_WINDOW_WIDTHS = ("attention.key_length_swa", "attention.value_length_swa")
_WINDOW = "attention.sliding_window"
_PATTERN = "attention.sliding_window_pattern"
_SHARED = "attention.shared_kv_layers"
_RECURRENT = "attention.recurrent_layers"
_INTERVAL = "full_attention_interval"
_SSM = (
    "ssm.conv_kernel",
    "ssm.group_count",
    "ssm.state_size",
    "ssm.time_step_rank",
    "ssm.inner_size",
)

# Files of these architectures don't say which layers slide: llama.cpp knows that all but each n-th
# do, as it knows that each fourth layer of Qwen3-Next has full attention.
_SLIDING_PATTERNS = {"gemma2": 2, "gemma3": 6, "gpt-oss": 2}
_INTERVALS = {"qwen3next": 4}
# Files of these needn't give the width of a head where it is embedding_length / head_count.
_WIDTH_COMPUTED = ("llama", "qwen2")


def read_layers(path: str | os.PathLike[str]) -> Layers:
    """What each layer of the model in a GGUF file caches.

    Raises:
        InvalidError: it is no GGUF file, or not a whole one; its architecture is unknown; a key
            that the count needs is missing or makes no sense; the package gguf isn't there.
        OSError: the file can't be read.
    """
    where = str(path)
    fields = _read_fields(Path(path))
    architecture = fields.get(_ARCHITECTURE)
    if not isinstance(architecture, str):
        part = "; give the first file of a split model" if "split.no" in fields else ""
        raise InvalidError(f"{where}: no architecture is named: {_ARCHITECTURE} is missing{part}")
    reader = _READERS.get(architecture)
    if reader is None:
        raise InvalidError(
            f"{where}: unknown architecture {architecture!r}: which of its layers cache what is "
            f"not known here; known are {', '.join(sorted(_READERS))}"
        )
    prefix = f"{architecture}."
    values = {
        name.removeprefix(prefix): value
        for name, value in fields.items()
        if name.startswith(prefix)
    }
    return reader(Keys(values, where, architecture, prefix))


def _read_fields(path: Path) -> dict[str, Any]:
    """The metadata, except for what is in it of the tokenizer."""
    try:
        reader = _reader_class()
    except ImportError as error:
        raise InvalidError(
            f"{path}: reading GGUF files needs the package gguf: install vmkv[gguf]"
        ) from error
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise InvalidError(f"{path} is no GGUF file")
    try:
        with np.errstate(all="ignore"):
            fields = reader(path).fields
        return {
            name: field.contents()
            for name, field in fields.items()
            if not name.startswith(("GGUF.", "tokenizer."))
        }
    except (
        ArithmeticError,
        LookupError,
        MemoryError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        # What the reader stumbles over where something else should be.
        raise InvalidError(f"{path} is no whole GGUF file: it is cut short or damaged") from error


def _reader_class() -> type[Any]:
    """The package's reader, mended: it takes what lies past the end of the file for empty, and so
    the length of an array on trust; and over a vocabulary it takes half a minute.

    Raises:
        ImportError: the package isn't there.
    """
    import gguf

    class Reader(gguf.GGUFReader):
        def _get(self, offset: int, dtype: Any, count: int = 1, *args: Any, **more: Any) -> Any:
            if int(offset) + np.dtype(dtype).itemsize * int(count) > len(self.data):
                raise ValueError("past the end of the file")
            return super()._get(offset, dtype, count, *args, **more)

        def _get_field_parts(self, orig_offs: int, raw_type: int, *args: Any, **more: Any) -> Any:
            if raw_type == gguf.GGUFValueType.ARRAY:
                kind = gguf.GGUFValueType(int(self._get(orig_offs, np.uint32)[0]))
                length = int(self._get(orig_offs + 4, np.uint64)[0])
                if length > MAX_LAYERS:
                    end = self._long_array_end(orig_offs + 12, kind, length)
                    return end - orig_offs, [], [], [gguf.GGUFValueType.ARRAY, kind]
            return super()._get_field_parts(orig_offs, raw_type, *args, **more)

        def _long_array_end(self, start: int, kind: gguf.GGUFValueType, length: int) -> int:
            """Where an array ends that can't be of layers, without looking at what is in it."""
            data: Any = self.data
            end = start
            if kind == gguf.GGUFValueType.STRING:
                view, order = memoryview(data), self._order()
                while length and end + 8 <= len(data):
                    end += 8 + int.from_bytes(view[end : end + 8], order)
                    length -= 1
            else:
                end += length * np.dtype(self.gguf_scalar_to_np[kind]).itemsize
                length = 0
            if length or end > len(data):
                raise ValueError("past the end of the file")
            return end

        def _order(self) -> Literal["little", "big"]:
            other = self.byte_order == "S"
            return "big" if (sys.byteorder == "little") == other else "little"

    return Reader


# ---- architectures


def _read_plain(keys: Keys) -> Layers:
    """Full attention everywhere, unless the file has a window and says where. One of Mistral 7B has
    none: llama.cpp lets its layers keep every token."""
    layers = _layer_count(keys, _HEADS, *_widths_needed(keys))
    if not keys.has(_WINDOW) or keys.count(_WINDOW, least=0) == 0:
        return _attention(keys, [False] * layers)
    return _attention(keys, _sliding(keys, layers))


def _read_sliding(keys: Keys) -> Layers:
    layers = _layer_count(keys, _HEADS, *_WIDTHS, _WINDOW)
    if keys.count(_WINDOW, least=0) == 0:
        return _attention(keys, [False] * layers)
    return _attention(keys, _sliding(keys, layers))


def _read_shared(keys: Keys) -> Layers:
    windows = _WINDOW_WIDTHS if keys.architecture == "gemma4" else ()
    layers = _layer_count(keys, _HEADS, *_WIDTHS, *windows, _WINDOW, _PATTERN, _SHARED)
    return _attention(keys, _sliding(keys, layers))


def _read_hybrid(keys: Keys) -> Layers:
    layers = _layer_count(keys, _HEADS, *_WIDTHS, *_SSM)
    if keys.has(_RECURRENT):
        recurrent = _flags(keys, _RECURRENT, layers)
    else:
        if keys.has(_INTERVAL) or keys.architecture not in _INTERVALS:
            interval = keys.count(_INTERVAL)
        else:
            interval = _INTERVALS[keys.architecture]
        recurrent = [(layer + 1) % interval != 0 for layer in range(layers)]
    attending = _attention(keys, [False] * layers)
    for layer in range(layers):
        if not recurrent[layer] and attending[layer] is None:
            keys.fail(f"layer {layer} has full attention, but no KV heads")
    state = _linear(keys)
    return tuple(state if recurrent[i] else attending[i] for i in range(layers))


def _read_mla(keys: Keys) -> Layers:
    """A file without key_length_mla is from before llama.cpp cached latents: of such a file it
    caches the keys and values of all heads."""
    layers = _layer_count(keys, "attention.kv_lora_rank", "attention.key_length_mla")
    rank = keys.count("attention.kv_lora_rank")
    if not keys.has("rope.dimension_count"):
        keys.need("attention.key_length")
        return (Latent(keys.count("attention.key_length", least=rank + 1)),) * layers
    width = rank + keys.count("rope.dimension_count")
    if keys.has("attention.key_length") and keys.count("attention.key_length") != width:
        keys.fail(
            f"{keys.names}attention.key_length is {keys.count('attention.key_length'):,}, not the "
            f"{width:,} of kv_lora_rank and rope.dimension_count"
        )
    return (Latent(width),) * layers


_READERS: dict[str, Callable[[Keys], Layers]] = {
    "deepseek2": _read_mla,
    "gemma2": _read_sliding,
    "gemma3": _read_sliding,
    "gemma3n": _read_shared,
    "gemma4": _read_shared,
    "gpt-oss": _read_sliding,
    "llama": _read_plain,
    "mistral3": _read_plain,
    "qwen2": _read_plain,
    "qwen3": _read_plain,
    "qwen35": _read_hybrid,
    "qwen35moe": _read_hybrid,
    "qwen3moe": _read_plain,
    "qwen3next": _read_hybrid,
}


# ---- layers


def _layer_count(keys: Keys, *needed: str) -> int:
    """How many layers a forward pass runs: the blocks without those for multi-token prediction."""
    keys.need("block_count", *needed)
    blocks = keys.count("block_count", most=MAX_LAYERS)
    if not keys.has("nextn_predict_layers"):
        return blocks
    return blocks - keys.count("nextn_predict_layers", least=0, most=blocks - 1)


def _per_layer(keys: Keys, name: str, layers: int) -> list[Any]:
    """One value for all layers, or an array with one for each block."""
    if not isinstance(keys.raw(name), list):
        return [keys.raw(name)] * layers
    return keys.entries(name, keys.count("block_count"))[:layers]


def _flags(keys: Keys, name: str, layers: int) -> list[bool]:
    """An array of booleans, or of 0 and 1."""
    values = keys.entries(name, keys.count("block_count"))[:layers]
    return [
        value if isinstance(value, bool) else keys.check(name, value, 0, 1) == 1 for value in values
    ]


def _sliding(keys: Keys, layers: int) -> list[bool]:
    """Which layers slide: as an array says, or all but each n-th."""
    if keys.has(_PATTERN) or keys.architecture not in _SLIDING_PATTERNS:
        if isinstance(keys.raw(_PATTERN), list):
            return _flags(keys, _PATTERN, layers)
        pattern = keys.count(_PATTERN)
    else:
        pattern = _SLIDING_PATTERNS[keys.architecture]
    return [(layer + 1) % pattern != 0 for layer in range(layers)]


def _attention(keys: Keys, sliding: Sequence[bool]) -> Layers:
    """Layers with attention; one with no KV heads caches nothing."""
    heads = _per_layer(keys, _HEADS, len(sliding))
    widths = [_width(keys, name) for name in _WIDTHS]
    window_widths = [
        keys.count(name) if keys.has(name) else width
        for name, width in zip(_WINDOW_WIDTHS, widths, strict=True)
    ]
    window_tokens = keys.count(_WINDOW) if any(sliding) else 0
    shared = keys.count(_SHARED, least=0, most=len(sliding) - 1) if keys.has(_SHARED) else 0

    def shape(layer: int) -> Layer | None:
        count = keys.check(_HEADS, heads[layer], least=0)
        if layer >= len(sliding) - shared or not count:
            return None
        if sliding[layer]:
            return Attention(count, window_widths[0], window_widths[1], window_tokens)
        return Attention(count, widths[0], widths[1])

    return tuple(shape(layer) for layer in range(len(sliding)))


def _widths_needed(keys: Keys) -> tuple[str, ...]:
    """What the widths of heads are read from."""
    if keys.architecture in _WIDTH_COMPUTED and not all(map(keys.has, _WIDTHS)):
        return ("embedding_length", "attention.head_count")
    return _WIDTHS


def _width(keys: Keys, name: str) -> int:
    if keys.has(name):
        return keys.count(name)
    embedding, heads = keys.count("embedding_length"), keys.count("attention.head_count")
    if embedding % heads:
        keys.fail(f"missing {keys.names}{name}: {embedding:,} is not a multiple of {heads:,} heads")
    return embedding // heads


def _linear(keys: Keys) -> Linear:
    kernel = keys.count(_SSM[0], least=2)
    key_heads, key_dim, value_heads, inner = (keys.count(name) for name in _SSM[1:])
    if inner % value_heads:
        keys.fail(f"{keys.names}{_SSM[4]} {inner:,} is not a multiple of {value_heads:,} heads")
    return Linear(kernel, key_heads, key_dim, value_heads, inner // value_heads)
