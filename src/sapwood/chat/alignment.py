"""Which tokens of a prompt spell which bytes of its text."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeAlias

import numpy as np

from sapwood.chat.replay import Replayed
from sapwood.chat.tokenizer import Tokenizer

Ends: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]


def token_ends(
    tokenizer: Tokenizer,
    lengths: Sequence[int],
    text: str,
    tokens: Sequence[int],
    replayed: Sequence[Replayed] = (),
) -> Ends | None:
    """Bytes of the prompt up to the end of each token; None if the tokens do not spell it.

    `lengths` has the bytes of every token of the vocabulary. Replayed tokens that spell other bytes than the text
    does all end where their stretch of it does.
    """
    prompt, ids = text.encode(), np.asarray(tokens, np.int64)
    vocabulary = _with_rows_for(ids, np.asarray(lengths, np.int64))
    places = byte_offsets(text, [at for each in replayed for at in (each.start, each.end)])
    pieces: list[Ends] = []
    at = first = 0
    for each, start, end in zip(replayed, places[::2], places[1::2], strict=True):
        own = ids[each.first : each.stop]
        if int(vocabulary[own].sum()) == end - start:
            continue
        before = _spelled(tokenizer, vocabulary, prompt[at:start], ids[first : each.first])
        if before is None:
            return None
        pieces += [before + at, np.full(len(own), end, np.int64)]
        at, first = end, each.stop
    rest = _spelled(tokenizer, vocabulary, prompt[at:], ids[first:])
    return None if rest is None else np.concatenate([*pieces, rest + at])


def byte_offsets(text: str, places: Sequence[int]) -> list[int]:
    """Bytes before each of `places`, which do not fall."""
    pieces = (len(text[a:b].encode()) for a, b in zip([0, *places], places, strict=False))
    return list(accumulate(pieces))


def _with_rows_for(ids: Ends, vocabulary: Ends) -> Ends:
    """A model may draw ids that its tokenizer has no entry for; they spell nothing."""
    missing = int(ids.max(initial=-1)) + 1 - len(vocabulary)
    return np.pad(vocabulary, (0, max(0, missing)))


def _spelled(tokenizer: Tokenizer, vocabulary: Ends, prompt: bytes, ids: Ends) -> Ends | None:
    ends: Ends = np.cumsum(vocabulary[ids])
    if len(prompt) == (ends[-1] if ends.size else 0):
        return ends
    spelled_ends, place = [], 0
    for token in ids.tolist():
        spelled = tokenizer.token_bytes(token)
        if not prompt.startswith(spelled, place):
            spelled = spelled.removeprefix(b" ")  # Which some tokenizers put before a text.
            if not prompt.startswith(spelled, place):
                return None
        place += len(spelled)
        spelled_ends.append(place)
    return np.asarray(spelled_ends, np.int64)
