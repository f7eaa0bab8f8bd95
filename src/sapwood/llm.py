"""The Python API: load a model, generate for many prompts at once, see what was reused."""

from __future__ import annotations

import asyncio
import contextlib
import difflib
import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, fields
from types import TracebackType
from typing import Any, Protocol, Self, TypeVar

from sapwood.chat import (
    ChatTemplate,
    Tokenizer,
    check_tokens,
    encode_continuation,
    encode_conversation,
    encode_prompt,
    parse_conversation,
)
from sapwood.config import CacheConfig, ModelConfig, SchedulerConfig
from sapwood.engine import EngineLoop, build_engine
from sapwood.errors import (
    DeadEndError,
    NotFoundError,
    RequestError,
    SapwoodError,
    UnavailableError,
    UsageError,
)
from sapwood.types import (
    Delta,
    Event,
    Finished,
    FinishReason,
    PromptScored,
    Request,
    Retain,
    SamplingParams,
    TokenLogprob,
    Usage,
)
from sapwood.units import parse_size

Prompt = str | Sequence[int]
"""A raw text, or token ids taken as they are."""

T = TypeVar("T")

PIN_SHARE = 0.9
"""Of the pool, for prefixes: nobody else's requests have to fit beside them."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One continuation of a prompt. `logprobs` is empty unless asked for."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one prompt: `params.n` samples; the properties are the first one's."""

    prompt_tokens: int
    reused_tokens: int
    samples: tuple[Sample, ...]
    prompt_logprobs: tuple[TokenLogprob | None, ...] | None = None

    @property
    def text(self) -> str:
        return self.samples[0].text

    @property
    def token_ids(self) -> tuple[int, ...]:
        return self.samples[0].token_ids

    @property
    def finish_reason(self) -> FinishReason:
        return self.samples[0].finish_reason

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...]:
        return self.samples[0].logprobs


class Model(Protocol):
    """What an LLM needs of a built engine."""

    @property
    def loop(self) -> EngineLoop: ...
    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def template(self) -> ChatTemplate: ...


class LLM:
    """A model in this process. Use it as a context manager, or call `close`.

    with LLM("smollm2-135m", kv_memory="1GiB") as llm:
        for result in llm.generate(["…", "…"], SamplingParams(max_tokens=32)):
            print(result.text, result.reused_tokens)
        with llm.prefix("You are …") as prefix:
            prefix.generate(["…", "…"])
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        kv_memory: int | str | None = None,
        progress: Callable[[str], None] | None = None,
        **settings: Any,
    ) -> None:
        """`settings` are fields of the configs in `sapwood.config`. Raises UsageError or ModelError."""
        memory = parse_size(kv_memory) if isinstance(kv_memory, str) else kv_memory
        own = {"model": model or ModelConfig().model, "kv_memory": memory, "pin_share": PIN_SHARE}
        configs = _configs({**own, **settings})
        self._start(build_engine(*configs, progress=progress))

    @classmethod
    def over(cls, built: Model) -> Self:
        """An LLM over an engine that is already built; `close` shuts it down."""
        llm = cls.__new__(cls)
        llm._start(built)
        return llm

    def _start(self, built: Model) -> None:
        self._built = built
        self._ids = itertools.count()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop the engine. Closing twice is fine."""
        self._built.loop.shutdown()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
        *,
        retain: Retain | Sequence[Retain] = (),
    ) -> list[Result]:
        """Results in the order of the prompts, all of which run at once.

        `prompts` is a text, a list of texts, a list of token-id lists, or one token-id list; `params` one for
        all, or one for each; `retain` says what of each prompt is to be evicted after other things. Raises
        RequestError before any work if one prompt cannot be served.
        """
        return self._generate([self._encode(prompt) for prompt in _as_many(prompts)], params, retain)

    def prefix(self, prompt: Prompt) -> Prefix:
        """Compute a prompt and keep it in the cache until the handle is closed, or its `with` block ends.

        Only whole pages are kept, so raises RequestError for a prefix that fills none; and (its code is
        `pin_budget_exceeded`) where open prefixes would hold more than `pin_share`, 0.9 of the pool: close one.
        """
        return Prefix(self, self._encode(prompt))

    def chat(self, messages: Sequence[Mapping[str, Any]], params: SamplingParams | None = None) -> Result:
        """The assistant's answer to a conversation of {"role", "content"} messages."""
        request = self._request(self.encode_chat(messages), params or SamplingParams(max_tokens=None))
        return _in_event_loop(lambda: self._answer_all([request]))[0]

    def stream(self, prompt: Prompt, params: SamplingParams | None = None) -> Iterator[Event]:
        """One prompt's events as they happen; closing the iterator aborts the request."""
        return self._built.loop.generate_blocking(
            self._request(self._encode(prompt), params or SamplingParams())
        )

    def encode_chat(self, messages: Sequence[Mapping[str, Any]]) -> tuple[int, ...]:
        """The prompt of a conversation, as token ids. Raises RequestError."""
        conversation = parse_conversation({"messages": list(messages)})
        return encode_conversation(self._built.tokenizer, self._built.template, conversation)

    def flush(self) -> None:
        """Forget all prefixes."""
        self._built.loop.flush_blocking()

    def _encode(self, prompt: Prompt) -> tuple[int, ...]:
        return encode_prompt(self._built.tokenizer, self._checked(prompt))

    def _continuation(self, prompt: Prompt) -> tuple[int, ...]:
        return encode_continuation(self._built.tokenizer, self._checked(prompt))

    def _checked(self, prompt: Prompt) -> Prompt:
        if isinstance(prompt, str):
            return prompt
        return check_tokens(list(prompt), "prompt", self._built.tokenizer.vocab_size)

    def _pin(self, tokens: tuple[int, ...]) -> str:
        """The pin's id."""
        request = self._request(tokens, SamplingParams(max_tokens=0))
        _in_event_loop(lambda: self._built.loop.pin(request.id, request))
        return request.id

    def _unpin(self, pin_id: str) -> None:
        # A flush ends all pins, and closing the LLM everything.
        with contextlib.suppress(NotFoundError, UnavailableError):
            _in_event_loop(lambda: self._built.loop.unpin(pin_id))

    def _generate(
        self,
        prompts: Sequence[tuple[int, ...]],
        params: SamplingParams | Sequence[SamplingParams] | None,
        retain: Retain | Sequence[Retain],
    ) -> list[Result]:
        wishes = _wishes(retain)
        each = _one_each(params, len(prompts))
        requests = [self._request(*pair, wishes) for pair in zip(prompts, each, strict=True)]
        for request in requests:
            self._built.loop.check(request)
        return _in_event_loop(lambda: self._answer_all(requests))

    def _request(
        self, tokens: tuple[int, ...], params: SamplingParams, retain: tuple[Retain, ...] = ()
    ) -> Request:
        return Request(id=f"llm-{next(self._ids)}", prompt=tokens, params=params, retain=retain)

    async def _answer_all(self, requests: Sequence[Request]) -> list[Result]:
        return await asyncio.gather(*(self._answer(request) for request in requests))

    async def _answer(self, request: Request) -> Result:
        folded = _Folded(request.params.n)
        async for event in self._built.loop.generate(request):
            folded.add(event)
        return folded.result()


class Prefix:
    """A prompt that stays in the cache while this is open. Made by `LLM.prefix` and `fork`; a context manager.

    Attributes:
        token_ids: its tokens.
        closed: whether it is over.
    """

    def __init__(self, llm: LLM, token_ids: tuple[int, ...]) -> None:
        self.token_ids = token_ids
        self.closed = False
        self._llm = llm
        self._forks: list[Prefix] = []
        self._pin_id = llm._pin(token_ids)

    def __enter__(self) -> Self:
        self._require_open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def generate(
        self,
        prompts: Prompt | Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams] | None = None,
    ) -> list[Result]:
        """As `LLM.generate`, each prompt after the prefix: its token ids follow the prefix's, which stay as they
        are (a text is not split anew across the boundary). An empty text continues the prefix itself.
        """
        self._require_open()
        return self._llm._generate([self._continued(prompt) for prompt in _as_many(prompts)], params, ())

    def fork(self, prompt: Prompt) -> Prefix:
        """A longer prefix. It closes with this one, or before; what both have in common is held once."""
        self._require_open()
        longer = Prefix(self._llm, self._continued(prompt))
        self._forks = [*(fork for fork in self._forks if not fork.closed), longer]
        return longer

    def close(self) -> None:
        """Let go of it, and of its forks; it may be evicted from now on. Closing twice is fine."""
        for fork in self._forks:
            fork.close()
        if not self.closed:
            self.closed = True
            self._llm._unpin(self._pin_id)

    def _continued(self, prompt: Prompt) -> tuple[int, ...]:
        return self.token_ids + self._llm._continuation(prompt)

    def _require_open(self) -> None:
        if self.closed:
            raise UsageError("this prefix is closed", hint="use it inside its `with` block, or make another")


class _Folded:
    """The events of one request as they add up."""

    def __init__(self, n: int) -> None:
        self._samples = [Sample("", (), "abort")] * n
        self._usage: Usage | None = None
        self._scores: tuple[TokenLogprob | None, ...] | None = None

    def add(self, event: Event) -> None:
        match event:
            case Delta():
                before = self._samples[event.sample]
                self._samples[event.sample] = Sample(
                    before.text + event.text,
                    before.token_ids + event.token_ids,
                    event.finish or before.finish_reason,
                    before.logprobs + event.logprobs,
                )
            case PromptScored():
                self._scores = event.logprobs
            case Finished():
                if event.error is not None:
                    raise _failure(event.error, event)
                self._usage = event.usage

    def result(self) -> Result:
        assert self._usage is not None, "a request's events end with Finished"
        return Result(self._usage.prompt_tokens, self._usage.reused, tuple(self._samples), self._scores)


def _failure(reason: str, event: Finished) -> SapwoodError:
    if event.dead_end:
        return DeadEndError(reason, param="constraint")
    return (UnavailableError if event.refused else SapwoodError)(reason)


def _configs(settings: Mapping[str, Any]) -> tuple[ModelConfig, CacheConfig, SchedulerConfig]:
    """One config per room from a flat mapping. Raises UsageError that names the nearest field."""
    kinds = (ModelConfig, CacheConfig, SchedulerConfig)
    known = {field.name: kind for kind in kinds for field in fields(kind)}
    for name in settings:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=0)
            raise UsageError(f"there is no setting {name!r}", hint=f"did you mean {near[0]!r}?")
    given = {kind: {name: settings[name] for name in settings if known[name] is kind} for kind in kinds}
    return (
        ModelConfig(**given[ModelConfig]),
        CacheConfig(**given[CacheConfig]),
        SchedulerConfig(**given[SchedulerConfig]),
    )


def _wishes(retain: object) -> tuple[Retain, ...]:
    given = (retain,) if isinstance(retain, Retain) else retain
    if not isinstance(given, Sequence) or not all(isinstance(wish, Retain) for wish in given):
        raise RequestError(f"'retain' is {retain!r}; it must be a Retain, or a list of them", param="retain")
    return tuple(given)


def _as_many(prompts: Prompt | Sequence[Prompt]) -> list[Prompt]:
    if isinstance(prompts, str) or (prompts and isinstance(prompts[0], int)):
        return [prompts]  # type: ignore[list-item]
    return list(prompts)  # type: ignore[arg-type]


def _one_each(params: SamplingParams | Sequence[SamplingParams] | None, count: int) -> list[SamplingParams]:
    if params is None or isinstance(params, SamplingParams):
        return [params or SamplingParams()] * count
    if len(params) != count:
        raise UsageError(f"there are {count} prompts and {len(params)} params; give one for all or one each")
    return list(params)


def _in_event_loop(work: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs `work` to its end, also for a caller who is inside an event loop (a notebook)."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(lambda: asyncio.run(work())).result()
