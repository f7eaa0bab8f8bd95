"""The engine's thread: callers that come, leave and wait, from coroutines and from threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager

import pytest

from engine.rig import Log, Rig, greedy, prompt_of
from sapwood.engine import EngineLoop
from sapwood.engine.commands import Add
from sapwood.engine.limits import Admission
from sapwood.engine.mailbox import Mail
from sapwood.errors import ContextLengthError, RequestError, UnavailableError
from sapwood.plan import StepPlan
from sapwood.types import Delta, Event, Finished, Request, SamplingParams, SeqId

PATIENCE = 20.0


@contextmanager
def running(rig: Rig) -> Iterator[EngineLoop]:
    loop = EngineLoop(rig.engine).start()
    try:
        yield loop
    finally:
        loop.shutdown()
        assert not loop.alive
        rig.expect_no_leaks()


def request(name: str, length: int = 20, salt: int = 0, params: SamplingParams | None = None) -> Request:
    return Request(name, prompt_of(length, salt), params or greedy(8))


def forever(name: str, length: int = 20) -> Request:
    return request(name, length, params=greedy(3000))


def wait_until(condition: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE / 0.002)):
        if condition():
            return
        threading.Event().wait(0.002)
    raise AssertionError("waited in vain")


def logged(asked: Request, events: list[Event]) -> Log:
    log = Log(asked)
    for event in events:
        log.take(event)
    return log


def answer_of(loop: EngineLoop, asked: Request) -> list[Event]:
    return list(loop.generate_blocking(asked))


class Gate:
    """A model as slow as one likes: each step waits for the gate."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self, _plan: StepPlan) -> frozenset[SeqId]:
        self.entered.set()
        assert self.open.wait(PATIENCE)
        return frozenset()


def slow(_plan: StepPlan) -> frozenset[SeqId]:
    threading.Event().wait(0.002)
    return frozenset()


# ---- answering -------------------------------------------------------------------------------------------


def test_many_coroutines_at_once_get_their_own_answers() -> None:
    rig = Rig(pool=300)

    async def ask(loop: EngineLoop, i: int) -> None:
        asked = request(f"q{i}", 20 + i, salt=i % 5)
        rig.expect_solo(logged(asked, [event async for event in loop.generate(asked)]))

    async def main(loop: EngineLoop) -> None:
        await asyncio.gather(*(ask(loop, i) for i in range(24)))

    with running(rig) as loop:
        asyncio.run(main(loop))
        assert loop.stats().finished == 24
        assert loop.stats().aborts == 0
        steps = loop.stats().steps
        assert {part: histogram.count for part, histogram in loop.stats().step.items()} == {
            "schedule": steps,
            "run": steps,
            "apply": steps,
        }


def test_threads_are_served_too() -> None:
    rig = Rig(pool=300)
    with running(rig) as loop, ThreadPoolExecutor(8) as threads:
        asked = [request(f"q{i}", 30, salt=i % 4) for i in range(16)]
        for one, events in zip(
            asked, threads.map(lambda r: list(loop.generate_blocking(r)), asked), strict=True
        ):
            rig.expect_solo(logged(one, events))


def test_bad_requests_raise_and_harm_nobody() -> None:
    rig = Rig(context=100)
    with running(rig) as loop:
        with pytest.raises(ContextLengthError, match="100 tokens"):
            list(loop.generate_blocking(request("long", 99)))
        with pytest.raises(RequestError, match="empty"):
            loop.check(Request("empty", (), greedy()))
        loop.check(request("fine"))
        asked = request("fine")
        rig.expect_solo(logged(asked, list(loop.generate_blocking(asked))))


def test_a_fault_while_a_request_is_taken_is_told_to_that_caller_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    rig = Rig()
    admit = rig.engine.admit

    def faulty(admission: Admission, now: float) -> None:
        admit(admission, now)
        if admission.request.id == "b":
            raise TypeError("a fault of ours")

    monkeypatch.setattr(rig.engine, "admit", faulty)
    with running(rig) as loop:
        with pytest.raises(UnavailableError, match="could not be taken"):
            answer_of(loop, request("b", salt=1))
        good = request("a")
        assert logged(good, answer_of(loop, good)).finished
        assert loop.alive
    assert "request b could not be admitted" in caplog.text


def test_a_second_request_with_an_id_in_use_is_refused_and_does_not_end_the_first() -> None:
    rig = Rig(hook=(gate := Gate()))
    asked = request("same")

    async def main(loop: EngineLoop) -> None:
        first = asyncio.create_task(collect(loop, asked))
        await asyncio.to_thread(gate.entered.wait, PATIENCE)
        second = asyncio.create_task(collect(loop, asked))
        await asyncio.sleep(0.01)
        gate.open.set()
        with pytest.raises(RequestError, match="unique"):
            await second
        rig.expect_solo(logged(asked, await first))

    with running(rig) as loop:
        asyncio.run(main(loop))
        assert loop.stats().aborts == 0


def test_a_refused_twin_that_leaves_does_not_end_the_first() -> None:
    rig = Rig(hook=(gate := Gate()))
    asked = request("same")

    async def main(loop: EngineLoop) -> None:
        first = asyncio.create_task(collect(loop, asked))
        await asyncio.to_thread(gate.entered.wait, PATIENCE)
        twin = asyncio.create_task(collect(loop, asked))
        await asyncio.sleep(0.01)
        twin.cancel()
        gate.open.set()
        rig.expect_solo(logged(asked, await first))

    with running(rig) as loop:
        asyncio.run(main(loop))
        assert loop.stats().aborts == 0


def is_closed(loop: EngineLoop) -> bool:
    try:
        loop.check(request("any"))
    except UnavailableError:
        return True
    return False


async def collect(loop: EngineLoop, asked: Request) -> list[Event]:
    return [event async for event in loop.generate(asked)]


# ---- leaving ---------------------------------------------------------------------------------------------


def test_closing_a_stream_frees_it_and_spares_the_others() -> None:
    rig = Rig(hook=slow)

    async def main(loop: EngineLoop) -> None:
        other = asyncio.create_task(collect(loop, request("other", params=greedy(40))))
        seen = 0
        async with aclosing(loop.generate(forever("leaver"))) as stream:  # type: ignore[type-var]
            async for _ in stream:
                seen += 1
                if seen == 5:
                    break
        await asyncio.to_thread(wait_until, lambda: loop.stats().aborts == 1)
        rig.expect_solo(logged(request("other", params=greedy(40)), await other))

    with running(rig) as loop:
        asyncio.run(main(loop))
        assert (loop.stats().running, loop.stats().aborts) == (0, 1)
        assert loop.stats().generated_tokens < 200


def test_cancelling_the_task_of_a_waiting_caller_frees_its_request() -> None:
    rig = Rig(hook=slow, max_running=1)

    async def main(loop: EngineLoop) -> None:
        tasks = [asyncio.create_task(collect(loop, forever(f"c{i}"))) for i in range(4)]
        await asyncio.to_thread(wait_until, lambda: loop.stats().waiting == 3 and loop.stats().running == 1)
        for task in reversed(tasks):  # The queued ones first.
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(result, asyncio.CancelledError) for result in results)
        await asyncio.to_thread(wait_until, lambda: loop.stats().aborts == 4)

    with running(rig) as loop:
        asyncio.run(main(loop))


def test_a_blocking_iterator_that_is_closed_aborts_and_one_read_to_the_end_does_not() -> None:
    rig = Rig(hook=slow)
    with running(rig) as loop:
        stream = loop.generate_blocking(forever("leaver"))
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        wait_until(lambda: loop.stats().aborts == 1)
        for i in range(20):
            assert isinstance(list(loop.generate_blocking(request(f"n{i}")))[-1], Finished)
        assert loop.stats().aborts == 1


def test_a_client_that_leaves_during_its_last_step_has_one_end() -> None:
    rig = Rig(hook=(gate := Gate()))

    async def main(loop: EngineLoop) -> None:
        task = asyncio.create_task(collect(loop, request("last", params=greedy(1))))
        await asyncio.to_thread(gate.entered.wait, PATIENCE)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        gate.open.set()
        await asyncio.to_thread(wait_until, lambda: loop.stats().finished + loop.stats().aborts == 1)

    with running(rig) as loop:
        asyncio.run(main(loop))
        assert (loop.stats().finished, loop.stats().aborts) == (1, 0)


def test_an_event_loop_that_is_gone_takes_its_requests_with_it() -> None:
    rig = Rig(hook=slow)

    async def leave_dirtily(loop: EngineLoop) -> None:
        stream = loop.generate(forever("orphan"))
        await anext(stream)
        kept.append(stream)

    kept: list[object] = []
    with running(rig) as loop:
        event_loop = asyncio.new_event_loop()
        event_loop.run_until_complete(leave_dirtily(loop))
        event_loop.close()
        wait_until(lambda: loop.stats().aborts == 1)
        kept.clear()
        assert list(loop.generate_blocking(request("after")))


class Closed:
    """A mailbox that nobody will ever open again."""

    def put(self, _mail: Mail) -> bool:
        return False


def test_a_mailbox_that_is_gone_when_its_request_starts_ends_that_request_alone() -> None:
    rig = Rig(hook=slow)
    with running(rig) as loop, ThreadPoolExecutor(1) as threads:
        answer = threads.submit(answer_of, loop, request("other", params=greedy(40)))
        for i in range(5):
            asked = request(f"gone{i}", salt=i, params=greedy(3000))
            loop._send(Add(rig.engine.limits.admit(asked), Closed(), 0.0))
        wait_until(lambda: loop.stats().aborts == 5)
        rig.expect_solo(logged(request("other", params=greedy(40)), answer.result(PATIENCE)))
        assert loop.alive
        assert loop.stats().generated_tokens < 200


def test_a_mailbox_that_is_gone_and_whose_request_ends_in_that_step_needs_no_abort() -> None:
    rig = Rig()
    with running(rig) as loop:
        loop._send(Add(rig.engine.limits.admit(request("brief", params=greedy(1))), Closed(), 0.0))
        wait_until(lambda: loop.stats().finished == 1)
        assert list(loop.generate_blocking(request("brief")))
        assert loop.stats().aborts == 0


# ---- while a step is slow --------------------------------------------------------------------------------


def test_nobody_is_blocked_by_a_slow_step() -> None:
    rig = Rig(hook=(gate := Gate()))

    async def main(loop: EngineLoop) -> None:
        task = asyncio.create_task(collect(loop, request("slow")))
        await asyncio.to_thread(gate.entered.wait, PATIENCE)
        # The gate is shut: all of this must return although the engine's thread is in the model.
        assert loop.alive
        assert loop.stats().steps == 0
        with pytest.raises(RequestError, match="empty"):
            await anext(loop.generate(Request("bad", (), greedy())))
        flush = asyncio.create_task(loop.flush())
        await asyncio.sleep(0.01)
        assert not flush.done()
        gate.open.set()
        await flush
        await task

    with running(rig) as loop:
        asyncio.run(main(loop))


def test_flush_and_call_run_between_steps() -> None:
    rig = Rig()
    with running(rig) as loop:
        list(loop.generate_blocking(request("a", 50)))
        assert loop.flush_blocking().flushed_tokens == 57
        list(loop.generate_blocking(request("b", 50)))
        assert loop.stats().reused_tokens == 0
        assert loop.call(lambda engine: engine.busy).result(PATIENCE) is False
        failing = loop.call(lambda _: 1 // 0)
        assert isinstance(failing.exception(PATIENCE), ZeroDivisionError)
        assert loop.alive


# ---- stopping --------------------------------------------------------------------------------------------


def test_shutdown_drains_what_runs_and_takes_nothing_new() -> None:
    rig = Rig(hook=slow)
    with running(rig) as loop, ThreadPoolExecutor(2) as threads:
        asked = request("drained", params=greedy(50))
        answer = threads.submit(answer_of, loop, asked)
        wait_until(lambda: loop.stats().running == 1)
        stop = threads.submit(loop.shutdown, PATIENCE)
        wait_until(lambda: is_closed(loop))
        with pytest.raises(UnavailableError, match="stop"):
            list(loop.generate_blocking(request("late")))
        with pytest.raises(UnavailableError, match="stop"):
            loop.check(request("late"))
        rig.expect_solo(logged(asked, answer.result(PATIENCE)))
        stop.result(PATIENCE)


def test_shutdown_stops_what_outlives_the_drain() -> None:
    rig = Rig(hook=slow, max_running=1)
    with running(rig) as loop, ThreadPoolExecutor(3) as threads:
        answers = [threads.submit(answer_of, loop, forever(f"long{i}")) for i in range(2)]
        wait_until(lambda: loop.stats().running == 1 and loop.stats().waiting == 1)
        loop.shutdown(drain=0.02)
        for answer in answers:
            with pytest.raises(UnavailableError, match="stopped"):
                answer.result(PATIENCE)
        assert not loop.alive
        loop.shutdown()
        with pytest.raises(UnavailableError):
            loop.flush_blocking()


def test_shutdown_of_an_idle_and_of_a_never_started_loop() -> None:
    EngineLoop(Rig().engine).start().shutdown(drain=PATIENCE)
    loop = EngineLoop(Rig().engine)
    assert not loop.alive
    waiting = loop.call(lambda engine: engine.busy)
    loop.shutdown()
    assert isinstance(waiting.exception(PATIENCE), UnavailableError)
    with pytest.raises(UnavailableError):
        list(loop.generate_blocking(request("never")))


def test_who_gave_up_asking_keeps_nobody_else_waiting_when_the_loop_stops() -> None:
    loop = EngineLoop(Rig().engine)
    given_up, waiting = (loop.call(lambda engine: engine.busy) for _ in range(2))
    given_up.cancel()
    loop.shutdown()
    assert isinstance(waiting.exception(PATIENCE), UnavailableError)


# ---- failing ---------------------------------------------------------------------------------------------


def test_a_raising_model_ends_those_requests_with_an_error_and_the_next_is_served() -> None:
    broken = threading.Event()

    def hook(_plan: StepPlan) -> frozenset[SeqId]:
        if broken.is_set():
            raise RuntimeError("out of magic")
        return slow(_plan)

    rig = Rig(hook=hook)
    with running(rig) as loop, ThreadPoolExecutor(4) as threads:
        answers = [threads.submit(answer_of, loop, forever(f"f{i}")) for i in range(3)]
        wait_until(lambda: loop.stats().running == 3)
        broken.set()
        for answer in answers:
            last = answer.result(PATIENCE)[-1]
            assert isinstance(last, Finished)
            assert last.error is not None
            assert "out of magic" in last.error
        broken.clear()
        assert loop.alive
        asked = request("after")
        rig.expect_solo(logged(asked, list(loop.generate_blocking(asked))))
        assert loop.stats().failures == 3


def test_if_the_thread_dies_everybody_is_told(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    rig = Rig(hook=gate, max_running=1)

    def die() -> None:
        raise LookupError("the books are gone")

    async def main(loop: EngineLoop) -> None:
        running_one = asyncio.create_task(collect(loop, forever("running")))
        await asyncio.to_thread(gate.entered.wait, PATIENCE)
        queued = asyncio.create_task(collect(loop, forever("queued")))
        flush = asyncio.create_task(loop.flush())
        await asyncio.sleep(0.01)
        rig.cache.check = die  # type: ignore[method-assign]
        gate.open.set()
        results = await asyncio.gather(running_one, queued, flush, return_exceptions=True)
        assert [type(result) for result in results] == [UnavailableError] * 3
        assert "the books are gone" in str(results[0])
        with pytest.raises(UnavailableError, match="the books are gone"):
            await collect(loop, request("late"))

    loop = EngineLoop(rig.engine).start()
    asyncio.run(main(loop))
    wait_until(lambda: not loop.alive)
    with pytest.raises(UnavailableError):
        loop.check(request("late"))
    loop.shutdown()
    assert "the engine thread died" in caplog.text


def test_deltas_arrive_while_the_answer_grows() -> None:
    rig = Rig(hook=slow)
    with running(rig) as loop:
        kinds = [type(event) for event in loop.generate_blocking(request("a"))]
    assert kinds.count(Delta) == 8
