"""Requests that end early, several samples, pins, public prefixes, quotas and flushes, captured and done again."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rig import VOCAB, greedy, prompt_of
from sapwood.engine import Engine
from sapwood.sim.recorded import Again, simulate_again
from sapwood.types import Scope
from sim.driven import Driven, Made
from sim.test_recorded import expect_equal

TENANTS = ("", "acme", "beta")
PUBLIC = prompt_of(40)

Act = Callable[[Driven], None]

makes = st.builds(
    Made,
    pool=st.sampled_from([96, 160, 512]),
    page_size=st.sampled_from([1, 4, 16]),
    chunk=st.sampled_from([5, 16, 64]),
    max_running=st.integers(1, 6),
    policy=st.sampled_from(("default", "fcfs", "lpm", "dfs-weight", "priority", "random")),
    index=st.sampled_from(("radix", "radix", "blocks", "none")),
    speculate=st.sampled_from(("off", "off", "auto")),
)
scopes = st.builds(Scope, st.sampled_from(TENANTS), st.just(""), st.sampled_from(("", "", "s")))


@st.composite
def asks(draw: st.DrawFn) -> Act:
    trunk = prompt_of(draw(st.sampled_from([0, 9, 33, 60])), draw(st.integers(0, 2)))
    tail = tuple(draw(st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9)))
    most = draw(st.one_of(st.integers(0, 25), st.none()))
    temperature = draw(st.sampled_from([0.0, 1.0]))
    params = greedy(most, n=draw(st.sampled_from([1, 1, 2, 3])), temperature=temperature)
    scope, reuse = draw(scopes), draw(st.sampled_from([True, True, True, False]))
    return lambda driven: driven.ask(trunk + tail, params, scope, reuse=reuse)


def leaves(number: int) -> Act:
    return lambda driven: driven.leave(number) if driven.clients else None


def vanishes(number: int) -> Act:
    return lambda driven: driven.vanish(number) if driven.clients else None


def steps(count: int) -> Act:
    return lambda driven: driven.step(count)


def pins(name: str, length: int, salt: int, scope: Scope) -> Act:
    return lambda driven: driven.pin(name, prompt_of(length, salt), scope)


def unpins(name: str) -> Act:
    return lambda driven: driven.call(lambda engine: engine.pins.unpin(name))


clients = st.one_of(
    asks(),
    asks(),
    st.builds(leaves, st.integers(0, 30)),
    st.builds(vanishes, st.integers(0, 30)),
    st.builds(steps, st.integers(1, 9)),
)
names = st.sampled_from(("a", "b"))
operators = st.one_of(
    st.builds(pins, names, st.sampled_from([16, 33, 60]), st.integers(0, 2), scopes),
    st.builds(unpins, names),
    st.just(lambda driven: driven.call(Engine.flush)),
)


def done_again(driven: Driven) -> Again:
    with tempfile.TemporaryDirectory() as folder:
        again = simulate_again(driven.end(Path(folder)))
    expect_equal(again)
    books = driven.rig.cache.books()
    assert again.simulated.evicted_tokens == books.evicted_tokens
    assert int(again.simulated.computed_tokens.sum()) == driven.rig.runner.computed_tokens
    assert again.simulated.preemptions == driven.rig.engine.stats().preemptions
    return again


@settings(max_examples=80, deadline=None)
@given(makes, st.lists(clients, min_size=3, max_size=30), st.booleans())
def test_requests_that_end_early_or_draw_several_samples_are_done_again(
    made: Made, acts: list[Act], drains: bool
) -> None:
    driven = Driven(made)
    for act in acts:
        act(driven)
    if drains:
        driven.until_idle()
    if driven.clients:
        done_again(driven)


@settings(max_examples=80, deadline=None)
@given(
    makes,
    st.lists(st.one_of(clients, operators), min_size=3, max_size=30),
    st.booleans(),
    st.dictionaries(st.sampled_from(TENANTS[1:]), st.sampled_from([16, 48, 90])),
)
def test_what_is_held_published_limited_and_flushed_is_done_again(
    made: Made, acts: list[Act], public: bool, quotas: dict[str, int]
) -> None:
    driven = Driven(made, pin_tokens=made.pool // 2)
    driven.call(lambda engine: driven.loop._limit(engine, quotas))
    if public and made.index != "none":
        driven.ask(PUBLIC, greedy(0))
        driven.until_idle()
        driven.call(lambda engine: engine.publish([PUBLIC]))
    for act in acts:
        act(driven)
    if driven.clients:
        done_again(driven)
