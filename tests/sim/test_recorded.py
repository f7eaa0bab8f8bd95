"""The same captured run, simulated: hit tokens are the engine's to the token, and so is the order of admission."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from engine.rig import Rig, greedy, prompt_of
from sapwood.config import CacheConfig, OrderName, SchedulerConfig, SpeculateName
from sapwood.engine import Capture, EngineLoop
from sapwood.errors import UsageError
from sapwood.sim.fitted import Observation, fit
from sapwood.sim.readers.capture import CapturedRun, StepTimes, read_capture
from sapwood.sim.readers.source import Source
from sapwood.sim.recorded import Again, simulate_again
from sapwood.types import Request, Retain, Scope

ENDS = (3, 7)
"""Some answers end before they are as long as was asked for."""


class ToFile:
    lost = 0

    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, line: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)


def captured(
    path: Path,
    requests: Iterable[Request],
    speculate: SpeculateName = "off",
    policy: OrderName = "default",
    meanwhile: Callable[[EngineLoop], object] = lambda _: None,
) -> CapturedRun:
    """Several clients at once, through a real loop with its own clock."""
    rig = Rig(512, chunk=48, max_running=3, policy=policy, context=1024, eos=ENDS, speculate=speculate)
    header = {
        "capacity_pages": 512,
        "context": 1024,
        "eos": ENDS,
        "cache": asdict(CacheConfig(page_size=1)),
        "scheduler": asdict(SchedulerConfig(48, 3, schedule_policy=policy, speculate=speculate)),
    }
    loop = EngineLoop(rig.engine, capture=Capture(ToFile(path), header)).start()
    try:
        with ThreadPoolExecutor(6) as pool:
            answers = pool.map(lambda one: list(loop.generate_blocking(one)), requests)
            meanwhile(loop)
            list(answers)
    finally:
        loop.shutdown()
    return read_capture(Source(path))[-1]


def crowd() -> list[Request]:
    """More than fit at once, some alike, so that there is reuse, waiting and eviction."""
    return [
        Request(f"r{i}", prompt_of(60 + 7 * (i % 4), i % 3), greedy(4 + i % 9), Scope(salt=f"s{i % 2}"))
        for i in range(36)
    ]


def expect_equal(again: Again) -> None:
    requests, run = again.captured.requests, again.simulated
    assert run.reused.tolist() == [request.reused for request in requests]
    assert [requests[index].row.fields["started_order"] for index in run.order.tolist()] == [
        *range(len(run.order))
    ]
    begun = [index for index, request in enumerate(requests) if request.started_step is not None]
    assert sorted(run.order.tolist()) == begun
    for index in begun:
        missed = {reason: int(column[index]) for reason, column in run.missed.items() if column[index]}
        assert missed == requests[index].row.fields["missed"]
    assert int(run.steps.sum()) == len(again.run_seconds)


@pytest.mark.parametrize("speculate", ["off", "auto"])
def test_a_captured_run_simulated_has_its_hits_and_order(tmp_path: Path, speculate: SpeculateName) -> None:
    again = simulate_again(captured(tmp_path / "run.jsonl", crowd(), speculate))
    expect_equal(again)
    assert again.simulated.reused.sum() > 0
    assert again.simulated.evicted_tokens > 0
    assert (again.simulated.output_tokens < [request.params.max_tokens or 0 for request in crowd()]).any()


@pytest.mark.parametrize("speculate", ["off", "auto"])
def test_what_requests_ask_for_besides_is_done_again(tmp_path: Path, speculate: SpeculateName) -> None:
    """Some reuse nothing, some are more urgent, some want to be kept, some may be as long as fits."""
    asked = []
    for i, request in enumerate(crowd()):
        params = replace(request.params, max_tokens=None) if i == 7 else request.params
        wishes = (Retain(50, None, 0, 40),) if i % 5 == 0 else ()
        others = replace(request, priority=i % 3 - 1, reuse=i % 4 != 1, retain=wishes)
        asked.append(replace(others, params=params))
    run = captured(tmp_path / "run.jsonl", asked, speculate, "priority")
    again = simulate_again(run)
    expect_equal(again)
    assert again.simulated.reused.sum() > 0
    assert all(
        again.simulated.reused[n] == 0 for n, one in enumerate(run.requests) if int(one.id[1:]) % 4 == 1
    )


@pytest.mark.parametrize("speculate", ["off", "auto"])
def test_clients_that_leave_and_several_samples_are_done_again(
    tmp_path: Path, speculate: SpeculateName
) -> None:
    def leave(loop: EngineLoop) -> None:
        for i in range(12):
            events = loop.generate_blocking(Request(f"gone{i}", prompt_of(80 + i, i % 3), greedy(200)))
            next(events)
            events.close()  # type: ignore[attr-defined]

    asked = [
        replace(request, params=replace(request.params, n=1 + i % 3, temperature=1.0, seed=i))
        for i, request in enumerate(crowd())
    ]
    run = captured(tmp_path / "run.jsonl", asked, speculate, meanwhile=leave)
    assert sum(request.aborted for request in run.requests) > 6
    expect_equal(simulate_again(run))


def test_a_flush_in_the_midst_is_done_again(tmp_path: Path) -> None:
    def flush(loop: EngineLoop) -> None:
        while loop.stats().finished < 6:
            time.sleep(0.001)
        loop.flush_blocking()

    requests = [Request(f"r{i}", prompt_of(120), greedy(4 + i % 9)) for i in range(30)]
    run = captured(tmp_path / "run.jsonl", requests, meanwhile=flush)
    assert 0 < run.deeds[0].place.step < len(run.steps)
    expect_equal(simulate_again(run))
    run.deeds.clear()
    with pytest.raises(UsageError, match=r"request r\d+ reused \d+ tokens, in its simulation \d+\n"):
        simulate_again(run)


def test_what_cannot_be_done_again_is_told_with_all_reasons(tmp_path: Path) -> None:
    asked = crowd()[:6]
    asked[2] = replace(asked[2], params=greedy(5, n=2, best_of=3))
    asked[3] = replace(asked[3], params=greedy(5, prompt_logprobs=1))
    run = captured(tmp_path / "run.jsonl", asked)
    failed = run.requests[0]
    told = {**failed.row.fields, "error": "the model failed: out of luck", "finish": ["error"]}
    run.requests[0] = replace(failed, row=replace(failed.row, fields=told))
    run.gaps.append("pins held pages")
    with pytest.raises(UsageError) as caught:
        simulate_again(run)
    for reason in (
        "pins held pages",
        "1 of 6 requests failed",
        "1 of 6 requests drew more samples than they gave",
        "1 of 6 requests wanted scores",
    ):
        assert reason in caught.value.message
    assert caught.value.hint is not None


def test_a_run_of_which_something_else_comes_is_told(tmp_path: Path) -> None:
    run = captured(tmp_path / "run.jsonl", crowd())
    whole = list(run.steps)
    run.steps = [*whole, StepTimes(whole[-1].began + 9, whole[-1].began + 10)]
    with pytest.raises(UsageError, match=rf"step {len(whole)} had something to run, other than in its"):
        simulate_again(run)
    run.steps = whole[:-1]
    with pytest.raises(UsageError, match="the clock of the last steps is missing"):
        simulate_again(run)
    run.steps = whole
    run.ended = False
    with pytest.raises(UsageError, match="not stopped in the ordinary way"):
        simulate_again(run)
    run.ended = True
    late = {**run.requests[0].row.fields, "started_order": 9}
    first, run.requests[0] = (
        run.requests[0],
        replace(run.requests[0], row=replace(run.requests[0].row, fields=late)),
    )
    with pytest.raises(UsageError, match=rf"request {first.id} was number 9 to begin"):
        simulate_again(run)
    run.requests[0] = first
    last = run.requests[-1]
    run.requests[-1] = replace(last, ended_step=last.ended_step - 1)
    with pytest.raises(UsageError, match=rf"request {last.id} ended in step"):
        simulate_again(run)
    run.requests[-1] = last
    run.requests[5] = replace(run.requests[5], reused=run.requests[5].reused + 1)
    with pytest.raises(UsageError, match=rf"request {run.requests[5].id} reused"):
        simulate_again(run)


def test_its_steps_can_be_fitted(tmp_path: Path) -> None:
    again = simulate_again(captured(tmp_path / "run.jsonl", crowd(), "off"))
    seen = [Observation.of_step(*each) for each in zip(again.shapes, again.run_seconds, strict=True)]
    cost = fit("captured", seen)
    assert cost.measurements == len(again.shapes) > 30
    assert all(cost.step_seconds(shape) > 0 for shape in again.shapes)


def test_a_capture_of_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no request that was served"):
        simulate_again(captured(tmp_path / "run.jsonl", [], "off"))
