"""How many tokens of a prompt there are up to the end of each block of its conversation.

A template is foreign code, so what it made of each block is found by rendering once more with a mark at each
block's end. Where the marks change what it writes, the rest is found by rendering the conversation up to a
message, for as many messages as can be rendered in bounded time.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from sapwood.chat.alignment import byte_offsets, token_ends
from sapwood.chat.encode import render_conversation
from sapwood.chat.lookalikes import unused_characters
from sapwood.chat.messages import Conversation, Message, ToolCall, parsed_object
from sapwood.chat.replay import Replayed
from sapwood.chat.template import ChatTemplate
from sapwood.chat.tokenizer import Tokenizer
from sapwood.errors import RequestError

MOST_RENDERED = 32
LEAST_RENDERED = 4
RENDERED_CHARS = 4_000_000
"""Up to how many of its last messages a conversation is rendered, where marks do not hold: the fewer the longer
it is."""


@dataclass(frozen=True, slots=True)
class Spot:
    """A block of a conversation: tool `index`, or the part or call `inner` of message `index`."""

    kind: Literal["tool", "part", "call"]
    index: int
    inner: int = 0


def block_ends(
    tokenizer: Tokenizer,
    lengths: Sequence[int],
    template: ChatTemplate,
    conversation: Conversation,
    tokens: Sequence[int],
    spots: Sequence[Spot],
    replayed: Sequence[Replayed] = (),
) -> tuple[int, ...]:
    """Of each spot, in prompt order, the number of whole tokens up to its end; never less than of those before.

    `lengths` has the bytes of every token of the vocabulary. Time is linear in the prompt's length. White space
    at a block's end is not part of it, for many templates drop it. A block that cannot be found ends with the
    one before it. The last block of a turn that was `replayed` ends with its tokens.
    """
    text = "".join(segment.text for segment in render_conversation(template, conversation))
    chars = _char_ends(template, conversation, text, spots)
    placed = list(accumulate((0 if at is None else at for at in chars), max))
    for each in replayed:
        within = [i for i, at in enumerate(placed) if each.start < at <= each.end]
        if within:
            placed[within[-1]] = each.end
    ends = token_ends(tokenizer, lengths, text, tokens, replayed)
    if ends is None:
        return (0,) * len(spots)
    return tuple(int(n) for n in np.searchsorted(ends, byte_offsets(text, placed), side="right"))


def _char_ends(
    template: ChatTemplate, conversation: Conversation, text: str, spots: Sequence[Spot]
) -> list[int | None]:
    found = _marked_ends(template, conversation, text, spots)
    lost = {spot.index for spot, at in zip(spots, found, strict=True) if at is None and spot.kind != "tool"}
    most = min(MOST_RENDERED, max(LEAST_RENDERED, RENDERED_CHARS // max(1, len(text))))
    rendered = {index: _end_of_message(template, conversation, text, index) for index in sorted(lost)[-most:]}
    return [
        rendered.get(spot.index) if at is None and spot.kind != "tool" else at
        for spot, at in zip(spots, found, strict=True)
    ]


def _end_of_message(template: ChatTemplate, conversation: Conversation, text: str, index: int) -> int | None:
    until = replace(
        conversation,
        messages=conversation.messages[: index + 1],
        add_generation_prompt=False,
        continue_final_message=False,
    )
    try:
        start = "".join(segment.text for segment in render_conversation(template, until))
    except RequestError:  # Some templates refuse to end there.
        return None
    return _agreed(start, text)


def _marked_ends(
    template: ChatTemplate, conversation: Conversation, text: str, spots: Sequence[Spot]
) -> list[int | None]:
    """Characters of `text` up to each spot's end; None where a mark was lost or changed what is written."""
    opening, closing = unused_characters(_values(conversation), 2)
    marking = _Marking(spots, opening, closing)
    try:
        marked = "".join(s.text for s in render_conversation(template, marking.marked(conversation)))
    except RequestError:
        return [None] * len(spots)
    places: dict[int, int] = {}
    kept: list[str] = []
    at = length = 0
    for mark in re.finditer(f"{opening}([0-9]+){closing}", marked):
        kept.append(marked[at : mark.start()])
        length += len(kept[-1])
        places.setdefault(int(mark[1]), length)
        at = mark.end()
    bare = "".join([*kept, marked[at:]])
    agreed = _agreed(bare, text)
    ends: list[int | None] = []
    for i in range(len(spots)):
        place = places.get(i)
        if place is None or place > agreed:
            ends.append(None)
        else:
            ends.append(_after(text, place, marking.tails.get(i, "")))
    return ends


def _values(conversation: Conversation) -> list[Any]:
    texts = [
        [
            message.parts,
            message.name,
            message.reasoning,
            [[c.id, c.name, c.arguments] for c in message.tool_calls],
        ]
        for message in conversation.messages
    ]
    return [texts, list(conversation.tools), conversation.template_kwargs]


class _Marking:
    """Puts a mark at the end of each spot. `tails` has what JSON writes after a mark until its value's end."""

    def __init__(self, spots: Sequence[Spot], opening: str, closing: str) -> None:
        self._marks = {spot: f"{opening}{i}{closing}" for i, spot in enumerate(spots)}
        self._numbers = {spot: i for i, spot in enumerate(spots)}
        self.tails: dict[int, str] = {}

    def marked(self, conversation: Conversation) -> Conversation:
        return replace(
            conversation,
            messages=tuple(self._message(i, message) for i, message in enumerate(conversation.messages)),
            tools=tuple(self._tool(i, tool) for i, tool in enumerate(conversation.tools)),
        )

    def _message(self, index: int, message: Message) -> Message:
        parts = tuple(
            _with_mark(part, self._marks.get(Spot("part", index, n), ""))
            for n, part in enumerate(message.parts)
        )
        calls = tuple(self._call(Spot("call", index, n), call) for n, call in enumerate(message.tool_calls))
        return replace(message, parts=parts, tool_calls=calls)

    def _tool(self, index: int, tool: Mapping[str, Any]) -> Mapping[str, Any]:
        spot = Spot("tool", index)
        mark = self._marks.get(spot)
        if mark is None:
            return tool
        marked: Mapping[str, Any] = _with_marked_string(tool, mark)
        self._note_tail(spot, json.dumps(marked, ensure_ascii=False), mark)
        return marked

    def _call(self, spot: Spot, call: ToolCall) -> ToolCall:
        mark = self._marks.get(spot)
        if mark is None:
            return call
        arguments = parsed_object(call.arguments)
        if not arguments:
            return replace(call, name=call.name + mark)
        marked = _with_marked_string(arguments, mark)
        if marked is arguments:
            *others, (name, value) = arguments.items()
            marked = {**dict(others), name + mark: value}
        text = json.dumps(marked, ensure_ascii=False)
        self._note_tail(spot, text, mark)
        return replace(call, arguments=text)

    def _note_tail(self, spot: Spot, text: str, mark: str) -> None:
        self.tails[self._numbers[spot]] = text.partition(mark)[2]


def _with_mark(text: str, mark: str) -> str:
    """The mark before the white space at the end: templates that trim it still do."""
    core = text.rstrip()
    return core + mark + text[len(core) :]


def _with_marked_string(value: Any, mark: str) -> Any:
    """JSON with the mark after its last text that is no name; the value itself if it has none."""
    path = _path_of_last_string(value)
    if path is None:
        return value
    below = value
    containers = []
    for step in path:
        containers.append(below)
        below = below[step]
    changed: Any = below + mark
    for container, step in zip(reversed(containers), reversed(path), strict=True):
        copy = dict(container) if isinstance(container, dict) else list(container)
        copy[step] = changed
        changed = copy
    return changed


def _path_of_last_string(value: Any) -> tuple[Any, ...] | None:
    waiting: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while waiting:
        path, each = waiting.pop()
        if isinstance(each, str):
            return path
        entries = (
            each.items() if isinstance(each, Mapping) else enumerate(each) if isinstance(each, list) else ()
        )
        waiting += [((*path, step), inner) for step, inner in entries]
    return None


def _after(text: str, at: int, tail: str) -> int:
    """`at`, and as much more as `text` goes on with `tail`, white space aside."""
    for char in re.sub(r"\s", "", tail):
        next_at = at
        while text[next_at : next_at + 1].isspace():
            next_at += 1
        if text[next_at : next_at + 1] != char:
            break
        at = next_at + 1
    return at


def _agreed(one: str, other: str) -> int:
    """Characters in which two texts agree from their start."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
