"""What is said of reuse, against a plain record of all that was ever computed (K 4, K 8 and K 12)."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from engine.reports import Kind, ReportRig, each_eviction, each_index, stranger
from engine.rig import VOCAB, Log, greedy, prompt_of
from sapwood.cache import Namespace, PrefixCache
from sapwood.errors import RequestError
from sapwood.types import Retain, SamplingParams, Scope

REASONS = {
    "in_flight",
    "evicted",
    "other_namespace",
    "diverged",
    "never_seen",
    "page_tail",
    "last_token",
    "reuse_off",
}
SCOPES = (Scope("a"), Scope("a", salt="s"), Scope("a", "adapter"), Scope("b"), Scope("b", salt="s"))


def namespace_of(scope: Scope) -> Namespace:
    return Namespace("fake", scope.adapter, scope.tenant, scope.salt)


# ---- looking changes nothing -------------------------------------------------------------------------------


def traffic(cache: PrefixCache, look: Callable[[], None]) -> None:
    """Prompts that branch, end inside edges, are evicted and come back; `look` is called all the time."""
    rng = random.Random(5)
    trunks = [np.random.default_rng(number).integers(0, 9, 64).astype(np.int32) for number in range(4)]
    for turn in range(60):
        cache.advance(7.0 * turn)
        trunk = trunks[rng.randrange(4)][: rng.randrange(1, 65)]
        tokens = np.concatenate([trunk, np.full(rng.randrange(40), 20 + turn % 3, np.int32)])
        look()
        lease = cache.lease(Namespace("m"), tokens)
        look()
        cache.grow(lease, len(tokens))
        cache.commit(lease, tokens)
        look()
        cache.release(lease)
        cache.check()
    look()


def evicted_in_order(cache: PrefixCache) -> list[list[int]]:
    """Give up the whole cache page by page: after each, what is left of each of many prompts."""
    probes = [np.random.default_rng(number).integers(0, 9, 64).astype(np.int32) for number in range(4)]
    lease = cache.lease(Namespace("other"), np.empty(0, np.int32))
    left = []
    for page in range(1, cache.capacity_pages + 1):
        cache.grow(lease, page * cache.page_size)
        left.append([cache.match(Namespace("m"), probe).tokens for probe in probes])
    cache.release(lease)
    return left


@each_eviction
def test_lookups_change_neither_what_is_evicted_next_nor_what_is_learned(kind: Kind) -> None:
    """K 4. Two caches with the same traffic; in one, prompts that end anywhere are looked up all the time."""
    pages = 256 // kind.page_size
    quiet, watched = PrefixCache(pages, kind.config), PrefixCache(pages, kind.config)
    rng = random.Random(6)

    def look() -> None:
        for _ in range(4):
            trunk = np.random.default_rng(rng.randrange(4)).integers(0, 9, 64).astype(np.int32)
            tokens = np.concatenate([trunk[: rng.randrange(65)], np.full(rng.randrange(20), 21, np.int32)])
            namespace = Namespace(rng.choice(["m", "m", "stranger"]))
            matched = watched.match(namespace, tokens).tokens
            assert watched.history(namespace, tokens).cached == matched
            watched.room_beside(namespace, tokens, rng.randrange(80))
            watched.room()
            watched.books()

    traffic(quiet, lambda: None)
    traffic(watched, look)
    assert quiet.books() == watched.books()
    assert evicted_in_order(quiet) == evicted_in_order(watched)


@each_eviction
def test_a_waiting_request_that_is_looked_up_in_every_step_is_no_user_of_its_prefix(kind: Kind) -> None:
    """K 4, through the scheduler: what it waits for is evicted as if it had never been asked about."""

    def hits_left(waits: bool) -> int:
        rig = ReportRig(kind, 256, policy="lpm", max_running=1)
        for number in range(3):
            rig.ask(stranger(48, number), greedy(1))
        rig.add(stranger(64, 8), greedy(120))
        rig.step()
        if waits:
            log = rig.add((*stranger(48, 0), 1, 2), greedy(1))
        for _ in range(110):
            rig.step()
        left = rig.cache.match(Namespace("fake", "", "", ""), np.array(stranger(48, 0), np.int32)).tokens
        if waits:
            assert log.started is None
        rig.run()
        rig.expect_end()
        return left

    assert hits_left(waits=True) == hits_left(waits=False)


# ---- reasons add up and are true ---------------------------------------------------------------------------


class Record:
    """Every prefix of whole pages computed since the last flush, by namespace."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._known: dict[Namespace, set[tuple[int, ...]]] = {}

    def add(self, scope: Scope, tokens: tuple[int, ...]) -> None:
        known = self._known.setdefault(namespace_of(scope), set())
        size = self._kind.page_size
        known.update(tokens[:end] for end in range(size, len(tokens) + 1, size))

    def longest(self, namespace: Namespace, prompt: tuple[int, ...]) -> int:
        """In whole pages, of all but the last token."""
        known, size = self._known.get(namespace, set()), self._kind.page_size
        return max((e for e in range(size, len(prompt), size) if prompt[:e] in known), default=0)

    def elsewhere(self, scope: Scope, prompt: tuple[int, ...]) -> int:
        own = namespace_of(scope)
        others = [n for n in self._known if may_be_told(n, own)]
        return max((self.longest(other, prompt) for other in others), default=0)

    def flush(self) -> None:
        self._known.clear()


def may_be_told(other: Namespace, own: Namespace) -> bool:
    """Nobody hears of another tenant, nor of a salt that he has not given."""
    return other != own and other.tenant == own.tenant and other.salt in ("", own.salt)


def expect_true(kind: Kind, record: Record, log: Log, scope: Scope) -> None:
    """Each count is what the record says, or less where something older was forgotten."""
    usage, prompt = log.usage, log.request.prompt
    missed = dict(usage.missed)
    assert set(missed) <= REASONS
    assert usage.reused + sum(missed.values()) == len(prompt)
    if missed.get("reuse_off"):
        assert missed == {"reuse_off": len(prompt)}
        return
    assert missed["last_token"] == 1
    assert missed.get("page_tail", 0) == (len(prompt) - 1) % kind.page_size
    known = usage.reused + missed.get("in_flight", 0) + missed.get("evicted", 0)
    assert known <= record.longest(namespace_of(scope), prompt)
    if "other_namespace" in missed:
        assert known + missed["other_namespace"] <= record.elsewhere(scope, prompt)
    if "diverged" in missed:
        assert "never_seen" not in missed
        assert usage.diverged_at == known > 0
    assert (usage.evicted_seconds_ago is None) == ("evicted" not in missed)
    assert usage.evicted_seconds_ago is None or usage.evicted_seconds_ago >= 0


@each_eviction
def test_each_token_has_one_true_reason_whatever_is_evicted_retained_pinned_or_flushed(kind: Kind) -> None:
    """K 12. One request at a time, so that the record knows what was there."""
    rng = random.Random(7)
    rig = ReportRig(kind, 192, pin_tokens=96)
    record, seen = Record(kind), set[str]()
    for turn in range(60):
        scope = rng.choice(SCOPES)
        prompt = prompt_of(rng.choice([10, 33, 60]), salt=rng.randrange(3)) + stranger(
            rng.randrange(1, 30), rng.randrange(6)
        )
        retain = (Retain(rng.randrange(1, 99), rng.choice([None, 3.0])),) if rng.random() < 0.3 else ()
        if kind.index == "blocks":
            retain = ()
        log = rig.wish(prompt, greedy(3), scope, reuse=rng.random() < 0.9, retain=retain)
        rig.run()
        expect_true(kind, record, log, scope)
        seen |= set(log.usage.missed)
        record.add(scope, prompt + log.samples[0].tokens[:-1])
        if turn % 9 == 4:
            pin_or_not(rig, f"p{turn}", scope, prompt)
        if turn % 9 == 8:
            for pin in rig.engine.pins.all():
                rig.engine.pins.unpin(pin.id)
        if turn % 30 == 29:
            rig.flush()
            record.flush()
    assert rig.engine.stats().evicted_tokens > 0
    assert {"evicted", "other_namespace", "never_seen", "last_token", "reuse_off"} <= seen
    for pin in rig.engine.pins.all():
        rig.engine.pins.unpin(pin.id)
    rig.expect_end()


def pin_or_not(rig: ReportRig, name: str, scope: Scope, prompt: tuple[int, ...]) -> None:
    """A pin over the budget, or of what is not all there, holds nothing."""
    before, held = rig.engine.pins.pinned_tokens, None
    with suppress(RequestError):
        held = rig.engine.pin(name, scope, prompt, rig.now)
    if held is None:
        assert rig.engine.pins.pinned_tokens == before
    rig.cache.check()


@each_eviction
def test_sums_of_reasons_over_random_mixes_under_load(kind: Kind) -> None:
    """K 12. Followers, samples, aborts and pushed back ones; per request (the rig refuses others) and in all."""
    rng = random.Random(8)
    rig = ReportRig(kind, 256, chunk=32, max_running=4, policy="default")
    gone = []
    for number in range(32):
        params = SamplingParams(
            temperature=1.0, seed=number, max_tokens=rng.randrange(1, 30), n=rng.choice([1, 1, 3])
        )
        if rng.random() < 0.1:
            params = replace(params, prompt_logprobs=0)
        prompt = prompt_of(rng.choice([0, 20, 70])) + (rng.randrange(VOCAB),) * rng.randrange(1, 20)
        log = rig.wish(prompt, params, rng.choice(SCOPES), reuse=rng.random() < 0.9)
        for _ in range(rng.randrange(4)):
            rig.step()
        if number % 7 == 3 and log.finished is None:
            rig.abort(log)
            gone.append(log)
    rig.run()
    started = [log for log in rig.logs.values() if log.started is not None]
    stats = rig.engine.stats()
    assert stats.prompt_tokens == sum(log.usage.prompt_tokens for log in started)
    assert stats.reused_tokens == sum(log.usage.reused for log in started)
    for reason in REASONS | set(stats.missed_tokens):
        told = sum(log.usage.missed.get(reason, 0) for log in started)
        assert stats.missed_tokens.get(reason, 0) == told
    rig.expect_end(*gone)


@each_index
@pytest.mark.parametrize("first", SCOPES, ids=str)
def test_what_is_told_of_elsewhere_is_never_another_tenants_nor_a_salts(kind: Kind, first: Scope) -> None:
    """K 8. After one scope has computed a prompt, each other scope asks why it is not cached."""
    cache = PrefixCache(64, kind.config)
    prompt = np.array(prompt_of(60), np.int32)
    for scope in SCOPES:
        store(cache, namespace_of(scope), np.array(stranger(20, 1), np.int32))
    store(cache, namespace_of(first), prompt)
    for scope in SCOPES:
        history = cache.history(namespace_of(scope), prompt)
        mine = kind.whole(60)
        if scope == first:
            assert (history.cached, history.elsewhere) == (mine, 0)
        else:
            told = may_be_told(namespace_of(first), namespace_of(scope))
            assert (history.cached, history.known, history.branches) == (0, 0, False)
            assert history.elsewhere == (mine if told else 0)
            assert history.evicted_seconds_ago is None
    cache.check()


def store(
    cache: PrefixCache, namespace: Namespace, tokens: np.ndarray[tuple[int], np.dtype[np.int32]]
) -> None:
    lease = cache.lease(namespace, tokens)
    cache.grow(lease, len(tokens))
    cache.commit(lease, tokens)
    cache.release(lease)
