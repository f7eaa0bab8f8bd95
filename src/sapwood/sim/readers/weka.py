"""WEKA's sessions of a coding agent: one trace a line, sub-agents nested in it, ids that mean something in it alone.

    {"id": "t1", "block_size": 64, "hash_id_scope": "local", "requests": [
        {"t": 0.0, "type": "n", "model": "m", "in": 256, "out": 31, "hash_ids": [1, 2, 3, 4]},
        {"t": 9.0, "type": "subagent", "requests": [{"t": 0.2, …}]}]}

Only whole blocks have ids; what is left of a prompt gets a name that nobody else has. Models do not read each other's
KV, so each is a scope.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from sapwood.errors import UsageError
from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.source import Row, Source
from sapwood.sim.trace import Trace, TraceRequest

SESSION_GAP_SECONDS = 60.0
"""Between the beginnings of two sessions, on average."""


@dataclass(frozen=True, slots=True)
class _Call:
    """A request of a session; `at` counts from its beginning, `ids` mean something in it alone."""

    at: float
    agent: str
    model: str
    prompt: int
    output: int
    ids: Sequence[int]
    where: str


def read_weka(source: Source, *, seed: int = 0, in_a_row: bool = False) -> Trace:
    """Sessions begin one after another at exponential gaps, or, `in_a_row`, each when the one before has ended.

    Raises UsageError, naming the line at fault.
    """
    random = np.random.default_rng(seed)
    builder: TraceBuilder | None = None
    begin = 0.0
    for row in source.rows():
        unit = row.whole("block_size", 1)
        builder = builder or TraceBuilder(source.name, unit)
        if unit != builder.unit_tokens:
            raise row.fault("block_size", f"{builder.unit_tokens}, as in the lines before,")
        calls = list(_calls(row, row.array("requests")))
        _add(builder, row.where, calls, begin)
        longest = max((call.at for call in calls), default=0.0)
        begin += longest if in_a_row else float(random.exponential(SESSION_GAP_SECONDS))
    if builder is None:
        raise UsageError(f"{source} has no sessions")
    builder.notes += [
        "sessions come one after another, each when the one before has ended"
        if in_a_row
        else f"sessions begin at exponential gaps of mean {SESSION_GAP_SECONDS:g} s, seed {seed}",
        "each model is a scope of its own; sub-agents are sessions of their own",
        "replies have no names: one is reused where the next prompt names it, never before",
    ]
    return builder.build()


def _calls(row: Row, requests: Iterable[Any], begin: float = 0.0, agent: str = "") -> Iterator[_Call]:
    """Those of sub-agents too, whose times count from where they begin."""
    for index, fields in enumerate(requests):
        if not isinstance(fields, Mapping):
            raise UsageError(f"{row.where}: a request is {fields!r}; an object was expected")
        each = Row(f"{row.where}, request {index + 1}{f' of {agent}' if agent else ''}", fields)
        at = begin + each.real("t")
        if fields.get("type") == "subagent":
            yield from _calls(
                row, each.array("requests"), at, str(fields.get("agent_id", f"sub-agent {index + 1}"))
            )
        else:
            yield _call(each, at, agent)


def _call(row: Row, at: float, agent: str) -> _Call:
    ids = row.array("hash_ids")
    if not set(map(type, ids)) <= {int}:
        raise row.fault("hash_ids", "a list of whole numbers")
    model = str(row.fields.get("model", ""))
    return _Call(at, agent, model, row.tokens("in", 1), row.tokens("out", 0), ids, row.where)


def _add(builder: TraceBuilder, where: str, calls: list[_Call], begin: float) -> None:
    """A session, whose blocks are those of no other."""
    numbers: dict[int, int] = {}
    for call in calls:
        whole, unit = len(call.ids), builder.unit_tokens
        if whole not in (call.prompt // unit, -(-call.prompt // unit)):
            raise UsageError(f"{call.where} has {whole} blocks of {unit} tokens for {call.prompt} tokens")
        first_met = [id for id in dict.fromkeys(call.ids) if id not in numbers]
        numbers.update(zip(first_met, builder.fresh(len(first_met)).tolist(), strict=True))
        names = np.array([numbers[id] for id in call.ids], np.int32)
        if whole * unit < call.prompt:
            names = np.concatenate((names, builder.fresh(1)))
        session, scope = builder.session((where, call.agent)), builder.scope(call.model)
        builder.add(
            TraceRequest(begin + call.at, call.prompt, call.output, names, call.prompt, session, scope)
        )
