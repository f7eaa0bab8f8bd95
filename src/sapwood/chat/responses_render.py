"""Engine events → the JSON of `/v1/responses`, in one piece or as a stream of events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sapwood.chat.openai_render import Json, TokenNames, chat_logprobs
from sapwood.chat.responses_output import Output
from sapwood.chat.tool_answer import (
    CallEnd,
    CallPart,
    CallStart,
    Fragment,
    FragmentReader,
    Thought,
    ToolReading,
)
from sapwood.types import Delta, Event, FinishReason, Started, TokenLogprob, Usage


@dataclass(frozen=True, slots=True)
class CacheCounts:
    """What the cache fields of a response say.

    Attributes:
        read: tokens of the prompt.
        written_30m, written_12h: tokens written, by how long they live.
        diagnostics: why less was read than could be, if that was asked.
    """

    read: int = 0
    written_30m: int = 0
    written_12h: int = 0
    diagnostics: Json | None = None


@dataclass(frozen=True, slots=True)
class ResponseShape:
    """What rendering must know of a call.

    Attributes:
        id, created, model: of the response.
        stem: makes the ids of its items.
        echo: the fields of the body that it repeats.
        settle: what its prompt is told to have cost; asked once, when it begins to be read.
        reading: how its tool calls and its reasoning are found.
        scored: with logprobs.
        seal: reasoning is also given in the form that clients carry.
        prewarm: there is nothing to be said.
        keep: takes the response when it is complete.
    """

    id: str
    created: int
    model: str
    stem: str
    echo: Json
    settle: Callable[[Usage], CacheCounts]
    keep: Callable[[Json], None]
    reading: ToolReading | None = None
    scored: bool = False
    seal: bool = False
    prewarm: bool = False


class ResponseStream:
    """A response as events, of which the last has it whole."""

    def __init__(self, shape: ResponseShape, names: TokenNames) -> None:
        self._answer = _Answer(shape, names)
        self._sent = 0

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (a response has one prompt)
        return self._numbered(self._answer.feed(event))

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        (usage,) = usages
        return self._numbered(self._answer.end(usage))

    def fail(self, error: Json) -> list[Json]:
        """The events with which a stream that cannot go on ends; `error` is told as OpenAI's routes do."""
        return self._numbered(self._answer.fail(error["error"], begun=self._sent > 0))

    def _numbered(self, events: Sequence[Json]) -> list[Json]:
        first, self._sent = self._sent, self._sent + len(events)
        return [
            {"type": each["type"], "sequence_number": n, **each} for n, each in enumerate(events, start=first)
        ]


class ResponseAnswer:
    """A response in one piece."""

    def __init__(self, shape: ResponseShape, names: TokenNames) -> None:
        self._answer = _Answer(shape, names)

    def feed(self, prompt: int, event: Event) -> list[Json]:  # noqa: ARG002 (a response has one prompt)
        self._answer.feed(event)
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        (usage,) = usages
        response: Json = self._answer.end(usage)[-1]["response"]
        return [response]


@dataclass(slots=True)
class _Answer:
    """Both ways are one, so that they cannot tell different things."""

    shape: ResponseShape
    names: TokenNames
    output: Output = field(init=False)
    reader: FragmentReader | None = field(init=False)
    counts: CacheCounts = CacheCounts()
    finish: FinishReason | None = None
    waiting: list[TokenLogprob] = field(default_factory=list)
    """Logprobs of tokens whose text is yet to come."""

    def __post_init__(self) -> None:
        self.output = Output(self.shape.stem, seal=self.shape.seal)
        self.reader = None if self.shape.reading is None else self.shape.reading.fragments(self.shape.id)

    def feed(self, event: Event) -> list[Json]:
        if isinstance(event, Started):
            self.counts = self.shape.settle(event.usage)
            return self._begun()
        if not isinstance(event, Delta) or self.shape.prewarm:
            return []
        self.finish = event.finish or self.finish
        if self.shape.scored:
            self.waiting += (each for each in event.logprobs if each.token not in self.names.special_ids)
        pieces: Sequence[Fragment] = [event.text] if self.reader is None else self.reader.read(event)
        return [told for piece in pieces for told in self._told(piece)]

    def end(self, usage: Usage) -> list[Json]:
        cut = self.finish == "length"
        silent = self.output.empty and not cut and not self.shape.prewarm
        events = self.output.say("") if silent else []
        events += self.output.close("incomplete" if cut else "completed")
        response = self._response("incomplete" if cut else "completed")
        response["output"] = self.output.items
        response["usage"] = self._usage(usage)
        if cut:
            response["incomplete_details"] = {"reason": "max_output_tokens"}
        if self.counts.diagnostics is not None:
            response["prompt_cache_diagnostics"] = self.counts.diagnostics
        self.shape.keep(response)
        return [*events, {"type": f"response.{response['status']}", "response": response}]

    def fail(self, error: Json, *, begun: bool) -> list[Json]:
        response = self._response("failed")
        response["error"] = {"code": error["code"] or "server_error", "message": error["message"]}
        response["output"] = self.output.items
        start = [] if begun else self._begun()
        return [*start, {"type": "response.failed", "response": response}]

    def _told(self, piece: Fragment) -> list[Json]:
        if isinstance(piece, str):
            return self._said(piece) if piece else []
        self.waiting.clear()
        match piece:
            case Thought(text):
                return self.output.think(text)
            case CallStart():
                return self.output.begin_call(piece.id, piece.name)
            case CallPart():
                return self.output.argue(piece.text)
            case CallEnd():
                return self.output.end_call()

    def _said(self, text: str) -> list[Json]:
        scores = chat_logprobs(self.waiting, self.names)["content"] if self.waiting else []
        self.waiting.clear()
        return self.output.say(text, scores)

    def _begun(self) -> list[Json]:
        response = self._response("in_progress")
        return [{"type": f"response.{name}", "response": response} for name in ("created", "in_progress")]

    def _response(self, status: str) -> Json:
        return {
            "id": self.shape.id,
            "object": "response",
            "created_at": self.shape.created,
            "status": status,
            "model": self.shape.model,
            "error": None,
            "incomplete_details": None,
            **self.shape.echo,
            "output": [],
            "usage": None,
        }

    def _usage(self, usage: Usage) -> Json:
        counts, reader = self.counts, self.reader
        thought = 0 if reader is None else reader.reasoning_tokens
        return {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {
                "cached_tokens": counts.read,
                "cache_write_tokens": counts.written_30m + counts.written_12h,
                "cache_write_tokens_details": {
                    "ttl_30m_tokens": counts.written_30m,
                    "ttl_12h_tokens": counts.written_12h,
                },
            },
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": thought},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        }
