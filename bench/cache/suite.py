"""`bench cache`: all its cases in one table and one document."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

from sapwood.config import CacheConfig, SchedulerConfig

from ..document import Output, emit, make_document
from ..errors import BenchUsageError
from ..noise import Moment
from ..rows import Row
from ..sizes import Size
from ..traces import BUNDLED
from . import bookkeeping, hot_and_cold, memory, operations, starved_chat, trace_replay

Case = Callable[[Size], Iterator[Row]]


def run_cache(options: argparse.Namespace) -> int:
    before = Moment.now()
    cases = chosen_cases(options.cases, options.trace)
    rows = [row for case in cases.values() for row in case(options.size)]
    cache = CacheConfig()
    regime = {
        "suite": "cache",
        "size": options.size,
        "cases": list(cases),
        "page_size": cache.page_size,
        "index": cache.prefix_index,
        "eviction": cache.eviction_policy,
        "order": SchedulerConfig().schedule_policy,
        "traces": [file.name for file in options.trace or BUNDLED],
    }
    emit(make_document(regime, rows, before, options.typed), Output(options.out, options.json))
    return 0


def chosen_cases(names: str | None, traces: Sequence[Path]) -> Mapping[str, Case]:
    """In the order of the table. Raises BenchUsageError for a name that no case has."""
    cases: dict[str, Case] = {
        "operations": operations.rows,
        "memory": memory.rows,
        "bookkeeping": bookkeeping.rows,
        "starved_chat": starved_chat.rows,
        "hot_and_cold": hot_and_cold.rows,
        "trace_replay": partial(trace_replay.rows, files=tuple(traces) or BUNDLED),
    }
    if names is None:
        return cases
    wanted = [name.strip() for name in names.split(",")]
    for name in wanted:
        if name not in cases:
            raise BenchUsageError(f"no case is called {name}; there are {', '.join(cases)}")
    return {name: case for name, case in cases.items() if name in wanted}
