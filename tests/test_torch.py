"""An attention that knows nothing of vmkv, PyTorch's for the CPU, over spans: in the process's own
memory, and on addresses of an emulated card. Over plain contiguous tensors with the same numbers it
must give the same, bit for bit: no sum depends on where a row lies.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
import pytest

import vmkv
from support import needs_libdrm, step

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="needs torch")

# A few layers of qwen3-8b: 32 heads of queries over 8 of keys and values.
LAYERS, QUERY_HEADS, HEADS, DIM = 2, 32, 8, 128
# Three sequences that grow in turn.
GROWTH = ((1, 300, 64), (17, 301, 650), (513, 420, 651), (700, 999, 777))
LENGTHS = GROWTH[-1]
MASK_TO = 1024  # what a batch is read up to, whatever its lengths

ELEMENTS = {"f32": "float32", "f16": "float16", "bf16": "bfloat16"}

torch: Any = None


@pytest.fixture(scope="module", autouse=True)
def torch_loaded() -> None:
    """Not before it is needed: it starts threads, and tests of other modules fork."""
    global torch
    torch = importlib.import_module("torch")
    torch.set_num_threads(1)  # several would wait for each other on a busy machine


def element(dtype: str) -> Any:
    return getattr(torch, ELEMENTS[dtype])


CARD = "emulated:gfx1201?vram=1GiB&identity=1"


@pytest.fixture(params=["host", pytest.param(CARD, marks=needs_libdrm)])
def device(request: pytest.FixtureRequest) -> Iterator[vmkv.Device]:
    with vmkv.open(request.param) as device:
        yield device


class Prompt(NamedTuple):
    """One sequence, and plain tensors of what its spans hold: (layers, tokens, heads, dim)."""

    sequence: vmkv.Sequence
    plain: dict[str, Any]


class Batch:
    """One tensor of one layer in all slots, for numpy: (slots, tokens, heads, dim)."""

    def __init__(self, span: vmkv.Span, slots: int, tokens: int) -> None:
        self.__array_interface__ = {
            "version": 3,
            "data": (span.address - span.slot * span.slot_stride, False),
            "shape": (slots, tokens, HEADS, DIM),
            "strides": (span.slot_stride, *span.strides),
            "typestr": span.dtype.str,
        }


def rows(array: Any, dtype: str) -> Any:
    """A tensor that shares an array's memory; numpy knows bf16 only by its bits."""
    return torch.from_numpy(array).view(element(dtype))


def prompts_grow(cache: vmkv.Cache, dtype: str) -> list[Prompt]:
    generator = torch.Generator().manual_seed(1)

    def numbers(tokens: int) -> Any:
        return torch.randn(LAYERS, tokens, HEADS, DIM, generator=generator).to(element(dtype))

    prompts = [Prompt(cache.open(), {n: numbers(length) for n in "kv"}) for length in LENGTHS]
    before = (0, 0, 0)
    for lengths in GROWTH:
        step(cache, {p.sequence: n for p, n in zip(prompts, lengths, strict=True)})
        for prompt, first, last in zip(prompts, before, lengths, strict=True):
            for name, plain in prompt.plain.items():
                for layer in range(LAYERS):
                    span = prompt.sequence.span(layer=layer, tensor=name)
                    rows(span.numpy(first, last), dtype)[:] = plain[layer, first:last]
        before = lengths
    return prompts


def attention(query: Any, key: Any, value: Any, mask: Any = None) -> Any:
    """Over keys and values of (..., tokens, heads, dim)."""
    causal = mask is None and query.shape[-2] > 1
    return torch.nn.functional.scaled_dot_product_attention(
        query,
        key.transpose(-3, -2),
        value.transpose(-3, -2),
        attn_mask=mask,
        is_causal=causal,
        enable_gqa=True,
    )


def queries(dtype: str, sequences: int, tokens: int) -> Any:
    generator = torch.Generator().manual_seed(2)
    shape = (sequences, QUERY_HEADS, tokens, DIM)
    return torch.randn(*shape, generator=generator).to(element(dtype))


def cache_of(device: vmkv.Device, dtype: str, layout: str, align: int = 1) -> vmkv.Cache:
    geometry = vmkv.Geometry.full(layers=LAYERS, heads=HEADS, head_dim=DIM, dtype=dtype)
    return vmkv.Cache(
        device,
        geometry,
        budget="256MiB",
        layout=layout,
        max_slots=3,
        max_tokens=4096,
        read_align_tokens=align,
    )


@pytest.mark.parametrize("layout", ["layer", "token"])
@pytest.mark.parametrize("dtype", ELEMENTS)
def test_attention_over_the_span_of_each_sequence(
    device: vmkv.Device, dtype: str, layout: str
) -> None:
    with cache_of(device, dtype, layout) as cache:
        for prompt, tokens in zip(prompts_grow(cache, dtype), LENGTHS, strict=True):
            for layer in range(LAYERS):
                key, value = (
                    rows(prompt.sequence.span(layer=layer, tensor=name).numpy(), dtype)
                    for name in "kv"
                )
                plain = [prompt.plain[name][layer] for name in "kv"]
                by_head = [tensor.transpose(0, 1).contiguous().transpose(0, 1) for tensor in plain]
                assert torch.equal(key, plain[0])
                assert torch.equal(value, plain[1])
                # Decoding, and in one layer the whole prompt.
                for count in (1,) if layer else (1, tokens):
                    query = queries(dtype, 1, count)
                    flat = attention(query, key[None], value[None])
                    assert flat.isfinite().all()
                    for keys, values in (plain, by_head):
                        assert torch.equal(flat, attention(query, keys[None], values[None]))


@pytest.mark.parametrize("dtype", ELEMENTS)
def test_attention_over_a_batch_of_slots(device: vmkv.Device, dtype: str) -> None:
    """One call for all sequences: a tensor over the slots, unequal lengths told by a mask."""
    with cache_of(device, dtype, "layer", MASK_TO) as cache:
        prompts = prompts_grow(cache, dtype)
        assert [prompt.sequence.slot for prompt in prompts] == [0, 1, 2]
        query = queries(dtype, len(prompts), 1)
        mask = torch.arange(MASK_TO)[None] < torch.tensor(LENGTHS)[:, None]
        for layer in range(LAYERS):
            flat, plain = [], []
            for name in "kv":
                span = prompts[0].sequence.span(layer=layer, tensor=name)
                flat.append(rows(np.asarray(Batch(span, len(prompts), MASK_TO)), dtype))
                tensor = torch.zeros(len(prompts), MASK_TO, HEADS, DIM, dtype=element(dtype))
                for slot, length in enumerate(LENGTHS):
                    tensor[slot, :length] = prompts[slot].plain[name][layer]
                plain.append(tensor)
            got = attention(query, flat[0], flat[1], mask[:, None, None])
            assert torch.equal(got, attention(query, plain[0], plain[1], mask[:, None, None]))
            # The mask leaves of each what it is alone, but for rounding: those sums are of other
            # lengths, and weights of 16-bit elements are rounded to their type.
            for slot, length in enumerate(LENGTHS):
                key, value = (tensor[slot, :length] for tensor in plain)
                alone = attention(query[slot], key, value)
                torch.testing.assert_close(got[slot], alone, atol=1e-3, rtol=0.016)
