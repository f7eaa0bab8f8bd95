"""Request traces in Mooncake's format (FAST 2025): when each prompt came, and of which blocks it is made."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .errors import BenchError

BLOCK_TOKENS = 512
BUNDLED = tuple(
    Path(__file__).parent / "data" / "mooncake" / f"{name}_trace.jsonl.gz"
    for name in ("conversation", "synthetic")
)


@dataclass(frozen=True, slots=True, eq=False)
class TraceRequest:
    """Attributes:
    at: seconds since the trace began.
    tokens: length of the prompt.
    blocks: shape (ceil(tokens / BLOCK_TOKENS),); an id stands for the whole prefix up to the end of its block.
    """

    at: float
    tokens: int
    blocks: NDArray[np.int32]

    def tokens_in(self, blocks: int) -> int:
        """Prompt tokens in the first so many blocks; the last block may be partial."""
        return min(blocks * BLOCK_TOKENS, self.tokens)


@dataclass(frozen=True)
class Trace:
    """Requests in order of time."""

    name: str
    requests: Sequence[TraceRequest]

    @cached_property
    def prompt_tokens(self) -> int:
        return sum(request.tokens for request in self.requests)

    def first(self, count: int) -> Trace:
        return Trace(self.name, self.requests[:count])


def load_trace(file: Path) -> Trace:
    """A JSON-lines file, gzipped where its name says so. Raises BenchError naming the line at fault."""
    ids: dict[int, int] = {}
    try:
        requests = [_request(line, ids, f"{file.name}, line {number}") for number, line in _lines(file)]
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise BenchError(f"{file.name} cannot be read: {error}") from error
    if not requests:
        raise BenchError(f"{file.name} has no requests")
    name = file.name.split(".")[0].removesuffix("_trace")
    return Trace(name, sorted(requests, key=lambda request: request.at))


def _lines(file: Path) -> Iterator[tuple[int, str]]:
    with gzip.open(file, "rt") if file.suffix == ".gz" else file.open() as lines:
        for number, line in enumerate(lines, 1):
            if line.strip():
                yield number, line


def _request(line: str, ids: dict[int, int], where: str) -> TraceRequest:
    """`ids` numbers the blocks in the order seen, whatever numbers the file gives them."""
    try:
        fields: Mapping[str, Any] = json.loads(line)
        at, tokens = float(fields["timestamp"]) / 1000, int(fields["input_length"])
        blocks = [ids.setdefault(block, len(ids)) for block in fields["hash_ids"]]
    except (ValueError, TypeError, KeyError) as error:
        raise BenchError(f"{where} is no request: {error!r}") from error
    expected = -(-tokens // BLOCK_TOKENS)
    if tokens < 1 or len(blocks) != expected:
        raise BenchError(
            f"{where} has {len(blocks)} blocks for {tokens} tokens; expected {expected}, of 1 or more"
        )
    return TraceRequest(at, tokens, np.array(blocks, np.int32))
