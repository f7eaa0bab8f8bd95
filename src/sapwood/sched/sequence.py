"""One sample of one request while it is waiting or running: its tokens, and how far they are computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.cache import Lease, Namespace
from sapwood.plan import Guide
from sapwood.sched.guessing import Guessing
from sapwood.sched.prompt_scores import PromptScores
from sapwood.types import Request, SamplingParams, SeqId

_ROOM_FOR_OUTPUT = 64


@dataclass(frozen=True, slots=True)
class Reuse:
    """Where a prompt's tokens came from at first admission: `reused + sum(missed.values()) == prompt_len`."""

    reused: int
    missed: Mapping[str, int]
    diverged_at: int | None = None
    """Index of the first token that differs from what is known to follow, if any has diverged."""
    evicted_seconds_ago: float | None = None
    """How long ago the first of the evicted tokens was evicted, if there are any."""
    waited_seconds: float = 0.0
    """From the first time that it was left out for a leader until it was admitted, so what it then waited for
    pages, budget or a seat is part of it."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """What a sequence waits for another to compute."""

    leader: SeqId
    stint: int
    """How often the leader had been preempted; afterwards it is as good as another."""
    until: int
    """It is waited for as long as the leader has committed fewer tokens."""


class Sequence:
    """Tokens wanted, tokens computed; work is the gap. `prompt` is the request's, as an array that is copied.

    Attributes:
        arrival: age rank of the request; the smaller, the older. Kept through preemption.
        max_len: tokens (prompt and output) this sequence may reach; pins may lower it if it is open-ended.
        end_tokens: tokens that cannot be drawn before `params.min_tokens`.
        params: how its tokens are drawn; the request's own, but for what the engine must know besides.
        guide: what its tokens must obey, if anything; its own alone.
        follows: what it waited for last.
        followed: tokens of all the stretches that it waited for.
        follows_since: when it was first left out for a leader, in seconds of the cache's clock.
        computed: tokens 0 .. computed-1 have their KV written in the lease's pages.
        lease: the pages held while running, else None.
        reuse: the accounting of the first admission, None before it.
        scores: of the prompt's tokens, if they are wanted; one sample sees to them for all.
        guessing: what is kept from draft to draft, once it might have had one.
        epoch: of what was said when it was first admitted (`Drafts`).
    """

    __slots__ = (
        "_buffer",
        "_length",
        "arrival",
        "computed",
        "end_tokens",
        "epoch",
        "followed",
        "follows",
        "follows_since",
        "guessing",
        "guide",
        "id",
        "lease",
        "max_len",
        "namespace",
        "params",
        "preemptions",
        "prompt_len",
        "request",
        "reuse",
        "sample",
        "scores",
        "seed",
    )

    def __init__(
        self,
        id: SeqId,
        request: Request,
        namespace: Namespace,
        prompt: NDArray[np.int32],
        *,
        arrival: int,
        max_len: int,
        sample: int = 0,
        seed: int = 0,
        end_tokens: tuple[int, ...] = (),
        params: SamplingParams | None = None,
        guide: Guide | None = None,
    ) -> None:
        self.id = id
        self.params = request.params if params is None else params
        self.request = request
        self.namespace = namespace
        self.arrival = arrival
        self.max_len = max_len
        self.sample = sample
        self.seed = seed
        self.end_tokens = end_tokens
        self.guide = guide
        self.prompt_len = len(prompt)
        self.follows: Stretch | None = None
        self.followed = 0
        self.follows_since: float | None = None
        self.computed = 0
        self.preemptions = 0
        self.lease: Lease | None = None
        self.reuse: Reuse | None = None
        self.guessing: Guessing | None = None
        self.epoch = 0
        top = request.params.prompt_logprobs
        self.scores: PromptScores | None = None
        if top is not None and sample == 0:
            self.scores = PromptScores(namespace, prompt, top, request.params.prompt_logprobs_start)
        self._length = self.prompt_len
        self._buffer = np.empty(self.prompt_len + _ROOM_FOR_OUTPUT, dtype=np.int32)
        self._buffer[: self.prompt_len] = prompt

    def __len__(self) -> int:
        return self._length

    @property
    def tokens(self) -> NDArray[np.int32]:
        """All tokens so far, prompt and output: a view that later appends leave as it is."""
        return self._buffer[: self._length]

    @property
    def gap(self) -> int:
        return self._length - self.computed

    @property
    def reading(self) -> bool:
        """Whether it still computes tokens that it did not draw in the step before."""
        return self.gap > 1 or self.computed < self.prompt_len

    @property
    def generated(self) -> int:
        return self._length - self.prompt_len

    @property
    def age(self) -> tuple[int, int]:
        """Sorts oldest first."""
        return (self.arrival, self.sample)

    @property
    def draws(self) -> bool:
        """Whether it still wants a token after those it has."""
        return self._length < self.max_len

    @property
    def most_computed(self) -> int:
        """Tokens whose KV this sequence can ever need: the last one drawn is never fed back."""
        return max(self.prompt_len, self.max_len - 1)

    @property
    def wanted(self) -> int:
        """Tokens for which it takes pages when it is admitted: all that it has, and the first new one."""
        return min(len(self) + 1, self.most_computed)

    @property
    def open_ended(self) -> bool:
        """Whether as many tokens were asked for as fit."""
        return self.request.params.max_tokens is None

    @property
    def reads_cache(self) -> bool:
        return self.request.reuse

    @property
    def readable(self) -> int:
        """Tokens that it may read from the cache.

        Never the last, whose logits are drawn from; nor one that a missing score is read off.
        """
        if not self.reads_cache:
            return 0
        return len(self) - 1 if self.scores is None else self.scores.readable(len(self) - 1)

    def readable_after(self, leader: Sequence) -> int:
        """The same, once `leader` has read its prompt and its scores are kept."""
        if self.scores is None or leader.scores is None or not leader.scores.will_have(self.scores):
            return self.readable
        shared = self.shared_with(leader, min(leader.prompt_len, len(self)))
        return max(self.readable, min(shared, len(self)) - 1)

    def shared_with(self, other: Sequence, limit: int) -> int:
        """Tokens of the prefix that both have in common, at most `limit`."""
        length = min(len(self), len(other), limit)
        if length <= 0 or self.namespace != other.namespace:
            return 0
        differs = self.tokens[:length] != other.tokens[:length]
        first = int(differs.argmax())
        return first if differs[first] else length

    def append(self, token: int) -> None:
        self._have_room(1)
        self._buffer[self._length] = token
        self._length += 1

    def extend(self, tokens: NDArray[np.int32]) -> None:
        self._have_room(len(tokens))
        self._buffer[self._length : self._length + len(tokens)] = tokens
        self._length += len(tokens)

    def with_draft(self, draft: NDArray[np.int32]) -> NDArray[np.int32]:
        """All tokens so far and a draft of the next: a view, valid until one is appended."""
        end = self._length + len(draft)
        self._have_room(len(draft))
        self._buffer[self._length : end] = draft
        return self._buffer[:end]

    def drop(self, count: int) -> None:
        """Forget the last `count` tokens: they were drawn behind the end of the answer."""
        if count == 0:
            return  # Of one that draws nothing all is computed.
        self._length -= count
        self.computed = min(self.computed, self._length - 1)

    def _have_room(self, more: int) -> None:
        if self._length + more <= len(self._buffer):
            return
        # A new array, so that views handed out in a plan keep their content.
        grown = np.empty(2 * len(self._buffer) + more, dtype=np.int32)
        grown[: self._length] = self._buffer[: self._length]
        self._buffer = grown
