"""From the engine's deltas to an answer's thoughts, its text and its tool calls, for every dialect's rendering."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sapwood.chat.found_calls import FoundCall
from sapwood.chat.messages import Conversation, parsed_object
from sapwood.chat.template import ChatTemplate
from sapwood.chat.thinking import CLOSE as THOUGHT_END
from sapwood.chat.thinking import TAGS, Thought, ThoughtReader, left_open
from sapwood.chat.tokenizer import Tokenizer
from sapwood.chat.tool_calls import ArgumentsText, CallHead, ToolCallParser
from sapwood.chat.tools import MARKERS, ToolStyle, ToolUse
from sapwood.types import Delta

__all__ = [
    "AnswerReader",
    "CallEnd",
    "CallPart",
    "CallStart",
    "Fragment",
    "FragmentReader",
    "NumberedCall",
    "Thought",
    "ToolReading",
    "whole_arguments",
]

_ID_CHARS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class NumberedCall:
    """A call and its place among those of its answer."""

    index: int
    id: str
    call: FoundCall


@dataclass(frozen=True, slots=True)
class CallStart:
    """A call begins; `index` is its place among those of its answer."""

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallPart:
    """The next piece of a call's arguments: with those before it, JSON or (of one cut short) the beginning of some."""

    index: int
    text: str


@dataclass(frozen=True, slots=True)
class CallEnd:
    """A call is over."""

    index: int


Fragment = str | Thought | CallStart | CallPart | CallEnd


@dataclass(frozen=True, slots=True)
class ToolReading:
    """How the thoughts and calls in a model's answers are found.

    Attributes:
        names: tools that may be called; without any, no calls are looked for.
        markers: control tokens of the vocabulary that belong to either: they leave no text of their own.
        thinks: whether the answer may begin with a thought.
        thought_open: the prompt ends inside one.
        parallel: whether an answer may make several calls; if not, only the first is given.
    """

    style: ToolStyle
    names: frozenset[str]
    markers: Mapping[int, str]
    thinks: bool = False
    thought_open: bool = False
    parallel: bool = True

    @classmethod
    def of(cls, tokenizer: Tokenizer, style: ToolStyle, names: frozenset[str]) -> ToolReading:
        """For answers that do not think."""
        return cls(style, names, _control_tokens(tokenizer, MARKERS))

    @classmethod
    def after(
        cls,
        tokenizer: Tokenizer,
        template: ChatTemplate,
        conversation: Conversation,
        prompt: Sequence[int],
        use: ToolUse | None,
    ) -> ToolReading | None:
        """For the answer to a conversation of this prompt; None if there is nothing to be found in it."""
        if use is None and not template.thinks:
            return None
        names = frozenset[str]() if use is None else use.names
        markers = _control_tokens(tokenizer, (*MARKERS, *TAGS) if use is not None else TAGS)
        opened = template.thinks and left_open(tokenizer, conversation, prompt)
        parallel = use is None or use.parallel
        return cls(template.tool_style, names, markers, template.thinks, opened, parallel)

    def reader(self, answer_id: str) -> AnswerReader:
        """A reader for one sample that gives whole calls; `answer_id` makes their ids."""
        return AnswerReader(self.fragments(answer_id))

    def fragments(self, answer_id: str) -> FragmentReader:
        """A reader for one sample that gives calls as they come."""
        return FragmentReader(
            ThoughtReader(opened=self.thought_open) if self.thinks else None,
            ToolCallParser(self.style, self.names) if self.names else None,
            self.markers,
            answer_id,
            parallel=self.parallel,
        )


class FragmentReader:
    """Reads one sample's deltas.

    Attributes:
        calls: how many were found.
        reasoning_tokens: how many tokens the model thought, its tags among them.
    """

    def __init__(
        self,
        thoughts: ThoughtReader | None,
        parser: ToolCallParser | None,
        markers: Mapping[int, str],
        answer_id: str,
        *,
        parallel: bool,
    ) -> None:
        self._thoughts, self._parser = thoughts, parser
        self._markers, self._answer_id, self._parallel = markers, answer_id, parallel
        self._undecided = 0
        self.calls = self.reasoning_tokens = 0

    def read(self, delta: Delta) -> list[Fragment]:
        """What `delta` completes; with its last delta the answer is over."""
        marked = "".join(self._markers.get(token, "") for token in delta.token_ids)
        over = delta.finish is not None
        pieces: list[Fragment] = []
        for piece in self._split(delta.text + marked, delta.token_ids, over=over):
            pieces += [piece] if isinstance(piece, Thought) else self._parsed(piece)
        if over and self._parser is not None:
            pieces += map(self._numbered, self._parser.end())
        if self._parallel:
            return pieces
        return [piece for piece in pieces if isinstance(piece, str | Thought) or piece.index == 0]

    @property
    def thinks(self) -> bool:
        """Whether the answer may begin with a thought."""
        return self._thoughts is not None

    def reason(self, finish: str) -> str:
        """Why the answer ended, in OpenAI's words."""
        return "tool_calls" if self.calls and finish == "stop" else finish

    def _split(self, text: str, tokens: Sequence[int], *, over: bool) -> list[str | Thought]:
        thoughts = self._thoughts
        if thoughts is None:
            return [text] if text else []
        before = thoughts.thinks
        pieces = thoughts.feed(text)
        if over:
            pieces += thoughts.end()
        self._count(thoughts, tokens, before)
        return pieces

    def _count(self, thoughts: ThoughtReader, tokens: Sequence[int], before: bool | None) -> None:
        """Counts the tokens of a thought, of the text that began one, and of the tag that ends it."""
        after = thoughts.thinks
        if before is None:
            self._undecided += len(tokens)
            if after is not None and thoughts.thought:
                self.reasoning_tokens += self._undecided
        elif before:
            last = next((i + 1 for i, t in enumerate(tokens) if self._markers.get(t) == THOUGHT_END), None)
            self.reasoning_tokens += len(tokens) if last is None else last

    def _parsed(self, text: str) -> Iterable[Fragment]:
        return (text,) if self._parser is None else map(self._numbered, self._parser.feed(text))

    def _numbered(self, piece: object) -> Fragment:
        match piece:
            case str():
                return piece
            case CallHead(name):
                self.calls += 1
                return CallStart(self.calls - 1, _call_id(self._answer_id, self.calls), name)
            case ArgumentsText(text):
                return CallPart(self.calls - 1, text)
        return CallEnd(self.calls - 1)


class AnswerReader:
    """Reads one sample's deltas and collects its calls: each is given when it is over.

    The arguments of one that was cut short, or is malformed, are the empty object.
    """

    def __init__(self, fragments: FragmentReader) -> None:
        self._fragments = fragments
        self._call: CallStart | None = None
        self._arguments: list[str] = []

    @property
    def calls(self) -> int:
        return self._fragments.calls

    @property
    def reasoning_tokens(self) -> int:
        return self._fragments.reasoning_tokens

    def read(self, delta: Delta) -> list[str | Thought | NumberedCall]:
        """What `delta` completes; with its last delta the answer is over."""
        pieces: list[str | Thought | NumberedCall] = []
        for piece in self._fragments.read(delta):
            match piece:
                case CallStart():
                    self._call = piece
                    self._arguments.clear()
                case CallPart():
                    self._arguments.append(piece.text)
                case CallEnd():
                    assert self._call is not None
                    found = FoundCall(self._call.name, whole_arguments("".join(self._arguments)))
                    pieces.append(NumberedCall(self._call.index, self._call.id, found))
                case _:
                    pieces.append(piece)
        return pieces

    def reason(self, finish: str) -> str:
        """Why the answer ended, in OpenAI's words."""
        return self._fragments.reason(finish)


def whole_arguments(text: str) -> str:
    """`text` if it is a JSON object, else an empty one."""
    return text if parsed_object(text) is not None else "{}"


def _control_tokens(tokenizer: Tokenizer, texts: Sequence[str]) -> Mapping[int, str]:
    return {token.id: token.text for token in tokenizer.special_tokens if token.text in texts}


def _call_id(answer_id: str, number: int) -> str:
    """Nine letters and digits, which is what Mistral's templates insist on."""
    digest = hashlib.blake2b(f"{answer_id}/{number}".encode(), digest_size=9).digest()
    return "".join(_ID_CHARS[byte % len(_ID_CHARS)] for byte in digest)
