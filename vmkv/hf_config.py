"""Hugging Face's config.json: which layers of a model cache what.

What a key means is as in `transformers`, models/*/configuration_*.py, of version 5.24.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from vmkv.errors import InvalidError
from vmkv.keys import MAX_LAYERS, Keys, kind, show
from vmkv.shapes import Attention, Latent, Layer, Layers, Linear, attention

Source = str | os.PathLike[str] | Mapping[str, Any]

# Configs with a text model inside -> what that is if it doesn't say so itself.
_WRAPPERS: dict[str, str | None] = {
    "gemma3": "gemma3_text",
    "gemma3n": "gemma3n_text",
    "gemma4": "gemma4_text",
    "gemma4_unified": "gemma4_unified_text",
    "mistral3": None,
    "qwen3_5": "qwen3_5_text",
    "qwen3_5_moe": "qwen3_5_moe_text",
}

# What published configs of these architectures leave out, because their classes have it so; any
# other key that is missing stays so. gemma-2-27b-it names no pattern, gemma-3-27b-it neither,
# gemma-3-4b-it none of the three.
_LEFT_OUT: dict[str, dict[str, Any]] = {
    "gemma2": {"sliding_window_pattern": 2},
    "gemma3_text": {"sliding_window_pattern": 6, "num_key_value_heads": 4, "head_dim": 256},
}
# Their classes compute head_dim where a config has none, as that of Llama 3.1 8B.
_HEAD_DIM_COMPUTED = ("llama", "ministral", "ministral3", "mistral", "mixtral", "qwen2")

_FULL, _SLIDING, _LINEAR = "full_attention", "sliding_attention", "linear_attention"
_ALWAYS = ("num_hidden_layers", "num_key_value_heads", "head_dim")
_LINEAR_KEYS = (
    "linear_conv_kernel_dim",
    "linear_num_key_heads",
    "linear_key_head_dim",
    "linear_num_value_heads",
    "linear_value_head_dim",
)
# What one layer may have otherwise than the rest, and what it had better not.
_PER_LAYER = ("head_dim", "num_key_value_heads")
_NOT_PER_LAYER = ("attention_chunk_size", "skip", "sliding_window")


class _Config(Keys):
    """The keys of a text model, with those that single layers have otherwise."""

    def __init__(self, values: Mapping[str, Any], where: str, architecture: str, names: str):
        super().__init__(_complete(values, architecture), where, architecture, names)
        self.overrides: dict[int, dict[str, int]] = {}
        if self.has("per_layer_config"):
            self._read_overrides(self.raw("per_layer_config"))

    def _read_overrides(self, given: Any) -> None:
        if not isinstance(given, dict):
            self.fail(f"{self.names}per_layer_config is an object, not {kind(given)}")
        for layer, changes in given.items():
            number = re.fullmatch("0|[1-9][0-9]{0,8}", str(layer))
            if number is None or not isinstance(changes, dict):
                self.fail(f"{self.names}per_layer_config has objects by layer number")
            # Where there is no count of layers, that is what the reader refuses.
            if self.has("num_hidden_layers") and int(layer) >= self.layer_count():
                self.fail(
                    f"{self.names}per_layer_config has a layer {layer}: there are "
                    f"{self.layer_count():,}, from 0 on"
                )
            for name in _NOT_PER_LAYER:
                if name in changes:
                    self.fail(f"{self.names}per_layer_config has {name}, which isn't known here")
            self.overrides[int(layer)] = {
                name: self.check(name, changes[name]) for name in _PER_LAYER if name in changes
            }

    def layer_count(self) -> int:
        return self.count("num_hidden_layers", most=MAX_LAYERS)

    def count_at(self, layer: int, name: str) -> int:
        """A number as this layer has it."""
        changed = self.overrides.get(layer, {})
        if name in changed:
            return changed[name]
        if name == "head_dim" and self._computes_head_dim():
            return self._head_dim()
        return self.count(name)

    def need_attention(self, *others: str) -> None:
        """Need what layers with attention come of, and other keys."""
        if self._computes_head_dim():
            self.need(*_ALWAYS[:-1], "hidden_size", "num_attention_heads", *others)
        else:
            self.need(*_ALWAYS, *others)

    def _computes_head_dim(self) -> bool:
        return self.architecture in _HEAD_DIM_COMPUTED and not self.has("head_dim")

    def _head_dim(self) -> int:
        hidden, heads = self.count("hidden_size"), self.count("num_attention_heads")
        if hidden % heads:
            self.fail(f"missing head_dim: {hidden:,} is not a multiple of {heads:,} heads")
        return hidden // heads


def read_layers(source: Source) -> Layers:
    """What each layer of the model caches that a config describes: a mapping, the path of a
    config.json, or of the directory that has it.

    Raises:
        InvalidError: it is no such config; its architecture is unknown; a key that the count needs
            is missing or makes no sense. OSError: the file can't be read.
    """
    where, values = _load(source)
    architecture, values, names = _find_text(where, values)
    reader = _READERS.get(architecture)
    if reader is None:
        raise InvalidError(
            f"{where}: unknown architecture {architecture!r}: which of its layers cache what is "
            f"not known here; known are {', '.join(sorted(_READERS))}"
        )
    return reader(_Config(values, where, architecture, names))


def _load(source: Source) -> tuple[str, Mapping[str, Any]]:
    if isinstance(source, Mapping):
        return "config", source
    path = Path(source)
    if path.is_dir():
        path /= "config.json"
    try:
        values = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise InvalidError(f"{path} is no JSON file: {error}") from error
    if not isinstance(values, dict):
        raise InvalidError(f"{path} is no config.json: an object is expected, not {kind(values)}")
    return str(path), values


def _find_text(where: str, values: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], str]:
    """The architecture of the text model, its keys, and what they are called: all keys of the
    config, or those of text_config."""
    outer = values.get("model_type")
    if not isinstance(outer, str):
        raise InvalidError(f"{where}: no architecture is named: model_type is missing")
    if outer not in _WRAPPERS:
        return outer, values, ""
    text, inner = values.get("text_config"), _WRAPPERS[outer]
    if text is None and inner is not None:
        return inner, values, ""
    if not isinstance(text, Mapping):
        raise InvalidError(f"{where}: architecture {outer}: text_config, an object, is missing")
    inner = text.get("model_type", inner)
    if not isinstance(inner, str):
        raise InvalidError(f"{where}: architecture {outer}: missing text_config.model_type")
    return inner, text, "text_config."


def _complete(values: Mapping[str, Any], architecture: str) -> dict[str, Any]:
    """The values, with what configs of this architecture leave out."""
    known = {name: value for name, value in values.items() if value is not None}
    return {**values, **_LEFT_OUT.get(architecture, {}), **known}


# ---- architectures


def _read_llama(config: _Config) -> Layers:
    config.need_attention()
    return _build(config, [_FULL] * config.layer_count())


def _read_mistral(config: _Config) -> Layers:
    """sliding_window is of all layers, and null for none; its class takes 4096 where it is missing,
    which no published config means."""
    config.need_attention()
    if config.has("layer_types"):
        return _build(config, _layer_types(config))
    if not config.given("sliding_window"):
        config.need("sliding_window")
    every = _SLIDING if config.has("sliding_window") else _FULL
    return _build(config, [every] * config.layer_count())


def _read_mixtral(config: _Config) -> Layers:
    config.need_attention()
    every = _SLIDING if config.has("sliding_window") else _FULL
    return _build(config, [every] * config.layer_count())


def _read_qwen(config: _Config) -> Layers:
    """Windows are there only where use_sliding_window is true, and then from layer
    max_window_layers on. Mixtures of experts have to say it with layer_types."""
    config.need_attention()
    if config.has("layer_types"):
        return _build(config, _layer_types(config))
    if config.has("sliding_window"):
        config.need("use_sliding_window")
    layers = config.layer_count()
    first = layers
    if config.flag("use_sliding_window"):
        if config.architecture == "qwen3_moe":
            config.need("layer_types")
        config.need("sliding_window", "max_window_layers")
        first = config.count("max_window_layers", least=0)
    return _build(config, [_FULL if layer < first else _SLIDING for layer in range(layers)])


def _read_hybrid(config: _Config) -> Layers:
    config.need_attention(*_LINEAR_KEYS)
    if config.has("layer_types"):
        return _build(config, _layer_types(config))
    if not config.has("full_attention_interval"):
        config.fail("missing layer_types or full_attention_interval")
    interval = config.count("full_attention_interval")
    return _build(config, _each(interval, _LINEAR, config.layer_count()))


def _read_gemma(config: _Config) -> Layers:
    config.need_attention("sliding_window")
    _refuse_encoder(config, True)
    if config.has("layer_types"):
        return _build(config, _layer_types(config))
    pattern = config.count("sliding_window_pattern")
    return _build(config, _each(pattern, _SLIDING, config.layer_count()))


def _read_typed(config: _Config) -> Layers:
    config.need_attention("sliding_window", "layer_types")
    return _build(config, _layer_types(config))


def _read_gemma3n(config: _Config) -> Layers:
    config.need_attention("sliding_window", "layer_types", "num_kv_shared_layers")
    return _build(config, _layer_types(config))


def _read_gemma4(config: _Config) -> Layers:
    """Layers with full attention have heads of their own: in global_head_dim and, where keys and
    values come of one projection, num_global_key_value_heads; or else in per_layer_config."""
    config.need_attention("sliding_window", "layer_types", "num_kv_shared_layers")
    _refuse_encoder(config, "all")
    types = _layer_types(config)
    if types[-1] != _FULL:
        config.fail(f"{config.names}layer_types has to end with {_FULL}")
    if config.has("per_layer_config"):
        return _build(config, types)
    config.need("global_head_dim", "attention_k_eq_v")
    heads = config.count("num_key_value_heads")
    if config.flag("attention_k_eq_v"):
        if not config.given("num_global_key_value_heads"):
            config.need("num_global_key_value_heads")
        if config.has("num_global_key_value_heads"):
            heads = config.count("num_global_key_value_heads")
    return _build(config, types, attention(heads, config.count("global_head_dim")))


def _read_mla(config: _Config) -> Layers:
    """The layers for multi-token prediction come on top of num_hidden_layers."""
    config.need("num_hidden_layers", "kv_lora_rank", "qk_rope_head_dim")
    if config.overrides:
        config.fail("per_layer_config isn't known here for MLA")
    width = config.count("kv_lora_rank") + config.count("qk_rope_head_dim")
    return (Latent(width),) * config.layer_count()


_READERS: dict[str, Callable[[_Config], Layers]] = {
    "deepseek_v2": _read_mla,
    "deepseek_v3": _read_mla,
    "gemma2": _read_gemma,
    "gemma3_text": _read_gemma,
    "gemma3n_text": _read_gemma3n,
    "gemma4_text": _read_gemma4,
    "gemma4_unified_text": _read_gemma4,
    "gpt_oss": _read_typed,
    "kimi_k2": _read_mla,
    "llama": _read_llama,
    "ministral": _read_mistral,
    "ministral3": _read_mistral,
    "mistral": _read_mistral,
    "mixtral": _read_mixtral,
    "qwen2": _read_qwen,
    "qwen3": _read_qwen,
    "qwen3_5_moe_text": _read_hybrid,
    "qwen3_5_text": _read_hybrid,
    "qwen3_moe": _read_qwen,
    "qwen3_next": _read_hybrid,
}


# ---- layers


def _layer_types(config: _Config) -> list[Any]:
    return config.entries("layer_types", config.layer_count())


def _each(interval: int, others: str, layers: int) -> list[str]:
    """Full attention in each interval-th layer."""
    return [others if (layer + 1) % interval else _FULL for layer in range(layers)]


def _refuse_encoder(config: _Config, value: Any) -> None:
    name = "use_bidirectional_attention"
    if config.has(name) and config.raw(name) == value:
        config.fail("tokens attend to later ones too, so there is no KV cache")


def _build(config: _Config, types: Sequence[Any], full: Attention | None = None) -> Layers:
    """The layers by their types; `full` is what those with full attention have, if not the same as
    the others. The last num_kv_shared_layers read the cache of an earlier layer."""
    for layer, of_type in enumerate(types):
        if of_type not in (_FULL, _SLIDING, _LINEAR):
            config.fail(
                f"layer {layer} is of type {show(of_type)}: known are {_FULL}, {_SLIDING}, "
                f"{_LINEAR}"
            )
    if _LINEAR in types:
        config.need(*_LINEAR_KEYS)
    window_tokens = config.count("sliding_window") if _SLIDING in types else 0
    shared = 0
    if config.has("num_kv_shared_layers"):
        shared = config.count("num_kv_shared_layers", least=0, most=len(types) - 1)

    def shape(layer: int) -> Layer | None:
        if layer >= len(types) - shared:
            return None
        if types[layer] == _LINEAR:
            return _linear(config)
        if types[layer] == _FULL and full is not None:
            return full
        heads, head_dim = (config.count_at(layer, name) for name in _ALWAYS[1:])
        return attention(heads, head_dim, window_tokens if types[layer] == _SLIDING else 0)

    return tuple(shape(layer) for layer in range(len(types)))


def _linear(config: _Config) -> Linear:
    kernel = config.count("linear_conv_kernel_dim", least=2)
    return Linear(kernel, *(config.count(name) for name in _LINEAR_KEYS[1:]))
