"""The OpenAI dialect's generate routes: from a body to a job."""

from __future__ import annotations

from typing import Any

from sapwood.chat import (
    ChatAnswer,
    ChatStream,
    CompletionAnswer,
    CompletionShape,
    CompletionStream,
    Echo,
    Options,
    Render,
    encode_conversation,
    encode_prompt,
    parse_chat,
    parse_completion,
    read_json,
)
from sapwood.errors import NotFoundError
from sapwood.server.generate import Job, Order
from sapwood.types import Request


def prepare_chat(order: Order) -> Job:
    """`POST /v1/chat/completions`."""
    built = order.built
    call = parse_chat(read_json(order.body), vocab_size=built.facts.vocab_size, defaults=built.facts.sampling)
    check_model(call.options.model, order.served_name)
    for i, message in enumerate(call.conversation.messages):
        order.room.check(message.text, f"messages[{i}].content")
    head, options = order.head("chatcmpl"), call.options
    shape: dict[str, Any] = {"n": options.params.n, "logprobs": options.params.logprobs is not None}
    render: Render = (
        ChatStream(head, built.tokenizer, include_usage=options.include_usage, **shape)
        if options.stream
        else ChatAnswer(head, built.tokenizer, **shape)
    )
    request = _request(
        head.id, encode_conversation(built.tokenizer, built.template, call.conversation), options
    )
    built.loop.check(request)
    return Job((request,), render, options.stream, options.ignored)


def prepare_completion(order: Order) -> Job:
    """`POST /v1/completions`."""
    built = order.built
    call = parse_completion(
        read_json(order.body), vocab_size=built.facts.vocab_size, defaults=built.facts.sampling
    )
    check_model(call.options.model, order.served_name)
    for i, prompt in enumerate(call.prompts):
        if isinstance(prompt, str):
            order.room.check(prompt, "prompt" if len(call.prompts) == 1 else f"prompt[{i}]")
    head, options = order.head("cmpl"), call.options
    tokens = [
        encode_prompt(built.tokenizer, prompt, start=call.add_special_tokens) for prompt in call.prompts
    ]
    needs_text = call.echo or options.params.logprobs is not None
    shape = CompletionShape(
        prompts=tuple(
            Echo(_text(order, prompt) if needs_text else "", ids)
            for prompt, ids in zip(call.prompts, tokens, strict=True)
        ),
        n=options.params.n,
        echo=call.echo,
        logprobs=options.params.logprobs is not None,
        include_usage=options.include_usage,
    )
    render: Render = (CompletionStream if options.stream else CompletionAnswer)(head, built.tokenizer, shape)
    many = len(tokens) > 1
    requests = tuple(
        _request(f"{head.id}-{i}" if many else head.id, ids, options) for i, ids in enumerate(tokens)
    )
    # All of them before the first is submitted: a stream's status line cannot be taken back.
    for request in requests:
        built.loop.check(request)
    return Job(requests, render, options.stream, options.ignored)


def check_model(asked: str | None, served: str) -> None:
    """Raises NotFoundError for a model that is not served here; naming none is fine."""
    if asked is not None and asked != served:
        raise NotFoundError(
            f"the model {asked[:200]!r} is not served here; this server has {served!r}",
            param="model",
            code="model_not_found",
        )


def _text(order: Order, prompt: str | tuple[int, ...]) -> str:
    return prompt if isinstance(prompt, str) else order.built.tokenizer.decode(prompt)


def _request(id: str, tokens: tuple[int, ...], options: Options) -> Request:
    return Request(
        id=id, prompt=tokens, params=options.params, scope=options.scope, priority=options.priority
    )
