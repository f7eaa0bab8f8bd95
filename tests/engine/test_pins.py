"""Pins: what they hold survives any flood, their budget is kept, and nothing of a refused one stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import TypeVar

import numpy as np
import pytest

from engine.rig import Rig, greedy, prompt_of
from engine.test_loop import PATIENCE, Gate, request, running, wait_until
from sapwood.cache import Namespace
from sapwood.config import IndexName
from sapwood.engine import Engine, Pin, PinReport
from sapwood.engine.pinning import pin_prompt
from sapwood.errors import NotFoundError, RequestError, SapwoodError, UnavailableError
from sapwood.types import Event, Request, Scope

T = TypeVar("T")
READ = greedy(0)


def rig_with(budget: int, pool: int = 1024, page_size: int = 1, index: IndexName = "radix") -> Rig:
    rig = Rig(pool, page_size=page_size, index=index)
    rig.engine.pins.budget = budget
    return rig


def pin(rig: Rig, id: str, prompt: tuple[int, ...]) -> Pin | None:
    pinned = rig.engine.pin(id, Scope(), prompt, rig.now)
    rig.cache.check()
    return pinned


def flood(rig: Rig, tokens: int) -> None:
    """Other prompts of so many tokens in all, one after the other."""
    for i in range(tokens // 400):
        rig.ask(prompt_of(400, salt=1000 + i), READ)


def matched(rig: Rig, prompt: tuple[int, ...]) -> int:
    return rig.cache.match(Namespace("fake", "", "", ""), np.array(prompt, np.int32)).tokens


@pytest.mark.parametrize(("index", "page_size"), [("radix", 1), ("radix", 16), ("blocks", 16)])
def test_a_pinned_prompt_survives_a_flood_of_twenty_pools_until_it_is_unpinned(
    index: IndexName, page_size: int
) -> None:
    """TI-13."""
    rig = rig_with(500, page_size=page_size, index=index)
    prompt = prompt_of(500)
    whole = 500 // page_size * page_size
    rig.ask(prompt, READ)
    pinned = pin(rig, "system", prompt)
    assert pinned is not None
    assert (pinned.prompt_tokens, pinned.pinned_tokens) == (500, whole)
    flood(rig, 20 * 1024)
    again = rig.ask((*prompt, 1, 2, 3), greedy(1))
    assert again.usage.reused == whole
    with pytest.raises(RequestError, match="may hold") as caught:
        rig.engine.pin("more", Scope(), prompt_of(600), rig.now)
    assert caught.value.code == "pin_budget_exceeded"
    assert "500" in caught.value.message
    rig.engine.pins.unpin("system")
    rig.cache.check()
    flood(rig, 20 * 1024)
    assert matched(rig, prompt) < whole
    rig.expect_no_leaks()


def test_only_a_wholly_cached_prompt_is_pinned() -> None:
    rig = rig_with(500, page_size=4)
    rig.ask(prompt_of(40), READ)
    assert pin(rig, "longer", prompt_of(44)) is None
    assert rig.engine.pins.all() == ()
    assert rig.engine.stats().pages.leased == 0
    # The tail that fills no page is not asked for.
    tail = pin(rig, "tail", prompt_of(43))
    assert tail is not None
    assert tail.pinned_tokens == 40


def test_pages_that_pins_share_count_once_and_a_pin_that_is_too_much_is_refused_before_its_rest_is_computed() -> (
    None
):
    rig = rig_with(100)
    common = prompt_of(60)
    for tail in ((1,), (2,)):
        rig.ask((*common, *tail * 20), READ)
    assert pin(rig, "a", (*common, *(1,) * 20))
    assert pin(rig, "b", (*common, *(2,) * 20))
    assert rig.engine.pins.pinned_tokens == 100
    steps = rig.runner.steps
    with pytest.raises(RequestError, match="needs 1 more tokens; pins hold 100 of the 100"):
        pin(rig, "c", (*common, 3))
    assert rig.runner.steps == steps
    assert [each.id for each in rig.engine.pins.all()] == ["a", "b"]
    rig.engine.pins.unpin("a")
    assert rig.engine.pins.pinned_tokens == 80
    rig.engine.pins.clear()
    assert rig.engine.pins.pinned_tokens == 0
    rig.expect_no_leaks()


def test_ids_are_unique_and_unknown_ones_are_not_found() -> None:
    rig = rig_with(100)
    rig.ask(prompt_of(20), READ)
    assert pin(rig, "a", prompt_of(20))
    with pytest.raises(RequestError, match="'a' is there already"):
        pin(rig, "a", prompt_of(10))
    with pytest.raises(NotFoundError) as caught:
        rig.engine.pins.unpin("b")
    assert caught.value.code == "pin_not_found"


def test_a_pin_is_let_go_by_its_maker_not_by_its_name() -> None:
    rig = rig_with(100)
    rig.ask(prompt_of(20), READ)
    first = pin(rig, "a", prompt_of(20))
    assert first is not None
    rig.engine.pins.unpin("a")
    second = pin(rig, "a", prompt_of(20))
    assert second is not None
    rig.engine.pins.let_go([first])
    assert rig.engine.pins.all() == (second,)
    rig.engine.pins.let_go([second])
    assert rig.engine.pins.all() == ()


# ---- through the loop ------------------------------------------------------------------------------------


def test_what_is_missing_is_computed_once_and_what_is_cached_not_at_all() -> None:
    rig = rig_with(200)
    with running(rig) as loop:
        report = asyncio.run(loop.pin("a", request("r", 50, params=READ)))
        assert (report.pins[0].pinned_tokens, report.pinned_tokens, report.budget_tokens) == (50, 50, 200)
        assert rig.runner.computed_tokens == 50
        asyncio.run(loop.pin("b", request("r", 40, params=READ)))
        assert rig.runner.computed_tokens == 50
        assert [each.id for each in asyncio.run(loop.pins()).pins] == ["a", "b"]
        stats = loop.stats()  # of the time of the answer, though nothing runs
        assert (stats.pinned_tokens, stats.pin_budget_tokens) == (50, 200)
        assert asyncio.run(loop.unpin("a")).pinned_tokens == 40
        asyncio.run(loop.unpin("b"))


def test_too_long_a_prompt_is_refused_with_numbers_and_no_work() -> None:
    rig = rig_with(30)
    with running(rig) as loop:
        with pytest.raises(RequestError, match=r"31 tokens .* 30"):
            asyncio.run(loop.pin("a", request("r", 31, params=READ)))
        asyncio.run(loop.pin("a", request("r", 30, params=READ)))
        with pytest.raises(RequestError, match="there already"):
            asyncio.run(loop.pin("a", request("r", 20, salt=1, params=READ)))
        assert rig.runner.computed_tokens == 30
        asyncio.run(loop.unpin("a"))


def test_nothing_can_be_pinned_where_nothing_is_reused_or_no_page_is_filled() -> None:
    with running(rig_with(100, index="none")) as loop, pytest.raises(RequestError, match="not reused"):
        asyncio.run(loop.pin("a", request("r", 20, params=READ)))
    with (
        running(rig_with(128, page_size=16)) as loop,
        pytest.raises(RequestError, match="less than one page"),
    ):
        asyncio.run(loop.pin("a", request("r", 15, params=READ)))


def test_a_failed_computation_is_an_error_and_pins_nothing() -> None:
    rig = rig_with(100)
    rig.runner.hook = lambda plan: frozenset(work.seq for work in plan.works)
    with running(rig) as loop:
        with pytest.raises(SapwoodError, match="told to fail"):
            asyncio.run(loop.pin("a", request("r", 20, params=READ)))
        assert asyncio.run(loop.pins()).pins == ()


def test_who_leaves_while_it_is_computed_has_pinned_nothing() -> None:
    rig, gate = rig_with(100), Gate()
    rig.runner.hook = gate

    async def leave() -> None:
        pinning = asyncio.create_task(loop.pin("a", request("r", 20, params=READ)))
        assert await asyncio.to_thread(gate.entered.wait, PATIENCE)
        pinning.cancel()
        gate.open.set()
        with pytest.raises(asyncio.CancelledError):
            await pinning

    with running(rig) as loop:
        asyncio.run(leave())
        assert asyncio.run(loop.pins()).pins == ()
        wait_until(lambda: loop.stats().running == 0)


class StepwiseLoop:
    """A loop without a thread: calls run at once, requests to their end; `after` then happens."""

    def __init__(self, rig: Rig, after: Callable[[Rig], None] = lambda _: None) -> None:
        self._rig, self._after = rig, after
        self.computed = 0

    def call(self, function: Callable[[Engine], T]) -> Future[T]:
        answer: Future[T] = Future()
        answer.set_result(function(self._rig.engine))
        return answer

    async def generate(self, asked: Request) -> AsyncIterator[Event]:
        self.computed += 1
        self._rig.engine.add(asked, self._rig.now)
        while self._rig.engine.busy:
            for event in self._rig.engine.step(self._rig.now):
                yield event
        self._after(self._rig)


@pytest.mark.parametrize(("evictions", "works"), [(0, True), (1, True), (2, False)])
def test_evicted_before_it_is_pinned_it_is_computed_once_more(evictions: int, works: bool) -> None:
    rig, left = rig_with(100), [None] * evictions

    def evict(rig: Rig) -> None:
        if left:
            left.pop()
            rig.engine.flush()

    loop = StepwiseLoop(rig, evict)
    pinning = pin_prompt(loop, "a", request("r", 20, params=READ), lambda: rig.now)
    if works:
        assert asyncio.run(pinning).pinned_tokens == 20
    else:
        with pytest.raises(UnavailableError, match="evicted again"):
            asyncio.run(pinning)
        assert rig.engine.pins.all() == ()
    assert loop.computed == min(evictions + 1, 2)


def test_who_leaves_after_it_was_pinned_and_before_it_is_told_has_pinned_nothing() -> None:
    rig = rig_with(100)
    rig.ask(prompt_of(20), READ)
    told: Future[PinReport] = Future()

    class Slow(StepwiseLoop):
        def call(self, function: Callable[[Engine], T]) -> Future[T]:
            done = super().call(function)
            return told if isinstance(done.result(), PinReport) else done  # type: ignore[return-value]

    async def leave() -> None:
        asked = request("r", 20, params=READ)
        pinning = asyncio.create_task(pin_prompt(Slow(rig), "a", asked, lambda: rig.now))
        await asyncio.sleep(0)
        assert rig.engine.pins.pinned_tokens == 20
        pinning.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pinning

    asyncio.run(leave())
    assert rig.engine.pins.all() == ()
    rig.expect_no_leaks()


def test_pins_leave_the_rest_of_the_pool_to_all_others() -> None:
    """A request that would fit without the pins is told what holds the room; smaller ones go on."""
    rig = rig_with(60, pool=100)
    rig.ask(prompt_of(60), READ)
    assert pin(rig, "a", prompt_of(60))
    refused = rig.ask(prompt_of(50, salt=1), READ)
    assert refused.finished is not None
    assert "pins hold the rest" in (refused.finished.error or "")
    rig.expect_solo(rig.ask(prompt_of(30, salt=2), greedy(10)))
    rig.expect_solo(rig.ask((*prompt_of(60), *prompt_of(30, salt=3)), greedy(10)))


# ---- beside requests that have begun ---------------------------------------------------------------------


def test_a_pin_beside_which_a_running_request_could_not_reach_its_end_is_refused() -> None:
    rig = rig_with(60, pool=100)
    rig.ask(prompt_of(60), READ)
    log = rig.add(prompt_of(20, salt=1), greedy(30))  # Comes to 49 in the pool.
    rig.step()
    with pytest.raises(UnavailableError, match="49 tokens"):
        pin(rig, "a", prompt_of(60))
    assert rig.engine.pins.all() == ()
    assert rig.engine.pins.pinned_tokens == 0
    assert pin(rig, "b", prompt_of(51))
    rig.run()
    rig.expect_solo(log)


def test_what_a_running_request_reads_of_a_pin_takes_no_room_from_it() -> None:
    rig = rig_with(60, pool=100)
    rig.ask(prompt_of(60), READ)
    log = rig.add((*prompt_of(60), *prompt_of(20, salt=1)), greedy(20))
    rig.step()
    assert pin(rig, "a", prompt_of(60))
    rig.run()
    rig.expect_solo(log)


def test_a_preempted_request_is_one_that_has_begun() -> None:
    rig = rig_with(70, pool=100)
    first, second = (rig.add(prompt_of(20, salt=salt), greedy(60)) for salt in (1, 2))
    while rig.engine.stats().preemptions == 0:
        rig.step()
    rig.abort(first)
    assert rig.engine.stats().running == 0
    with pytest.raises(UnavailableError, match="79 tokens"):
        pin(rig, "a", (*first.request.prompt, *first.samples[0].tokens[:10]))
    rig.run()
    rig.expect_solo(second)


def test_an_open_ended_answer_ends_where_a_pin_leaves_no_more_room() -> None:
    rig = rig_with(60, pool=100)
    rig.ask(prompt_of(60), READ)
    log = rig.add(prompt_of(20, salt=1), greedy(None))
    rig.step()
    assert pin(rig, "a", prompt_of(60))
    rig.run()
    assert log.finished is not None
    assert log.finished.error is None
    assert (len(log.samples[0].tokens), log.samples[0].finish) == (40 - 20 + 1, "length")
    # And one that comes later.
    log = rig.ask(prompt_of(30, salt=2), greedy(None))
    assert log.finished is not None
    assert log.finished.error is None
    assert (len(log.samples[0].tokens), log.samples[0].finish) == (40 - 30 + 1, "length")
    # What it finds pinned of its own prefix takes no room.
    log = rig.ask((*prompt_of(60), *prompt_of(30, salt=3)), greedy(None))
    assert len(log.samples[0].tokens) == 100 - 90 + 1


def test_a_request_whose_answer_would_not_fit_beside_the_pins_is_refused_before_it_begins() -> None:
    rig = rig_with(60, pool=100)
    rig.ask(prompt_of(60), READ)
    assert pin(rig, "a", prompt_of(60))
    other = rig.add(prompt_of(10, salt=5), greedy(20))
    rig.step()
    refused = rig.add(prompt_of(20, salt=1), greedy(30))
    rig.step()
    assert refused.finished is not None, "nothing that runs could make the room"
    assert refused.finished.refused
    assert "pins" in (refused.finished.error or "")
    assert refused.samples == {}
    rig.run()
    rig.expect_solo(other)
    rig.expect_solo(rig.ask(prompt_of(20, salt=1), greedy(21)))
    rig.engine.pins.unpin("a")
    rig.expect_no_leaks()


@pytest.mark.parametrize("seed", range(20))
def test_whoever_has_begun_ends_whatever_is_pinned_meanwhile(seed: int) -> None:
    rng = np.random.default_rng(seed)
    rig = rig_with(80, pool=120, page_size=int(rng.choice([1, 4])))
    pinned = 0
    for turn in range(60):
        salt, length = int(rng.integers(4)), int(rng.integers(5, 40))
        if rng.random() < 0.5:
            most = None if rng.random() < 0.3 else int(rng.integers(1, 60))
            rig.add((*prompt_of(length, salt), int(rng.integers(40))), greedy(most))
        elif rng.random() < 0.8:
            with suppress(RequestError, UnavailableError):
                pinned += pin(rig, f"p{turn}", prompt_of(length, salt)) is not None
        else:
            for each in rig.engine.pins.all()[:1]:
                rig.engine.pins.unpin(each.id)
        for _ in range(int(rng.integers(1, 12))):
            rig.step()
    rig.run()
    assert pinned > 0
    for log in rig.logs.values():
        assert log.finished is not None
        assert log.finished.error is None or log.samples == {}, "cut off after some of its answer"
    rig.engine.pins.clear()
    rig.expect_no_leaks()


def test_a_thousand_pins_of_one_prompt_are_the_most_and_all_end_at_once() -> None:
    rig = rig_with(100)
    rig.ask(prompt_of(50), READ)
    for number in range(1024):
        assert rig.engine.pin(str(number), Scope(), prompt_of(50), rig.now) is not None
    with pytest.raises(RequestError, match="1024 pins"):
        rig.engine.pin("one more", Scope(), prompt_of(50), rig.now)
    assert rig.engine.pins.pinned_tokens == len(rig.engine.pins.pages()) == 50
    rig.engine.pins.unpin("7")
    assert rig.engine.pins.pinned_tokens == 50
    rig.engine.flush()
    assert (rig.engine.pins.pinned_tokens, len(rig.engine.pins.pages()), rig.engine.pins.all()) == (0, 0, ())
    rig.cache.check()
