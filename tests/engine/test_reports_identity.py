"""Reports of KV given to another model, adapter or tenant (kinds 4 and 5): what may be shared, what may be known."""

from __future__ import annotations

import hashlib
from itertools import permutations

import pytest

from engine.reports import Kind, ReportRig, each_index, other_facts, stranger
from engine.rig import Log, greedy, prompt_of
from sapwood.cache.blocks import BlockIndex
from sapwood.types import SamplingParams, Scope

PROMPT = prompt_of(80)
NAMES = ("", "x", "y")


def ask(rig: ReportRig, scope: Scope, prompt: tuple[int, ...] = PROMPT, max_tokens: int = 3) -> Log:
    log = rig.add(prompt, greedy(max_tokens), scope=scope)
    rig.run()
    return log


@each_index
def test_the_same_prompt_with_one_adapter_then_another_then_none(kind: Kind) -> None:
    """ID-02 and ID-03. Each is a cold run the first time and a hit the second."""
    rig = ReportRig(kind)
    for expected in (0, kind.whole(79)):
        for adapter in ("a", "b", ""):
            assert ask(rig, Scope(adapter=adapter)).usage.reused == expected
    rig.expect_end()


@each_index
def test_other_weights_read_nothing_of_the_old_ones_and_the_old_ones_are_found_again(kind: Kind) -> None:
    """ID-01 and ID-04. Other weights are another fingerprint; whoever loads an adapter anew has to name it anew."""
    rig = ReportRig(kind)
    old, new = rig.engine, rig.new_engine(other_facts("other weights"))
    ask(rig, Scope())
    rig.engine = new
    first, second = ask(rig, Scope()), ask(rig, Scope())
    assert (first.usage.reused, second.usage.reused) == (0, kind.whole(79))
    # That another model has seen it is nobody's business either: it could never be read.
    assert set(first.usage.missed) <= {"never_seen", "page_tail", "last_token", "other_namespace"}
    rig.engine = old
    assert ask(rig, Scope()).usage.reused == kind.whole(79)
    rig.expect_end()


@each_index
def test_a_name_means_another_thing_in_another_field(kind: Kind) -> None:
    """TE-06. Adapter x, salt x and tenant x, and all of them at once, are different namespaces."""
    rig = ReportRig(kind)
    scopes = [Scope(tenant, adapter, salt) for tenant in NAMES for adapter in NAMES for salt in NAMES]
    for scope in scopes:
        assert ask(rig, scope, PROMPT[:40], 1).usage.reused == 0
    for scope in scopes:
        assert ask(rig, scope, PROMPT[:40], 1).usage.reused == kind.whole(39)
    rig.expect_end()


@each_index
def test_all_scopes_at_once_compute_each_prompt_by_themselves_and_follow_nobody(kind: Kind) -> None:
    """TE-06 in flight. Equal prompts of unlike scopes that arrive together do not wait for one another either."""
    rig = ReportRig(kind, chunk=512, max_running=32)
    scopes = [Scope(*names) for names in sorted(set(permutations(("", "x", "x"))))]
    logs = [rig.add(PROMPT, greedy(1), scope=scope) for scope in scopes]
    rig.step()
    assert all(log.finished is not None and log.usage.reused == 0 for log in logs)
    assert all(log.usage.waited_for_leader_seconds == 0 for log in logs)
    rig.expect_end()


@each_index
def test_a_salt_narrows_its_tenants_namespace_and_opens_nobody_elses(kind: Kind) -> None:
    """TE-04. The tenant is not the client's to choose; the victim's salt alone shares nothing."""
    rig = ReportRig(kind)
    ask(rig, Scope(tenant="victim", salt="s"))
    assert ask(rig, Scope(tenant="thief", salt="s")).usage.reused == 0
    assert ask(rig, Scope(tenant="victim", salt="s")).usage.reused == kind.whole(79)
    rig.expect_end()


@each_index
def test_under_a_page_hash_of_eight_bits_every_answer_is_right(kind: Kind) -> None:
    """TE-01. Some hundred prompts, most of them with colliding pages; tokens are compared on a hit."""
    rig = ReportRig(kind, 2048)
    if kind.index == "blocks":
        rig.cache._index = BlockIndex(
            kind.page_size, lambda data: hashlib.blake2b(data, digest_size=1).digest()
        )
    for i in range(120):
        rig.add(stranger(33, i * i % 97), greedy(2))
        if i % 8 == 7:
            rig.run()
    rig.run()
    assert rig.engine.stats().reused_tokens > 0
    rig.expect_end()


# ---- what a stranger can tell ------------------------------------------------------------------------------


def steps_of(rig: ReportRig, scope: Scope, prompt: tuple[int, ...]) -> tuple[int, Log]:
    before = rig.runner.steps
    log = ask(rig, scope, prompt)
    return rig.runner.steps - before, log


def facts(log: Log) -> tuple[object, ...]:
    """All that a client is told of its reuse."""
    usage = log.usage
    return (
        usage.reused,
        dict(usage.missed),
        usage.diverged_at,
        usage.evicted_seconds_ago,
        usage.waited_for_leader_seconds,
    )


@each_index
@pytest.mark.parametrize("evicted", [False, True])
def test_a_right_guess_at_anothers_prompt_looks_like_a_wrong_one(kind: Kind, evicted: bool) -> None:
    """TE-05. Same usage, same explanation, same number of steps: cached, evicted, or being computed just now."""
    rig = ReportRig(kind, 512, chunk=32, policy="default")
    ask(rig, Scope(tenant="victim"))
    if evicted:
        ask(rig, Scope(tenant="victim"), stranger(500, 5), 1)
    right_steps, right = steps_of(rig, Scope(tenant="spy"), PROMPT)
    wrong_steps, wrong = steps_of(rig, Scope(tenant="spy2"), stranger(80, 7))
    assert (right_steps, facts(right)) == (wrong_steps, facts(wrong))
    rig.expect_end()


@each_index
def test_a_right_guess_at_a_prompt_being_computed_looks_like_a_wrong_one(kind: Kind) -> None:
    """TE-05. Nobody follows a stranger."""
    told = []
    for guess in (PROMPT, stranger(80, 7)):
        rig = ReportRig(kind, 512, chunk=32, policy="default")
        rig.add(PROMPT, greedy(3), scope=Scope(tenant="victim"))
        rig.step()
        told.append(steps_of(rig, Scope(tenant="spy"), guess))
        rig.expect_end()
    (right_steps, right), (wrong_steps, wrong) = told
    assert (right_steps, facts(right)) == (wrong_steps, facts(wrong))


@each_index
def test_an_explanation_knows_of_other_scopes_of_the_same_tenant_only(kind: Kind) -> None:
    """K 8. Cached, evicted and diverged tokens of other tenants are never told."""
    rig = ReportRig(kind)
    for scope in (Scope("a", salt="2"), Scope("b", salt="1"), Scope("b")):
        ask(rig, scope, stranger(20, 1))
    for scope in (Scope("a", salt="1"), Scope("a", "adapter")):
        ask(rig, scope)
    same, other = ask(rig, Scope("a", salt="2")), ask(rig, Scope("b", salt="1"))
    assert same.usage.missed.get("other_namespace") == kind.whole(79)
    assert set(other.usage.missed) <= {"never_seen", "page_tail", "last_token"}
    assert other.usage.diverged_at is None
    rig.expect_end()


# ---- answers that leak into each other ---------------------------------------------------------------------


@each_index
def test_two_at_a_time_nobody_is_answered_from_anothers_chat(kind: Kind) -> None:
    """TE-07, without tiers. Ten chats with a secret each, then rounds of two new ones, in a pool for three."""
    rig = ReportRig(kind, 320, max_running=2)
    for chat in range(10):
        ask(rig, Scope(tenant=f"t{chat}"), stranger(70, chat))
    for turn in range(10):
        for chat in (turn, 10 + turn):
            rig.add(stranger(60, 300 + chat), greedy(12), scope=Scope(tenant=f"t{chat % 7}"))
        rig.run()
    assert rig.engine.stats().evicted_tokens > 0
    rig.expect_end()


@each_index
def test_sixteen_different_prompts_at_once_round_after_round(kind: Kind) -> None:
    """TE-08."""
    rig = ReportRig(kind, 1024, chunk=128, max_running=16)
    for turn in range(5):
        for i in range(16):
            sampled = SamplingParams(temperature=1.0, seed=turn, max_tokens=4)
            rig.add(stranger(20 + i, i), greedy(4) if turn % 2 else sampled)
        rig.run()
    rig.expect_end()
