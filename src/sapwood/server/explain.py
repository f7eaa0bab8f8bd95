"""Where the tokens of a request's prompt came from, and why the others were computed."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

from sapwood.chat import Json
from sapwood.errors import NotFoundError
from sapwood.types import Usage

TIERS = ("hot", "host", "disk", "shared")
REASONS = (
    "never_seen",
    "diverged",
    "evicted",
    "other_namespace",
    "page_tail",
    "in_flight",
    "last_token",
    "reuse_off",
)
KEPT = 1024
"""Calls that are remembered."""


@dataclass(slots=True)
class _Call:
    id: str
    usages: dict[int, Usage] = field(default_factory=dict)
    """By the index of a prompt, as far as they were admitted."""


class Explanations:
    """The latest calls, by the id of their answer or by `x-request-id`. For one thread."""

    def __init__(self, kept: int = KEPT) -> None:
        self._kept = kept
        self._calls: OrderedDict[str, _Call] = OrderedDict()

    def note(self, call: str, prompt: int, usage: Usage) -> None:
        """Remember what a prompt of `call` (whose id is `prefix-key`) is now known to cost."""
        entry = self._calls.setdefault(_key(call), _Call(call))
        entry.usages[prompt] = usage
        while len(self._calls) > self._kept:
            self._calls.popitem(last=False)

    def get(self, id: str) -> Json:
        """The explanation of a call. Raises NotFoundError for one that was never admitted, or is forgotten."""
        entry = self._calls.get(_key(id))
        if entry is None or id not in (entry.id, f"req-{_key(id)}"):
            raise NotFoundError(
                f"there is no request {id[:100]!r} among the latest {self._kept} that were admitted",
                param="id",
                code="request_not_found",
            )
        explained = {"id": entry.id, **_explained(entry.usages.values())}
        if len(entry.usages) > 1:
            explained["requests"] = [
                {"prompt": prompt, **_explained([entry.usages[prompt]])} for prompt in sorted(entry.usages)
            ]
        return explained


def cache_header(usages: Iterable[Usage]) -> str:
    """The short form: what was reused, what was not, and of the latter how much for which reason."""
    usages = list(usages)
    missed = missed_tokens(usages)
    fields = {"reused": sum(usage.reused for usage in usages), "missed": sum(missed.values())}
    return ";".join(f"{name}={count}" for name, count in [*fields.items(), *missed.items()])


def _explained(usages: Iterable[Usage]) -> Json:
    usages = list(usages)
    return {
        "prompt_tokens": sum(usage.prompt_tokens for usage in usages),
        "reused": {**dict.fromkeys(TIERS, 0), "hot": sum(usage.reused for usage in usages)},
        "missed": {**dict.fromkeys(REASONS, 0), **missed_tokens(usages)},
        "diverged_at": None,
        "evicted_seconds_ago": None,
        "waited_for_leader_ms": 0,
        "time_saved_ms": None,
    }


def missed_tokens(usages: Iterable[Usage]) -> dict[str, int]:
    """Reason → tokens, without zeros, in the order of REASONS."""
    total: Counter[str] = Counter()
    for usage in usages:
        total.update(usage.missed)
    order = [*REASONS, *sorted(total.keys() - set(REASONS))]
    return {reason: total[reason] for reason in order if total[reason]}


def _key(id: str) -> str:
    return id.partition("-")[2]
