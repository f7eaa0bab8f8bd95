"""Made-up chats: a few system prompts, many conversations, and the whole history in every turn.

    turn 1   system | user 1                                    -> reply 1
    turn 2   system | user 1 | reply 1 | user 2                 -> reply 2
    turn 3   system | user 1 | reply 1 | user 2 | reply 2 | …

Vectorised: an hour of a million requests is drawn in seconds. A seed is a trace: the same as long as
numpy's generators draw the same (they may change with its releases, and logarithms in the last bit with the machine).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sapwood.errors import UsageError
from sapwood.sim.trace import Names, Trace

Column = NDArray[np.int64]

_AT_ONCE = 8192
"""Requests that are named at a time, so that no intermediate is as large as all names."""


@dataclass(frozen=True, slots=True)
class ChatWorkload:
    """What the chats are like. Raises UsageError for what cannot be.

    Attributes:
        conversations: they begin evenly over `seconds`, each with one of `system_prompts`, all as likely.
        shortest_prompt, longest_prompt: tokens of a system prompt, evenly between them, both included.
        mean_turns, most_turns: a geometric number of that mean, cut at the most.
        user_tokens, user_sigma, reply_tokens, reply_sigma: log-normal: the median, and sigma of the logarithm.
        gap_seconds: mean of the exponential times between the turns of a conversation.
        adapters: scopes; each conversation has one of them, all as likely.
        unit_tokens: tokens in a block of the trace.
    """

    conversations: int = 400
    seconds: float = 3600.0
    system_prompts: int = 10
    shortest_prompt: int = 300
    longest_prompt: int = 2000
    mean_turns: float = 4.0
    most_turns: int = 12
    user_tokens: float = 80.0
    user_sigma: float = 0.7
    reply_tokens: float = 250.0
    reply_sigma: float = 0.8
    gap_seconds: float = 60.0
    adapters: int = 1
    unit_tokens: int = 1

    def __post_init__(self) -> None:
        counts = (
            self.conversations,
            self.system_prompts,
            self.shortest_prompt,
            self.most_turns,
            self.adapters,
        )
        if min(*counts, self.unit_tokens, self.mean_turns, self.user_tokens, self.reply_tokens) < 1:
            raise UsageError(f"no chat is like {self}; at least one of everything was expected")
        if self.longest_prompt < self.shortest_prompt:
            raise UsageError(
                f"system prompts are from {self.shortest_prompt} to {self.longest_prompt} tokens"
            )
        if min(self.seconds, self.gap_seconds, self.user_sigma, self.reply_sigma) < 0:
            raise UsageError(f"no chat is like {self}; times and sigmas of at least 0 were expected")


@dataclass(frozen=True, slots=True, eq=False)
class ChatDraw:
    """Requests in order of arrival, without their names: int64 [n] each, but for `arrivals`, float64 [n]."""

    arrivals: NDArray[np.float64]
    prompt_tokens: Column
    reply_tokens: Column
    conversations: Column
    systems: Column
    """Which system prompt."""
    system_tokens: Column
    """Its length."""
    adapters: Column

    def __len__(self) -> int:
        return len(self.arrivals)


def synthetic_chat(workload: ChatWorkload | None = None, seed: int = 0) -> Trace:
    """The chats of a seed; the number of adapters and the unit change nothing else about them.

    Names are of (system prompt, position) or (conversation, position), never of two prefixes. A last, partial block
    has a name that no other request has. Raises UsageError for more names than int32 has.
    """
    workload = workload or ChatWorkload()
    draw = draw_chat(workload, seed)
    named = _Naming(draw, workload)
    return Trace(
        name=f"synthetic chat, seed {seed}",
        unit_tokens=workload.unit_tokens,
        arrivals=draw.arrivals,
        prompt_tokens=draw.prompt_tokens,
        output_tokens=draw.reply_tokens,
        known_tokens=draw.prompt_tokens + draw.reply_tokens,
        sessions=draw.conversations,
        scopes=draw.adapters,
        names=named.names(),
        offsets=named.offsets,
        scope_names=("",)
        if workload.adapters == 1
        else tuple(f"adapter {n}" for n in range(workload.adapters)),
    )


def draw_chat(workload: ChatWorkload, seed: int) -> ChatDraw:
    """Who asks when, and how much."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(workload.shortest_prompt, workload.longest_prompt + 1, workload.system_prompts)
    systems = rng.integers(workload.system_prompts, size=workload.conversations)
    turns = np.minimum(rng.geometric(1 / workload.mean_turns, workload.conversations), workload.most_turns)
    begins = rng.uniform(0, workload.seconds, workload.conversations)
    users, replies = (
        np.maximum(1, rng.lognormal(np.log(median), sigma, turns.sum()).astype(np.int64))
        for median, sigma in (
            (workload.user_tokens, workload.user_sigma),
            (workload.reply_tokens, workload.reply_sigma),
        )
    )
    gaps = rng.exponential(workload.gap_seconds, turns.sum())
    # Of its own stream, so that one more adapter draws no other conversation.
    adapters = np.random.default_rng([seed, 1]).integers(workload.adapters, size=workload.conversations)
    firsts = np.cumsum(turns) - turns
    gaps[firsts] = 0.0
    of = np.repeat(np.arange(workload.conversations), turns)
    arrivals = begins[of] + _running(gaps, firsts, turns)
    history = _running(users + replies, firsts, turns) - replies
    order = np.argsort(arrivals, kind="stable")
    conversations = of[order]
    chosen = systems[conversations]
    return ChatDraw(
        arrivals=arrivals[order],
        prompt_tokens=lengths[chosen] + history[order],
        reply_tokens=replies[order],
        conversations=conversations,
        systems=chosen,
        system_tokens=lengths[chosen],
        adapters=adapters[conversations],
    )


def _running(values: NDArray[Any], firsts: Column, counts: Column) -> NDArray[Any]:
    """Sums within each stretch, up to and with each of its values."""
    sums = np.cumsum(values)
    return np.asarray(sums - np.repeat(sums[firsts] - values[firsts], counts))


class _Naming:
    """Numbers for blocks: first those of the system prompts, then of the conversations, then partial ones."""

    def __init__(self, draw: ChatDraw, workload: ChatWorkload) -> None:
        unit = workload.unit_tokens
        known = draw.prompt_tokens + draw.reply_tokens
        self._shared = draw.system_tokens // unit
        self._full = known // unit
        self.offsets = np.concatenate(([0], np.cumsum(-(-known // unit)))).astype(np.int64)
        self._system_base = draw.systems * (workload.longest_prompt // unit)
        longest = np.zeros(workload.conversations, np.int64)
        np.maximum.at(longest, draw.conversations, self._full)
        bases = np.cumsum(longest) - longest + workload.system_prompts * (workload.longest_prompt // unit)
        self._base = bases[draw.conversations]
        self._partial = int(bases[-1] + longest[-1])
        if self._partial + len(draw) > np.iinfo(np.int32).max:
            raise UsageError(
                f"{self._partial:,} blocks are more than have names", hint="take larger blocks (unit_tokens)"
            )

    def names(self) -> Names:
        names = np.empty(self.offsets[-1], np.int32)
        for first in range(0, len(self._full), _AT_ONCE):
            self._name(names, slice(first, first + _AT_ONCE))
        return names

    def _name(self, names: Names, rows: slice) -> None:
        starts = self.offsets[:-1][rows]
        lengths = self.offsets[1:][rows] - starts
        own = np.repeat(np.arange(len(lengths)), lengths)
        at = np.arange(len(own)) - (starts - starts[0])[own]
        bases = np.where(at < self._shared[rows][own], self._system_base[rows][own], self._base[rows][own])
        named = bases + at
        cut = np.flatnonzero(at == self._full[rows][own])
        named[cut] = self._partial + rows.start + own[cut]
        names[starts[0] : starts[0] + len(named)] = named
