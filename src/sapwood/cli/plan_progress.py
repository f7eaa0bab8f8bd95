"""How far long work is, and roughly how long it still takes: one line on a terminal, a few lines in a log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeAlias

from sapwood.cli.talk import Talk
from sapwood.sim import Progress

Clock: TypeAlias = Callable[[], float]
"""Seconds since any moment."""
FIRST, GROWTH = 10.0, 1.4
"""Seconds until a log says more of the same stage, and how many times as late it does so each time."""
TOO_EARLY = 2.0
"""Seconds of counting from which nothing can be said of the rest."""
_COUNT = re.compile(r"(\d[\d,]*) of (\d[\d,]*)", re.ASCII)


class Pace:
    """Steps as `in_parallel` and the simulator tell them, `replaying: 3 of 10`, with the time that the rest takes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.started = clock()
        self._last = self.started
        self._begun, self._what, self._done = self.started, "", 0

    def told(self, step: str) -> str:
        """With what is left of this count, if it is one, and what has passed in all."""
        now = self._clock()
        parts = [step]
        if found := _COUNT.search(step):
            done, of = (int(number.replace(",", "")) for number in found.groups())
            parts += self._left(f"{step[: found.start()]}{of}", done, of, now)
        self._last = now
        if now - self.started >= TOO_EARLY:
            parts.append(f"{rough(now - self.started)} so far")
        return ", ".join(parts)

    def _left(self, what: str, done: int, of: int, now: float) -> list[str]:
        if what != self._what or done <= self._done:
            self._begun = self._last  # A new count: it began when the step before it was told.
        self._what, self._done = what, done
        passed = now - self._begun
        if passed < TOO_EARLY or not 0 < done < of:
            return []
        return [f"about {rough(passed / done * (of - done))} left of these"]


class Log:
    """Says a step where its stage (what is before the colon) is new, and else less and less often."""

    def __init__(self, say: Callable[[str], None], clock: Clock) -> None:
        self._say, self._clock, self._pace = say, clock, Pace(clock)
        self._stages: set[str] = set()
        self._next = 0.0

    def __call__(self, step: str) -> None:
        line, stage = self._pace.told(step), step.partition(":")[0]
        passed = self._clock() - self._pace.started
        if stage in self._stages and passed < self._next:
            return
        self._stages.add(stage)
        self._next = GROWTH * passed + FIRST
        self._say(line)


@contextmanager
def waiting(talk: Talk, what: str, clock: Clock = time.monotonic) -> Iterator[Progress]:
    """While the block lasts. What is yielded takes the latest step."""
    if not talk.is_terminal:
        yield Log(talk.say, clock)
        return
    pace = Pace(clock)
    with talk.working(what) as show:
        yield lambda step: show(pace.told(step))


def rough(seconds: float) -> str:
    """`7 s`, `40 s`, `3 min`, `2 h`: nobody wants to know more of a guess."""
    if seconds < 57.5:
        return f"{max(1, round(seconds)) if seconds < 10 else 5 * round(seconds / 5)} s"
    return f"{max(1, round(seconds / 60))} min" if seconds < 5400 else f"{round(seconds / 3600)} h"
