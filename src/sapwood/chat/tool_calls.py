"""Finds the tool calls in a model's answer while it is being written.

A call is told as soon as its head is read, the name of a tool that there is and the beginning of its arguments;
then its arguments as they come. Other ways to write one are given when they are complete. Text that may be a call
is held back until it is, or cannot be. What is malformed, or calls something that is not there, is text, unless
its head was told: then it is a call with the arguments that there were. So where the answer was cut into pieces
makes no difference. White space around calls is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from sapwood.chat.call_arguments import ArgumentsReader, Skipper
from sapwood.chat.found_calls import FoundCall, calls_in
from sapwood.chat.tools import CLOSE, OPEN, PYTHON_TAG, TOOL_CALLS, ToolStyle


@dataclass(frozen=True, slots=True)
class CallHead:
    """A call begins."""

    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsText:
    """The next piece of the call's arguments: with those before it, JSON or the beginning of some."""

    text: str


@dataclass(frozen=True, slots=True)
class CallTail:
    """The call is over."""


Piece = str | CallHead | ArgumentsText | CallTail

_OPENERS: Mapping[ToolStyle, tuple[str, ...]] = MappingProxyType(
    {
        "hermes": (OPEN,),
        "llama3": (PYTHON_TAG,),
        "mistral": (TOOL_CALLS,),
        "json": (OPEN, TOOL_CALLS, PYTHON_TAG),
    }
)
_BARE: frozenset[ToolStyle] = frozenset({"llama3", "json", "hermes"})
"""Formats in which an answer may be a call, or several, and nothing else."""

_NAMED = re.compile(r"\s*+([\w.-]{1,256}+)\s*+(?:\[ARGS\])?\s*+(?=\{)")
_MAYBE_NAMED = re.compile(r"\s*+[\w.-]{0,256}+\s*+(?:\[[ARGS]{0,4}\]?)?\s*+\Z")
_MAX_HEAD = 640
_HEAD = re.compile(
    r'\{\s*+(?:"type"\s*+:\s*+"function"\s*+,\s*+)?"name"\s*+:\s*+"([^"\\]{1,256}+)"\s*+,'
    r'\s*+"(?:arguments|parameters)"\s*+:\s*+(?=\{)'
)
"""How calls are written that can be told before they are complete."""
_NEXT = re.compile(r"\s*+,\s*+")
_LIST_END = re.compile(r"\s*+\]")
_MAYBE_NEXT = re.compile(r"\s*+(?:,\s*+)?\Z")
_SPACE = re.compile(r"\s*")
_BETWEEN = re.compile(r"[\s;,]*")


@dataclass(frozen=True, slots=True)
class _Step:
    """What was read off the front of the text: pieces, and how many characters they took."""

    pieces: tuple[Piece, ...]
    taken: int
    call: _Call | None = None
    """The call that is read on with."""


@dataclass(slots=True)
class _Call:
    """A call, or a list of some, whose head was read."""

    opener: str | None
    phase: Literal["arguments", "rest", "between", "closing"] = "closing"
    in_entry: bool = False
    """Its arguments stand in an object, beside its name."""
    in_list: bool = False
    arguments: ArgumentsReader = field(default_factory=ArgumentsReader)
    rest: Skipper = field(default_factory=lambda: Skipper(0))

    def begin(self) -> None:
        self.phase, self.arguments = "arguments", ArgumentsReader()

    def end_arguments(self) -> None:
        read = self.arguments
        self.phase, self.rest = "rest", Skipper(read.depth + self.in_entry, in_string=read.in_string)


class ToolCallParser:
    """One answer's calls and text. Feed pieces of text; what comes back is final."""

    def __init__(self, style: ToolStyle, names: frozenset[str]) -> None:
        """`names` are the tools that there are."""
        self._openers = _OPENERS[style]
        self._opener = re.compile("|".join(map(re.escape, self._openers)))
        self._names = names
        self._text = ""
        self._scan = _JsonScan()
        self._bare = style in _BARE
        self._called = False
        self._call: _Call | None = None

    def feed(self, text: str) -> list[Piece]:
        """The text and calls that `text` completes."""
        self._text += text
        return list(self._read(last=False))

    def end(self) -> list[Piece]:
        """What was held back, when nothing more will come."""
        pieces = list(self._read(last=True))
        if self._call is not None and self._call.phase == "arguments":
            pieces.append(CallTail())
        return pieces

    def _read(self, *, last: bool) -> Iterator[Piece]:
        while self._text:
            step = self._step(last)
            if step is None:
                return
            if step.call is not None:
                self._call, self._called = step.call, True
            yield from (piece for piece in step.pieces if piece)
            self._text = self._text[step.taken :]
            self._scan = _JsonScan()

    def _step(self, last: bool) -> _Step | None:
        if self._call is not None:
            return self._go_on(self._call, last)
        return self._bare_call(last) if self._bare else self._marked(last)

    # ---- calls whose head was read -----------------------------------------------------------------------

    def _go_on(self, call: _Call, last: bool) -> _Step | None:
        match call.phase:
            case "arguments":
                return self._arguments(call)
            case "rest":
                taken = call.rest.skip(self._text)
                if call.rest.done:
                    call.phase = "between" if call.in_list else "closing"
                return _Step((), taken) if taken or call.rest.done else self._drop(last)
            case "between":
                return self._between(call, last)
            case "closing":
                return self._closing(call, last)

    def _arguments(self, call: _Call) -> _Step | None:
        read = call.arguments.read(self._text)
        pieces: tuple[Piece, ...] = (ArgumentsText(read.written),) if read.written else ()
        if call.arguments.state != "open":
            call.end_arguments()
            return _Step((*pieces, CallTail()), read.taken)
        return _Step(pieces, read.taken) if read.taken else None

    def _between(self, call: _Call, last: bool) -> _Step | None:
        """Between the entries of a list, or at its end."""
        ended = _LIST_END.match(self._text)
        if ended is not None:
            call.phase = "closing"
            return _Step((), ended.end())
        if _MAYBE_NEXT.match(self._text):
            return self._drop(last)
        following = _NEXT.match(self._text)
        at = 0 if following is None else following.end()
        if following is not None and self._text[at] == "{":
            head = self._head(at)
            if head is not None:
                call.begin()
                return _Step((CallHead(head[1]),), head.end())
            end = self._scan.end(self._text, at)
            if end is None and not last:
                return None
            found = calls_in(self._text[at:end], self._names) if end else None
            if found is not None and end is not None:
                return _Step(_told(found), end)
        call.phase = "closing"
        return _Step((), 0)

    def _closing(self, call: _Call, last: bool) -> _Step | None:
        """Takes the closing tag too, if there is one: some models have it as their end token."""
        at = _skip(self._text, _SPACE)
        rest = self._text[at : at + len(CLOSE)]
        tagged = call.opener == OPEN and CLOSE.startswith(rest)
        if tagged and rest != CLOSE and not last:
            return None
        if call.opener == PYTHON_TAG:
            self._bare = True
        self._call = None
        return _Step((), at + len(rest) if tagged else 0)

    def _drop(self, last: bool) -> _Step | None:
        return _Step((), len(self._text)) if last else None

    def _head(self, at: int) -> re.Match[str] | None:
        head = _HEAD.match(self._text, at, at + _MAX_HEAD)
        return head if head is not None and head[1] in self._names else None

    def _json_calls(self, opener: str | None, at: int, last: bool) -> _Step | None:
        """The calls in the JSON that begins at `at`; None while they are not complete."""
        in_list = self._text[at] == "["
        head = self._head(_skip(self._text, _SPACE, at + 1) if in_list else at)
        if head is not None:
            call = _Call(opener, "arguments", in_entry=True, in_list=in_list)
            return _Step((CallHead(head[1]),), head.end(), call)
        end = self._scan.end(self._text, at)
        if end is None:
            return _NOTHING if last else None
        found = calls_in(self._text[at:end], self._names) if end else None
        return _NOTHING if found is None else _Step(_told(found), end, _Call(opener))

    # ---- calls that are the whole answer -----------------------------------------------------------------

    def _bare_call(self, last: bool) -> _Step | None:
        """At the answer's start, or after such a call."""
        start = _skip(self._text, _BETWEEN if self._called else _SPACE)
        if start == len(self._text) and not last:
            return None
        step: _Step | None = _NOTHING
        if self._text[start : start + 1] in ("{", "["):
            step = self._json_calls(None, start, last)
        if step == _NOTHING:
            self._bare = False
        return step

    # ---- calls behind a marker ---------------------------------------------------------------------------

    def _marked(self, last: bool) -> _Step | None:
        found = self._opener.search(self._text)
        if found is None:
            kept = 0 if last else self._may_open()
            shown = self._text[: len(self._text) - kept]
            if last and self._called and not shown.strip():
                shown = ""
            return _Step((shown,), len(self._text) - kept) if shown or last else None
        before = self._text[: found.start()].rstrip()
        if before:
            return _Step((before,), len(before))
        block = self._block(found[0], found.end(), last)
        # Without a call behind it the marker is text; what follows it is looked at anew.
        return _Step((self._text[: found.end()],), found.end()) if block == _NOTHING else block

    def _may_open(self) -> int:
        """How much of the text's end may begin a call, white space before it included."""
        text = self._text
        longest = max(map(len, self._openers))
        starts = (len(text) - n for n in range(min(longest - 1, len(text)), 0, -1))
        cut = next((at for at in starts if any(o.startswith(text[at:]) for o in self._openers)), len(text))
        return len(text) - len(text[:cut].rstrip())

    def _block(self, opener: str, start: int, last: bool) -> _Step | None:
        """The call or calls behind a marker that ends at `start`; None while they are not complete."""
        at = _skip(self._text, _SPACE, start)
        if opener == TOOL_CALLS:
            named = _NAMED.match(self._text, start)
            if named is not None and named[1] in self._names:
                return _Step((CallHead(named[1]),), named.end(), _Call(opener, "arguments"))
            if named is not None:
                return _NOTHING
            if self._text[at : at + 1] not in ("[", "{"):
                waits = not last and _MAYBE_NAMED.match(self._text, start)
                return None if waits else _NOTHING
        if at == len(self._text):
            return _NOTHING if last else None
        return self._json_calls(opener, at, last) if self._text[at] in "{[" else _NOTHING


_NOTHING = _Step((), 0)


class _JsonScan:
    """Where a JSON object or list ends in a text that grows. Each character is looked at once."""

    def __init__(self) -> None:
        self._at: int | None = None
        self._end: int | None = None
        self._depth = 0
        self._in_string = False

    def end(self, text: str, start: int) -> int | None:
        """Index after its last character; None if it goes on; 0 if it is no JSON."""
        at = start if self._at is None else self._at
        while self._end is None and at < len(text):
            if self._in_string:
                ended = _IN_STRING.match(text, at)
                assert ended is not None
                at = ended.end()
                if at == len(text) or text[at] != '"':
                    break  # At the text's end, or at a backslash that is its last character.
                self._in_string = False
            else:
                self._outside(text[at], at)
            at += 1
        self._at = at
        return self._end

    def _outside(self, char: str, at: int) -> None:
        if char == '"':
            self._in_string = True
        elif char in "{[":
            self._depth += 1
        elif char in "}]":
            self._depth -= 1
            if self._depth == 0:
                self._end = at + 1
        elif char not in _OUTSIDE:
            self._end = 0


_IN_STRING = re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL)
_OUTSIDE = frozenset(" \t\r\n,:+-.0123456789Eaeflnrstu")
"""What JSON has outside of strings, braces and brackets."""


def _skip(text: str, pattern: re.Pattern[str], start: int = 0) -> int:
    found = pattern.match(text, start)
    return start if found is None else found.end()


def _told(calls: tuple[FoundCall, ...]) -> tuple[Piece, ...]:
    return tuple(
        piece for call in calls for piece in (CallHead(call.name), ArgumentsText(call.arguments), CallTail())
    )
