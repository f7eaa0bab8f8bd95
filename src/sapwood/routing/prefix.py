"""Prefix-aware: where a request costs the fleet least, in seconds.

    cost = expected wait  +  prefill of what is not cached there  +  what storing it there would evict

After E2 of Preble (Srivatsa, He, Abhyankar, Li and Zhang, "Preble: Efficient Distributed Prompt Scheduling for LLM
Serving", ICLR 2025, section 3.2). Preble exploits a cached prefix where it is the larger part of the prompt, and else
explores: the least sum of load, eviction and prefill. Here that sum decides always, so a long wait outweighs a prefix
and a cold prompt goes where it evicts least; and the wait is what the replica tells, not a window of past work.

A hot prefix is copied: a replica that was given more than MOST_LOAD times its share of the requests of late gets one
more only if it is the next turn of a conversation that lives there, which nobody else would gain from a copy of, or
if it is in truth the fastest (`best`). This is consistent hashing's bounded load (Mirrokni, Thorup and
Zadimoghaddam, SODA 2018), with costs in the place of the hash; Preble moves and replicates prefixes afterwards instead.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from sapwood.cache import Tokens
from sapwood.routing.block_keys import BlockKey, block_keys
from sapwood.routing.choose import Candidate, Ticket, require_candidates
from sapwood.routing.coming import Coming
from sapwood.routing.in_flight import InFlight, Placement, Sent
from sapwood.routing.shadow import Shadow, Sighting
from sapwood.routing.trust import Trust

MOST_LOAD = 1.25
"""Times the mean of all candidates' requests of late."""

_LEAST_LOAD = 8.0
"""Requests of late that nobody minds."""

_EQUAL = 0.01
"""Costs that differ by less than this share of a cold prefill are equal: whoever was given less of late goes first."""

_SHARE_OF_FADED = 0.2
"""Of what a replica was taken to have given up it may hold so much, before anything is known of its policy."""

PrefillSeconds: TypeAlias = Callable[[int, int], float]
"""Of reading a prompt of so many tokens of which so many are cached: a cost model's `prefill_seconds`."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a request would cost at one replica, in seconds."""

    candidate: Candidate
    recent: Sent
    in_flight: int
    """Requests that have not ended there: as it tells, or that it was given, whichever is more."""
    seem: int
    """Tokens that seem to be there, or on their way, in whole pages."""
    faded: int
    """Tokens beyond these that it was taken to have given up."""
    wait: float
    prefill: float
    evicted: float
    continues: bool
    """Whether it is the next turn of a conversation that lives there and nowhere else; its last turn has ended."""

    @property
    def cost(self) -> float:
        return self.wait + self.prefill + self.evicted


@dataclass(frozen=True, slots=True, eq=False)
class _Asked:
    """A ticket, looked up once for all candidates."""

    ticket: Ticket
    keys: Sequence[BlockKey]
    sighting: Sighting
    cold: float
    """Seconds to read it where nothing is cached."""


class PrefixAware:
    """Args: the capacity of a replica's cache (if no candidate says otherwise), and what prefill costs.

    `shadow` is what replicas probably hold: whoever hears of their cache events may tell it.
    """

    def __init__(
        self, capacity_tokens: int, prefill_seconds: PrefillSeconds, shadow: Shadow | None = None
    ) -> None:
        self.shadow = Shadow(capacity_tokens) if shadow is None else shadow
        self._prefill_seconds = prefill_seconds
        self._in_flight = InFlight()
        self._trust = Trust()
        self._trust_in_faded = Trust(_SHARE_OF_FADED)

    def choose(self, ticket: Ticket, candidates: Sequence[Candidate], now: float) -> int:
        require_candidates(candidates)
        for candidate in candidates:
            if candidate.capacity_tokens is not None:
                self.shadow.resize(candidate.replica, candidate.capacity_tokens)
        asked = self._ask(ticket)
        chosen = best(self._offers(asked, candidates, now), asked.cold)
        replica, page = chosen.candidate.replica, chosen.candidate.page_tokens
        believed = self._cached(ticket, self.shadow.sure(asked.sighting, replica), page)
        # Where some of it is on its way, what is reused tells nothing of what was given up.
        faded = chosen.faded if chosen.seem == believed else 0
        coming = self.shadow.place(replica, asked.keys)
        placement = Placement(replica, now, chosen.prefill, coming, believed, faded, page)
        self._in_flight.add(ticket, placement)
        return replica

    def finished(
        self, ticket: Ticket, replica: int, stored: Tokens, now: float, reused: int | None = None
    ) -> None:
        placement = self._in_flight.pop(ticket, replica)
        if placement is None or placement.coming is None:
            return  # The replica has left since: what it stored is gone.
        if reused is not None:
            self._learn(placement, placement.coming, max(0, reused))
        known: Sequence[BlockKey] = placement.coming.keys if _begins_with(stored, ticket.tokens) else ()
        keys = block_keys(ticket.namespace, stored, self.shadow.block_tokens, known)
        self.shadow.settle(placement.coming, keys, now)

    def failed(self, ticket: Ticket, replica: int, now: float) -> None:  # noqa: ARG002
        self._withdraw(self._in_flight.pop(ticket, replica))

    def left(self, replica: int) -> None:
        self._in_flight.left(replica)
        self._trust.forget(replica)
        self._trust_in_faded.forget(replica)
        self.shadow.forget(replica)

    def expire(self, before: float) -> None:
        for placement in self._in_flight.expire(before):
            self._withdraw(placement)

    def offers(self, ticket: Ticket, candidates: Sequence[Candidate], now: float) -> list[Offer]:
        """What it would cost at each of them: why a choice is what it is. Changes nothing."""
        return self._offers(self._ask(ticket), candidates, now)

    def _ask(self, ticket: Ticket) -> _Asked:
        keys = block_keys(ticket.namespace, ticket.tokens, self.shadow.block_tokens)
        return _Asked(ticket, keys, self.shadow.look(keys), self._seconds(len(ticket.tokens), 0))

    def _offers(self, asked: _Asked, candidates: Sequence[Candidate], now: float) -> list[Offer]:
        prefills = {0: asked.cold}
        return [self._offer(asked, candidate, prefills, now) for candidate in candidates]

    def _offer(self, asked: _Asked, candidate: Candidate, prefills: dict[int, float], now: float) -> Offer:
        replica, tokens, capacity = candidate.replica, len(asked.ticket.tokens), candidate.capacity_tokens
        blocks = self.shadow.matched(asked.sighting, replica, capacity)
        seem = self._cached(asked.ticket, blocks, candidate.page_tokens)
        once = self.shadow.once(asked.keys, asked.sighting, replica, capacity)
        faded = max(0, self._cached(asked.ticket, once, candidate.page_tokens) - seem)
        cached = int(self._trust.of(replica) * seem + self._trust_in_faded.of(replica) * faded)
        if cached not in prefills:
            prefills[cached] = self._seconds(tokens, cached)
        new = len(asked.keys) - blocks + asked.ticket.expected_output // self.shadow.block_tokens
        lost = self.shadow.lost(replica, new, asked.sighting, now, capacity) * self.shadow.block_tokens
        return Offer(
            candidate,
            recent=self._in_flight.recent(replica, now),
            in_flight=max(self._in_flight.on(replica), candidate.running + candidate.waiting),
            seem=seem,
            faded=faded,
            wait=candidate.wait_seconds + self._in_flight.since(replica, candidate.as_of).seconds,
            prefill=prefills[cached],
            # What was lost is taken to cost as much per token as this prompt.
            evicted=lost * asked.cold / tokens if tokens else 0.0,
            continues=self._continues(asked, replica, blocks),
        )

    def _continues(self, asked: _Asked, replica: int, blocks: int) -> bool:
        # Prompts that lengthen one another in flight are no turns: each turn waits for the answer to the last.
        is_turn = 0 < blocks < len(asked.keys) and asked.sighting.is_end(blocks)
        return is_turn and self.shadow.sure(asked.sighting, replica) >= blocks

    def _cached(self, ticket: Ticket, blocks: int, page_tokens: int) -> int:
        """Tokens in whole pages; the last one of a prompt is computed in any case."""
        tokens = max(0, min(blocks * self.shadow.block_tokens, len(ticket.tokens) - 1))
        return tokens // page_tokens * page_tokens

    def _seconds(self, tokens: int, cached: int) -> float:
        return self._prefill_seconds(tokens, cached) if tokens else 0.0

    def _learn(self, placement: Placement, coming: Coming, reused: int) -> None:
        """What was believed to be there and was not reused was not there, nor what follows it.

        Unless less than a page or a block is missing: that is how replicas round, or where blocks end.
        """
        believed, size = placement.believed_tokens, self.shadow.block_tokens
        is_there = believed - reused < max(placement.page_tokens, size)
        self._trust.learn(placement.replica, believed, believed if is_there else reused)
        self._trust_in_faded.learn(placement.replica, placement.faded_tokens, reused - believed)
        if not is_there:
            self.shadow.missed(coming, reused // size, believed // size)

    def _withdraw(self, placement: Placement | None) -> None:
        if placement is not None and placement.coming is not None:
            self.shadow.withdraw(placement.coming)


def best(offers: Sequence[Offer], cold: float) -> Offer:
    """The cheapest of those that may get one more; among equals the one that was given least of late.

    `cold` is what the prompt costs where nothing is cached. Stuck replicas count only if all are.
    """
    offers = [offer for offer in offers if offer.wait < math.inf] or offers
    mean = _mean([offer.recent for offer in offers])
    most = max(_LEAST_LOAD, MOST_LOAD * (mean.requests + 1.0 / len(offers)))
    within = [offer for offer in offers if offer.recent.requests + 1.0 <= most or offer.continues]
    allowed = [*within, *_ahead(offers, within, cold)] or offers
    least = min(offer.cost for offer in allowed)
    equal = [offer for offer in allowed if offer.cost <= least + _EQUAL * cold]
    return min(equal, key=lambda offer: (_share(offer.recent, mean), offer.candidate.replica))


def _ahead(offers: Sequence[Offer], within: Sequence[Offer], cold: float) -> list[Offer]:
    """Those so fast that they may get more than their share: cheaper than all, were their match worth nothing.

    Their wait is what they say; that no more is in flight there than elsewhere is what we see.
    """
    least = min((offer.cost for offer in within), default=math.inf)
    in_flight = sum(offer.in_flight for offer in offers) / len(offers)
    return [
        offer
        for offer in offers
        if offer.wait + cold + offer.evicted < least and offer.in_flight <= in_flight
    ]


def _mean(sent: Sequence[Sent]) -> Sent:
    return Sent(
        sum(each.requests for each in sent) / len(sent), sum(each.seconds for each in sent) / len(sent)
    )


def _share(sent: Sent, mean: Sent) -> float:
    """Requests and seconds, each over its mean: cheap requests and few dear ones are load alike."""
    requests = sent.requests / mean.requests if mean.requests else 0.0
    return requests + (sent.seconds / mean.seconds if mean.seconds else 0.0)


def _begins_with(stored: Tokens, prompt: Tokens) -> bool:
    return len(stored) >= len(prompt) and np.array_equal(stored[: len(prompt)], prompt)
