"""Keeps what a chat was answered, while it is being rendered for the client."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sapwood.chat.detok import Detokenizer
from sapwood.chat.openai_render import Json, Render
from sapwood.chat.replies import Opening, OwnReplies, Told, ToldCall
from sapwood.chat.tokenizer import Tokenizer
from sapwood.chat.tool_answer import AnswerReader, NumberedCall, Thought
from sapwood.types import Delta, Event, Usage


@dataclass(frozen=True, slots=True)
class Keeping:
    """Where an answer is kept, and how it is read.

    Attributes:
        prompt: its tokens.
        stops: whether a stop string may cut its text.
        reader: makes what tells its text from calls and thoughts, as the client is told; None if it is all text.
        markers: control tokens that the reader looks at.
        continued: the text of its turn that stands in the prompt.
    """

    replies: OwnReplies
    opening: Opening
    tokenizer: Tokenizer
    prompt: Sequence[int]
    stops: bool
    reader: Callable[[], AnswerReader] | None
    markers: Mapping[int, str]
    continued: str = ""


class Remembering:
    """Any render of one prompt; each of its samples that ends by itself is kept."""

    def __init__(self, render: Render, keeping: Keeping) -> None:
        self._render, self._keeping = render, keeping
        self._samples: dict[int, _Growing] = {}

    def feed(self, prompt: int, event: Event) -> list[Json]:
        if isinstance(event, Delta):
            if event.sample not in self._samples:
                reader = self._keeping.reader
                self._samples[event.sample] = _Growing(None if reader is None else reader())
            sample = self._samples[event.sample]
            sample.add(event)
            if event.finish in ("stop", "length"):
                _keep(self._keeping, sample, ended=event.finish == "stop")
        return self._render.feed(prompt, event)

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        return self._render.end(usages)


@dataclass(slots=True)
class _Growing:
    """One sample: its tokens, all its text, and that as it was told."""

    reader: AnswerReader | None
    tokens: list[int] = field(default_factory=list)
    text: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    thought: list[str] = field(default_factory=list)
    calls: list[ToldCall] = field(default_factory=list)

    def add(self, delta: Delta) -> None:
        self.tokens += delta.token_ids
        self.text.append(delta.text)
        for piece in [delta.text] if self.reader is None else self.reader.read(delta):
            match piece:
                case NumberedCall():
                    self.calls.append(ToldCall(piece.call.name, piece.call.arguments))
                case Thought():
                    self.thought.append(piece.text)
                case _:
                    self.said.append(piece)

    @property
    def told(self) -> Told:
        return Told("".join(self.said), tuple(self.calls), "".join(self.thought))


def _keep(keeping: Keeping, sample: _Growing, *, ended: bool) -> None:
    """`ended`: by its last token, of which nothing or not all was told."""
    ids = sample.tokens[:-1] if ended else sample.tokens
    text, told, covered = "".join(sample.text), sample.told, None
    hidden = keeping.tokenizer.special_ids - keeping.markers.keys()
    if keeping.stops or not hidden.isdisjoint(ids):
        seen = _seen(keeping, ids, text, hidden)
        if seen.chars != len(text):
            if told.calls or told.reasoning or told.text != text:
                return  # The part that was told cannot stand for the turn.
            covered = seen.chars
        ids = ids[: seen.tokens]
    if not ids or covered == 0:
        return
    whole = replace(told, text=keeping.continued + told.text)
    keeping.replies.add(keeping.opening, whole, ids, covered)


@dataclass(frozen=True, slots=True)
class _Seen:
    """The first tokens of an answer, which spell the first characters of its text."""

    tokens: int
    chars: int


def _seen(keeping: Keeping, ids: Sequence[int], text: str, hidden: frozenset[int]) -> _Seen:
    """The most of an answer of which everything was told: nothing behind a stop string, no control token."""
    detok = Detokenizer(keeping.tokenizer, keeping.prompt)
    seen, chars = _Seen(0, 0), 0
    for count, token in enumerate(ids, 1):
        if token in hidden:
            break
        piece = detok.add(token)
        if not text.startswith(piece, chars):
            break
        chars += len(piece)
        if detok.between_characters:
            seen = _Seen(count, chars)
    return seen
