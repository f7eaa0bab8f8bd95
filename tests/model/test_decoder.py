"""The decoder against transformers on tiny random models of every family, and against its slow twin bit for bit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from exact.judge import Judge, distance
from exact.lab import all_logits, decoder_of, prompt_of
from model import tiny
from sapwood.model import kv
from sapwood.model.checkpoint import load_checkpoint
from sapwood.model.decoder import Decoder, rope_tables
from sapwood.model.ops import StepSpans
from sapwood.model.ops_native import NativeOps
from sapwood.model.ops_reference import ReferenceOps

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

Maker = tuple[Any, dict[str, Any]]

LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN = {"rope_type": "yarn", "rope_theta": 10_000.0, "factor": 8.0, "original_max_position_embeddings": 64}

LONGROPE: dict[str, Any] = {
    "original_max_position_embeddings": 64,
    "rope_parameters": {
        "rope_type": "longrope",
        "rope_theta": 10_000.0,
        "partial_rotary_factor": 0.5,
        "short_factor": [1.0, 1.25, 1.5, 2.0],
        "long_factor": [1.5, 2.0, 4.0, 8.0],
    },
}

LONGROPE_WITH_ITS_SCALE = {
    **LONGROPE,
    "rope_parameters": {**LONGROPE["rope_parameters"], "attention_factor": 1.25},
}

MODELS: dict[str, Maker] = {
    "llama": (tiny.tiny_llama, {}),
    "llama, tied": (tiny.tiny_llama, {"tie_word_embeddings": True}),
    "llama, one kv head": (tiny.tiny_llama, {"num_key_value_heads": 1}),
    "llama, no groups": (tiny.tiny_llama, {"num_key_value_heads": 4}),
    "llama, attention biases": (tiny.tiny_llama, {"attention_bias": True}),
    "llama, odd sizes": (tiny.tiny_llama, {"hidden_size": 60, "intermediate_size": 100, "head_dim": 20}),
    "mistral, window 24": (tiny.tiny_mistral, {}),
    "mistral, window 1": (tiny.tiny_mistral, {"sliding_window": 1}),
    "mistral, no window": (tiny.tiny_mistral, {"sliding_window": None}),
    "qwen2": (tiny.tiny_qwen2, {}),
    "qwen2, upper layers slide": (
        tiny.tiny_qwen2,
        {"use_sliding_window": True, "sliding_window": 30, "max_window_layers": 1},
    ),
    "qwen3": (tiny.tiny_qwen3, {}),
    "qwen3, upper layers slide": (
        tiny.tiny_qwen3,
        {"use_sliding_window": True, "sliding_window": 30, "max_window_layers": 1},
    ),
    "gemma3": (tiny.tiny_gemma3, {}),
    "gemma3, own head": (tiny.tiny_gemma3, {"tie_word_embeddings": False}),
    "gemma3, global rope stretched": (
        tiny.tiny_gemma3,
        {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6}}},
    ),
    "phi3": (tiny.tiny_phi3, {}),
    "phi3, no window, whole heads": (tiny.tiny_phi3, {"partial_rotary_factor": 1.0, "sliding_window": None}),
    "phi3, long": (tiny.tiny_phi3, LONGROPE),
    "phi3, long that is short": (tiny.tiny_phi3, {**LONGROPE, "original_max_position_embeddings": 512}),
    "qwen3_moe": (tiny.tiny_qwen3_moe, {}),
    "qwen3_moe, shares of all": (tiny.tiny_qwen3_moe, {"norm_topk_prob": False, "num_experts_per_tok": 3}),
    "qwen3_moe, sliding": (tiny.tiny_qwen3_moe, {"use_sliding_window": True, "sliding_window": 24}),
    "mixtral": (tiny.tiny_mixtral, {}),
    "rope, linear": (
        tiny.tiny_llama,
        {"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 4.0}},
    ),
    "rope, llama3": (tiny.tiny_llama, {"rope_parameters": LLAMA3}),
    "rope, yarn": (tiny.tiny_llama, {"rope_parameters": YARN}),
    "rope, yarn not truncated": (tiny.tiny_mistral, {"rope_parameters": {**YARN, "truncate": False}}),
    "rope, yarn with its own scale": (
        tiny.tiny_qwen2,
        {"rope_parameters": {**YARN, "attention_factor": 1.3}},
    ),
    # transformers stretches by the length that it sees, we by the longest: equal at that length.
    "rope, dynamic": (
        tiny.tiny_llama,
        {
            "max_position_embeddings": 50,
            "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0},
        },
    ),
}
PROMPT = prompt_of(100)


@pytest.mark.parametrize("name", MODELS)
def test_logits_of_all_positions_are_transformers(name: str, tmp_path: Path) -> None:
    maker, changes = MODELS[name]
    folder = maker(tmp_path, **changes)
    (theirs,) = Judge.of_folder(folder).logits(PROMPT)
    assert distance(all_logits(decoder_of(folder), PROMPT), theirs) < 2e-5


@pytest.mark.parametrize(
    ("maker", "kind"),
    [
        (tiny.tiny_llama, "Q4_1"),
        (tiny.tiny_mistral, "Q8_0"),
        (tiny.tiny_qwen2, "Q4_0"),
        (tiny.tiny_qwen3, "BF16"),
        (tiny.tiny_gemma3, "Q8_0"),
        (tiny.tiny_phi3, "Q4_1"),
        (tiny.tiny_qwen3_moe, "Q4_0"),
        (tiny.tiny_mixtral, "Q8_0"),
    ],
)
def test_native_and_reference_ops_give_the_same_bits(
    maker: Callable[..., Path], kind: str, tmp_path: Path
) -> None:
    path = tiny.gguf_of(maker(tmp_path / "folder"), tmp_path / "model.gguf", kind)
    checkpoint = load_checkpoint(path)
    native, reference = (
        Decoder(checkpoint.spec, checkpoint.tensors, ops) for ops in (NativeOps(2), ReferenceOps())
    )
    prompt = prompt_of(70)
    assert all_logits(native, prompt, "f16").tobytes() == all_logits(reference, prompt, "f16").tobytes()


@pytest.mark.parametrize(
    ("maker", "changes"),
    [
        (tiny.tiny_llama, {}),
        (tiny.tiny_mistral, {}),
        (tiny.tiny_qwen2, {}),
        (tiny.tiny_qwen3, {}),
        (tiny.tiny_gemma3, {}),
        (tiny.tiny_phi3, {}),
        (tiny.tiny_phi3, LONGROPE_WITH_ITS_SCALE),
        (tiny.tiny_qwen3_moe, {}),
        (tiny.tiny_mixtral, {}),
    ],
)
def test_a_gguf_file_gives_the_bits_of_its_safetensors_folder(
    maker: Callable[..., Path], changes: dict[str, Any], tmp_path: Path
) -> None:
    folder = maker(tmp_path / "folder", **changes)
    path = tiny.gguf_of(folder, tmp_path / "model.gguf", "F32")
    assert all_logits(decoder_of(path), PROMPT).tobytes() == all_logits(decoder_of(folder), PROMPT).tobytes()


def test_llama_3s_rope_is_the_same_from_a_gguf_files_divisors(tmp_path: Path) -> None:
    folder = tiny.tiny_llama(tmp_path / "folder", rope_parameters=LLAMA3)
    path = tiny.gguf_of(folder, tmp_path / "model.gguf", "F32")
    of_file, of_folder = (decoder_of(found) for found in (path, folder))
    assert of_file.spec.rope.freq_factors is not None
    assert distance(all_logits(of_file, PROMPT), all_logits(of_folder, PROMPT)) < 2e-5


class Bench:
    """A decoder and pages, for steps by hand."""

    def __init__(self, decoder: Decoder, pages: int = 16, page_size: int = 4) -> None:
        self.decoder = decoder
        self.kv = kv.allocate(
            decoder.spec, pages * page_size * kv.bytes_per_token(decoder.spec, "f32"), page_size, "f32"
        )

    def forward(
        self, tokens: list[int], rows: list[int], starts: list[int], pages: list[int]
    ) -> NDArray[np.float32]:
        spans = StepSpans(*(np.array(values, np.int32) for values in (rows, starts, pages)))
        return self.decoder.forward(np.array(tokens, np.int32), spans, self.kv).copy()


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Decoder:
    return decoder_of(tiny.tiny_llama(tmp_path_factory.mktemp("llama")))


@pytest.mark.parametrize("token", [-1, tiny.VOCAB_SIZE, 2**31 - 1])
def test_a_token_outside_the_vocabulary_is_refused(token: int, llama: Decoder) -> None:
    bench = Bench(llama)
    before = bench.kv.k.tobytes()
    with pytest.raises(ValueError, match=f"outside the vocabulary of {tiny.VOCAB_SIZE}"):
        bench.forward([5, token, 6], [3], [0], [0])
    assert bench.kv.k.tobytes() == before


@pytest.mark.parametrize(
    ("rows", "starts", "pages"),
    [
        ([5], [0], [0]),
        ([5], [0], [0, 1, 2]),
        ([5], [0], [0, 16]),
        ([5], [0], [-1, 0]),
        ([5], [-1], [0]),
        ([4], [0], [0]),
        ([6], [0], [0, 1]),
        ([0, 5], [0, 0], [0, 1]),
    ],
    ids=[
        "too few",
        "too many",
        "beyond the pool",
        "negative",
        "negative start",
        "few rows",
        "many rows",
        "empty",
    ],
)
def test_spans_that_do_not_fit_are_refused(
    rows: list[int], starts: list[int], pages: list[int], llama: Decoder
) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        Bench(llama).forward([5, 6, 7, 8, 9], rows, starts, pages)


def test_hidden_rows_are_overwritten_by_the_next_step_only(llama: Decoder) -> None:
    """The buffer is reused: a shorter step after a longer one gives what a fresh decoder gives."""
    bench = Bench(llama)
    first = bench.forward([5, 6, 7], [3], [0], [0])
    bench.forward(list(range(3, 19)), [16], [0], [1, 2, 3, 4])
    assert bench.forward([5, 6, 7], [3], [0], [5]).tobytes() == first.tobytes()


def test_steps_of_every_size_in_any_order_give_what_a_fresh_decoder_gives(tmp_path: Path) -> None:
    """What a step does is noted once for each number of rows, and the oldest are forgotten."""
    folder = tiny.tiny_llama(tmp_path)
    bench = Bench(decoder_of(folder), pages=80, page_size=1)
    pages = list(range(70))
    for rows in (1, 2, 70, 1, *range(3, 69), 2, 1):
        tokens = [5 + i % 11 for i in range(rows)]
        fresh = Bench(decoder_of(folder), pages=80, page_size=1)
        expected = fresh.forward(tokens, [rows], [0], pages[:rows])
        assert bench.forward(tokens, [rows], [0], pages[:rows]).tobytes() == expected.tobytes()


def test_a_decoder_may_go_on_over_other_pages(llama: Decoder) -> None:
    one, two = Bench(llama), Bench(llama, pages=20)
    expected = one.forward([5, 6, 7], [3], [0], [0])
    assert two.forward([5, 6, 7], [3], [0], [19]).tobytes() == expected.tobytes()
    assert one.forward([5, 6, 7], [3], [0], [1]).tobytes() == expected.tobytes()
    assert one.kv.k[:, 1, :3].tobytes() == two.kv.k[:, 19, :3].tobytes()


def test_decoders_over_other_pages_may_share_their_ops(tmp_path: Path) -> None:
    """What is noted for one pool outlives a step over another, and a plan made for another."""
    checkpoint, ops = load_checkpoint(tiny.tiny_llama(tmp_path)), NativeOps(2)
    one, two = (Bench(Decoder(checkpoint.spec, checkpoint.tensors, ops), pages=n) for n in (12, 20))
    expected = one.forward([5, 6, 7], [3], [0], [0]).tobytes()
    assert two.forward([5, 6, 7], [3], [0], [19]).tobytes() == expected
    assert one.forward([5, 6, 7], [3], [0], [1]).tobytes() == expected
    assert two.forward([5, 6, 7], [3], [0], [4]).tobytes() == expected


def test_page_tails_and_other_pages_are_never_read(llama: Decoder) -> None:
    clean, dirty = Bench(llama), Bench(llama)
    dirty.kv.k.fill(np.nan)
    dirty.kv.v.fill(np.nan)
    for tokens, start, pages in (
        ([5, 6, 7, 8, 9], 0, [7, 2]),
        ([10], 5, [7, 2]),
        ([11, 12, 13], 6, [7, 2, 9]),
    ):
        rows = [len(tokens)]
        expected = clean.forward(tokens, rows, [start], pages)
        assert dirty.forward(tokens, rows, [start], pages).tobytes() == expected.tobytes()


def test_a_longer_rope_table_has_the_same_rows(llama: Decoder) -> None:
    short, long = rope_tables(llama.spec.rope, 512), rope_tables(llama.spec.rope, 4096)
    assert short.cos.tobytes() == long.cos[:512].tobytes()
    assert short.sin.tobytes() == long.sin[:512].tobytes()
    for rows in (1, 3, 513, 1000):
        assert rope_tables(llama.spec.rope, rows).sin.tobytes() == long.sin[:rows].tobytes()


def test_growing_the_rope_table_does_not_change_the_logits(tmp_path: Path) -> None:
    folder = tiny.tiny_llama(tmp_path, max_position_embeddings=2048)
    grown, fresh = decoder_of(folder), decoder_of(folder)
    before, long = all_logits(grown, PROMPT), prompt_of(1300)
    assert all_logits(grown, long).tobytes() == all_logits(fresh, long).tobytes()
    assert all_logits(grown, PROMPT).tobytes() == before.tobytes()


def test_progress_is_told_layer_by_layer(tmp_path: Path) -> None:
    checkpoint = load_checkpoint(tiny.tiny_llama(tmp_path, num_hidden_layers=3))
    told: list[tuple[int, int]] = []
    Decoder(checkpoint.spec, checkpoint.tensors, NativeOps(1), lambda *at: told.append(at))
    assert told == [(1, 3), (2, 3), (3, 3)]
