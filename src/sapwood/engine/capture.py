"""Writes down what was asked and answered, so that it can be replayed to the token: `serve --capture`.

A file has, one JSON object a line,

    {"capture": "sapwood", …}     as a server begins: what was built, and how it was set
    {"request": id, …}            as a request ends: its tokens, its answer's, what was reused
    {"steps": first, …}           between them: the clock of each step
    {"flush": …}                  what else touched the cache
    {"pin": …}  {"unpin": …}  {"public": …}  {"limited": …}
    {"end": steps}                as it stops in the ordinary way: nothing is missing

Steps are counted from 0; a step is a call of `Engine.schedule`. What is done between two of them says how many had
been made (`step`) and how many requests had been admitted (`after`); lines stand in the order in which it was done.
Times are seconds since the server began. Tenants, salts and the names of pins are there as keyed hashes: equal ones
look alike within a run of the server, and nothing else can be told.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from sapwood.cache import Namespace
from sapwood.engine.pin_moves import Move, Published, Tried, Unpinned
from sapwood.types import Delta, Event, Finished, Request, SamplingParams, Scope, Started, Usage

VERSION = 1

_STEPS_A_LINE = 512
"""Steps whose clock is kept until a request ends, at most."""


class Lines(Protocol):
    """`LineFile`, as far as this needs it."""

    @property
    def lost(self) -> int: ...

    def write(self, line: Mapping[str, Any]) -> None: ...


@dataclass(slots=True)
class _Open:
    """A request that has not ended."""

    request: Request
    order: int
    arrival: float
    step: int
    started: float | None = None
    started_step: int | None = None
    started_order: int | None = None
    first_token: float | None = None
    outputs: dict[int, list[int]] = field(default_factory=dict)
    finish: dict[int, str] = field(default_factory=dict)


class Witness:
    """What the loop tells, in the order in which it happens; `Capture` says what each is. This one forgets it."""

    @property
    def lost(self) -> int | None:
        """Lines that could not be written so far; None where none is to be."""
        return None

    def begin(self, now: float, wall: float) -> None: ...

    def admitted(self, request: Request, sent: float, now: float) -> None: ...

    def scheduling(self, now: float) -> None: ...

    def applying(self, now: float) -> None: ...

    def saw(self, events: Iterable[Event], now: float | None = None) -> None: ...

    def flushed(self, now: float) -> None: ...

    def held(self, moves: Iterable[Move]) -> None: ...

    def limits(self, most_tokens: Mapping[str, int]) -> None: ...

    def end(self) -> None: ...


class Capture(Witness):
    """Told by the engine's loop of all it does, in that order. One thread calls everything here.

    Args:
        lines: where to write.
        about: what was built and how it is set, for the first line.
    """

    def __init__(self, lines: Lines, about: Mapping[str, Any]) -> None:
        self._lines, self._about = lines, about
        self._secret = secrets.token_bytes(16)
        self._open: dict[str, _Open] = {}
        self._order = self._started = self._steps = self._told_steps = 0
        self._began = self._now = 0.0
        self._clock: list[tuple[float, float | None]] = []

    @property
    def lost(self) -> int:
        return self._lines.lost

    def begin(self, now: float, wall: float) -> None:
        """The loop begins, by its own clock and in seconds since 1970."""
        self._began = self._now = now
        self._lines.write({"capture": "sapwood", "version": VERSION, "began_at": wall, **self._about})

    def admitted(self, request: Request, sent: float, now: float) -> None:
        self._now = now
        self._open[request.id] = _Open(request, self._order, self._since(sent), self._steps)
        self._order += 1

    def scheduling(self, now: float) -> None:
        """A step begins; `now` is what the engine is told."""
        self._now = now
        self._clock.append((self._since(now), None))
        self._steps += 1
        if len(self._clock) > _STEPS_A_LINE:
            self._tell_steps(keep=1)

    def applying(self, now: float) -> None:
        """Its results are taken in; `now` is what the engine is told."""
        self._now = now
        self._clock[-1] = (self._clock[-1][0], self._since(now))

    def saw(self, events: Iterable[Event], now: float | None = None) -> None:
        """What the engine said; `now` where it was not a step that made it."""
        if now is not None:
            self._now = now
        for event in events:
            self._see(event)

    def flushed(self, now: float) -> None:
        self._lines.write({"flush": self._since(now), **self._between})

    def held(self, moves: Iterable[Move]) -> None:
        """What was pinned or published, or let go."""
        for move in moves:
            self._lines.write({**self._moved(move), **self._between})

    def limits(self, most_tokens: Mapping[str, int]) -> None:
        """So many tokens each of these tenants may keep."""
        quotas = {self._hashed("tenant", tenant): most for tenant, most in most_tokens.items()}
        self._lines.write({"limited": len(quotas), "quotas": quotas, **self._between})

    def end(self) -> None:
        self._tell_steps()
        self._lines.write({"end": self._steps})

    def _see(self, event: Event) -> None:
        row = self._open.get(event.request_id)
        if row is None:
            return
        if isinstance(event, Started):
            row.started, row.started_step = self._since(self._now), self._steps - 1
            row.started_order = self._started
            self._started += 1
        elif isinstance(event, Delta):
            self._take(row, event)
        elif isinstance(event, Finished):
            del self._open[event.request_id]
            self._tell_steps()
            self._lines.write(self._row(row, event))

    def _take(self, row: _Open, delta: Delta) -> None:
        row.outputs.setdefault(delta.sample, []).extend(delta.token_ids)
        if delta.token_ids and row.first_token is None:
            row.first_token = self._since(self._now)
        if delta.finish is not None:
            row.finish[delta.sample] = delta.finish

    def _row(self, row: _Open, end: Finished) -> Mapping[str, Any]:
        request = row.request
        samples = range(request.params.n)
        return {
            "request": request.id,
            "order": row.order,
            "arrival": row.arrival,
            "step": row.step,
            "started_step": row.started_step,
            "started_order": row.started_order,
            "ended_step": self._steps,
            "ended_after": self._order,
            **self._scope(request.scope),
            "prompt": request.prompt,
            "outputs": [row.outputs.get(sample, []) for sample in samples],
            "finish": [row.finish.get(sample, "error") for sample in samples],
            "error": end.error,
            "refused": end.refused,
            **_params(request.params),
            "priority": request.priority,
            "reuse": request.reuse,
            "retain": [asdict(wish) for wish in request.retain],
            **_reuse(end.usage),
            "started": row.started,
            "first_token": row.first_token,
            "ended": self._since(self._now),
        }

    def _moved(self, move: Move) -> Mapping[str, Any]:
        match move:
            case Tried(id, namespace, tokens, at, held):
                prompt = tokens.tolist()
                told = {"at": self._since(at), **self._scope(namespace), "prompt": prompt, "held": held}
                return {"pin": self._hashed("pin", id), **told}
            case Unpinned(id):
                return {"unpin": self._hashed("pin", id)}
            case Published(prefixes):
                return {"public": [tokens.tolist() for tokens in prefixes]}

    @property
    def _between(self) -> Mapping[str, int]:
        """Where something stands that is done between two steps."""
        return {"step": self._steps, "after": self._order}

    def _scope(self, scope: Scope | Namespace) -> Mapping[str, str]:
        return {
            "tenant": self._hashed("tenant", scope.tenant or ""),
            "adapter": scope.adapter or "",
            "salt": self._hashed("salt", scope.salt or ""),
        }

    def _tell_steps(self, keep: int = 0) -> None:
        told = self._clock[: len(self._clock) - keep]
        if not told:
            return
        self._clock = self._clock[len(told) :]
        began, ended = zip(*told, strict=True)
        self._lines.write({"steps": self._told_steps, "began": began, "ended": ended})
        self._told_steps += len(told)

    def _since(self, now: float) -> float:
        return now - self._began

    def _hashed(self, what: str, name: str) -> str:
        """Equal names of the same kind look alike, and nobody sees that a tenant is named as a salt is."""
        if not name:
            return ""
        data, person = name.encode("utf-8", "surrogatepass"), what.encode()
        return hashlib.blake2b(data, key=self._secret, person=person, digest_size=8).hexdigest()


def _params(params: SamplingParams) -> Mapping[str, Any]:
    """Those that change what the scheduler does; how tokens were drawn is in the tokens."""
    return {
        "max_tokens": params.max_tokens,
        "n": params.n,
        "drawn": params.drawn,
        "prompt_logprobs": params.prompt_logprobs,
        "prompt_logprobs_start": params.prompt_logprobs_start,
        "constrained": params.constraint is not None,
        "stop_token_ids": params.stop_token_ids,
        "ignore_eos": params.ignore_eos,
    }


def _reuse(usage: Usage) -> Mapping[str, Any]:
    return {
        "reused": usage.reused,
        "missed": dict(usage.missed),
        "completion_tokens": usage.completion_tokens,
    }
