"""Scores of prompt tokens, kept beside the KV: a prompt that is scored again need not be computed for them.

A score is the logprob of a token after all tokens before it, with the likeliest others. So it is kept under the
hash chained through all tokens before (`chain`), in chunks of CHUNK tokens:

    hash of all before ──▶ a few chunks that were seen to follow, sorted ──▶ their tokens, and the scores of these

Sorted by their tokens, the chunk that shares most with what is asked for stands next to where that would stand; so
prompts that part inside a chunk share its scores up to there. Tokens are compared besides the hash.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from sapwood.cache.chain import ChainHash, blake2b_128, root_hash
from sapwood.cache.keys import Namespace, Tokens, common_prefix
from sapwood.errors import BooksError
from sapwood.types import TokenLogprob

CHUNK = 32
"""Tokens whose scores are kept together."""

MOST_TOP = 128
"""Scores with more top entries are not kept."""

_OVERHEAD_BYTES = 1024
"""Of a chunk: its arrays' own, its key twice, its entries in three tables."""
_TOKEN_BYTES = 4

_Key: TypeAlias = tuple[ChainHash, int, bytes]
"""What comes before, how many top entries, its tokens."""


class Trail:
    """A prompt, hashed chunk by chunk as far as somebody asked."""

    __slots__ = ("_before", "_data", "tokens")

    def __init__(self, namespace: Namespace, tokens: Tokens) -> None:
        self.tokens = tokens
        self._data = tokens.tobytes()
        self._before = [root_hash(namespace)]

    def before(self, chunk: int) -> ChainHash:
        """The hash of all that comes before a chunk."""
        while len(self._before) <= chunk:
            self._before.append(blake2b_128(self._before[-1] + self.content(len(self._before) - 1)))
        return self._before[chunk]

    def content(self, chunk: int, end: int | None = None) -> bytes:
        """A chunk's tokens, those before token `end`."""
        last = (chunk + 1) * CHUNK if end is None else min(end, (chunk + 1) * CHUNK)
        return self._data[chunk * CHUNK * _TOKEN_BYTES : last * _TOKEN_BYTES]


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    begin: int
    """Of its tokens, the first that has a score."""
    logprobs: NDArray[np.float64]
    """[tokens from `begin` on, 1 + top entries]: each token's own, then the likeliest."""
    ids: NDArray[np.int32]
    """[tokens from `begin` on, top entries]."""

    @property
    def nbytes(self) -> int:
        return self.logprobs.nbytes + self.ids.nbytes + _OVERHEAD_BYTES

    def entries(self, tokens: Tokens, start: int, top: int) -> Iterator[TokenLogprob]:
        """Of `tokens`, which are the chunk's from `start` on."""
        rows = slice(start - self.begin, start - self.begin + len(tokens))
        ids, logprobs = self.ids[rows, :top].tolist(), self.logprobs[rows].tolist()
        for token, best, values in zip(tokens.tolist(), ids, logprobs, strict=True):
            yield TokenLogprob(token, values[0], tuple(zip(best, values[1:], strict=False)))


@dataclass(frozen=True, slots=True)
class _Found:
    key: _Key
    chunk: _Chunk
    shared: int
    """How many of the chunk's tokens are those asked for."""


class ScoreStore:
    """At most `capacity` bytes of scores; what was not used for the longest time goes first.

    Attributes:
        epoch: how often all was forgotten. What was scored in an earlier one is not to be added.
        version: rises with each change; until then all that is known stays known, and nothing else is.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.epoch = 0
        self.version = 0
        self._chunks: OrderedDict[_Key, _Chunk] = OrderedDict()
        self._following: dict[ChainHash, dict[int, list[bytes]]] = {}
        self._bytes = 0

    @property
    def nbytes(self) -> int:
        return self._bytes

    @staticmethod
    def keeps(top: int) -> bool:
        """Whether scores with so many top entries are kept."""
        return top <= MOST_TOP

    def known(self, trail: Trail, first: int, top: int) -> int:
        """How many of the prompt's tokens have their score here, from index `first` on without a gap.

        Each with `top` of the likeliest, or more. Changes nothing.
        """
        return sum(end - start for start, end, _ in self._walk(trail, first, top))

    def read(self, trail: Trail, first: int, top: int) -> list[TokenLogprob]:
        """The scores that `known` counts. Marks them as used."""
        steps = list(self._walk(trail, first, top))
        for _, _, found in reversed(steps):  # No chunk is to go before one that follows it.
            self._chunks.move_to_end(found.key)
        return [
            entry
            for start, end, found in steps
            for entry in found.chunk.entries(trail.tokens[start:end], start % CHUNK, top)
        ]

    def add(self, trail: Trail, first: int, scores: Sequence[TokenLogprob], new: int, top: int) -> None:
        """Keep the `scores` of the prompt's tokens from `first` on; all but the last `new` were added before.

        They have `top` of the likeliest tokens, or as many as the vocabulary has.
        """
        end = first + len(scores)
        if not self.keeps(top) or new <= 0:
            return
        oldest = first // CHUNK
        for chunk in range((end - 1) // CHUNK, oldest - 1, -1):
            if (chunk + 1) * CHUNK > end - new:
                begin = max(first, chunk * CHUNK)
                part = scores[begin - first : min(end, (chunk + 1) * CHUNK) - first]
                self._put((trail.before(chunk), top, trail.content(chunk, end)), begin % CHUNK, part)
            else:
                self._touch((trail.before(chunk), top, trail.content(chunk)))
        while self._bytes > self.capacity:
            self._drop(next(iter(self._chunks)))

    def flush(self) -> None:
        """Forget all."""
        self.epoch += 1
        self.version += 1
        self._chunks.clear()
        self._following.clear()
        self._bytes = 0

    def check(self) -> None:
        """Prove the books by a recount. Raises BooksError."""
        named = {
            (before, top, content)
            for before, tops in self._following.items()
            for top, contents in tops.items()
            for content in contents
        }
        if named != self._chunks.keys():
            raise BooksError("chunks of scores and the table that finds them differ")
        if self._bytes != sum(chunk.nbytes for chunk in self._chunks.values()):
            raise BooksError(f"{self._bytes} bytes of scores are said to be kept; a recount differs")
        for tops in self._following.values():
            if not tops or not all(tops.values()) or any(each != sorted(each) for each in tops.values()):
                raise BooksError("chunks of scores are not sorted, or a table of none is kept")

    def _walk(self, trail: Trail, first: int, top: int) -> Iterator[tuple[int, int, _Found]]:
        """Chunk after chunk: the first and last index of the tokens whose scores it has, and the chunk."""
        at = first
        while at < len(trail.tokens):
            chunk = at // CHUNK
            found = self._find(trail.before(chunk), trail.content(chunk), at % CHUNK, top)
            if found is None:
                return
            end = chunk * CHUNK + found.shared
            yield at, end, found
            if found.shared < CHUNK:
                return
            at = end

    def _find(self, before: ChainHash, content: bytes, start: int, top: int) -> _Found | None:
        """The chunk that shares most with `content`, of those that have scores from its token `start` on."""
        best: _Found | None = None
        for kept, contents in self._following.get(before, {}).items():
            if kept < top:
                continue
            chunk = self._chunks.get((before, kept, content))
            if chunk is not None and chunk.begin <= start:
                return _Found((before, kept, content), chunk, len(content) // _TOKEN_BYTES)
            at = bisect_left(contents, content)
            for near in contents[max(0, at - 1) : at + 1]:
                key = (before, kept, near)
                chunk, shared = self._chunks[key], _shared(near, content)
                if chunk.begin <= start < shared and (best is None or shared > best.shared):
                    best = _Found(key, chunk, shared)
        return best

    def _put(self, key: _Key, begin: int, scores: Sequence[TokenLogprob]) -> None:
        before, top, content = key
        found = self._find(before, content, begin, top)
        if found is not None and found.shared * _TOKEN_BYTES == len(content):
            self._chunks.move_to_end(found.key)
            return
        alike = found is not None and found.key[1] == top and found.chunk.begin == begin
        if found is not None and alike and content.startswith(found.key[2]):
            self._drop(found.key)  # The new one has all of it, and more.
        if key in self._chunks:
            self._drop(key)
        width = len(scores[0].top)
        values = [[entry.logprob, *(logprob for _, logprob in entry.top[:top])] for entry in scores]
        ids = [[token for token, _ in entry.top[:top]] for entry in scores]
        chunk = _Chunk(
            begin, np.array(values, np.float64), np.array(ids, np.int32).reshape(len(scores), width)
        )
        self._chunks[key] = chunk
        contents = self._following.setdefault(before, {}).setdefault(top, [])
        contents.insert(bisect_left(contents, content), content)
        self._bytes += chunk.nbytes
        self.version += 1

    def _touch(self, key: _Key) -> None:
        if key in self._chunks:
            self._chunks.move_to_end(key)

    def _drop(self, key: _Key) -> None:
        before, top, content = key
        self.version += 1
        self._bytes -= self._chunks.pop(key).nbytes
        tops = self._following[before]
        contents = tops[top]
        del contents[bisect_left(contents, content)]
        if not contents:
            del tops[top]
        if not tops:
            del self._following[before]


def _shared(a: bytes, b: bytes) -> int:
    """Tokens that two stretches begin with."""
    return common_prefix(np.frombuffer(a, np.int32), np.frombuffer(b, np.int32))
