"""Requests that a replica has let in: their samples in the scheduler, and who is refused or sent away."""

from __future__ import annotations

from dataclasses import dataclass, field

from sapwood.cache import Tokens
from sapwood.errors import ContextLengthError
from sapwood.sched import Bounds, Refused, Scheduler, Sequence
from sapwood.sim.cost import CostModel
from sapwood.sim.record import Record
from sapwood.sim.visit import Asked, Visit
from sapwood.types import Request, SamplingParams, SeqId


@dataclass(slots=True)
class Live:
    """A request that was let in and has not ended."""

    visit: Visit
    arrival: int
    max_len: int
    reading: float
    """Seconds that its prompt will take, as far as is known; 0 once it is read."""
    samples: list[Sequence] = field(default_factory=list)
    """That have begun, also those that have ended."""
    ended: int = 0
    """Samples."""

    @property
    def over(self) -> bool:
        return self.ended == self.visit.samples


class LiveRequests:
    """By each sample that has begun and not ended; there are as many as there are such samples.

    Attributes:
        tokens: of each such sample: its prompt and the answer that it will give.
    """

    def __init__(self, scheduler: Scheduler, bounds: Bounds, cost: CostModel, record: Record) -> None:
        self.tokens: dict[SeqId, Tokens] = {}
        self._scheduler = scheduler
        self._bounds = bounds
        self._cost = cost
        self._record = record
        self._live: dict[SeqId, Live] = {}
        self._turned_away: list[Refused] = []
        self._refused: list[Visit] = []
        self._let_in = self._begun = 0

    def __len__(self) -> int:
        return len(self._live)

    def __getitem__(self, seq: SeqId) -> Live:
        return self._live[seq]

    def find(self, index: int) -> Live | None:
        """The request of that index in its trace, if it is here."""
        return next((live for live in self._live.values() if live.visit.index == index), None)

    @property
    def unread(self) -> float:
        """Seconds that reading the prompts takes that are not read yet."""
        return sum(live.reading for live in self._live.values())

    # ---- coming ------------------------------------------------------------------------------------------

    def admit(self, visit: Visit) -> None:
        """It joins those that wait, or is refused for its length."""
        asked = visit.asked or Asked(visit.output_tokens)
        try:
            max_len = self._bounds.max_len(visit.prompt_tokens, asked.tokens)
        except ContextLengthError as error:
            self._refuse(visit, error.message)
            return
        reading = self._cost.prefill_seconds(visit.prompt_tokens, 0)
        live = Live(visit, self._let_in, max_len, reading)
        self._let_in += 1
        self.begin_sample(live)

    def begin_sample(self, live: Live) -> None:
        """The next one, as the engine does."""
        visit, sample = live.visit, len(live.samples)
        asked = visit.asked or Asked(visit.output_tokens)
        self._begun += 1
        sequence = Sequence(
            SeqId(self._begun),
            _request_of(visit, asked),
            visit.namespace,
            visit.prompt,
            arrival=live.arrival,
            max_len=live.max_len,
            sample=sample,
            end_tokens=asked.ends,
        )
        live.samples.append(sequence)
        self.tokens[sequence.id] = visit.told(sample)
        self._live[sequence.id] = live
        self._scheduler.add(sequence)

    def take_notices(self, now: float) -> None:
        """Note down whom the scheduler began with, and whom it will not serve."""
        for notice in self._scheduler.take_notices():
            live = self._live[notice.sequence.id]
            if isinstance(notice, Refused):
                self._turned_away.append(notice)
            elif notice.sequence.sample == 0:
                reuse = notice.sequence.reuse
                assert reuse is not None
                self._record.admitted(live.visit.index, reuse, now)
                live.reading = self._cost.prefill_seconds(live.visit.prompt_tokens, reuse.reused)

    # ---- going -------------------------------------------------------------------------------------------

    def refuse_turned_away(self) -> None:
        """Not while a step is out: samples of the same request may be part of it."""
        for notice in self._turned_away:
            live = self._live.get(notice.sequence.id)
            if live is not None:  # Else it went with another sample.
                self.stop(live)
                self._refuse(live.visit, notice.reason)
        self._turned_away.clear()

    def take_refused(self) -> list[Visit]:
        """Who was refused since the last call."""
        refused, self._refused = self._refused, []
        return refused

    def stop(self, live: Live) -> None:
        """All its samples that have not ended."""
        for sequence in live.samples:
            if sequence.id in self._live:
                self._scheduler.abort(sequence.id)
                self.forget(sequence.id)

    def forget(self, seq: SeqId) -> None:
        """A sample has ended."""
        del self._live[seq], self.tokens[seq]

    def _refuse(self, visit: Visit, reason: str) -> None:
        self._record.refused(visit.index, reason)
        self._refused.append(visit)


def _request_of(visit: Visit, asked: Asked) -> Request:
    params = SamplingParams(max_tokens=None if asked.tokens is None else visit.output_tokens)
    return Request(
        str(visit.index), (), params, priority=asked.priority, reuse=asked.reuse, retain=asked.retain
    )
