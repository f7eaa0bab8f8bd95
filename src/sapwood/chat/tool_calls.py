"""Finds the tool calls in a model's answer while it is being written.

Calls are given when they are complete: text that may be one is held back until it is, or cannot be. What is
malformed, or calls something that is not there, is text. So where the answer was cut into pieces makes no
difference. White space around calls is dropped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NoReturn

from sapwood.chat.tools import CLOSE, OPEN, PYTHON_TAG, TOOL_CALLS, ToolStyle


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call in an answer. `arguments` is JSON text, an object."""

    name: str
    arguments: str


Piece = str | FoundCall

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
_SPACE = re.compile(r"\s*")
_BETWEEN = re.compile(r"[\s;,]*")


@dataclass(frozen=True, slots=True)
class _Step:
    """What was read off the front of the text: pieces, and how many characters they took."""

    pieces: tuple[Piece, ...]
    taken: int


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

    def feed(self, text: str) -> list[Piece]:
        """The text and calls that `text` completes."""
        self._text += text
        return list(self._read(last=False))

    def end(self) -> list[Piece]:
        """What was held back, when nothing more will come."""
        return list(self._read(last=True))

    def _read(self, *, last: bool) -> Iterator[Piece]:
        while self._text:
            step = self._bare_call(last) if self._bare else self._marked(last)
            if step is None:
                return
            self._called = self._called or any(isinstance(piece, FoundCall) for piece in step.pieces)
            yield from (piece for piece in step.pieces if piece)
            self._text = self._text[step.taken :]
            self._scan = _JsonScan()

    # ---- calls that are the whole answer -----------------------------------------------------------------

    def _bare_call(self, last: bool) -> _Step | None:
        """At the answer's start, or after such a call."""
        start = _skip(self._text, _BETWEEN if self._called else _SPACE)
        if start == len(self._text) and not last:
            return None
        if self._text[start : start + 1] not in ("{", "["):
            self._bare = False
            return _Step((), 0)
        end = self._scan.end(self._text, start)
        if end is None and not last:
            return None
        calls = None if end is None or end == 0 else _calls(self._text[start:end], self._names)
        if calls is None or end is None:
            self._bare = False
            return _Step((), 0)
        return _Step(calls, end)

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
        name, at = None, _skip(self._text, _SPACE, start)
        if opener == TOOL_CALLS:
            named = _NAMED.match(self._text, start)
            if named is not None:
                name, at = named[1], named.end()
            elif self._text[at : at + 1] not in ("[", "{"):
                waits = not last and _MAYBE_NAMED.match(self._text, start)
                return None if waits else _NOTHING
        if at == len(self._text):
            return _NOTHING if last else None
        if self._text[at] not in "{[":
            return _NOTHING
        end = self._scan.end(self._text, at)
        if end is None:
            return _NOTHING if last else None
        calls = None if end == 0 else _calls(self._text[at:end], self._names, name)
        if calls is None:
            return _NOTHING
        return self._closed(opener, calls, end, last)

    def _closed(self, opener: str, calls: tuple[FoundCall, ...], end: int, last: bool) -> _Step | None:
        """Takes the closing tag too, if there is one: some models have it as their end token."""
        if opener == PYTHON_TAG:
            self._bare = True
        if opener != OPEN:
            return _Step(calls, end)
        at = _skip(self._text, _SPACE, end)
        rest = self._text[at : at + len(CLOSE)]
        if not CLOSE.startswith(rest):
            return _Step(calls, end)
        return _Step(calls, at + len(rest)) if rest == CLOSE or last else None


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


def _calls(text: str, names: frozenset[str], name: str | None = None) -> tuple[FoundCall, ...] | None:
    """The calls in a JSON text: an object, or a list of some. With `name` the object is its arguments."""
    try:
        value = json.loads(text, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    if name is not None:
        value = {"name": name, "arguments": value}
    entries = value if isinstance(value, list) else [value]
    calls = [_call(entry, names) for entry in entries]
    found = tuple(call for call in calls if call is not None)
    return found if found and len(found) == len(calls) else None


def _call(entry: Any, names: frozenset[str]) -> FoundCall | None:
    if not isinstance(entry, dict):
        return None
    function = entry.get("function")
    if isinstance(function, dict):
        entry = function
    elif isinstance(function, str):
        entry = {"name": function, **entry}
    name, arguments = entry.get("name"), entry.get("arguments", entry.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _object(arguments)
    if not isinstance(name, str) or name not in names or not isinstance(arguments, dict):
        return None
    written = _written(arguments)
    return None if written is None else FoundCall(name, written)


def _written(arguments: Mapping[str, Any]) -> str | None:
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except UnicodeEncodeError:  # Half of a surrogate pair, which JSON can spell.
        return json.dumps(arguments)
    except ValueError:  # A number so large that it is none.
        return None
    return text


def _object(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
