"""Scored prompts reuse what is cached as far as their scores are known, and are told the same as cold."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rig import Log, Rig, greedy, prompt_of
from sapwood.config import IndexName
from sapwood.types import Scope


@dataclass(frozen=True)
class Kind:
    index: IndexName
    page_size: int

    def __str__(self) -> str:
        return f"{self.index}-{self.page_size}"

    def whole(self, tokens: int) -> int:
        return max(0, tokens) // self.page_size * self.page_size

    def rig(self, **settings: int) -> Rig:
        pool = settings.pop("pool", 4096)
        return Rig(pool, index=self.index, page_size=self.page_size, **settings)  # type: ignore[arg-type]


KINDS = [Kind("radix", 1), Kind("radix", 16), Kind("blocks", 1), Kind("blocks", 16)]
each_kind = pytest.mark.parametrize("kind", KINDS, ids=str)
each_chunk = pytest.mark.parametrize("chunk", [1, 7, 64, 512])


def right(rig: Rig, *logs: Log) -> None:
    for log in logs:
        rig.expect_solo(log)
        assert log.scored == rig.scores(log.request)


@each_kind
@each_chunk
@pytest.mark.parametrize("start", [0, 1, 2, 40, 79, 80])
def test_what_stands_before_the_first_scored_token_is_reused(kind: Kind, chunk: int, start: int) -> None:
    rig = kind.rig(chunk=chunk)
    prompt = prompt_of(80)
    rig.ask(prompt)
    log = rig.ask(prompt, greedy(2, prompt_logprobs=2, prompt_logprobs_start=start))
    right(rig, log)
    cached = kind.whole(79)
    readable = 79 if start == 80 else max(0, start - 1)
    assert log.usage.reused == kind.whole(readable)
    assert log.usage.missed.get("reuse_off", 0) == cached - kind.whole(readable)
    rig.expect_no_leaks()


@each_kind
@each_chunk
@pytest.mark.parametrize("start", [0, 50])
def test_a_prompt_that_was_scored_before_is_a_hit(kind: Kind, chunk: int, start: int) -> None:
    rig = kind.rig(chunk=chunk)
    prompt = prompt_of(100)
    for reused in (0, kind.whole(99), kind.whole(99)):
        log = rig.ask(prompt, greedy(1, prompt_logprobs=1, prompt_logprobs_start=start))
        right(rig, log)
        assert log.usage.reused == reused
    fewer = rig.ask(prompt, greedy(1, prompt_logprobs=0, prompt_logprobs_start=start + 3))
    right(rig, fewer)
    assert fewer.usage.reused == kind.whole(99)
    rig.expect_no_leaks()


@each_kind
@pytest.mark.parametrize("shared", [1, 2, 15, 16, 17, 32, 33, 60])
def test_siblings_reuse_up_to_the_token_where_they_part(kind: Kind, shared: int) -> None:
    rig = kind.rig()
    context = prompt_of(shared)
    rig.ask(context + prompt_of(20, salt=1), greedy(1, prompt_logprobs=1))
    log = rig.ask(context + prompt_of(20, salt=2), greedy(1, prompt_logprobs=1))
    right(rig, log)
    # The first token that is its own is scored after the last that is shared, which must be computed for it.
    assert log.usage.reused == kind.whole(shared - 1)
    rig.expect_no_leaks()


def test_scores_with_more_top_entries_than_are_kept_are_computed() -> None:
    rig = Rig()
    prompt = prompt_of(50)
    rig.ask(prompt, greedy(1, prompt_logprobs=1))
    for missed in ({"reuse_off": 49, "last_token": 1}, {"last_token": 1}):
        log = rig.ask(prompt, greedy(1, prompt_logprobs=3))
        right(rig, log)
        assert log.usage.missed == missed


def test_scores_that_are_kept_save_nothing_once_the_tokens_are_evicted() -> None:
    rig = Rig(100)
    prompt = prompt_of(60)
    rig.ask(prompt, greedy(1, prompt_logprobs=1))
    rig.ask(prompt_of(99, salt=1), greedy(1))
    log = rig.ask(prompt, greedy(1, prompt_logprobs=1))
    right(rig, log)
    assert log.usage.missed.keys() <= {"evicted", "last_token"}


@each_kind
def test_neither_reuse_off_nor_another_scope_reads_scores(kind: Kind) -> None:
    rig = kind.rig()
    prompt, params = prompt_of(60), greedy(1, prompt_logprobs=1)
    rig.ask(prompt, params)
    computed = rig.runner.computed_tokens
    for scope, reuse in ((Scope(), False), (Scope(tenant="b"), True), (Scope(salt="b"), True)):
        log = rig.add(prompt, params, scope=scope, reuse=reuse)
        rig.run()
        right(rig, log)
        assert log.usage.reused == 0
    assert rig.runner.computed_tokens == computed + 3 * 60


@each_kind
def test_a_flush_forgets_scores_and_who_began_before_it_adds_none(kind: Kind) -> None:
    rig = kind.rig(chunk=20)
    prompt, params = prompt_of(60), greedy(1, prompt_logprobs=1)
    rig.ask(prompt, params)
    rig.engine.flush()
    early = rig.add(prompt, params)
    rig.step()
    rig.engine.flush()
    assert rig.engine.stats().score_bytes == 0
    rig.run()
    right(rig, early)
    assert rig.engine.stats().score_bytes == 0
    late = rig.ask(prompt, params)
    right(rig, late)
    assert late.usage.reused == 0
    assert rig.engine.stats().score_bytes > 0


def test_without_an_index_nothing_is_kept() -> None:
    rig = Rig(index="none")
    for _ in range(2):
        log = rig.ask(prompt_of(40), greedy(1, prompt_logprobs=1))
        right(rig, log)
        assert log.usage.missed == {"reuse_off": 40}
    assert rig.engine.stats().score_bytes == 0


# ---- together --------------------------------------------------------------------------------------------


@each_kind
@each_chunk
def test_choices_that_arrive_at_once_compute_their_context_once(kind: Kind, chunk: int) -> None:
    """As lm-eval sends them: four continuations of each context, all to be scored whole."""
    rig = kind.rig(chunk=chunk, max_running=32)
    prompts = [
        prompt_of(90, salt=40 * c) + prompt_of(10, salt=1 + 40 * c + i) for c in (1, 2) for i in range(4)
    ]
    for _ in range(2):
        logs = [rig.add(prompt, greedy(1, prompt_logprobs=1)) for prompt in prompts]
        rig.run()
        right(rig, *logs)
    computed = rig.runner.computed_tokens
    # A page of the part shared may be computed by each; what is behind it must be.
    assert computed <= 2 * 90 + 8 * (10 + 1 + kind.page_size) + 8 * kind.page_size + len(prompts)
    assert all(log.usage.reused == kind.whole(99) for log in logs)
    rig.expect_no_leaks()


def test_one_that_wants_more_top_entries_does_not_wait_for_one_that_has_fewer() -> None:
    rig = Rig(chunk=20)
    less, more = (rig.add(prompt_of(100), greedy(1, prompt_logprobs=top)) for top in (0, 2))
    rig.run()
    right(rig, less, more)
    assert more.usage.reused == 0
    again = rig.add(prompt_of(100), greedy(1, prompt_logprobs=2))
    rig.run()
    right(rig, again)
    assert again.usage.reused == 99


@each_kind
def test_one_scored_from_later_on_follows_a_plain_leader_up_to_there(kind: Kind) -> None:
    rig = kind.rig(chunk=20)
    plain = rig.add(prompt_of(100), greedy(1))
    scored = rig.add(prompt_of(100), greedy(1, prompt_logprobs=0, prompt_logprobs_start=81))
    rig.run()
    right(rig, plain, scored)
    assert scored.usage.reused == kind.whole(80)
    rig.expect_no_leaks()


@each_kind
@pytest.mark.parametrize("steps", [1, 2, 3])
def test_what_an_aborted_leader_scored_is_reused(kind: Kind, steps: int) -> None:
    rig = kind.rig(chunk=32)
    leader = rig.add(prompt_of(120), greedy(1, prompt_logprobs=1))
    follower = rig.add(prompt_of(120), greedy(1, prompt_logprobs=1))
    for _ in range(steps):
        rig.step()
    rig.abort(leader)
    rig.run()
    right(rig, follower)
    assert follower.usage.reused == kind.whole(32 * steps)
    rig.expect_no_leaks()


@each_kind
def test_a_preempted_one_goes_on_where_its_scores_end(kind: Kind) -> None:
    rig = kind.rig(pool=80 if kind.page_size == 1 else 96, chunk=3)
    old = rig.add(prompt_of(16, salt=1), greedy(60))
    scored = rig.add(prompt_of(60, salt=2), greedy(3, prompt_logprobs=1))
    while rig.engine.stats().preemptions == 0:
        assert scored.scored is None, "it must be preempted before the prompt is read"
        rig.step()
    rig.run()
    right(rig, old, scored)
    rig.expect_no_leaks()


asks = st.tuples(
    st.integers(0, 40),
    st.integers(0, 12),
    st.integers(0, 2),
    st.sampled_from([None, 0, 1, 3]),
    st.sampled_from([0, 0, 0, 1, 20, 45]),
    st.sampled_from(["", "", "b"]),
)


@given(
    traffic=st.lists(st.one_of(asks, st.sampled_from(["step", "steps", "flush", "abort"])), max_size=40),
    kind=st.sampled_from(KINDS),
    chunk=st.sampled_from([1, 7, 64]),
    pool=st.sampled_from([96, 512]),
    room=st.sampled_from([0, 3000, 12_000, 2**26]),
)
@settings(max_examples=60)
def test_random_traffic_is_scored_as_cold(
    traffic: list[tuple[int, int, int, int | None, int, str] | str],
    kind: Kind,
    chunk: int,
    pool: int,
    room: int,
) -> None:
    rig = kind.rig(pool=pool, chunk=chunk, max_running=4)
    rig.engine.scores.capacity = room
    aborted: list[Log] = []
    for action in traffic:
        match action:
            case "flush":
                rig.engine.flush()
            case "abort":
                live = [log for log in rig.logs.values() if log.finished is None]
                if live:
                    rig.abort(live[0])
                    aborted.append(live[0])
            case str():
                for _ in range(1 if action == "step" else 7):
                    rig.step()
            case trunk, tail, salt, top, start, tenant:
                prompt = prompt_of(trunk) + prompt_of(tail + 1, salt=salt)
                params = greedy(4, prompt_logprobs=top, prompt_logprobs_start=min(start, len(prompt)))
                rig.add(prompt, params, scope=Scope(tenant=tenant))
        assert rig.engine.scores.nbytes <= room
    rig.run()
    right(rig, *(log for log in rig.logs.values() if log not in aborted))
    rig.expect_no_leaks()
