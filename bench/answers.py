"""What a streamed answer says and when: OpenAI-shaped chunks and llama.cpp's, told apart by their fields."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .client import Exchange
from .errors import BenchError


@dataclass(frozen=True, slots=True)
class Piece:
    """One event. Counts are None where it does not tell them."""

    text: str = ""
    logprobs: tuple[float | None, ...] = ()
    finished: bool = False
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    completion_tokens: int | None = None
    index: int | None = None
    """Which of several answers its counts are of; None for all."""

    @property
    def answers(self) -> bool:
        """Whether a token arrived with it; the last one may have no text (half a character, say)."""
        return bool(self.text) or self.finished


@dataclass(frozen=True, slots=True)
class Answer:
    """Times are in seconds from sending the request; counts are None where the server does not tell."""

    text: str
    logprobs: tuple[float | None, ...]
    first_token: float
    last_token: float
    prompt_tokens: int | None
    cached_tokens: int | None
    completion_tokens: int | None
    pieces: int
    """Events with text."""

    @property
    def tokens(self) -> int:
        """As the server tells; else one for each piece."""
        return max(self.pieces, 1) if self.completion_tokens is None else self.completion_tokens

    @property
    def decoding(self) -> float:
        """Seconds between the first token and the last."""
        return self.last_token - self.first_token


def read_answer(exchange: Exchange) -> Answer:
    """Raises BenchError for a stream without a token, or one that carries an error."""
    timed = [
        (arrival.at - exchange.sent_at, read_piece(_json(arrival.data))) for arrival in exchange.arrivals
    ]
    times = [at for at, piece in timed if piece.answers]
    if not times:
        raise BenchError(f"a stream ended without a token; it had {len(timed)} events")
    pieces = [piece for _, piece in timed]
    return Answer(
        text="".join(piece.text for piece in pieces),
        logprobs=tuple(logprob for piece in pieces for logprob in piece.logprobs),
        first_token=times[0],
        last_token=times[-1],
        prompt_tokens=_last([piece.prompt_tokens for piece in pieces]),
        cached_tokens=_last([piece.cached_tokens for piece in pieces]),
        completion_tokens=_completion_tokens(pieces),
        pieces=sum(bool(piece.text) for piece in pieces),
    )


def read_piece(event: Mapping[str, Any]) -> Piece:
    if "error" in event:
        raise BenchError(f"the stream carries an error: {event['error']}")
    return _openai(event) if "choices" in event else _llama(event)


def _openai(event: Mapping[str, Any]) -> Piece:
    choice = event["choices"][0] if event["choices"] else {}
    usage = event.get("usage") or {}
    details = usage.get("prompt_tokens_details") or {}
    return Piece(
        text=choice.get("text") or (choice.get("delta") or {}).get("content") or "",
        logprobs=tuple((choice.get("logprobs") or {}).get("token_logprobs") or ()),
        finished=choice.get("finish_reason") is not None,
        prompt_tokens=usage.get("prompt_tokens"),
        cached_tokens=details.get("cached_tokens"),
        completion_tokens=usage.get("completion_tokens"),
        index=choice.get("index"),
    )


def _llama(event: Mapping[str, Any]) -> Piece:
    finished = bool(event.get("stop"))
    # Its last event sums up: the probabilities of all tokens, told before one by one, come again.
    listed = [] if finished else event.get("completion_probabilities") or []
    timings = event.get("timings") or {}
    return Piece(
        text=event.get("content") or "",
        logprobs=tuple(entry.get("logprob") for entry in listed),
        finished=finished,
        prompt_tokens=event.get("tokens_evaluated") if finished else None,
        cached_tokens=timings.get("cache_n"),
        completion_tokens=event.get("tokens_predicted") if finished else None,
    )


def _completion_tokens(pieces: Sequence[Piece]) -> int | None:
    """Most servers count all answers in one last event; llama.cpp counts each with its own end."""
    counts = {piece.index: piece.completion_tokens for piece in pieces if piece.completion_tokens is not None}
    if None in counts:
        return counts[None]
    return sum(counts.values()) if counts else None


def _last(values: list[int | None]) -> int | None:
    return next((value for value in reversed(values) if value is not None), None)


def _json(data: bytes) -> Mapping[str, Any]:
    try:
        event = json.loads(data)
    except ValueError as error:
        raise BenchError(f"an event is not JSON: {data[:200].decode(errors='replace')}") from error
    if not isinstance(event, dict):
        raise BenchError(f"an event is {event!r}; a JSON object was expected")
    return event
