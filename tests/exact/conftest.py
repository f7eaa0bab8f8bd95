from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

import pytest

from exact.lab import (
    BOTH_INDEXES,
    FAMILIES,
    OTHER_FAMILIES,
    Case,
    GetDecoder,
    GetTruth,
    Setting,
    Solo,
    Truth,
    decoder_of,
)
from model import tiny
from sapwood.chat.tokenizer import Tokenizer
from sapwood.model.checkpoint import load_checkpoint

if TYPE_CHECKING:
    from sapwood.config import KvDtype, WeightFormat
    from sapwood.model.decoder import Decoder

_WEIGHTS: tuple[WeightFormat, ...] = ("f32", "f16", "q8", "q4")
_DTYPES: tuple[KvDtype, ...] = ("bf16", "f32", "q8")
_CASES = [Case(family, weights, "f16") for family in FAMILIES for weights in _WEIGHTS]
_CASES += [Case(family, "auto", dtype) for family in FAMILIES for dtype in _DTYPES]
_CASES += [Case(family, "q8", "f16") for family in OTHER_FAMILIES]


@pytest.fixture(scope="session")
def tiny_decoder(tmp_path_factory: pytest.TempPathFactory) -> GetDecoder:
    """Gives a tiny random model by family, weight format and threads; each is made once."""
    makers = {
        "llama": tiny.tiny_llama,
        "mistral": tiny.tiny_mistral,
        "qwen2": tiny.tiny_qwen2,
        "qwen3": tiny.tiny_qwen3,
        "gemma3": tiny.tiny_gemma3,
        "phi3": tiny.tiny_phi3,
        "qwen3_moe": tiny.tiny_qwen3_moe,
    }
    folders = tmp_path_factory.mktemp("tiny")
    made = cache(lambda family: makers[family](folders / family))

    @cache
    def get(family: str, weights: WeightFormat = "auto", threads: int = 2) -> Decoder:
        return decoder_of(made(family), weights, threads)

    return get


@pytest.fixture(scope="session")
def default_decoder() -> GetDecoder:
    """The default model, by threads and compute."""
    return cache(
        lambda threads=2, compute="auto": decoder_of("smollm2-135m", threads=threads, compute=compute)
    )


@pytest.fixture(params=_CASES, ids=lambda c: f"{c.family}-{c.weights}-{c.dtype}")
def case(request: pytest.FixtureRequest) -> Case:
    """Every family in every weight format, and with every type of KV."""
    assert isinstance(request.param, Case)
    return request.param


@pytest.fixture(params=BOTH_INDEXES, ids=str)
def setting(request: pytest.FixtureRequest) -> Setting:
    """Each way of finding prefixes, else the plainest there is."""
    assert isinstance(request.param, Setting)
    return request.param


@pytest.fixture(scope="session")
def tiny_truth(tiny_decoder: GetDecoder) -> GetTruth:
    """Each has seen nothing yet; what a model says alone is computed once."""

    @cache
    def solos_of(_family: str, _weights: WeightFormat, _dtype: KvDtype) -> dict[str, Solo]:
        return {}

    def get(family: str, weights: WeightFormat = "auto", dtype: KvDtype = "f16") -> Truth:
        return Truth(tiny_decoder(family, weights), dtype, solos=solos_of(family, weights, dtype))

    return get


@pytest.fixture
def truth(case: Case, tiny_truth: GetTruth) -> Truth:
    return tiny_truth(case.family, case.weights, case.dtype)


@pytest.fixture(scope="session")
def default_tokenizer() -> Tokenizer:
    vocab = load_checkpoint(tiny.default_model()).vocab
    assert vocab is not None
    assert vocab.gguf is not None
    return Tokenizer.from_gguf(vocab.gguf)
