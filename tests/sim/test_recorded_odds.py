"""Requests that end early, several samples, pins, public prefixes, quotas and flushes, captured and done again."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.rig import VOCAB, greedy, prompt_of
from sapwood.config import SpeculateName
from sapwood.engine import Engine
from sapwood.errors import UsageError
from sapwood.sim.readers.capture import CapturedRun
from sapwood.sim.readers.captured_deeds import Flush, Left, PinTried, Unpin
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


@settings(max_examples=80)
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


@settings(max_examples=80)
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


def crowd(seed: int, made: Made) -> Driven:
    """A busy hour: all that may happen does, as the seed has it."""
    draw = random.Random(seed)
    driven = Driven(made, pin_tokens=made.pool // 2)
    for number in range(60):
        prompt = (*prompt_of(draw.choice([30, 50, 70]), draw.randrange(3)), draw.randrange(VOCAB))
        most = draw.choice([None, 4, 12, 30, 30, 110])
        driven.ask(prompt, greedy(most, n=draw.choice([1, 1, 2, 3]), temperature=1.0, seed=number))
        driven.step(draw.choice([0, 1, 2, 6, 12]))
        if draw.random() < 0.3:
            draw.choice([driven.leave, driven.vanish])(number - draw.randrange(4))
        if draw.random() < 0.2:
            driven.pin(f"p{number % 2}", prompt, Scope())
        if draw.random() < 0.1:
            driven.call(lambda engine: engine.pins.unpin("p1"))
        if draw.random() < 0.03:
            driven.call(Engine.flush)
    return driven


@pytest.mark.parametrize("speculate", ["off", "auto"])
def test_a_busy_hour_in_which_all_happens_is_done_again(speculate: SpeculateName) -> None:
    """Else the tests above might say little."""
    seen: Counter[str] = Counter()
    for seed in range(4):
        driven = crowd(seed, Made(192, 1 + 3 * (seed % 2), 24, 4, "default", "radix", speculate))
        driven.until_idle()
        again = done_again(driven)
        stats = driven.rig.engine.stats()
        seen.update(preempted=stats.preemptions, evicted=stats.evicted_tokens)
        seen.update(guessed=stats.guessed_right_tokens, reused=int(again.simulated.reused.sum()))
        for request in again.captured.requests:
            said = sum(map(len, request.outputs))
            seen["refused"] += request.refused
            seen["left waiting"] += request.aborted and request.started_step is None
            seen["left reading"] += request.aborted and request.started_step is not None and not said
            seen["left answering"] += request.aborted and said > 0
            seen["left with a sample ended"] += request.aborted and len(set(request.finish)) > 1
            seen["three samples"] += len(request.outputs) == 3 and not request.aborted
        for deed in again.captured.deeds:
            seen["pinned"] += isinstance(deed, PinTried) and deed.held
            seen["not pinned"] += isinstance(deed, PinTried) and not deed.held
            seen["let go"] += isinstance(deed, Unpin)
    assert min(count for what, count in seen.items() if what != "guessed") > 0
    assert (seen["guessed"] > 0) == (speculate == "auto")


def without(run: CapturedRun, kind: type) -> CapturedRun:
    return replace(run, deeds=[deed for deed in run.deeds if not isinstance(deed, kind)])


@pytest.mark.parametrize("kind", [Left, PinTried, Flush])
def test_what_is_left_out_is_told(kind: type, tmp_path: Path) -> None:
    """So that what was compared above depends on it."""
    driven = crowd(0, Made(192, 1, 24, 4, "default", "radix", "off"))
    driven.until_idle()
    run = driven.end(tmp_path)
    assert len(without(run, kind).deeds) < len(run.deeds)
    with pytest.raises(UsageError, match="is not what comes of simulating it"):
        simulate_again(without(run, kind))


def test_an_old_capture_with_aborts_is_done_again_where_its_order_is_clear(tmp_path: Path) -> None:
    """It does not say what was done before an abort in the same pause between two steps."""
    driven = Driven(Made())
    for number in range(5):
        driven.ask(prompt_of(40, number), greedy(20))
        driven.step(3)
        driven.leave(number - 1)
        driven.step(1)
    driven.until_idle()
    fields = ("ended_after", "started_order", "refused", "stop_token_ids", "ignore_eos", "eos")
    rows = [json.loads(row) for row in driven.lines.rows]
    driven.lines.rows[:] = [
        json.dumps({name: value for name, value in row.items() if name not in fields}) for row in rows
    ]
    run = driven.end(tmp_path)
    assert sum(request.aborted for request in run.requests) > 2
    assert simulate_again(run).simulated.reused.tolist() == [request.reused for request in run.requests]
