"""Leaves a conversation's last message open, so that the model goes on inside it.

A character that occurs nowhere else is put after the message's text, and the rendered prompt is cut there: the
text itself may well occur again in what the template writes after it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sapwood.chat.lookalikes import Segment
from sapwood.errors import RequestError

Messages = Sequence[dict[str, Any]]
RenderMessages = Callable[[Messages], list[Segment]]


def render_left_open(render: RenderMessages, messages: Messages, mark: str) -> list[Segment]:
    """The prompt up to the end of the last message's text, as the template writes it.

    `mark` is one character that is in none of the texts. Raises RequestError if the template does not write the
    last message.
    """
    text: str = messages[-1]["content"]
    segments = render([*messages[:-1], {**messages[-1], "content": text + mark}])
    marked = _joined(segments)
    end = marked.rfind(mark)
    if end < 0:
        raise RequestError(
            "the chat template does not write the last message's text; it cannot be continued",
            param="continue_final_message",
        )
    if text != text.rstrip():
        end = _without_trimmed(marked, end, _joined(render(messages)), text)
    return _cut(segments, end)


def _without_trimmed(marked: str, end: int, plain: str, text: str) -> int:
    """`end` less the white space that the template trims when no mark stands behind it."""
    pairs = enumerate(zip(marked, plain, strict=False))
    agreed = next((i for i, (one, other) in pairs if one != other), len(plain))
    for char in reversed(text[len(text.rstrip()) :]):
        if end <= agreed or marked[end - 1] != char:
            break
        end -= 1
    return end


def _joined(segments: Sequence[Segment]) -> str:
    return "".join(segment.text for segment in segments)


def _cut(segments: Sequence[Segment], room: int) -> list[Segment]:
    """The first `room` characters."""
    kept: list[Segment] = []
    for segment in segments:
        kept.append(Segment(segment.text[:room], segment.trusted))
        room -= len(kept[-1].text)
    return [segment for segment in kept if segment.text]
