"""What a response's prompt is told to have cost, and why it read less from the cache than another had left there."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sapwood.chat import Json
from sapwood.chat.replay import Replayed
from sapwood.chat.responses import ResponseCall
from sapwood.chat.responses_render import CacheCounts
from sapwood.contract import OPENAI_BREAKPOINTS, Block, Imprint, Plan, imprint, seconds_of
from sapwood.server.generate import Order
from sapwood.server.ledgers import Ledgers, SharedLedger
from sapwood.server.openai_contract import bounded, retained, sharing_key
from sapwood.types import Request, Usage

STRIDE = 64
"""Tokens between the places at which prompts are compared, to tell one that grew from one that changed."""

_REASONS: Mapping[str, str] = MappingProxyType(
    {"system": "input_changed", "messages": "input_changed"}
    | {
        name: f"{name}_changed"
        for name in (
            "model",
            "prompt_cache_key",
            "service_tier",
            "tools",
            "text_format",
            "reasoning_effort",
            "verbosity",
        )
    }
)
_HALF_HOUR, _TWELVE_HOURS = (ttl.seconds for ttl in OPENAI_BREAKPOINTS.ttls)


@dataclass(frozen=True, slots=True)
class _Promise:
    """What the rules say of a request that has not begun to be read."""

    ledger: SharedLedger
    plan: Plan


@dataclass(frozen=True, slots=True)
class Settlement:
    """Of one response; called when its prompt begins to be read. `promise` is None where no rules are asked."""

    ledgers: Ledgers
    namespace: str
    id: str
    promise: _Promise | None
    imprint: Imprint
    comparison: str | None

    def __call__(self, usage: Usage) -> CacheCounts:
        if self.promise is None:
            # Its last token is always computed, so no other can be told that it missed that.
            read, left = usage.reused, usage.prompt_tokens - 1
            return CacheCounts(read, diagnostics=self._diagnosed(read, left))
        billing = self.promise.ledger.settle(self.promise.plan, usage.reused)
        # Steps are promised without being told as written.
        ends = [write.boundary.end for write in self.promise.plan.writes]
        left = max((end for end in (billing.read, *ends) if end < usage.prompt_tokens), default=0)
        return CacheCounts(
            billing.read,
            billing.written_at(_HALF_HOUR),
            billing.written_at(_TWELVE_HOURS),
            self._diagnosed(billing.read, left),
        )

    def _diagnosed(self, read: int, left: int) -> Json | None:
        """What is told, if that was asked. From now on others may be compared with this one."""
        diagnoses, namespace = self.ledgers.diagnoses, self.namespace
        told: Json | None = None
        if self.comparison is not None:
            try:
                found = diagnoses.compare(namespace, self.comparison, self.imprint, read)
            except KeyError:
                told = {"type": "comparison_response_not_found"}
            else:
                told = {"type": "cache_hit"} if found is None else {"type": "unavailable"}
                if found is not None and found.changed is not None:
                    told = {
                        "type": "cache_miss",
                        "reason": _REASONS[found.changed],
                        "cache_missed_tokens": found.missed,
                        "comparison_reusable_tokens": found.reusable,
                    }
        diagnoses.note(namespace, self.id, self.imprint, left)
        return told


def settlement(
    order: Order,
    call: ResponseCall,
    fields: Mapping[str, Any],
    request: Request,
    replayed: Sequence[Replayed],
) -> Settlement:
    """Of the response with its request's id. Raises RequestError for wrong values in the body's cache fields."""
    for name in (call.cache.ttl, *(point.ttl for point in call.cache.breakpoints)):
        if name is not None:
            seconds_of(OPENAI_BREAKPOINTS, name, "prompt_cache_options.ttl")
    first = {"model": order.served_name, **call.settings}
    marks = imprint(request.prompt, _strides(request.prompt), {"tools": call.settings["tools"]}, first)
    contract = order.ledgers.shows_contract("openai")
    promise = _promise(order, call, fields, request, replayed) if contract else None
    return Settlement(order.ledgers, order.namespace, request.id, promise, marks, call.comparison)


def _promise(
    order: Order,
    call: ResponseCall,
    fields: Mapping[str, Any],
    request: Request,
    replayed: Sequence[Replayed],
) -> _Promise:
    if call.cache.mode is None:
        ledger, settings = order.ledgers.openai, sharing_key(call.cache, fields)
        blocks = retained(call.cache, len(request.prompt))
    else:
        ledger = order.ledgers.openai_breakpoints
        shared = {name: value for name, value in call.settings.items() if name != "service_tier"}
        settings = json.dumps(shared)
        blocks = bounded(order, call.cache, call.conversation, request, replayed)
    return _Promise(ledger, ledger.plan(order.namespace, request.prompt, blocks, {"tools": settings}))


def _strides(tokens: Sequence[int]) -> list[Block]:
    return [Block(end, "messages") for end in range(STRIDE, len(tokens) + 1, STRIDE)]
