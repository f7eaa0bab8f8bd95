"""The tokens that a trace's names stand for."""

from __future__ import annotations

import numpy as np

from sapwood.cache import Namespace, Tokens
from sapwood.errors import UsageError
from sapwood.sim.trace import Trace
from sapwood.sim.visit import Visit

_MOST = np.iinfo(np.int32).max


class Contents:
    """The ids of all tokens of all requests, each made when it is asked for.

    Token i of a block has the id `name · unit + i`; each token that nobody named has one that occurs nowhere else.

    So two requests agree in just the tokens whose blocks have the same names. With a unit of 1 ids are names. A request
    of more than `longest` tokens is given as one of a token more than that: nobody reads it, however long it is. Raises
    UsageError if there are not ids enough.
    """

    def __init__(self, trace: Trace, longest: int | None = None) -> None:
        self._trace = trace
        unit = trace.unit_tokens
        named = (int(trace.names.max(initial=-1)) + 1) * unit
        whole = trace.prompt_tokens + trace.output_tokens
        whole = whole if longest is None else np.minimum(whole, longest + 1)
        self._prompts, self._known = (
            np.minimum(trace.prompt_tokens, whole),
            np.minimum(trace.known_tokens, whole),
        )
        unnamed = whole - self._known
        self._unnamed_at = named + np.concatenate(([0], np.cumsum(unnamed, dtype=np.int64)))
        distinct = int(self._unnamed_at[-1])
        if distinct > _MOST:
            raise UsageError(
                f"{trace.name} holds {distinct:,} different tokens; at most {_MOST:,} can be told apart",
                hint="simulate a part of it",
            )

    def visit(self, request: int) -> Visit:
        """A request by its index, as it comes to the door."""
        trace = self._trace
        namespace = Namespace("", tenant=trace.scope_names[trace.scopes[request]])
        return Visit(request, namespace, self.of(request), int(self._prompts[request]))

    def of(self, request: int) -> Tokens:
        """shape (prompt_tokens + output_tokens,), or (longest + 1,)"""
        trace = self._trace
        names = trace.names[trace.offsets[request] : trace.offsets[request + 1]]
        tokens = names if trace.unit_tokens == 1 else self._spelt_out(names)
        known = tokens[: self._known[request]]
        first, end = self._unnamed_at[request : request + 2].tolist()
        unnamed: Tokens = np.arange(first, end, dtype=np.int32)
        return np.concatenate([known, unnamed])

    def _spelt_out(self, names: Tokens) -> Tokens:
        unit = self._trace.unit_tokens
        tokens: Tokens = np.add.outer(names * np.int32(unit), np.arange(unit, dtype=np.int32)).ravel()
        return tokens
