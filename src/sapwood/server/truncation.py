"""`truncation: "auto"`: what is too long for the context loses its oldest turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from sapwood.chat import Conversation
from sapwood.chat.prompt_cache import Breakpoint


def without_oldest(conversation: Conversation, fits: Callable[[Conversation], bool]) -> Conversation:
    """The longest end of a conversation that fits, behind the instructions that it opens with.

    It is cut before turns of the user, for what follows one may belong to it. Where even the last one does not fit,
    that is what is given. `fits` is asked once, and once for each halving of their number.
    """
    if fits(conversation):
        return conversation
    messages = conversation.messages
    roles = [message.role for message in messages]
    opening = next((i for i, role in enumerate(roles) if role not in ("system", "developer")), len(messages))
    cuts = [opening, *(i for i, role in enumerate(roles) if i > opening and role == "user")]

    def cut(at: int) -> Conversation:
        return replace(conversation, messages=(*messages[:opening], *messages[at:]))

    low, high = 0, len(cuts) - 1
    while low < high:
        middle = (low + high) // 2
        if fits(cut(cuts[middle])):
            high = middle
        else:
            low = middle + 1
    return cut(cuts[low])


def kept_breakpoints(
    breakpoints: Sequence[Breakpoint], before: Conversation, after: Conversation
) -> tuple[Breakpoint, ...]:
    """Those of the messages that are still there, with their places now."""
    places = {id(message): i for i, message in enumerate(after.messages)}
    moved = ((point, places.get(id(before.messages[point.message]))) for point in breakpoints)
    return tuple(replace(point, message=place) for point, place in moved if place is not None)
