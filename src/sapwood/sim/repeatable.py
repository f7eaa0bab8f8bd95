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
    finish = told.get("finish", ())
    if "abort" in finish:
        yield "were aborted"
    elif told.get("error") is not None or "error" in finish:
        yield "failed"
    elif request.started_step is None:
        yield "never began"
    if len(request.outputs) > 1 or told.get("drawn", 1) != 1:
        yield "drew several samples"
    if told.get("prompt_logprobs") is not None:
        yield "wanted scores of their prompt"


def _of_steps(captured: CapturedRun) -> Iterator[str]:
    calls = len(captured.steps)
    for request in captured.requests:
        if max(request.step, request.started_step or 0) >= calls or request.ended_step > calls:
            yield "the clock of the last steps is missing"
            return
