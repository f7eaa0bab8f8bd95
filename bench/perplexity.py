"""`bench perplexity`: how well a model foretells a book, by how its products are computed; float32 is the peer.

Windows of 512 tokens, each read from nothing; their second halves count, as in llama.cpp's llama-perplexity.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from .document import Output, emit, make_document, tell
from .errors import BenchError
from .noise import Moment
from .rows import Goal, Measure, Row
from .sizes import sized
from .stats import Pair

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.model.checkpoint import Checkpoint
    from sapwood.model.decoder import Decoder

BOOK = Path(__file__).parent / "data" / "austen" / "chapters.txt"
WINDOW = 512


def run_perplexity(options: argparse.Namespace) -> int:
    from sapwood.errors import SapwoodError
    from sapwood.model.checkpoint import load_checkpoint
    from sapwood.model.pull import resolve

    before = Moment.now()
    try:
        checkpoint = load_checkpoint(resolve(options.model))
    except SapwoodError as error:
        raise BenchError(str(error)) from error
    windows = sized(options.size, quick=1, normal=16)
    tokens = book_tokens(checkpoint)[: windows * WINDOW]
    regime = {
        "suite": "perplexity",
        "size": options.size,
        "model": options.model,
        "text": f"the first {len(tokens)} tokens of Pride and Prejudice, windows of {WINDOW}, their second halves",
        "kv": "float32",
    }
    rows = list(_rows(checkpoint, tokens, options.threads))
    emit(make_document(regime, rows, before, options.typed), Output(options.out, options.json))
    return 0


def perplexity(decoder: Decoder, tokens: NDArray[np.int32], window: int = WINDOW) -> float:
    """exp of the mean surprise, in nats, at the tokens of each window's second half; what is over is left out."""
    from sapwood.model import kv

    pool = kv.allocate(decoder.spec, window * kv.bytes_per_token(decoder.spec, "f32"), 1, "f32")
    surprises = [
        _surprises(decoder, pool, tokens[first : first + window])
        for first in range(0, len(tokens) - window + 1, window)
    ]
    return float(np.exp(np.concatenate(surprises).mean()))


def book_tokens(checkpoint: Checkpoint) -> NDArray[np.int32]:
    from sapwood.engine.build import load_tokenizer

    tokenizer = load_tokenizer(checkpoint.name, checkpoint.vocab)
    return np.array(tokenizer.encode(BOOK.read_text(encoding="utf-8")), np.int32)


def _rows(checkpoint: Checkpoint, tokens: NDArray[np.int32], threads: int) -> Iterator[Row]:
    from sapwood.model.decoder import Decoder
    from sapwood.model.ops_native import NativeOps

    found = {}
    for compute in ("f32", "auto"):
        tell(f"perplexity, compute {compute}")
        found[compute] = perplexity(
            Decoder(checkpoint.spec, checkpoint.tensors, NativeOps(threads, compute)), tokens
        )
    measure = Measure("perplexity", "", "lower", Goal("ratio", "at most", 1.01), counted=True)
    yield Row("compute auto", measure, [Pair(found["auto"], found["f32"])], "compute f32")


def _surprises(decoder: Decoder, pool: object, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    from sapwood.model.kv import KvPool
    from sapwood.model.ops import StepSpans

    assert isinstance(pool, KvPool)
    count, half = len(tokens), len(tokens) // 2
    one = StepSpans(np.array([count], np.int32), np.zeros(1, np.int32), np.arange(count, dtype=np.int32))
    hidden = decoder.forward(tokens, one, pool)[half - 1 : -1]
    logits = decoder.logits(np.ascontiguousarray(hidden)).astype(np.float64)
    top = logits.max(axis=1)
    total = top + np.log(np.exp(logits - top[:, None]).sum(axis=1))
    return np.asarray(total - logits[np.arange(len(logits)), tokens[half:]])
