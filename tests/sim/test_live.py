"""Who is let in and leaves, one by one; `test_replica.py` has what becomes of them."""

from __future__ import annotations

import numpy as np

from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig, SchedulerConfig
from sapwood.sched import Bounds, Scheduler
from sapwood.sim import Setup, Trace
from sapwood.sim.live import LiveRequests
from sapwood.sim.record import Record
from sapwood.sim.visit import Visit
from sim.test_simulate import Simple, ask


def visit(index: int, prompt: int, answers: int = 1) -> Visit:
    """Answers of 5 tokens."""
    tokens = np.arange(prompt + 5, dtype=np.int32)
    return Visit(index, Namespace("m"), tokens, prompt, others=(tokens,) * (answers - 1))


def nobody() -> tuple[LiveRequests, Record]:
    setup = Setup(100, CacheConfig(), SchedulerConfig(speculate="off"), context=50)
    record = Record(Trace.of("t", 1, [ask(0.0, 10, 5)] * 3), setup, "none")
    scheduler = Scheduler(PrefixCache(setup.pages, setup.cache), setup.scheduler)
    return LiveRequests(scheduler, Bounds(50, 100), Simple(), record), record


def test_who_is_let_in_is_here_by_each_sample_until_it_is_stopped() -> None:
    live, _ = nobody()
    live.admit(visit(2, 20, answers=2))
    [found] = [live.find(index) for index in range(3) if live.find(index) is not None]
    assert found is not None
    assert (len(live), found.max_len, live.unread, found.over) == (1, 25, 1.2, False)
    live.begin_sample(found)
    first, second = found.samples
    assert (len(live), live[first.id], live[second.id]) == (2, found, found)
    assert {seq: len(tokens) for seq, tokens in live.tokens.items()} == {first.id: 25, second.id: 25}
    live.forget(first.id)
    live.stop(found)
    assert (len(live), live.tokens, live.find(2), live.unread) == (0, {}, None, 0)


def test_what_is_too_long_is_refused_once() -> None:
    live, record = nobody()
    live.admit(visit(1, 46))
    assert len(live) == 0
    assert [each.index for each in live.take_refused()] == [1]
    assert live.take_refused() == []
    assert list(record.run(0, 0).refusals) == [1]
