from __future__ import annotations

from sapwood.chat import Message, parse_conversation


def conversation_of(content: object) -> tuple[Message, ...]:
    return parse_conversation({"messages": [{"role": "user", "content": content}]}).messages


def test_a_string_and_a_single_text_part_are_the_same_message() -> None:
    assert conversation_of("hi") == conversation_of([{"type": "text", "text": "hi"}])


def test_parts_are_kept_apart_and_read_as_lines() -> None:
    (message,) = conversation_of([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}])
    assert message.parts == ("a", "b")
    assert message.text == "a\nb"


def test_template_fields_hold_only_what_was_given() -> None:
    assert Message("user", ("hi",)).as_template_dict() == {"role": "user", "content": "hi"}
    named = Message("tool", ("4",), name="sum", tool_call_id="call_1").as_template_dict()
    assert named == {"role": "tool", "content": "4", "name": "sum", "tool_call_id": "call_1"}
