"""Geometries from the metadata of GGUF files, which the package gguf writes here."""

import struct
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import vmkv
from vmkv import Geometry, Group, Tensor

KIB, MIB = 2**10, 2**20
Write = Callable[..., Path]

# What llama.cpp's converter writes for models of which there are presets.
LLAMA_31_8B = {
    "block_count": 32,
    "embedding_length": 4096,
    "attention.head_count": 32,
    "attention.head_count_kv": 8,
    "rope.dimension_count": 128,
}
QWEN3_8B = {
    "block_count": 36,
    "embedding_length": 4096,
    "attention.head_count": 32,
    "attention.head_count_kv": 8,
    "attention.key_length": 128,
    "attention.value_length": 128,
}
GEMMA_3_27B = {
    "block_count": 62,
    "attention.head_count": 32,
    "attention.head_count_kv": 16,
    "attention.key_length": 128,
    "attention.value_length": 128,
    "attention.sliding_window": 1024,
}
GEMMA_4_31B = {
    "block_count": 60,
    "attention.head_count": 32,
    "attention.head_count_kv": ([16] * 5 + [4]) * 10,
    "attention.key_length": 512,
    "attention.value_length": 512,
    "attention.key_length_swa": 256,
    "attention.value_length_swa": 256,
    "attention.sliding_window": 1024,
    "attention.sliding_window_pattern": ([True] * 5 + [False]) * 10,
    "attention.shared_kv_layers": 0,
}
GPT_OSS_20B = {
    "block_count": 24,
    "attention.head_count": 64,
    "attention.head_count_kv": 8,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "attention.sliding_window": 128,
}
QWEN35_9B = {
    "block_count": 33,
    "nextn_predict_layers": 1,
    "attention.head_count": 16,
    "attention.head_count_kv": 4,
    "attention.key_length": 256,
    "attention.value_length": 256,
    "full_attention_interval": 4,
    "ssm.conv_kernel": 4,
    "ssm.group_count": 16,
    "ssm.state_size": 128,
    "ssm.time_step_rank": 32,
    "ssm.inner_size": 4096,
}
DEEPSEEK_V3 = {
    "block_count": 61,
    "attention.head_count": 128,
    "attention.head_count_kv": 1,
    "attention.key_length": 576,
    "attention.value_length": 512,
    "attention.key_length_mla": 192,
    "attention.value_length_mla": 128,
    "attention.kv_lora_rank": 512,
    "rope.dimension_count": 64,
}
MODELS: list[tuple[str, str, dict[str, Any]]] = [
    ("deepseek-v3", "deepseek2", DEEPSEEK_V3),
    ("gemma-3-27b", "gemma3", GEMMA_3_27B),
    ("gemma-4-31b", "gemma4", GEMMA_4_31B),
    ("gpt-oss-20b", "gpt-oss", GPT_OSS_20B),
    ("llama-3.1-8b", "llama", LLAMA_31_8B),
    ("qwen3-8b", "qwen3", QWEN3_8B),
    ("qwen3-30b-a3b", "qwen3moe", {**QWEN3_8B, "block_count": 48, "attention.head_count_kv": 4}),
    ("qwen3.5-9b", "qwen35", QWEN35_9B),
    (
        "qwen3.6-35b-a3b",
        "qwen35moe",
        {**QWEN35_9B, "block_count": 41, "attention.head_count_kv": 2},
    ),
]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file with these keys of the architecture; ... takes a key away."""

    def write(architecture: str, values: dict[str, Any], **changes: Any) -> Path:
        path = tmp_path / "model.gguf"
        writer = gguf.GGUFWriter(path, architecture)
        for name, value in (values | changes).items():
            key = f"{architecture}.{name}"
            if isinstance(value, list):
                writer.add_array(key, value)
            elif isinstance(value, bool):
                writer.add_bool(key, value)
            elif isinstance(value, int):
                writer.add_uint32(key, value) if value >= 0 else writer.add_int32(key, value)
            elif isinstance(value, float):
                writer.add_float32(key, value)
            elif value is not ...:
                writer.add_string(key, value)
        writer.add_token_list(["<s>", "hello"])
        writer.add_tensor("output_norm.weight", np.ones(64, np.float32))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    return write


def refusal(path: Path) -> str:
    with pytest.raises(vmkv.InvalidError) as caught:
        Geometry.from_gguf(path)
    assert "\n" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(("name", "architecture", "values"), MODELS)
def test_models_are_their_presets(
    name: str, architecture: str, values: dict[str, Any], write: Write
) -> None:
    path = write(architecture, values)
    assert Geometry.from_gguf(path) == Geometry.preset(name)
    assert Geometry.from_gguf(str(path), "q8_0", v_dtype="f16", state_dtype="bf16") == (
        Geometry.preset(name, "q8_0", v_dtype="f16", state_dtype="bf16")
    )


NEEDED = {
    "deepseek2": ("attention.kv_lora_rank", "attention.key_length_mla"),
    "gemma3": ("attention.head_count_kv", "attention.key_length", "attention.sliding_window"),
    "gemma4": (
        "attention.head_count_kv",
        "attention.key_length",
        "attention.key_length_swa",
        "attention.value_length",
        "attention.value_length_swa",
        "attention.sliding_window",
        "attention.sliding_window_pattern",
        "attention.shared_kv_layers",
    ),
    "gpt-oss": ("attention.head_count_kv", "attention.key_length", "attention.sliding_window"),
    "llama": ("attention.head_count_kv", "attention.head_count", "embedding_length"),
    "qwen3": ("attention.head_count_kv", "attention.key_length", "attention.value_length"),
    "qwen3moe": ("attention.head_count_kv", "attention.key_length", "attention.value_length"),
    "qwen35": ("attention.head_count_kv", "full_attention_interval", "ssm.inner_size"),
    "qwen35moe": ("ssm.conv_kernel", "ssm.group_count", "ssm.state_size", "ssm.time_step_rank"),
}


@pytest.mark.parametrize(("name", "architecture", "values"), MODELS)
def test_keys_that_are_missing_are_named(
    name: str, architecture: str, values: dict[str, Any], write: Write
) -> None:
    for key in (*NEEDED[architecture], "block_count"):
        message = refusal(write(architecture, values, **{key: ...}))
        assert message.endswith(f"architecture {architecture}: missing {architecture}.{key}")
    message = refusal(write(architecture, {}))
    assert f"missing {architecture}.block_count, {architecture}." in message


def test_keys_and_values_of_different_widths(write: Write) -> None:
    path = write("qwen3", QWEN3_8B, **{"attention.value_length": 64})
    assert Geometry.from_gguf(path).groups[0].tensors == (Tensor("k", 8, 128), Tensor("v", 8, 64))
    path = write("gemma4", GEMMA_4_31B, **{"attention.value_length_swa": 128})
    assert [group.tensors for group in Geometry.from_gguf(path).groups] == [
        (Tensor("k", 4, 512), Tensor("v", 4, 512)),
        (Tensor("k", 16, 256), Tensor("v", 16, 128)),
    ]


def test_heads_layer_by_layer(write: Write) -> None:
    """A layer with no KV heads caches nothing."""
    path = write(
        "llama", {**LLAMA_31_8B, "block_count": 4, "attention.head_count_kv": [8, 0, 4, 8]}
    )
    geometry = Geometry.from_gguf(path)
    assert [(group.layers, group.tensors[0].heads) for group in geometry.groups] == [
        ((0, 3), 8),
        ((2,), 4),
    ]


def test_mistral_has_no_window_in_a_gguf_file_unless_it_says_where(write: Write) -> None:
    window = {"attention.sliding_window": 2048}
    assert Geometry.from_gguf(write("llama", LLAMA_31_8B)) == Geometry.full(32, 8, 128)
    none = write("llama", LLAMA_31_8B, **{"attention.sliding_window": 0})
    assert Geometry.from_gguf(none) == Geometry.full(32, 8, 128)
    message = refusal(write("llama", LLAMA_31_8B, **window))
    assert message.endswith("missing llama.attention.sliding_window_pattern")
    said = {"attention.sliding_window_pattern": 2}
    geometry = Geometry.from_gguf(write("llama", LLAMA_31_8B, **window, **said))
    assert geometry.bytes_per_token == 16 * 2 * 8 * 128 * 2
    assert geometry.fixed_bytes == 16 * 2 * 8 * 128 * 2 * 2048


@pytest.mark.parametrize(
    ("pattern", "sliding"),
    [
        ([True, False, False, True], (0, 3)),
        ([1, 0, 0, 1], (0, 3)),
        (3, (0, 1, 3)),
        (1, ()),
    ],
)
def test_patterns(pattern: Any, sliding: tuple[int, ...], write: Write) -> None:
    path = write(
        "gemma3", GEMMA_3_27B, **{"block_count": 4, "attention.sliding_window_pattern": pattern}
    )
    windows = [group.layers for group in Geometry.from_gguf(path).groups if group.policy != "full"]
    assert windows == ([sliding] if sliding else [])


def test_gemma_2_and_gemma_3_without_a_window(write: Write) -> None:
    path = write("gemma2", GEMMA_3_27B)
    assert Geometry.from_gguf(path).bytes_per_token == 31 * 2 * 16 * 128 * 2
    path = write("gemma3", GEMMA_3_27B, **{"attention.sliding_window": 0})
    assert Geometry.from_gguf(path) == Geometry.full(62, 16, 128)


def test_layers_that_share_a_cache_have_none(write: Write) -> None:
    """Gemma 3n E4B: the last 15 of 35 layers."""
    values = {
        "block_count": 35,
        "attention.head_count_kv": 2,
        "attention.key_length": 256,
        "attention.value_length": 256,
        "attention.sliding_window": 512,
        "attention.sliding_window_pattern": ([True] * 4 + [False]) * 7,
        "attention.shared_kv_layers": 15,
    }
    geometry = Geometry.from_gguf(write("gemma3n", values))
    assert geometry.layers == tuple(range(20))
    assert geometry.bytes_per_token == 4 * 2 * 2 * 256 * 2
    assert geometry.fixed_bytes == 16 * 2 * 2 * 256 * 2 * 512
    message = refusal(write("gemma3n", values, **{"attention.shared_kv_layers": ...}))
    assert message.endswith("missing gemma3n.attention.shared_kv_layers")
    message = refusal(write("gemma4", GEMMA_4_31B, **{"attention.shared_kv_layers": 60}))
    assert "gemma4.attention.shared_kv_layers is 0 to 59, not 60" in message


def test_qwen3_next_has_full_attention_in_each_fourth_layer(write: Write) -> None:
    """Its first files don't say so; later ones name the interval, and the newest each layer."""
    values = {**QWEN35_9B, "block_count": 8, "nextn_predict_layers": 0}
    del values["full_attention_interval"]
    full = Geometry.from_gguf(write("qwen3next", values)).groups[0]
    assert full.layers == (3, 7)
    full = Geometry.from_gguf(write("qwen3next", values, full_attention_interval=2)).groups[0]
    assert full.layers == (1, 3, 5, 7)
    recurrent = {"attention.recurrent_layers": [False] + [True] * 7}
    full = Geometry.from_gguf(
        write("qwen3next", values, full_attention_interval=2, **recurrent)
    ).groups[0]
    assert full.layers == (0,)
    heads = {"attention.head_count_kv": [0, 0, 0, 2] * 2}
    full = Geometry.from_gguf(write("qwen3next", values, **heads)).groups[0]
    assert (full.layers, full.tensors[0].heads) == ((3, 7), 2)
    heads = {"attention.head_count_kv": [2, 0, 0, 0] * 2}
    message = refusal(write("qwen3next", values, **heads))
    assert message.endswith("layer 3 has full attention, but no KV heads")


def test_the_latent_of_mla(write: Write) -> None:
    latent = Geometry.from_gguf(write("deepseek2", DEEPSEEK_V3))
    assert latent.groups == (
        Group("full", tuple(range(61)), (Tensor("latent", heads=1, head_dim=576),)),
    )
    without = {"rope.dimension_count": ...}
    assert Geometry.from_gguf(write("deepseek2", DEEPSEEK_V3, **without)) == latent
    message = refusal(write("deepseek2", DEEPSEEK_V3, **{"rope.dimension_count": 32}))
    assert "attention.key_length is 576, not the 544 of kv_lora_rank and rope" in message
    # From before latents were cached.
    old = {"attention.key_length": 192, "attention.key_length_mla": ...}
    message = refusal(write("deepseek2", DEEPSEEK_V3, **old))
    assert message.endswith("missing deepseek2.attention.key_length_mla")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"block_count": "many"}, "llama.block_count is a whole number, not 'many'"),
        ({"block_count": 32.0}, "llama.block_count is a whole number, not 32.0"),
        ({"block_count": True}, "llama.block_count is a whole number, not true"),
        ({"block_count": -1}, "llama.block_count is 1 to 4,096, not -1"),
        ({"block_count": 0}, "llama.block_count is 1 to 4,096, not 0"),
        ({"nextn_predict_layers": 32}, "llama.nextn_predict_layers is 0 to 31, not 32"),
        ({"attention.head_count_kv": [8] * 31}, "head_count_kv has 31 entries for 32 layers"),
        ({"attention.head_count_kv": ["8"] * 32}, "head_count_kv is a whole number, not '8'"),
        ({"attention.key_length": [128]}, "attention.key_length is a whole number, not [128]"),
        ({"attention.head_count": 33}, "4,096 is not a multiple of 33 heads"),
        ({"attention.sliding_window": 9, "attention.sliding_window_pattern": [2] * 32},
         "attention.sliding_window_pattern is 0 to 1, not 2"),
        ({"attention.sliding_window": 9, "attention.sliding_window_pattern": "all"},
         "attention.sliding_window_pattern is a whole number, not 'all'"),
    ],
)  # fmt: skip
def test_values_that_make_no_sense(changes: dict[str, Any], message: str, write: Write) -> None:
    path = write("llama", LLAMA_31_8B, **changes)
    assert message in refusal(path)
    assert refusal(path).startswith(f"{path}: architecture llama: ")


def test_a_state_that_makes_no_sense(write: Write) -> None:
    message = refusal(write("qwen35", QWEN35_9B, **{"ssm.inner_size": 4097}))
    assert "qwen35.ssm.inner_size 4,097 is not a multiple of 32 heads" in message


def test_an_unknown_architecture_is_refused(write: Write) -> None:
    message = refusal(write("mamba", LLAMA_31_8B))
    assert "unknown architecture 'mamba': which of its layers cache what is not known" in message
    assert "known are deepseek2, gemma2, gemma3, " in message


def test_a_file_that_names_no_architecture(tmp_path: Path) -> None:
    path = tmp_path / "model-00002-of-00002.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.kv_data[0].pop("general.architecture")
    writer.add_uint16("split.no", 1)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert refusal(path) == (
        f"{path}: no architecture is named: general.architecture is missing; "
        "give the first file of a split model"
    )


def test_files_that_are_cut_short(write: Write) -> None:
    """Wherever a file ends, it is refused: in its header, its metadata or its tensors."""
    path = write("qwen3", QWEN3_8B)
    whole = path.read_bytes()
    for length in (*range(4, len(whole) - 1, 7), len(whole) - 1):
        path.write_bytes(whole[:length])
        assert refusal(path) == f"{path} is no whole GGUF file: it is cut short or damaged"


def test_an_array_that_is_cut_short(tmp_path: Path) -> None:
    """What is missing at the end of a file is not taken for nothing."""
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    for name, value in QWEN3_8B.items():
        writer.add_uint32(f"qwen3.{name}", value)
    writer.add_array("qwen3.attention.sliding_window_pattern", [True] * 36)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert Geometry.from_gguf(path) == Geometry.preset("qwen3-8b")
    path.write_bytes(path.read_bytes()[:-1])
    assert refusal(path).endswith("is no whole GGUF file: it is cut short or damaged")


def test_a_vocabulary_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3")
    writer.add_token_list([f"token {number}" for number in range(5000)])
    writer.add_token_scores([0.5] * 5000)
    writer.add_token_types([1] * 5000)
    for name, value in QWEN3_8B.items():
        writer.add_uint32(f"qwen3.{name}", value)
    writer.add_token_merges([f"{number} er" for number in range(5000)])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert Geometry.from_gguf(path) == Geometry.preset("qwen3-8b")
    whole = path.read_bytes()
    for length in range(100, len(whole), 9973):
        path.write_bytes(whole[:length])
        assert refusal(path).endswith("is no whole GGUF file: it is cut short or damaged")


@pytest.mark.parametrize("kind", [gguf.GGUFValueType.UINT8, gguf.GGUFValueType.STRING])
def test_an_array_longer_than_the_file(kind: gguf.GGUFValueType, tmp_path: Path) -> None:
    """Its length is not taken on trust: that would fill the memory."""
    path = tmp_path / "model.gguf"
    key, length = b"qwen3.block_count", 1 << 50
    path.write_bytes(
        struct.pack("<4sIQQQ", b"GGUF", 3, 0, 1, len(key))
        + key
        + struct.pack("<IIQ", gguf.GGUFValueType.ARRAY, kind, length)
        + bytes(64)
    )
    assert refusal(path).endswith("is no whole GGUF file: it is cut short or damaged")


def test_files_of_the_other_byte_order(tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    writer = gguf.GGUFWriter(path, "qwen3", endianess=gguf.GGUFEndian.BIG)
    writer.add_token_list([f"token {number}" for number in range(5000)])
    for name, value in QWEN3_8B.items():
        writer.add_uint32(f"qwen3.{name}", value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    assert Geometry.from_gguf(path) == Geometry.preset("qwen3-8b")


def test_files_that_are_damaged(write: Write, seed: int) -> None:
    """Whatever byte of the metadata is another: there is a geometry, or the usual error."""
    path = write("qwen3", QWEN3_8B)
    whole = path.read_bytes()
    rng = np.random.default_rng(seed)
    read, refusals = 0, []
    for position in range(4, len(whole) - 256, 3):
        damaged = bytearray(whole)
        damaged[position] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        try:
            Geometry.from_gguf(path)
            read += 1
        except vmkv.InvalidError as error:
            refusals.append(str(error))
    assert read
    assert refusals
    assert [line for line in refusals if str(path) not in line or not line.isprintable()] == []


@pytest.mark.parametrize("content", [b"", b"GGU", b'{"model_type": "llama"}'])
def test_files_that_are_no_gguf(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(content)
    assert refusal(path) == f"{path} is no GGUF file"
    with pytest.raises(FileNotFoundError):
        Geometry.from_gguf(tmp_path / "other.gguf")


def test_without_the_package(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("qwen3", QWEN3_8B)
    monkeypatch.setitem(sys.modules, "gguf", None)
    assert refusal(path).endswith("reading GGUF files needs the package gguf: install vmkv[gguf]")
