"""The OpenAI dialect's generate routes: from a body to a job."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from sapwood.chat import (
    ChatAnswer,
    ChatStream,
    CompletionAnswer,
    CompletionCall,
    CompletionShape,
    CompletionStream,
    Echo,
    Options,
    Place,
    Render,
    ToolReading,
    encode_prompt,
    parse_chat,
    parse_completion,
    place_in_prompt,
    read_json,
)
from sapwood.chat.native_answer import Timed
from sapwood.chat.thinking import prompted
from sapwood.errors import ContextLengthError, NotFoundError
from sapwood.server.chat_prompt import answer_form, chat_prompt
from sapwood.server.generate import Job, Order
from sapwood.server.openai_contract import plans_of, told
from sapwood.server.promises import retaining_all
from sapwood.types import Request


def prepare_chat(order: Order) -> Job:
    """`POST /v1/chat/completions`."""
    built = order.built
    fields = read_json(order.body)
    call = parse_chat(fields, vocab_size=built.facts.vocab_size, defaults=built.facts.sampling)
    check_model(call.options.model, order.served_name)
    order.room.check_conversation(call.conversation)
    head, options = order.head("chatcmpl"), call.options
    form = answer_form(built, options.params.constraint, call.conversation, call.tool_use)
    options = replace(options, params=replace(options.params, constraint=form))
    thinks = None if call.thinks else False
    conversation = prompted(built.template, call.conversation, formed=form is not None, thinks=thinks)
    call = replace(call, conversation=conversation)
    prompt = chat_prompt(order, call.conversation, options.scope)
    tokens = prompt.before(form)
    shape: dict[str, Any] = {
        "n": options.params.n,
        "logprobs": options.params.logprobs is not None,
        "tools": ToolReading.after(built.tokenizer, built.template, call.conversation, tokens, call.tool_use),
    }
    render: Render = (
        ChatStream(head, built.tokenizer, include_usage=options.include_usage, **shape)
        if options.stream
        else ChatAnswer(head, built.tokenizer, **shape)
    )
    render = options.details.told_of_chat(render, built.tokenizer, tokens, options.params)
    request = _request(head.id, tokens, options)
    newer = fields.get("max_completion_tokens") is not None
    _check(order, request, "messages", "max_completion_tokens" if newer else "max_tokens")
    unread = built.template.unread(call.conversation.template_kwargs)
    ignored = (*options.ignored, *(f"chat_template_kwargs.{name}" for name in unread))

    render = prompt.remembered(render, request, shape["tools"])
    render = told(order, fields, render, [request], call.conversation, prompt.replayed)
    requests = retaining_all(order, [request], plans_of(render))
    return Job(head.id, requests, Timed(render, time.monotonic), options.stream, prompt.place, ignored)


def prepare_completion(order: Order) -> Job:
    """`POST /v1/completions`."""
    built = order.built
    fields = read_json(order.body)
    call = parse_completion(fields, vocab_size=built.facts.vocab_size, defaults=built.facts.sampling)
    check_model(call.options.model, order.served_name)
    order.room.check_prompts(call.prompts)
    head, options = order.head("cmpl"), call.options
    requests = _requests(order, head.id, call, limited=fields.get("max_tokens") is not None)
    needs_text = call.echo or options.params.logprobs is not None
    shape = CompletionShape(
        prompts=tuple(
            Echo(_text(order, prompt) if needs_text else "", request.prompt)
            for prompt, request in zip(call.prompts, requests, strict=True)
        ),
        n=options.params.n,
        echo=call.echo,
        logprobs=options.params.logprobs is not None,
        include_usage=options.include_usage,
    )
    render: Render = (CompletionStream if options.stream else CompletionAnswer)(head, built.tokenizer, shape)
    prompts = [request.prompt for request in requests]
    render = options.details.told(render, built.tokenizer, prompts, options.params)
    render = told(order, fields, render, requests)
    requests = retaining_all(order, requests, plans_of(render))

    def place(prompt: int, token: int) -> Place:
        return place_in_prompt(built.tokenizer, requests[prompt].prompt, token)

    if len(requests) == 1:
        render = Timed(render, time.monotonic)
    return Job(head.id, requests, render, options.stream, place, options.ignored)


def check_model(asked: str | None, served: str) -> None:
    """Raises NotFoundError for a model that is not served here; naming none is fine."""
    if asked is not None and asked != served:
        raise NotFoundError(
            f"the model {asked[:100]!r} is not served here; this server has {served!r}",
            param="model",
            code="model_not_found",
        )


def _requests(order: Order, id: str, call: CompletionCall, *, limited: bool) -> tuple[Request, ...]:
    """All checked before the first is submitted: a stream's status line cannot be taken back.

    Where the client does not limit the answer (not `limited`), the dialect's few tokens are cut to what fits.
    """
    requests = []
    for i, prompt in enumerate(call.prompts):
        tokens = encode_prompt(order.built.tokenizer, prompt, start=call.add_special_tokens)
        request = _request(f"{id}-{i}" if len(call.prompts) > 1 else id, tokens, call.options)
        if not limited and len(tokens) + (request.params.max_tokens or 0) > order.longest:
            request = replace(request, params=replace(request.params, max_tokens=None))
        # At once, so that no more texts are encoded for a call that is refused.
        _check(order, request, "prompt" if len(call.prompts) == 1 else f"prompt[{i}]", "max_tokens")
        requests.append(request)
    return tuple(requests)


def _check(order: Order, request: Request, prompt: str, max_tokens: str) -> None:
    """What the engine would refuse, said of the body's own fields; these are two of their names."""
    try:
        order.built.loop.check(request)
    except ContextLengthError as error:
        params = replace(request.params, max_tokens=1, min_tokens=0)
        try:
            order.built.loop.check(replace(request, params=params))
        except ContextLengthError:
            raise ContextLengthError(error.message, param=prompt, hint=error.hint) from None
        raise ContextLengthError(error.message, param=max_tokens, hint=error.hint) from None


def _text(order: Order, prompt: str | tuple[int, ...]) -> str:
    return prompt if isinstance(prompt, str) else order.built.tokenizer.decode(prompt)


def _request(id: str, tokens: tuple[int, ...], options: Options) -> Request:
    return Request(
        id=id,
        prompt=tokens,
        params=options.params,
        scope=options.scope,
        priority=options.priority,
        retain=options.retain,
    )
