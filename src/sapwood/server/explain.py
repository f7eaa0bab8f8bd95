"""Where the tokens of a request's prompt came from, and why the others were computed."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field

from starlette.concurrency import run_in_threadpool

from sapwood.chat import Json, Place
from sapwood.errors import NotFoundError
from sapwood.server.caller import Caller
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
KEPT_PROMPTS = 65_536
"""Of all calls of one tenant together."""
PLACES = 16
"""Prompts of one call whose place of divergence is looked for: it takes text to remember."""
HERE = "[HERE]"
"""Marks the place in a text."""

_log = logging.getLogger("sapwood.server")


@dataclass(slots=True)
class _Call:
    """What is known of a call's prompts, by their index, as far as they were admitted."""

    id: str
    usages: dict[int, Usage] = field(default_factory=dict)
    places: dict[int, Place] = field(default_factory=dict)
    """Where they diverged."""
    sought: set[int] = field(default_factory=set)
    """Those whose places were or are being looked for."""
    pending: set[asyncio.Task[None]] = field(default_factory=set)
    """Looking."""


class Explanations:
    """The latest calls of each tenant, by the id of their answer or by `x-request-id`. For one thread."""

    def __init__(self, kept: int = KEPT, kept_prompts: int = KEPT_PROMPTS) -> None:
        self._kept, self._kept_prompts = kept, kept_prompts
        # One shelf for each, so that how soon a call is forgotten tells nothing of what others ask.
        self._shelves: dict[str, OrderedDict[str, _Call]] = {}
        self._prompts: Counter[str] = Counter()

    def note(self, call: str, prompt: int, usage: Usage, tenant: str = "") -> None:
        """Remember what a prompt of `call` (whose id is `prefix-key`) is now known to cost."""
        shelf = self._shelves.setdefault(tenant, OrderedDict())
        entry = shelf.setdefault(_key(call), _Call(call))
        shelf.move_to_end(_key(call))
        self._prompts[tenant] += prompt not in entry.usages
        entry.usages[prompt] = usage
        while len(shelf) > self._kept or (self._prompts[tenant] > self._kept_prompts and len(shelf) > 1):
            _, forgotten = shelf.popitem(last=False)
            self._prompts[tenant] -= len(forgotten.usages)

    def look_for(self, call: str, prompt: int, find: Callable[[], Place], tenant: str = "") -> None:
        """Have the place where a noted prompt diverged found in a worker thread, once."""
        entry = self._shelves[tenant][_key(call)]
        if prompt in entry.sought or prompt >= PLACES:
            return
        entry.sought.add(prompt)
        task = asyncio.create_task(_keep(entry, prompt, find))
        entry.pending.add(task)
        task.add_done_callback(entry.pending.discard)

    async def settled(self, id: str, caller: Caller) -> Json:
        """`get`, when all places that are being looked for have been found."""
        entry = self._find(id, caller)
        if entry.pending:
            await asyncio.wait(entry.pending)
        return self._told(entry)

    def get(self, id: str, caller: Caller) -> Json:
        """The explanation of a call of the caller's own, for an operator of anyone's.

        Raises NotFoundError for one that was never admitted, is forgotten, or is another's.
        """
        return self._told(self._find(id, caller))

    def _find(self, id: str, caller: Caller) -> _Call:
        tenants = [*self._shelves] if caller.operator else [caller.tenant]
        for tenant in tenants:
            entry = self._shelves.get(tenant, OrderedDict[str, _Call]()).get(_key(id))
            if entry is not None and id in (entry.id, f"req-{_key(id)}"):
                return entry
        raise NotFoundError(
            f"there is no request {id[:100]!r} among the latest {self._kept} that were admitted",
            param="id",
            code="request_not_found",
        )

    def _told(self, entry: _Call) -> Json:
        explained = {"id": entry.id, **_explained(entry.usages, entry.places)}
        if len(entry.usages) > 1:
            explained["requests"] = [
                {"prompt": prompt, **_explained({prompt: entry.usages[prompt]}, entry.places)}
                for prompt in sorted(entry.usages)
            ]
        return explained


def cache_header(usages: Iterable[Usage]) -> str:
    """The short form: what was reused, what was not, and of the latter how much for which reason."""
    usages = list(usages)
    missed = missed_tokens(usages)
    fields = {"reused": sum(usage.reused for usage in usages), "missed": sum(missed.values())}
    return ";".join(f"{name}={count}" for name, count in [*fields.items(), *missed.items()])


def _explained(usages: Mapping[int, Usage], places: Mapping[int, Place]) -> Json:
    """Of several prompts: tokens and saved time in all, the longest wait, and the first that has an answer."""
    each = [usages[prompt] for prompt in sorted(usages)]
    diverged = (_diverged_at(prompt, usages[prompt], places) for prompt in sorted(usages))
    ago = (usage.evicted_seconds_ago for usage in each)
    saved = [usage.saved_seconds for usage in each if usage.saved_seconds is not None]
    return {
        "prompt_tokens": sum(usage.prompt_tokens for usage in each),
        "reused": {**dict.fromkeys(TIERS, 0), "hot": sum(usage.reused for usage in each)},
        "missed": {**dict.fromkeys(REASONS, 0), **missed_tokens(each)},
        "diverged_at": next((at for at in diverged if at is not None), None),
        "evicted_seconds_ago": next((round(seconds, 1) for seconds in ago if seconds is not None), None),
        "waited_for_leader_ms": max(round(1000 * usage.waited_for_leader_seconds) for usage in each),
        "time_saved_ms": round(1000 * sum(saved)) if len(saved) == len(each) else None,
        "guessed": {
            "tokens": sum(usage.guessed for usage in each),
            "right": sum(usage.guessed_right for usage in each),
        },
    }


def _diverged_at(prompt: int, usage: Usage, places: Mapping[int, Place]) -> Json | None:
    if usage.diverged_at is None:
        return None
    place = places.get(prompt)
    if place is None:
        return {"token": usage.diverged_at, "message": None, "part": None, "text": None}
    shown = asdict(place)
    shown["text"] = f"{place.before}{HERE}{place.after}"
    return shown


async def _keep(entry: _Call, prompt: int, find: Callable[[], Place]) -> None:
    try:
        entry.places[prompt] = await run_in_threadpool(find)
    except Exception:  # An explanation without a place is better than none; the answer itself is not touched.
        _log.exception("the place where prompt %d of %s diverged was not found", prompt, entry.id)


def missed_tokens(usages: Iterable[Usage]) -> dict[str, int]:
    """Reason → tokens, without zeros, in the order of REASONS."""
    total: Counter[str] = Counter()
    for usage in usages:
        total.update(usage.missed)
    order = [*REASONS, *sorted(total.keys() - set(REASONS))]
    return {reason: total[reason] for reason in order if total[reason]}


def _key(id: str) -> str:
    return id.partition("-")[2]
