"""The engine's own counters as Prometheus text. Nothing is counted here: a scrape reads one snapshot."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from sapwood.engine import EngineStats, HistogramSnapshot, TenantCounts
from sapwood.server.explain import REASONS

Labels = tuple[str, ...]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_HIT_RATE_HELP = (
    "Share of the prompt tokens of late that would be reused, by memory as a multiple of the present one; "
    "estimated from a sample."
)


class EngineCollector(Collector):
    """Turns `EngineStats` into metric families, labelled with the served model's name.

    With `tenants`, what can be said of one is labelled with its name too; there is a sample for each of them and for
    nobody else, so that the number of time series is known. With `capture_lost`, it says how many lines a capture lost.
    """

    def __init__(
        self,
        model: str,
        snapshot: Callable[[], EngineStats],
        tenants: Sequence[str] | None = None,
        capture_lost: int | None = None,
    ) -> None:
        self._model, self._snapshot, self._tenants = model, snapshot, tenants
        self._capture_lost = capture_lost

    def collect(self) -> Iterator[Metric]:
        stats = self._snapshot()
        yield from self._owned_counters(stats)
        yield from self._counters(stats)
        yield from self._vllm_counters(stats)
        yield from self._gauges(stats)
        yield from self._histograms(stats)

    def _owned_counters(self, stats: EngineStats) -> Iterator[Metric]:
        """Those that are somebody's."""
        labels = () if self._tenants is None else ("tenant",)
        owned = self._owned(stats)
        plain = {
            "prompt_tokens": "Prompt tokens of requests that were admitted.",
            "generated_tokens": "Tokens drawn.",
            "finished": "Requests that were answered.",
        }
        for name, help_text in plain.items():
            values: dict[Labels, int] = {owner: getattr(counts, name) for owner, counts in owned.items()}
            yield self._counter(name, help_text, values, *labels)
        reused: dict[Labels, int] = {("hot", *owner): counts.reused_tokens for owner, counts in owned.items()}
        yield self._counter("reused_tokens", "Prompt tokens not computed, by tier.", reused, "tier", *labels)
        missed: dict[Labels, int] = {
            (reason, *owner): counts.missed_tokens.get(reason, 0)
            for owner, counts in owned.items()
            for reason in [*REASONS, *sorted(counts.missed_tokens.keys() - set(REASONS))]
        }
        yield self._counter("missed_tokens", "Prompt tokens computed, by reason.", missed, "reason", *labels)

    def _owned(self, stats: EngineStats) -> Mapping[Labels, EngineStats | TenantCounts]:
        if self._tenants is None:
            return {(): stats}
        return {(name,): stats.tenants.get(name, TenantCounts()) for name in self._tenants}

    def _counters(self, stats: EngineStats) -> Iterator[Metric]:
        plain = {
            "computed_tokens": ("Tokens computed, repeated work included.", stats.computed_tokens),
            "guessed_tokens": ("Tokens of answers guessed ahead and checked.", stats.guessed_tokens),
            "guessed_right_tokens": ("Guesses that became part of an answer.", stats.guessed_right_tokens),
            "preemptions": ("Times a running sequence gave up its pages.", stats.preemptions),
            "aborts": ("Requests whose client went away.", stats.aborts),
            "failures": ("Requests that ended with an error.", stats.failures),
        }
        for name, (help_text, value) in plain.items():
            yield self._counter(name, help_text, {(): value})
        if self._capture_lost is not None:
            help_text = (
                "Lines of the capture that were not written: its disk was slow or full, its file was removed, or they "
                "were no JSON."
            )
            yield self._counter("capture_lost", help_text, {(): self._capture_lost})
        evicted: dict[Labels, int] = {("hot",): stats.evicted_tokens}
        yield self._counter("evicted_tokens", "Tokens whose KV was given up, by tier.", evicted, "tier")

    def _vllm_counters(self, stats: EngineStats) -> Iterator[Metric]:
        """Prefix hits under vLLM's names too: dashboards and routers made for it read these two."""
        looked_up = stats.prompt_tokens - stats.missed_tokens.get("reuse_off", 0)
        for name, help_text, value in (
            ("queries", "Prompt tokens looked up in the prefix cache.", looked_up),
            ("hits", "Prompt tokens found in the prefix cache.", stats.reused_tokens),
        ):
            family = CounterMetricFamily(
                f"vllm:prefix_cache_{name}", help_text, labels=("model_name", "engine")
            )
            family.add_metric((self._model, "0"), value)
            yield family

    def _gauges(self, stats: EngineStats) -> Iterator[Metric]:
        pages: dict[Labels, int] = {
            (state,): getattr(stats.pages, state) for state in ("free", "tree", "leased", "private")
        }
        yield self._gauge("pages", "Pages of the hot pool, by state; they sum to the pool.", pages, "state")
        yield self._gauge("pinned_tokens", "Tokens that pins hold.", {(): stats.pinned_tokens})
        yield self._gauge("score_bytes", "Kept of prompts' logprobs.", {(): stats.score_bytes})
        yield self._gauge("requests_running", "Requests with a running sample.", {(): stats.running})
        yield self._gauge("requests_waiting", "Requests with no running sample.", {(): stats.waiting})
        curve: dict[Labels, float] = {
            (f"{point.times:g}x",): point.hit_rate for point in stats.curve if point.hit_rate is not None
        }
        if curve:
            yield self._gauge("hit_rate_estimate", _HIT_RATE_HELP, curve, "capacity")

    def _histograms(self, stats: EngineStats) -> Iterator[Metric]:
        waits = {
            "time_to_first_token_seconds": ("From arrival to the first token.", stats.time_to_first_token),
            "inter_token_seconds": ("Between two tokens of a sample.", stats.inter_token),
            "queue_seconds": ("From arrival to the first work.", stats.queue),
        }
        for name, (help_text, snapshot) in waits.items():
            yield self._histogram(name, help_text, {(): snapshot})
        steps: dict[Labels, HistogramSnapshot] = {(part,): snapshot for part, snapshot in stats.step.items()}
        yield self._histogram("step_seconds", "Parts of a step.", steps, "part")

    def _counter(
        self, name: str, help_text: str, values: dict[Labels, int], *labels: str
    ) -> CounterMetricFamily:
        family = CounterMetricFamily(f"sapwood_{name}", help_text, labels=("model", *labels))
        for label_values, value in values.items():
            family.add_metric((self._model, *label_values), value)
        return family

    def _gauge(
        self, name: str, help_text: str, values: Mapping[Labels, float], *labels: str
    ) -> GaugeMetricFamily:
        family = GaugeMetricFamily(f"sapwood_{name}", help_text, labels=("model", *labels))
        for label_values, value in values.items():
            family.add_metric((self._model, *label_values), value)
        return family

    def _histogram(
        self, name: str, help_text: str, values: dict[Labels, HistogramSnapshot], *labels: str
    ) -> HistogramMetricFamily:
        family = HistogramMetricFamily(f"sapwood_{name}", help_text, labels=("model", *labels))
        for label_values, snapshot in values.items():
            edges = [*(repr(bound) for bound in snapshot.bounds), "+Inf"]
            buckets = list(zip(edges, accumulate(snapshot.counts), strict=True))
            family.add_metric((self._model, *label_values), buckets, snapshot.sum)
        return family


def metrics_text(
    model: str,
    snapshot: Callable[[], EngineStats],
    tenants: Sequence[str] | None = None,
    capture_lost: int | None = None,
) -> bytes:
    """The Prometheus exposition of one snapshot; `tenants` and `capture_lost` as in `EngineCollector`."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(EngineCollector(model, snapshot, tenants, capture_lost))
    return generate_latest(registry)
