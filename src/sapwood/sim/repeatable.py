"""Why a captured run cannot be simulated step by step: what it holds that is not written down, or not simulated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from sapwood.sim.readers.capture import CapturedRequest, CapturedRun


def obstacles(captured: CapturedRun) -> list[str]:
    """In words, for people; empty for a run that can be done again."""
    ended = (
        [] if captured.ended else ["it was not stopped in the ordinary way, so what ran last may be missing"]
    )
    return [*dict.fromkeys(captured.gaps), *ended, *_of_requests(captured), *_of_steps(captured)]


def _of_requests(captured: CapturedRun) -> Iterator[str]:
    requests = captured.requests
    if not requests:
        yield "it holds no request that was served"
    odd = Counter(what for request in requests for what in _not_simulated(request))
    for what, count in odd.items():
        yield f"{count} of {len(requests)} requests {what}"


def _not_simulated(request: CapturedRequest) -> Iterator[str]:
    told = request.row.fields
    if not (request.aborted or request.refused):
        if told.get("error") is not None or "error" in request.finish:
            yield "failed"
        elif request.started_step is None:
            yield "never began"
    if len(request.outputs) != told.get("drawn", told.get("n", 1)):
        yield "drew more samples than they gave, and what the others said is not written down"
    if told.get("prompt_logprobs") is not None:
        yield "wanted scores of their prompt"


def _of_steps(captured: CapturedRun) -> Iterator[str]:
    calls = len(captured.steps)
    for request in captured.requests:
        begun = -1 if request.started_step is None else request.started_step
        if begun >= calls or max(request.step, request.ended_step) > calls:
            yield "the clock of the last steps is missing"
            return
