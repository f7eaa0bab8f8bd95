"""What a conversation loses that is too long."""

from __future__ import annotations

import pytest

from sapwood.chat import Conversation, Message
from sapwood.chat.messages import Role
from sapwood.chat.prompt_cache import Breakpoint
from sapwood.server.truncation import kept_breakpoints, without_oldest


def conversation(*roles: Role) -> Conversation:
    return Conversation(tuple(Message(role, (f"{i}",)) for i, role in enumerate(roles)))


LONG = conversation(
    "system", "developer", "user", "assistant", "tool", "user", "user", "assistant", "system", "user"
)


def left(most: int, whole: Conversation = LONG) -> str:
    """What is left where so many messages fit."""
    cut = without_oldest(whole, lambda each: len(each.messages) <= most)
    return "".join(message.text for message in cut.messages)


@pytest.mark.parametrize(
    ("most", "kept"),
    [(10, "0123456789"), (9, "0156789"), (7, "0156789"), (6, "016789"), (5, "019"), (3, "019"), (1, "019")],
)
def test_turns_go_from_the_oldest_on_and_the_opening_stays(most: int, kept: str) -> None:
    assert left(most) == kept


def test_a_conversation_without_a_user_is_left_as_it_is() -> None:
    assert left(1, conversation("system", "assistant", "tool")) == "012"
    assert left(0, conversation("system")) == "0"


def test_breakpoints_move_with_their_messages() -> None:
    points = [Breakpoint(i, 0, f"{i}") for i in (0, 2, 5, 9)]
    after = without_oldest(LONG, lambda each: len(each.messages) <= 7)
    assert kept_breakpoints(points, LONG, after) == (
        Breakpoint(0, 0, "0"),
        Breakpoint(2, 0, "5"),
        Breakpoint(6, 0, "9"),
    )
