"""Reads the JSON object of a call's arguments while it is being written."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Literal

MAX_DEPTH = 128
"""Of nesting. Readers of JSON that recurse give up at some hundreds."""
MAX_LITERAL = 512
"""Characters of a number."""

Expected = Literal["start", "key", "key or end", ":", "value", "value or end", "next"]

_SPACE = re.compile(r"[ \t\r\n]++")
_LITERAL = re.compile(r'[^\s{}\[\]:,"]++')
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_WORDS = frozenset({"true", "false", "null"})
_IN_STRING = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}'
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*+"
)
_HALF_ESCAPE = re.compile(
    r"\\(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u(?:[dD](?:[c-fC-F][0-9a-fA-F]?)?)?)?)?)?)?"
)
_LONGEST_ESCAPE = 12
_CONTROL = re.compile(r"[\x00-\x1f]")
_ANY_STRING = re.compile(r'(?:[^"\\]|\\.)*+', re.DOTALL)
_ANY_OUTSIDE = re.compile(r'[^"{}\[\]<]*+')


@dataclass(frozen=True, slots=True)
class Read:
    """What was read off the front of a text: `written` is its JSON, `taken` the characters that it took."""

    written: str
    taken: int


class ArgumentsReader:
    """One object. All that it gives, put together, is JSON, or the beginning of some.

    Control characters in strings are escaped, which models forget. Attributes:
        state: `broken` from the first character with which it can be no JSON any more.
        depth: objects and lists that are open; in_string: whether a string is, at the end or where it broke.
    """

    def __init__(self) -> None:
        self.state: Literal["open", "closed", "broken"] = "open"
        self.in_string = False
        self._closers: list[str] = []
        self._expected: Expected = "start"
        self._in_key = False

    @property
    def depth(self) -> int:
        return len(self._closers)

    def read(self, text: str) -> Read:
        """Reads on; what is not taken must be given again with what follows it."""
        written, at = [], 0
        while self.state == "open":
            step = self._string(text, at) if self.in_string else self._token(text, at)
            if step is None:
                break
            written.append(step.written)
            at += step.taken
        return Read("".join(written), at)

    def _string(self, text: str, at: int) -> Read | None:
        found = _IN_STRING.match(text, at)
        assert found is not None
        inside, end = _CONTROL.sub(_escaped, found[0]), found.end()
        if text[end : end + 1] == '"':
            self.in_string = False
            if self._in_key:
                self._expected = ":"
            else:
                self._end_value()
            return Read(inside + '"', end + 1 - at)
        rest = text[end : end + _LONGEST_ESCAPE]
        if rest and not (_HALF_ESCAPE.fullmatch(rest) and end + len(rest) == len(text)):
            self.state = "broken"
        return Read(inside, end - at) if end > at else None

    def _token(self, text: str, at: int) -> Read | None:
        char = text[at : at + 1]
        space = _SPACE.match(text, at)
        if space is not None:
            return Read(space[0], space.end() - at)
        if not char:
            return None
        if char in '{}[]:,"':
            if self._punctuation(char):
                return Read(char, 1)
        else:
            literal = _LITERAL.match(text, at)
            if literal is not None and len(literal[0]) <= MAX_LITERAL:
                if literal.end() == len(text):
                    return None  # It may go on.
                if self._expected in ("value", "value or end") and _is_literal(literal[0]):
                    self._end_value()
                    return Read(literal[0], literal.end() - at)
        self.state = "broken"
        return None

    def _punctuation(self, char: str) -> bool:
        """Takes it, if it may stand here."""
        expected, within = self._expected, self._closers[-1] if self._closers else ""
        if char == '"':
            self._in_key = expected in ("key", "key or end")
            self.in_string = self._in_key or expected in ("value", "value or end")
            return self.in_string
        if char in "{[":
            starts = expected == "start" and char == "{"
            if self.depth == MAX_DEPTH or not (starts or expected in ("value", "value or end")):
                return False
            self._closers.append("}" if char == "{" else "]")
            self._expected = "key or end" if char == "{" else "value or end"
            return True
        if char in "}]":
            may_end = expected in ("next", "key or end" if char == "}" else "value or end")
            if within != char or not may_end:
                return False
            self._closers.pop()
            self._end_value()
            return True
        if char == ":":
            self._expected = "value"
            return expected == ":"
        self._expected = "key" if within == "}" else "value"
        return expected == "next"

    def _end_value(self) -> None:
        self._expected = "next"
        if not self._closers:
            self.state = "closed"


class Skipper:
    """Passes over the rest of objects and lists of which `depth` are open, JSON or not."""

    def __init__(self, depth: int, *, in_string: bool = False) -> None:
        self._depth, self._in_string = depth, in_string
        self.done = depth == 0

    def skip(self, text: str) -> int:
        """How many characters belong to it. It also ends before a `<` outside of strings: a tag."""
        at = 0
        while not self.done:
            run = (_ANY_STRING if self._in_string else _ANY_OUTSIDE).match(text, at)
            assert run is not None
            at = run.end()
            char = text[at : at + 1]
            if not char or char == "\\":  # At the end, or before half of an escape.
                break
            if char == "<":
                self.done = True
                break
            at += 1
            if char == '"':
                self._in_string = not self._in_string
            else:
                self._depth += 1 if char in "{[" else -1
                self.done = self._depth == 0
        return at


def _is_literal(text: str) -> bool:
    if text in _WORDS:
        return True
    return _NUMBER.fullmatch(text) is not None and math.isfinite(float(text))


def _escaped(control: re.Match[str]) -> str:
    return json.dumps(control[0])[1:-1]
