"""What a captured run was asked, as it comes to a replica's door."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from sapwood.cache import Namespace
from sapwood.errors import RequestError, UsageError
from sapwood.sim.readers.capture import CapturedRequest, CapturedRun
from sapwood.sim.readers.captured_deeds import CapturedScope
from sapwood.sim.readers.source import Row
from sapwood.sim.trace import Trace, TraceRequest
from sapwood.sim.visit import Asked, Visit
from sapwood.types import Retain


class CapturedVisits:
    """Requests by their order of admission, in namespaces like the run's own."""

    def __init__(self, captured: CapturedRun) -> None:
        self._requests = captured.requests
        self._model = str(captured.header.fields.get("fingerprint", ""))
        self._ends = _end_tokens(captured)

    def visit(self, order: int) -> Visit:
        request = self._requests[order]
        if not request.outputs:
            raise UsageError(f"{request.row.where} has no answer; one for each sample was expected")
        told = [np.concatenate((request.prompt, said)).astype(np.int32) for said in request.outputs]
        cut = frozenset(sample for sample, why in enumerate(request.finish) if why == "abort")
        namespace, asked = self.namespace(request.scope), _asked(request, self._ends)
        return Visit(order, namespace, told[0], len(request.prompt), asked, tuple(told[1:]), cut)

    def namespace(self, scope: CapturedScope) -> Namespace:
        return Namespace(self._model, scope.adapter, scope.tenant, scope.salt)

    def trace(self) -> Trace:
        """For the books: in the order of admission, whoever's clock was read first."""
        rows, scopes = [], sorted({request.scope.name for request in self._requests})
        arrival = 0.0
        for index, request in enumerate(self._requests):
            reply = request.outputs[0] if request.outputs else np.empty(0, np.int32)
            names = np.concatenate((request.prompt, reply)).astype(np.int32)
            arrival = max(arrival, request.arrival)
            scope = scopes.index(request.scope.name)
            rows.append(
                TraceRequest(arrival, len(request.prompt), len(reply), names, len(names), index, scope)
            )
        return Trace.of("captured", 1, rows, scopes)


def _end_tokens(captured: CapturedRun) -> tuple[int, ...]:
    """The model's; of old captures, which do not say them, those with which an answer ended."""
    if "eos" in captured.header.fields:
        return tuple(captured.header.ids("eos", captured.header.array("eos")).tolist())
    ends = {
        int(output[-1])
        for request in captured.requests
        for output, finish in zip(request.outputs, request.finish, strict=False)
        if finish == "stop" and len(output)
    }
    return tuple(sorted(ends))


def _asked(request: CapturedRequest, eos: tuple[int, ...]) -> Asked:
    row = request.row
    said = max(map(len, request.outputs))
    # As the engine does: a grammar that is complete allows nothing but the end.
    ends = _flag(row, "constrained", otherwise=False) or not _flag(row, "ignore_eos", otherwise=False)
    stops = row.ids("stop_token_ids", row.fields.get("stop_token_ids", [])).tolist()
    return Asked(
        None if row.fields.get("max_tokens") is None else max(said, row.whole("max_tokens", 0)),
        row.whole("priority", -(2**62)) if "priority" in row.fields else 0,
        _flag(row, "reuse", otherwise=True),
        tuple(_wishes(row)),
        tuple(dict.fromkeys((*stops, *(eos if ends else ())))),
    )


def _flag(row: Row, name: str, *, otherwise: bool) -> bool:
    value = row.fields.get(name, otherwise)
    if not isinstance(value, bool):
        raise row.fault(name, "true or false")
    return value


def _wishes(row: Row) -> Iterator[Retain]:
    for wish in row.array("retain") if "retain" in row.fields else ():
        try:
            yield Retain(**wish)
        except (TypeError, RequestError):
            raise row.fault("retain", "a list of wishes to keep a range of tokens") from None
