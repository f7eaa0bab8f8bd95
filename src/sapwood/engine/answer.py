"""A request on its way to being answered: its samples, their text, and when each of them ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Protocol

from sapwood.engine.stops import Cut, StopMatcher
from sapwood.sched import Sequence
from sapwood.types import Delta, FinishReason, Request, TokenLogprob, Usage


class Detok(Protocol):
    """Turns tokens into text, one by one; never half a character, and never takes text back."""

    def add(self, token: int) -> str: ...

    def flush(self) -> str:
        """What is left when no token will follow."""
        ...


Detokenizer = Callable[[tuple[int, ...]], Detok]
"""Makes a Detok for the tokens that follow a prompt."""


class Sample:
    """One sample's output: decodes its tokens, holds back possible stop strings, knows when it is over."""

    def __init__(self, sequence: Sequence, detok: Detok) -> None:
        self.sequence = sequence
        self.finish: FinishReason | None = None
        self.last_token_at: float | None = None
        self.reported = 0
        self.guessed = 0
        self.guessed_right = 0
        self._taken = 0
        self._logprobs = 0.0
        self._detok = detok
        self._stops = StopMatcher(sequence.request.params.stop)

    def take(self, drawn: TokenLogprob) -> Delta:
        """Add the next token that the sequence holds: it may hold more, where guesses were right.

        An end token is counted, but gives no text.
        """
        self._taken += 1
        if drawn.token in self.sequence.end_tokens:
            return self._delta(self._rest().text, drawn, "stop")
        cut = self._search(self._detok.add(drawn.token))
        if cut.stop is not None:
            return self._delta(cut.text, drawn, "stop")
        if self.sequence.prompt_len + self._taken < self.sequence.max_len:
            return self._delta(cut.text, drawn, None)
        rest = self._rest()
        return self._delta(cut.text + rest.text, drawn, "stop" if rest.stop is not None else "length")

    def count_guesses(self, guessed: int, right: int) -> None:
        """So many of its tokens were guessed; so many of the guesses became part of it."""
        self.guessed += guessed
        self.guessed_right += right

    def end(self, finish: FinishReason) -> Delta:
        """Stop without another token."""
        return self._delta(self._rest().text, None, finish)

    @property
    def untaken(self) -> int:
        """Tokens that the sequence holds beyond those taken."""
        return self.sequence.generated - self._taken

    @property
    def mean_logprob(self) -> float:
        """Per token, its end token included; of no tokens, the least there is."""
        return self._logprobs / self.reported if self.reported else float("-inf")

    def _search(self, text: str) -> Cut:
        params = self.sequence.request.params
        if not params.stop or self._taken < params.min_tokens:
            return Cut(text)
        return self._stops.feed(text)

    def _rest(self) -> Cut:
        """Everything held back, up to a stop string that it may complete after all."""
        cut = self._search(self._detok.flush())
        return cut if cut.stop is not None else Cut(cut.text + self._stops.flush())

    def _delta(self, text: str, drawn: TokenLogprob | None, finish: FinishReason | None) -> Delta:
        self.finish = finish
        if drawn is not None:
            self.reported += 1
            self._logprobs += drawn.logprob
        request = self.sequence.request
        with_logprobs = drawn is not None and request.params.logprobs is not None
        return Delta(
            request_id=request.id,
            sample=self.sequence.sample,
            text=text,
            token_ids=() if drawn is None else (drawn.token,),
            logprobs=(drawn,) if with_logprobs and drawn is not None else (),
            finish=finish,
        )


class Answer:
    """All samples of one request. Those after the first begin when it has read the prompt for them.

    `begin` makes the sample of an index, which needs no place before it begins. Where more are drawn than
    given (`best_of`), what they say is held back until it is known which are the best.
    """

    def __init__(self, request: Request, begin: Callable[[int], Sample], added_at: float) -> None:
        self.request = request
        self.added_at = added_at
        self.scored = False
        self.saved_seconds: float | None = None
        self.samples = [begin(0)]
        self._begin = begin
        self._held: dict[int, list[Delta]] | None = {} if request.params.ranked else None

    @property
    def live(self) -> list[Sample]:
        """Those that have begun and are not over."""
        return [sample for sample in self.samples if sample.finish is None]

    @property
    def over(self) -> bool:
        return len(self.samples) == self.request.params.drawn and not self.live

    def begin_rest(self) -> list[Sample]:
        """The samples that have not begun; none the second time."""
        begun = [self._begin(index) for index in range(len(self.samples), self.request.params.drawn)]
        self.samples += begun
        return begun

    def report(self, delta: Delta) -> list[Delta]:
        """What is to be said now that a sample has said this."""
        if self._held is None:
            return [delta]
        self._held.setdefault(delta.sample, []).append(delta)
        return self._best(self._held) if self.over else []

    def end(self, finish: FinishReason) -> list[Delta]:
        """Stop all samples, also those that never began."""
        ended = [sample.end(finish) for sample in self.live]
        if self._held is not None:
            for delta in ended:
                self._held.setdefault(delta.sample, []).append(delta)
            ended = self._best(self._held)
        missing = range(len(self.samples), self.request.params.n)
        return ended + [Delta(self.request.id, index, "", (), finish=finish) for index in missing]

    def _best(self, held: Mapping[int, list[Delta]]) -> list[Delta]:
        """One delta for each of the n best, the best first, numbered from 0. Ties: the earlier sample.

        The best have the highest logprob per token, as OpenAI defines `best_of`.
        """
        params = self.request.params
        ranked = sorted(self.samples, key=lambda s: (-s.mean_logprob, s.sequence.sample))
        return [
            _joined(held[sample.sequence.sample], index) for index, sample in enumerate(ranked[: params.n])
        ]

    @property
    def usage(self) -> Usage:
        """Reuse is the first sample's; the others read the prompt that it just read."""
        reuse = self.samples[0].sequence.reuse
        prompt_tokens = len(self.request.prompt)
        completion_tokens = sum(sample.reported for sample in self.samples)
        if reuse is None:
            return Usage(prompt_tokens, 0, {"not_read": prompt_tokens}, completion_tokens)
        return Usage(
            prompt_tokens,
            reuse.reused,
            dict(reuse.missed),
            completion_tokens,
            diverged_at=reuse.diverged_at,
            evicted_seconds_ago=reuse.evicted_seconds_ago,
            waited_for_leader_seconds=reuse.waited_seconds,
            saved_seconds=self.saved_seconds,
            guessed=sum(sample.guessed for sample in self.samples),
            guessed_right=sum(sample.guessed_right for sample in self.samples),
        )


def _joined(deltas: list[Delta], sample: int) -> Delta:
    return replace(
        deltas[-1],
        sample=sample,
        text="".join(delta.text for delta in deltas),
        token_ids=tuple(token for delta in deltas for token in delta.token_ids),
        logprobs=tuple(entry for delta in deltas for entry in delta.logprobs),
    )
