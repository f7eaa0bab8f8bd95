"""What one operation costs: ours beside a heap over all leaves at each call (`classic`), in turns."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from sapwood.config import CacheConfig

from ..document import tell
from ..rows import Goal, Measure, Row
from ..sizes import Size, sized
from ..stats import Pair
from .contenders import Classic, Contender, Ours, Tokens

CLASSIC = "classic"
PREFIX, SUFFIX = 1000, 100
"""Tokens that stored requests share, and that each has of its own."""
BRANCH, LEAF, LEAVES_PER_BRANCH = 16, 16, 1000
"""Of the trees that are evicted from: tokens that leaves share, and of each leaf's own."""


@dataclass(frozen=True, slots=True)
class Task:
    """`call` is called so many times in each turn, and once before all turns."""

    call: Callable[[], object]
    calls: int


@dataclass(frozen=True, slots=True)
class Turns:
    """How often each gets its turn, and the calls of one turn."""

    rounds: int
    calls: int
    slow_calls: int
    """Of those whose cost grows with the tree."""

    @property
    def most_calls(self) -> int:
        return 1 + self.rounds * self.calls

    @staticmethod
    def of(size: Size) -> Turns:
        return sized(size, quick=Turns(2, 2, 1), normal=Turns(15, 50, 2), full=Turns(31, 50, 5))


def rows(size: Size) -> Iterator[Row]:
    turns = Turns.of(size)
    length = sized(size, quick=512, normal=32_768)
    for edges in (1, sized(size, quick=4, normal=64)):
        yield from _match_rows(length, edges, turns)
    yield from _insert_rows(turns)
    yield from _commit_rows(turns)
    for leaves in sized(size, quick=(20, 40), normal=(1_000, 10_000, 100_000)):
        yield from _evict_rows(leaves, turns)


def our_configs() -> Mapping[str, CacheConfig]:
    return {"radix": CacheConfig(), "blocks of 16": CacheConfig(page_size=16, prefix_index="blocks")}


def contenders(capacity: int) -> Mapping[str, Contender]:
    """All of them, empty; `capacity` in tokens."""
    made: dict[str, Contender] = {name: Ours(capacity, config) for name, config in our_configs().items()}
    return {**made, CLASSIC: Classic(capacity)}


def take_turns(tasks: Mapping[str, Task], rounds: int) -> dict[str, list[float]]:
    """Mean microseconds of a call, for each task and round."""
    for task in tasks.values():
        task.call()
    taken: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.perf_counter_ns()
            for _ in range(task.calls):
                task.call()
            taken[name].append((time.perf_counter_ns() - start) / task.calls / 1e3)
    return taken


def _match_rows(length: int, edges: int, turns: Turns) -> Iterator[Row]:
    cut = "1 edge" if edges == 1 else f"{edges} edges"
    tell(f"cache: match of {length:,} tokens over {cut}")
    tokens = np.arange(length, dtype=np.int32)
    cuts = range(length // edges, length + 1, length // edges)
    forks = [np.append(tokens[:end], np.full(16, -end, np.int32)) for end in cuts] if edges > 1 else []
    tasks: dict[str, Task] = {}
    for name, contender in contenders(2 * length).items():
        for stored in (*forks, tokens):
            _store(contender, stored)
        tasks[name] = Task(_matching(contender, tokens), min(turns.calls, 20))
    yield from _rows_of(f"match {length:,} tokens, {cut}", tasks, turns, most=100.0)


def _matching(contender: Contender, tokens: Tokens) -> Callable[[], object]:
    prompt = contender.prompt(tokens)
    assert contender.match(prompt) == len(tokens)
    return lambda: contender.match(prompt)


def _insert_rows(turns: Turns) -> Iterator[Row]:
    tell(f"cache: insert of {SUFFIX} tokens")
    tasks: dict[str, Task] = {}
    for name, contender in contenders(PREFIX + SUFFIX * turns.most_calls + 64).items():
        tasks[name] = Task(_storing(contender, turns.most_calls), turns.calls)
    yield from _rows_of(f"insert {SUFFIX} new tokens after {PREFIX:,} cached", tasks, turns)


def _storing(contender: Contender, count: int) -> Callable[[], object]:
    prefix = np.arange(PREFIX, dtype=np.int32)
    prompts = iter(
        [
            contender.prompt(np.append(prefix, np.arange(SUFFIX, dtype=np.int32) + SUFFIX * number))
            for number in range(count)
        ]
    )
    return lambda: contender.store(next(prompts))


def _commit_rows(turns: Turns) -> Iterator[Row]:
    tell("cache: commit of one decoded token")
    tasks: dict[str, Task] = {}
    for name, contender in contenders(PREFIX + turns.most_calls + 64).items():
        tasks[name] = Task(_decoding(contender, turns.most_calls), turns.calls)
    yield from _rows_of(f"commit one decoded token after {PREFIX:,}", tasks, turns, most=5.0)


def _decoding(contender: Contender, count: int) -> Callable[[], object]:
    tokens = np.arange(PREFIX + count, dtype=np.int32)
    contender.begin(contender.prompt(tokens[:PREFIX]), len(tokens))
    prompts = iter([contender.prompt(tokens[: PREFIX + i]) for i in range(1, count + 1)])
    return lambda: contender.decoded(next(prompts))


def _evict_rows(leaves: int, turns: Turns) -> Iterator[Row]:
    tasks: dict[str, Task] = {}
    counters: dict[str, Callable[[], int]] = {}
    for name, contender in contenders(_tokens_of(leaves)).items():
        tell(f"cache: evict one page of {leaves:,} leaves, {name}")
        _fill(contender, leaves)
        contender.use_up()
        calls = turns.slow_calls if name == CLASSIC else turns.calls
        tasks[name] = Task(contender.take_page, calls)
        counters[name] = contender.touched
    scenario = f"evict one page, {leaves:,} leaves"
    before = {name: counter() for name, counter in counters.items()}
    yield from _rows_of(scenario, tasks, turns, most=50.0, remark="classic frees a whole leaf")
    touched = {
        name: (counter() - before[name]) / (1 + turns.rounds * tasks[name].calls)
        for name, counter in counters.items()
    }
    pair = Pair(touched["radix"], touched[CLASSIC])
    yield Row(f"{scenario}, radix", Measure("touched", "nodes", "lower", counted=True), [pair], CLASSIC)


def _tokens_of(leaves: int) -> int:
    return -(-leaves // LEAVES_PER_BRANCH) * BRANCH + leaves * LEAF


def _fill(contender: Contender, leaves: int) -> None:
    tokens = np.empty(BRANCH + LEAF, np.int32)
    for leaf in range(leaves):
        tokens[:BRANCH] = leaf // LEAVES_PER_BRANCH
        tokens[BRANCH:] = 1_000_000 + leaf
        contender.store(contender.prompt(tokens.copy()))


def _store(contender: Contender, tokens: Tokens) -> None:
    contender.store(contender.prompt(tokens))


def _rows_of(
    scenario: str, tasks: Mapping[str, Task], turns: Turns, most: float | None = None, remark: str = ""
) -> Iterator[Row]:
    """A row for each of ours beside the classic one. `most` is the goal in microseconds."""
    taken = take_turns(tasks, turns.rounds)
    goal = None if most is None else Goal("ours", "at most", most)
    for name in tasks:
        if name != CLASSIC:
            pairs = _pairs(taken[name], taken[CLASSIC])
            measure = Measure("time", "µs", "lower", goal)
            yield Row(f"{scenario}, {name}", measure, pairs, CLASSIC, remark=remark)


def _pairs(ours: Sequence[float], classic: Sequence[float]) -> list[Pair]:
    return [Pair(a, b) for a, b in zip(ours, classic, strict=True)]
