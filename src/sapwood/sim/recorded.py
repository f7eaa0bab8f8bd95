"""A captured run of our own server, to be done again by the simulator: same contents, same clock, same settings.

The run itself says when each call of the scheduler was made, who was let in before it, who left, and what else was done
to the cache; a `Replica` does the same in the same order. So all that depends on ages finds the same ages, and what
comes of it is what came of it then, or the difference is told.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.errors import BooksError, UsageError
from sapwood.sim.cost import StepShape
from sapwood.sim.foretold import NotForetoldError
from sapwood.sim.readers.capture import CapturedRun
from sapwood.sim.repeatable import obstacles
from sapwood.sim.repetition import Repetition, differs
from sapwood.sim.run import Run
from sapwood.sim.setup import Setup

ConfigT = TypeVar("ConfigT", CacheConfig, SchedulerConfig)


@dataclass(frozen=True, slots=True, eq=False)
class Again:
    """A captured run and its simulation; requests in the order in which they were admitted to the queue.

    Attributes:
        shapes: what each step computed.
        run_seconds: how long the captured steps ran.
    """

    captured: CapturedRun
    simulated: Run
    shapes: Sequence[StepShape]
    run_seconds: Sequence[float]


def simulate_again(captured: CapturedRun) -> Again:
    """Simulate what was served, on its clock, and see that the same came of it.

    Raises UsageError for a run that says too little, that holds what the simulator does not do, or of which something
    else comes: its steps would be given the times of others.
    """
    if wrong := obstacles(captured):
        raise UsageError(
            f"the captured run cannot be done again step by step: {'; '.join(wrong)}",
            hint="capture a run without that, and stop the server before",
        )
    repetition = Repetition(captured, setup_of(captured))
    try:
        run = repetition.run()
    except NotForetoldError:
        raise differs("an answer goes on in its simulation where it had ended") from None
    except BooksError as error:
        raise differs(error.message) from None
    times = [step.ended - step.began for step in captured.steps if step.ended is not None]
    return Again(captured, run, repetition.shapes, times)


def setup_of(captured: CapturedRun) -> Setup:
    """As the server was set up."""
    told = captured.header.fields
    cache = _config(CacheConfig, told.get("cache"))
    pages, context = captured.header.whole("capacity_pages", 1), captured.header.whole("context", 1)
    scheduler = _config(SchedulerConfig, told.get("scheduler"))
    return Setup(pages * cache.page_size, cache, scheduler, context=context)


def _config(kind: type[ConfigT], told: Any) -> ConfigT:
    if not isinstance(told, dict):
        raise UsageError(f"the capture does not say with what {kind.__name__} it ran")
    hints = get_type_hints(kind)
    known = {name: value for name, value in told.items() if name in hints}
    for name, value in known.items():
        if not _may_be(value, hints[name]):
            raise UsageError(f"the capture ran with {name} = {value!r}, which no {kind.__name__} has")
    return kind(**known)


def _may_be(value: Any, hint: Any) -> bool:
    """Whether a field of a config, which is one of some words or of some types, may have the value."""
    if get_origin(hint) is Literal:
        return value in get_args(hint)
    return type(value) in (get_args(hint) or (hint,)) or (hint is float and type(value) is int)
