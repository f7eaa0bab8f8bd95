"""What an OpenAI-shaped call is told by the rules: the physical `usage`, with other numbers in the cache fields.

Caching is automatic, in steps, as long as a call does not know of boundaries; with `prompt_cache_options` or a
`prompt_cache_breakpoint` the rules of the models that have those hold for it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sapwood.chat import Conversation, Json, Render
from sapwood.chat.prompt_cache import PromptCache, parse_prompt_cache
from sapwood.chat.replay import Replayed
from sapwood.chat.spots import Spot, block_ends
from sapwood.contract import OPENAI, OPENAI_BREAKPOINTS, Billing, Block, Plan, seconds_of
from sapwood.errors import RequestError
from sapwood.server.generate import Order
from sapwood.server.ledgers import SharedLedger
from sapwood.types import Event, Finished, Request, Started, Usage

CHAT_TTLS = ("30m",)
"""Of a breakpoint; longer ones are for responses alone."""

_PART_OF_THE_PREFIX = ("tools", "parallel_tool_calls", "response_format", "reasoning_effort", "verbosity")


def told(
    order: Order,
    fields: Mapping[str, Any],
    render: Render,
    requests: Sequence[Request],
    conversation: Conversation | None = None,
    replayed: Sequence[Replayed] = (),
) -> Render:
    """`render`, with the numbers of the ledger that OpenAI's routes show.

    Under either, raises RequestError for wrong values in the cache fields of a body.
    """
    cache = parse_prompt_cache(fields)
    _check_ttls(cache)
    if not order.ledgers.shows_contract("openai"):
        return render
    if cache.mode is None or conversation is None:
        ledger, settings = order.ledgers.openai, {"tools": sharing_key(cache, fields)}
        blocks = [retained(cache, len(request.prompt)) for request in requests]
    else:
        ledger = order.ledgers.openai_breakpoints
        settings = {"tools": sharing_key(cache, fields, *_PART_OF_THE_PREFIX)}
        blocks = [bounded(order, cache, conversation, request, replayed) for request in requests]
    plans = [
        ledger.plan(order.namespace, request.prompt, each, settings)
        for request, each in zip(requests, blocks, strict=True)
    ]
    return Contracted(render, ledger, plans)


def plans_of(render: Render) -> Sequence[Plan]:
    """What is promised of each prompt whose answers `told` lets a render tell; empty where nothing is."""
    return render.plans if isinstance(render, Contracted) else ()


class Contracted:
    """A render whose `usage` has the rules' numbers. A promise is settled when its prompt begins to be read."""

    def __init__(self, render: Render, ledger: SharedLedger, plans: Sequence[Plan]) -> None:
        self._render, self._ledger, self._plans = render, ledger, plans
        self._billings: dict[int, Billing] = {}

    @property
    def plans(self) -> Sequence[Plan]:
        """Of each prompt."""
        return self._plans

    def feed(self, prompt: int, event: Event) -> list[Json]:
        if isinstance(event, Started | Finished) and prompt not in self._billings:
            self._billings[prompt] = self._ledger.settle(self._plans[prompt], event.usage.reused)
        return self._render.feed(prompt, event)

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        return [
            {**chunk, "usage": self._billed(chunk["usage"])} if chunk.get("usage") else chunk
            for chunk in self._render.end(usages)
        ]

    def _billed(self, usage: Json) -> Json:
        billings = self._billings.values()
        read = sum(billing.read for billing in billings)
        details = {
            **usage["prompt_tokens_details"],
            "cached_tokens": read,
            "cache_write_tokens": sum(billing.written_tokens for billing in billings),
        }
        return {
            **usage,
            "prompt_tokens_details": details,
            "prompt_cache_hit_tokens": read,
            "prompt_cache_miss_tokens": usage["prompt_tokens"] - read,
        }


def sharing_key(cache: PromptCache, fields: Mapping[str, Any], *names: str) -> str:
    """What, besides its tokens, must be equal for a prompt to be shared; `names` are fields of the body."""
    return json.dumps([cache.key, fields.get("cache_salt"), *(fields.get(name) for name in names)])


def retained(cache: PromptCache, tokens: int) -> tuple[Block, ...]:
    """The block that asks for a longer life of so many tokens, where the caching is automatic."""
    if cache.retention != "24h":
        return ()
    seconds = seconds_of(OPENAI, cache.retention, "prompt_cache_retention")
    return (Block(tokens, "messages", seconds),)


def _check_ttls(cache: PromptCache) -> None:
    paths = [
        f"messages[{p.message}].content[{p.part}].prompt_cache_breakpoint.ttl" for p in cache.breakpoints
    ]
    asked = [("prompt_cache_options.ttl", cache.ttl)]
    asked += zip(paths, (point.ttl for point in cache.breakpoints), strict=True)
    for path, ttl in asked:
        if ttl is not None and ttl not in CHAT_TTLS:
            raise RequestError(
                f"{path!r} is {ttl[:40]!r}; it must be {' or '.join(CHAT_TTLS)} on this route", param=path
            )


def bounded(
    order: Order,
    cache: PromptCache,
    conversation: Conversation,
    request: Request,
    replayed: Sequence[Replayed] = (),
) -> tuple[Block, ...]:
    """A block up to each boundary, the client's and (in implicit mode) those at the ends of messages."""
    usual = _seconds(cache.ttl)
    explicit = {
        Spot("part", p.message, p.part): _seconds(p.ttl) if p.ttl else usual for p in cache.breakpoints
    }
    ends = set(message_ends(conversation)) if cache.mode == "implicit" else set()
    spots = sorted({*explicit, *ends}, key=lambda spot: (spot.index, spot.inner))
    if not spots:
        return ()
    placed = block_ends(
        order.built.tokenizer,
        order.room.lengths,
        order.built.template,
        conversation,
        request.prompt,
        spots,
        replayed,
    )
    opening = _opening(conversation)
    blocks = []
    for spot, end in zip(spots, placed, strict=True):
        level = "system" if spot.index < opening else "messages"
        if spot in explicit:
            blocks.append(Block(end, level, explicit[spot]))
        if spot in ends:
            blocks.append(Block(end, level, usual, automatic=True))
    return tuple(blocks)


def message_ends(conversation: Conversation) -> list[Spot]:
    """Where implicit mode sets boundaries: each user message, the last of each group of tool results, and the last
    of the instructions that the conversation opens with."""
    messages = conversation.messages
    last_instruction = _opening(conversation) - 1
    found = []
    for i, message in enumerate(messages):
        last_result = message.role == "tool" and (i + 1 == len(messages) or messages[i + 1].role != "tool")
        if message.parts and (message.role == "user" or last_result or i == last_instruction):
            found.append(Spot("part", i, len(message.parts) - 1))
    return found


def _opening(conversation: Conversation) -> int:
    """How many instructions the conversation opens with."""
    roles = (message.role in ("system", "developer") for message in conversation.messages)
    return next((i for i, instructs in enumerate(roles) if not instructs), len(conversation.messages))


def _seconds(ttl: str | None) -> float:
    return seconds_of(OPENAI_BREAKPOINTS, ttl or OPENAI_BREAKPOINTS.default_ttl, "prompt_cache_options.ttl")
