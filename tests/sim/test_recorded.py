"""The same captured run, simulated: hit tokens are the engine's to the token, and so is the order of admission."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from engine.rig import Rig, greedy, prompt_of
from sapwood.config import CacheConfig, SchedulerConfig, SpeculateName
from sapwood.engine import Capture, EngineLoop
from sapwood.errors import UsageError
from sapwood.sim.fitted import Observation, fit
from sapwood.sim.readers.capture import CapturedRun, read_capture
from sapwood.sim.readers.source import Source
from sapwood.sim.recorded import Again, simulate_again
from sapwood.types import Request, Scope

ENDS = (3, 7)
"""Some answers end before they are as long as was asked for."""


class ToFile:
    def __init__(self, path: Path) -> None:
        self._path = path

    def write(self, line: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            print(json.dumps(line), file=file)


def captured(path: Path, requests: Iterable[Request], speculate: SpeculateName) -> CapturedRun:
    """Several clients at once, through a real loop with its own clock."""
    rig = Rig(512, chunk=48, max_running=3, policy="default", context=1024, eos=ENDS, speculate=speculate)
    header = {
        "capacity_pages": 512,
        "context": 1024,
        "cache": asdict(CacheConfig(page_size=1)),
        "scheduler": asdict(SchedulerConfig(48, 3, schedule_policy="default", speculate=speculate)),
    }
    loop = EngineLoop(rig.engine, capture=Capture(ToFile(path), header)).start()
    try:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(lambda one: list(loop.generate_blocking(one)), requests))
    finally:
        loop.shutdown()
    (run,) = read_capture(Source(path))
    return run


def crowd() -> list[Request]:
    """More than fit at once, some alike, so that there is reuse, waiting and eviction."""
    return [
        Request(f"r{i}", prompt_of(60 + 7 * (i % 4), i % 3), greedy(4 + i % 9), Scope(salt=f"s{i % 2}"))
        for i in range(36)
    ]


def expect_equal(again: Again) -> None:
    requests, run = again.captured.requests, again.simulated
    assert run.reused.tolist() == [request.reused for request in requests]
    steps = [requests[index].started_step or 0 for index in run.order.tolist()]
    assert steps == sorted(steps)
    assert sorted(run.order.tolist()) == list(range(len(requests)))
    assert int(run.steps.sum()) == len(again.run_seconds)


@pytest.mark.parametrize("speculate", ["off", "auto"])
def test_a_captured_run_simulated_has_its_hits_and_order(tmp_path: Path, speculate: SpeculateName) -> None:
    again = simulate_again(captured(tmp_path / "run.jsonl", crowd(), speculate))
    expect_equal(again)
    assert again.simulated.reused.sum() > 0
    assert again.simulated.evicted_tokens > 0
    assert (again.simulated.output_tokens < [request.params.max_tokens or 0 for request in crowd()]).any()


def test_its_steps_can_be_fitted(tmp_path: Path) -> None:
    again = simulate_again(captured(tmp_path / "run.jsonl", crowd(), "off"))
    seen = [Observation.of_step(*each) for each in zip(again.shapes, again.run_seconds, strict=True)]
    cost = fit("captured", seen)
    assert cost.measurements == len(again.shapes) > 30
    assert all(cost.step_seconds(shape) > 0 for shape in again.shapes)


def test_a_capture_of_nothing_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no request that was served"):
        simulate_again(captured(tmp_path / "run.jsonl", [], "off"))
