from __future__ import annotations

from typing import Any

import pytest

from sapwood.chat import ChatTemplate, Conversation, Message
from sapwood.chat.encode import render_conversation
from sapwood.chat.messages import ToolCall
from sapwood.chat.tokenizer import SpecialToken
from sapwood.chat.tools import ToolStyle, style_of, without_tools

TOOL: dict[str, Any] = {"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}
CALL = ToolCall("a1b2c3d4e", "f", '{"z": "<|end|>", "a": 1}')
TURNS = (
    Message("user", ("go",)),
    Message("assistant", (), tool_calls=(CALL,)),
    Message("tool", ("done <|end|>",), tool_call_id="a1b2c3d4e"),
)
KNOWS = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.arguments | tojson }}</tool_call>"
    "{% endfor %}<|end|>{% endfor %}"
)
WANTS_TEXT = (
    "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}"
    "{{ c.function.name + ' ' + c.function.arguments }}{% endfor %}{% endfor %}{% if tools %}!{% endif %}"
)


def prompt(source: str | None, conversation: Conversation) -> str:
    template = ChatTemplate(source, special_tokens=[SpecialToken(7, "<|end|>")])
    return "".join(segment.text for segment in render_conversation(template, conversation))


def test_a_template_that_knows_tools_gets_them_and_the_arguments_as_objects_in_their_order() -> None:
    text = prompt(KNOWS, Conversation(TURNS, tools=(TOOL,)))
    assert text.startswith(
        '[{"type": "function", "function": {"name": "f", "parameters": {"z": 1, "a": 2}}}]'
    )
    assert '<tool_call>{"z": "<|end|>", "a": 1}</tool_call>' in text


def test_what_a_call_or_a_result_spells_is_no_control_token() -> None:
    template = ChatTemplate(KNOWS, special_tokens=[SpecialToken(7, "<|end|>")])
    segments = render_conversation(template, Conversation(TURNS))
    trusted = "".join(segment.text for segment in segments if segment.trusted)
    assert trusted.count("<|end|>") == len(TURNS)


def test_a_template_that_joins_texts_gets_the_arguments_as_text() -> None:
    assert 'f {"z": "<|end|>", "a": 1}' in prompt(WANTS_TEXT, Conversation(TURNS))


def test_arguments_that_are_no_object_stay_text() -> None:
    turn = Message("assistant", (), tool_calls=(ToolCall("i", "f", "[1"),))
    assert '<tool_call>"[1"</tool_call>' in prompt(KNOWS, Conversation((turn,)))


def test_a_template_without_tools_shows_them_in_the_system_message() -> None:
    turns = (Message("system", ("Be brief.",)), *TURNS)
    text = prompt(None, Conversation(turns, tools=(TOOL,)))
    assert text.startswith("<|im_start|>system\nBe brief.\n\nYou have tools.")
    assert '"parameters": {"z": 1, "a": 2}' in text
    assert '<tool_call>\n{"name": "f", "arguments": {"z": "<|end|>", "a": 1}}\n</tool_call>' in text
    assert "<|im_start|>user\n<tool_response>\ndone <|end|>\n</tool_response><|im_end|>" in text


def test_a_conversation_without_tools_is_left_alone() -> None:
    assert prompt(None, Conversation((Message("tool", ("x",)),))).startswith("<|im_start|>tool\nx")


def test_results_in_a_row_are_one_turn() -> None:
    results = [
        {"role": "tool", "content": "1"},
        {"role": "tool", "content": "2"},
        {"role": "user", "content": "?"},
    ]
    told = without_tools(results, [])
    assert [turn["role"] for turn in told] == ["user", "user"]
    assert told[0]["content"].count("<tool_response>") == 2


def test_tools_count_for_the_size_of_a_conversation() -> None:
    assert Conversation(TURNS, tools=(TOOL,)).size > Conversation(TURNS).size > Conversation(TURNS[:1]).size


@pytest.mark.parametrize(
    ("source", "knows", "style"),
    [
        ("{{ tools }}<tool_call>", True, "hermes"),
        ("{{ tools }}[TOOL_CALLS]", True, "mistral"),
        ("{{ tools }}<|python_tag|>", True, "llama3"),
        ('{{ tools }}{"name": …, "parameters": …}', True, "llama3"),
        ("{{ tools }}", True, "json"),
        ("{{ messages }}", False, "hermes"),
    ],
)
def test_the_format_is_told_by_the_template(source: str, knows: bool, style: ToolStyle) -> None:
    assert style_of(source, knows_tools=knows) == style
