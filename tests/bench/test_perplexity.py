from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from bench.perplexity import book_tokens, perplexity

from model import tiny
from sapwood.model.checkpoint import load_checkpoint
from sapwood.model.decoder import Decoder
from sapwood.model.ops_native import NativeOps


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_llama(tmp_path_factory.mktemp("perplexity"))


def test_the_perplexity_of_a_model_is_exp_of_its_mean_surprise(folder: Path) -> None:
    from exact.lab import all_logits

    checkpoint = load_checkpoint(folder)
    decoder = Decoder(checkpoint.spec, checkpoint.tensors, NativeOps(1))
    tokens = book_tokens(checkpoint)[:37]
    surprises = []
    for window in (tokens[:16], tokens[16:32]):
        logits = all_logits(decoder, window.tolist()).astype(np.float64)
        shares = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
        surprises += [-np.log(shares[i - 1, window[i]]) for i in range(8, 16)]
    assert perplexity(decoder, tokens, 16) == pytest.approx(np.exp(np.mean(surprises)), rel=1e-9)


def test_a_model_that_knows_nothing_is_as_surprised_as_by_chance(folder: Path) -> None:
    checkpoint = load_checkpoint(folder)
    decoder = Decoder(checkpoint.spec, checkpoint.tensors, NativeOps(1))
    assert perplexity(decoder, book_tokens(checkpoint)[:512]) > tiny.VOCAB_SIZE / 4
