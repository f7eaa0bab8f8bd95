"""Engine events → the JSON of `/v1/completions` and `/v1/chat/completions`, in one piece or in chunks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from sapwood.chat.tool_answer import CallPart, CallStart, Fragment, FragmentReader, Thought, ToolReading
from sapwood.types import Delta, Event, FinishReason, PromptScored, Started, TokenLogprob, Usage

Json = dict[str, Any]

LOGPROB_FLOOR = -9999.0
"""Stands for "practically impossible": JSON has no infinity."""


class TokenNames(Protocol):
    """What rendering asks of a tokenizer."""

    @property
    def special_ids(self) -> frozenset[int]: ...
    def token_text(self, token: int, /) -> str: ...
    def token_bytes(self, token: int, /) -> bytes: ...


@dataclass(frozen=True, slots=True)
class Head:
    """The fields that every object of one answer repeats. `created` is seconds since 1970."""

    id: str
    created: int
    model: str
    fingerprint: str

    def json(self, kind: str) -> Json:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
        }


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt to repeat at the start of its answers."""

    text: str
    tokens: tuple[int, ...]


class Render(Protocol):
    """Folds the events of one call. `prompt` is the index of the prompt that an event belongs to."""

    def feed(self, prompt: int, event: Event) -> list[Json]:
        """The chunks to send now (none when the answer goes out in one piece)."""
        ...

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        """What is left to send when every prompt has finished; `usages` has one entry per prompt."""
        ...


def usage_json(usages: Sequence[Usage]) -> Json:
    """The `usage` object, physical: cached tokens were not computed. A prompt counts once, whatever n is."""
    prompt = sum(usage.prompt_tokens for usage in usages)
    completion = sum(usage.completion_tokens for usage in usages)
    reused = sum(usage.reused for usage in usages)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": reused},
        "prompt_cache_hit_tokens": reused,
        "prompt_cache_miss_tokens": prompt - reused,
    }


@dataclass(slots=True)
class _Answer:
    """One choice as it grows."""

    text: str = ""
    logprobs: list[TokenLogprob | None] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    finish: FinishReason | None = None
    reader: FragmentReader | None = None
    thought: str = ""
    calls: list[CallStart] = field(default_factory=list)
    arguments: dict[int, str] = field(default_factory=dict)

    def add(self, delta: Delta) -> None:
        for piece in (delta.text,) if self.reader is None else self.reader.read(delta):
            match piece:
                case str():
                    self.text += piece
                case Thought():
                    self.thought += piece.text
                case CallStart():
                    self.calls.append(piece)
                case CallPart():
                    self.arguments[piece.index] = self.arguments.get(piece.index, "") + piece.text
        self.tokens.extend(delta.token_ids)
        self.logprobs.extend(delta.logprobs)
        self.finish = delta.finish or self.finish


class ChatAnswer:
    """A chat answer in one piece. With `tools` its thoughts and calls are told apart from its text."""

    def __init__(
        self, head: Head, names: TokenNames, *, n: int, logprobs: bool, tools: ToolReading | None = None
    ) -> None:
        self._head, self._names, self._logprobs = head, names, logprobs
        self._answers = [_Answer(reader=reader) for reader in _readers(head, tools, n)]

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (a chat has one prompt)
        if isinstance(event, Delta):
            self._answers[event.sample].add(event)
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        choices = [self._choice(index, answer) for index, answer in enumerate(self._answers)]
        usage = _chat_usage(usages, [answer.reader for answer in self._answers])
        return [{**self._head.json("chat.completion"), "choices": choices, "usage": usage}]

    def _choice(self, index: int, answer: _Answer) -> Json:
        message: Json = {"role": "assistant", "content": answer.text, "refusal": None}
        if answer.thought:
            message["reasoning_content"] = answer.thought
        if answer.calls:
            message["content"] = answer.text or None
            message["tool_calls"] = [
                _call_json(call, answer.arguments.get(call.index, "")) for call in answer.calls
            ]
        return {
            "index": index,
            "message": message,
            "logprobs": chat_logprobs(answer.logprobs, self._names) if self._logprobs else None,
            "finish_reason": _reason(answer.finish, answer.reader),
        }


class ChatStream:
    """A chat answer in chunks: the role first, then text, then why it ended, then (if asked for) usage."""

    def __init__(
        self,
        head: Head,
        names: TokenNames,
        *,
        n: int,
        logprobs: bool,
        include_usage: bool,
        tools: ToolReading | None = None,
    ) -> None:
        self._head, self._names, self._n = head, names, n
        self._logprobs, self._include_usage = logprobs, include_usage
        self._readers = _readers(head, tools, n)

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (a chat has one prompt)
        if isinstance(event, Started):
            return [self._chunk(i, {"role": "assistant", "content": ""}) for i in range(self._n)]
        if not isinstance(event, Delta):
            return []
        reader = self._readers[event.sample]
        pieces = [event.text] if reader is None else reader.read(event)
        deltas = [delta for piece in pieces if (delta := _delta(piece))]
        if self._logprobs and event.logprobs and not deltas:
            deltas.append({"content": ""})
        chunks = [self._chunk(event.sample, delta) for delta in deltas]
        if self._logprobs and chunks:
            chunks[0]["choices"][0]["logprobs"] = chat_logprobs(event.logprobs, self._names)
        if event.finish is not None:
            chunks.append(self._chunk(event.sample, {}, finish=_reason(event.finish, reader)))
        return chunks

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        if not self._include_usage:
            return []
        usage = _chat_usage(usages, self._readers)
        return [{**self._head.json("chat.completion.chunk"), "choices": [], "usage": usage}]

    def _chunk(self, index: int, delta: Json, *, finish: str | None = None) -> Json:
        choice = {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish}
        chunk = {**self._head.json("chat.completion.chunk"), "choices": [choice]}
        return {**chunk, "usage": None} if self._include_usage else chunk


def _readers(head: Head, tools: ToolReading | None, n: int) -> list[FragmentReader | None]:
    return [None if tools is None else tools.fragments(f"{head.id}-{sample}") for sample in range(n)]


def _reason(finish: FinishReason | None, reader: FragmentReader | None) -> str | None:
    return finish if finish is None or reader is None else reader.reason(finish)


def _delta(piece: Fragment) -> Json:
    """The `delta` of a chunk; empty if there is nothing to say."""
    match piece:
        case str():
            return {"content": piece} if piece else {}
        case Thought(text):
            return {"reasoning_content": text}
        case CallStart(index):
            return {"tool_calls": [{"index": index, **_call_json(piece, "")}]}
        case CallPart(index, text):
            return {"tool_calls": [{"index": index, "function": {"arguments": text}}]}
    return {}


def _call_json(call: CallStart, arguments: str) -> Json:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _chat_usage(usages: Sequence[Usage], readers: Sequence[FragmentReader | None]) -> Json:
    usage = usage_json(usages)
    thinking = [reader.reasoning_tokens for reader in readers if reader is not None and reader.thinks]
    return usage | {"completion_tokens_details": {"reasoning_tokens": sum(thinking)}} if thinking else usage


@dataclass(frozen=True, slots=True)
class CompletionShape:
    """What a completion call asked for. `prompts` holds each prompt's text and tokens, echoed or not."""

    prompts: tuple[Echo, ...]
    n: int
    echo: bool
    logprobs: bool
    include_usage: bool = False


class CompletionAnswer:
    """A completion in one piece: choice `prompt·n + sample` for every prompt and sample."""

    def __init__(self, head: Head, names: TokenNames, shape: CompletionShape) -> None:
        self._head, self._names, self._shape = head, names, shape
        self._answers = [_Answer() for _ in range(len(shape.prompts) * shape.n)]
        self._scores: dict[int, tuple[TokenLogprob | None, ...]] = {}
        self._echoes: dict[int, _Listed] = {}

    def feed(self, prompt: int, event: Event) -> list[Json]:
        if isinstance(event, Delta):
            self._answers[prompt * self._shape.n + event.sample].add(event)
        elif isinstance(event, PromptScored):
            self._scores[prompt] = event.logprobs
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        choices = [self._choice(index, answer) for index, answer in enumerate(self._answers)]
        return [{**self._head.json("text_completion"), "choices": choices, "usage": usage_json(usages)}]

    def _choice(self, index: int, answer: _Answer) -> Json:
        prompt = index // self._shape.n
        text = self._shape.prompts[prompt].text + answer.text if self._shape.echo else answer.text
        listed = self._listed(prompt, answer) if self._shape.logprobs else None
        return {"index": index, "text": text, "logprobs": listed, "finish_reason": answer.finish}

    def _listed(self, prompt: int, answer: _Answer) -> Json:
        source = self._shape.prompts[prompt]
        if not self._shape.echo:
            return _listing(answer.tokens, answer.logprobs, self._names, len(source.text)).json
        # Once for all samples of a prompt.
        if prompt not in self._echoes:
            self._echoes[prompt] = _listing(source.tokens, self._scores.get(prompt, ()), self._names, 0)
        echo = self._echoes[prompt]
        own = _listing(answer.tokens, answer.logprobs, self._names, echo.end).json
        return {name: [*echo.json[name], *own[name]] for name in own}


class CompletionStream:
    """A completion in chunks; an echoed prompt is the first chunk of each of its choices."""

    def __init__(self, head: Head, names: TokenNames, shape: CompletionShape) -> None:
        self._head, self._names, self._shape = head, names, shape
        self._offsets = [
            Offsets(names, 0 if shape.echo else len(shape.prompts[index // shape.n].text))
            for index in range(len(shape.prompts) * shape.n)
        ]

    def feed(self, prompt: int, event: Event) -> list[Json]:
        first = prompt * self._shape.n
        if isinstance(event, Delta):
            index = first + event.sample
            if not (event.text or event.finish or (self._shape.logprobs and event.logprobs)):
                return []
            logprobs = self._listed(index, event.token_ids, event.logprobs)
            return [self._chunk(index, event.text, logprobs, event.finish)]
        # With logprobs the prompt's text waits for its scores; without, it can go out at once.
        if self._shape.echo and isinstance(event, PromptScored if self._shape.logprobs else Started):
            scores = event.logprobs if isinstance(event, PromptScored) else ()
            source = self._shape.prompts[prompt]
            listed = self._listed(first, source.tokens, scores)
            for index in range(first + 1, first + self._shape.n):
                self._offsets[index] = Offsets(self._names, self._offsets[first].at)
            return [
                self._chunk(index, source.text, listed, None) for index in range(first, first + self._shape.n)
            ]
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        if not self._shape.include_usage:
            return []
        return [{**self._head.json("text_completion"), "choices": [], "usage": usage_json(usages)}]

    def _listed(
        self, index: int, tokens: Sequence[int], logprobs: Sequence[TokenLogprob | None]
    ) -> Json | None:
        if not self._shape.logprobs:
            return None
        return completion_logprobs(tokens, logprobs, self._names, self._offsets[index])

    def _chunk(self, index: int, text: str, logprobs: Json | None, finish: FinishReason | None) -> Json:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": finish}
        chunk = {**self._head.json("text_completion"), "choices": [choice]}
        return {**chunk, "usage": None} if self._shape.include_usage else chunk


class Offsets:
    """Where each next token starts, in characters. Inside a character, a token starts at its end."""

    def __init__(self, names: TokenNames, start: int) -> None:
        self._names, self._next = names, start

    @property
    def at(self) -> int:
        return self._next

    def take(self, token: int) -> int:
        """The offset of `token`, which comes next."""
        offset = self._next
        if token in self._names.special_ids:
            return offset  # Control tokens leave no text.
        # Every byte but a continuation byte begins a character.
        self._next += sum(byte & 0xC0 != 0x80 for byte in self._names.token_bytes(token))
        return offset


def chat_logprobs(logprobs: Sequence[TokenLogprob | None], names: TokenNames) -> Json:
    """`choices[].logprobs` of a chat answer."""

    def entry(token: int, logprob: float) -> Json:
        return {
            "token": names.token_text(token),
            "logprob": max(logprob, LOGPROB_FLOOR),
            "bytes": list(names.token_bytes(token)),
        }

    content = [
        {**entry(item.token, item.logprob), "top_logprobs": [entry(*pair) for pair in item.top]}
        for item in logprobs
        if item is not None
    ]
    return {"content": content, "refusal": None}


def completion_logprobs(
    tokens: Sequence[int], logprobs: Sequence[TokenLogprob | None], names: TokenNames, offsets: Offsets
) -> Json:
    """`choices[].logprobs` of a completion: lists as long as `tokens`, null where nothing comes before."""
    return {
        "tokens": [names.token_text(token) for token in tokens],
        "token_logprobs": [None if item is None else max(item.logprob, LOGPROB_FLOOR) for item in logprobs],
        "top_logprobs": [None if item is None else _top(item, names) for item in logprobs],
        "text_offset": [offsets.take(token) for token in tokens],
    }


@dataclass(frozen=True, slots=True)
class _Listed:
    """`logprobs` of some tokens, and the offset at which the next one starts."""

    json: Json
    end: int


def _listing(
    tokens: Sequence[int], logprobs: Sequence[TokenLogprob | None], names: TokenNames, start: int
) -> _Listed:
    offsets = Offsets(names, start)
    return _Listed(completion_logprobs(tokens, logprobs, names, offsets), offsets.at)


def _top(item: TokenLogprob, names: TokenNames) -> Mapping[str, float]:
    entries: dict[str, float] = {}
    for token, logprob in item.top:
        entries.setdefault(names.token_text(token), max(logprob, LOGPROB_FLOOR))
    # Two tokens can have one text: the drawn one must be found under it, with its very own float.
    entries[names.token_text(item.token)] = max(item.logprob, LOGPROB_FLOOR)
    return entries
