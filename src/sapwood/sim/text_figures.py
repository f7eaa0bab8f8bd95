"""The figures that the source text prints, each with the experiment that it is of, and those that it leaves out.

The text is an article on prefix caching and RadixAttention that simulates a chat workload; see docs/plan.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal, TypeAlias

from sapwood.sim.listing import Order

CacheName: TypeAlias = Literal["none", "listing", "leaf-first", "optimum"]
Measure: TypeAlias = Literal["hit rate", "prefill", "choices", "requests", "prompt tokens"]


@dataclass(frozen=True, slots=True)
class Experiment:
    """One run over one trace.

    Attributes:
        cache: none; that of the text's listing; ours, which evicts leaves first; or the best there could be.
        capacity_tokens: None keeps all.
        order: in which the queue is served.
        clock: whether the queue holds what has come by then, not the next 32 requests.
        adapters: among the conversations.
        block_tokens: of the cache.
    """

    cache: CacheName = "listing"
    capacity_tokens: int | None = None
    order: Order = "fcfs"
    clock: bool = False
    adapters: int = 1
    block_tokens: int = 16


@dataclass(frozen=True, slots=True)
class TextFigure:
    """What is measured under a name.

    Attributes:
        text: what the text prints; None for what it leaves out.
        unit: %, ms, points, …
        minus: an experiment of which the same is taken off.
    """

    name: str
    text: float | None
    unit: str
    experiment: Experiment
    measure: Measure = "hit rate"
    minus: Experiment | None = None


_NONE = Experiment("none")
_ALL = Experiment()
_AT_50K, _AT_20K, _AT_10K = (Experiment(capacity_tokens=tokens) for tokens in (50_000, 20_000, 10_000))
_LPM_20K, _LPM_10K = (replace(each, order="lpm") for each in (_AT_20K, _AT_10K))

OF_THE_TEXT: tuple[TextFigure, ...] = (
    TextFigure("requests", 1603, "requests", _NONE, "requests"),
    TextFigure("prompt tokens", 3.44, "M tokens", _NONE, "prompt tokens"),
    TextFigure("no cache, prefill", 73.2, "ms", _NONE, "prefill"),
    TextFigure("unlimited", 94.6, "%", _ALL),
    TextFigure("unlimited, prefill", 4.0, "ms", _ALL, "prefill"),
    TextFigure("fcfs 100k", 94.2, "%", Experiment(capacity_tokens=100_000)),
    TextFigure("fcfs 50k", 80.4, "%", _AT_50K),
    TextFigure("fcfs 20k", 45.9, "%", _AT_20K),
    TextFigure("fcfs 10k", 24.8, "%", _AT_10K),
    TextFigure("fcfs 10k, prefill", 55.3, "ms", _AT_10K, "prefill"),
    TextFigure("lpm 20k", 76.5, "%", _LPM_20K),
    TextFigure("lpm 10k", 73.4, "%", _LPM_10K),
    TextFigure("lpm 10k, prefill", 19.7, "ms", _LPM_10K, "prefill"),
    TextFigure("1 adapter, 50k", 80.3, "%", _AT_50K),
    TextFigure("4 adapters, 50k", 69.5, "%", replace(_AT_50K, adapters=4)),
    TextFigure("16 adapters, 50k", 57.6, "%", replace(_AT_50K, adapters=16)),
    TextFigure("64 adapters, 50k", 54.8, "%", replace(_AT_50K, adapters=64)),
    TextFigure("64 adapters, 20k", 24.9, "%", replace(_AT_20K, adapters=64)),
    TextFigure("unlimited, by token", 95.0, "%", Experiment(block_tokens=1)),
    TextFigure("unlimited, by 16-token block", 94.6, "%", _ALL),
)

LEFT_OUT: tuple[TextFigure, ...] = (
    *(
        TextFigure(f"{each.order} {name}, by the clock", None, "%", replace(each, clock=True))
        for name, fcfs in (("20k", _AT_20K), ("10k", _AT_10K))
        for each in (fcfs, replace(fcfs, order="lpm"))
    ),
    TextFigure("lpm 10k, by the clock: another waited", None, "%", replace(_LPM_10K, clock=True), "choices"),
    *(
        figure
        for name, each in (("50k", _AT_50K), ("20k", _AT_20K), ("10k", _AT_10K))
        for figure in (
            TextFigure(f"fcfs {name}, leaf first", None, "%", replace(each, cache="leaf-first")),
            TextFigure(
                f"fcfs {name}, leaf first gains",
                None,
                "points",
                replace(each, cache="leaf-first"),
                minus=each,
            ),
        )
    ),
    *(
        TextFigure(f"best possible {name}", None, "%", replace(each, cache="optimum"))
        for name, each in (("50k", _AT_50K), ("20k", _AT_20K), ("10k", _AT_10K))
    ),
)

DEFINITIONS: Mapping[str, str] = MappingProxyType(
    {
        "hit rate": "prompt tokens reused, in whole blocks, per prompt token of all requests; the cache begins empty",
        "prefill": "F(n, m) of Llama 3 8B over half of an H100's 989 TFLOP/s, each request alone; mean over requests",
        "fcfs, lpm": "of the next 32 requests the first come, or the one with the longest cached prefix, goes first",
        "by the clock": "the queue holds those that have come; one after the other is read, as fast as F(n, m) says",
        "leaf first": "our own cache (lru) in the same queue: what nothing follows goes first, not the root",
        "best possible": "no eviction could reuse more in the order of arrival; what is running needs no room",
        "ours": "mean over the seeds; ± is the standard deviation between them",
        "difference": "ours less the text's; max_difference is the largest of the hit rates', in points",
    }
)
"""What the words mean, printed with the figures."""
