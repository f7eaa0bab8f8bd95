"""`POST /v1/decisions`: one input, many questions, each answered from what the model thinks of every answer.

A call is as many requests of the engine as there are answers to weigh. They are submitted together and share the
input, which the scheduler has one of them compute for all; the same holds for the answers of one question.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from sapwood.chat import Json, Place, Render, place_in_conversation, place_in_prompt, read_json
from sapwood.chat.decision_prompts import DecisionPrompts, conversation_of, encode_decisions
from sapwood.chat.decisions import DecisionCall, parse_decisions
from sapwood.chat.decisions_render import DecisionsAnswer, weighed
from sapwood.chat.prompt_cache import PromptCache, parse_prompt_cache
from sapwood.chat.spots import Spot, block_ends
from sapwood.contract import OPENAI_BREAKPOINTS, Block, Plan, seconds_of
from sapwood.errors import ContextLengthError, RequestError
from sapwood.server.generate import Job, Order
from sapwood.server.ledgers import SharedLedger
from sapwood.server.openai_contract import CHAT_TTLS, retained, sharing_key
from sapwood.server.openai_routes import check_model
from sapwood.server.promises import retaining
from sapwood.server.room import CALL_BYTES
from sapwood.types import Event, Request, SamplingParams, Scope, Usage

MOST_TOKENS = 2**23
"""Of all prompts of one call together, the shared input in each: they are held in memory until they are done."""


def prepare_decisions(order: Order) -> Job:
    """A job of one request per answer to weigh."""
    built, fields = order.built, read_json(order.body)
    call = parse_decisions(fields)
    check_model(call.model, order.served_name)
    cache = _cache(fields, call)
    _check_room(order, call)
    eos = built.tokenizer.eos_id
    # Where the model has no logit for it, no answer can be told to have ended.
    end = () if eos is None or eos >= built.facts.vocab_size else (eos,)
    prompts = encode_decisions(built.tokenizer, built.template, call, end)
    head = order.head("decision")
    requests = _requests(order, head.id, call, prompts)
    render: Render = DecisionsAnswer(head.model, call.questions, prompts)
    if order.ledgers.shows_contract("openai"):
        ledger, plan = _promised(order, fields, cache, call, prompts)
        render = _Contracted(render, ledger, plan)
        requests = (retaining(order, requests[0], plan), *requests[1:])
    answers = weighed(prompts)

    def place(prompt: int, token: int) -> Place:
        at, tokens = answers[prompt], requests[prompt].prompt
        end = at.start - prompts.closing
        if token >= end:
            return replace(place_in_prompt(built.tokenizer, tokens, token), part=None)
        conversation = conversation_of(call, call.questions[at.question], built.template)
        return place_in_conversation(
            built.tokenizer, order.room.lengths, built.template, conversation, tokens[:end], token
        )

    return Job(head.id, requests, render, False, place, call.ignored)


def _check_room(order: Order, call: DecisionCall) -> None:
    """Raises ContextLengthError for texts that are too long to be looked at."""
    texts = [text for message in call.input.messages for text in message.parts]
    calls = [made.arguments for message in call.input.messages for made in message.tool_calls]
    order.room.check("".join([*texts, *calls]), "input")
    size = sum(len(question.text.encode()) for question in call.questions)
    limit = max(CALL_BYTES, order.room.limit)
    if size > limit:
        raise ContextLengthError(
            f"the texts of 'questions' have {size} bytes; one call is limited to {limit} in all",
            param="questions",
            hint="split the call",
        )


def _requests(order: Order, id: str, call: DecisionCall, prompts: DecisionPrompts) -> tuple[Request, ...]:
    """All of the call's prompts. Raises RequestError, before they are made, if one or all are too long."""
    scope = Scope(salt=call.salt)

    def request(n: int, question: tuple[int, ...], answer: tuple[int, ...]) -> Request:
        start = len(prompts.shared) + len(question)
        params = SamplingParams(max_tokens=0, prompt_logprobs=0, prompt_logprobs_start=start)
        return Request(f"{id}-{n}", (*prompts.shared, *question, *answer), params, scope, call.priority)

    pairs = [(each.question, answer) for each in prompts.asked for answer in each.answers]
    longest = max(pairs, key=lambda pair: len(pair[0]) + len(pair[1]))
    try:
        order.built.loop.check(request(0, *longest))
    except ContextLengthError as error:
        hint = "shorten the input or the question"
        raise ContextLengthError(error.message, param="input", hint=hint) from None
    if prompts.prompt_tokens > MOST_TOKENS:
        raise ContextLengthError(
            f"the input has {len(prompts.shared)} tokens, and {len(pairs)} answers are to be weighed:"
            f" {prompts.prompt_tokens} tokens in all; one call is limited to {MOST_TOKENS}",
            param="questions",
            hint="split the call",
        )
    return tuple(request(n, *pair) for n, pair in enumerate(pairs))


def _cache(fields: Mapping[str, Any], call: DecisionCall) -> PromptCache:
    """What the cache fields ask for. Raises RequestError for wrong values in them."""
    cache = parse_prompt_cache(fields, call.input.breakpoints)
    for ttl in (cache.ttl, *(point.ttl for point in cache.breakpoints)):
        if ttl not in (None, *CHAT_TTLS):
            path = "prompt_cache_options.ttl"
            raise RequestError(f"{path!r} must be {' or '.join(CHAT_TTLS)} on this route", param=path)
    return cache


def _promised(
    order: Order, fields: Mapping[str, Any], cache: PromptCache, call: DecisionCall, prompts: DecisionPrompts
) -> tuple[SharedLedger, Plan]:
    """What OpenAI's rules say of the input, which alone they are applied to."""
    if cache.mode is None:
        ledger, blocks = order.ledgers.openai, retained(cache, len(prompts.shared))
    else:
        ledger, blocks = order.ledgers.openai_breakpoints, _blocks(order, cache, call, prompts)
    settings = {"tools": sharing_key(cache, fields)}
    return ledger, ledger.plan(order.namespace, prompts.shared, blocks, settings)


def _blocks(
    order: Order, cache: PromptCache, call: DecisionCall, prompts: DecisionPrompts
) -> tuple[Block, ...]:
    """Up to each boundary: the client's, and (in implicit mode) the end of the input."""
    built, shared = order.built, prompts.shared
    ttl = seconds_of(
        OPENAI_BREAKPOINTS, cache.ttl or OPENAI_BREAKPOINTS.default_ttl, "prompt_cache_options.ttl"
    )
    ends: Sequence[int] = ()
    if cache.breakpoints:
        ends = block_ends(
            built.tokenizer,
            order.room.lengths,
            built.template,
            conversation_of(call, call.questions[0], built.template),
            (*shared, *prompts.asked[0].question),
            [Spot("part", point.message, point.part) for point in cache.breakpoints],
        )
    blocks = [Block(min(end, len(shared)), "messages", ttl) for end in ends]
    if cache.mode == "implicit":
        blocks.append(Block(len(shared), "messages", ttl, automatic=True))
    return tuple(blocks)


class _Contracted:
    """A render whose `usage` has the rules' numbers."""

    def __init__(self, render: Render, ledger: SharedLedger, plan: Plan) -> None:
        self._render, self._ledger, self._plan = render, ledger, plan

    def feed(self, prompt: int, event: Event) -> list[Json]:
        return self._render.feed(prompt, event)

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        (answer,) = self._render.end(usages)
        usage = answer["usage"]
        billing = self._ledger.settle(self._plan, usage["input_tokens_details"]["cached_tokens"])
        details = {"cached_tokens": billing.read, "cache_write_tokens": billing.written_tokens}
        return [{**answer, "usage": {**usage, "input_tokens_details": details}}]
