"""Bodies of `/v1/messages` → calls in the engine's own words."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.chat.anthropic import Diagnosis, MessagesCall, parse_count, parse_messages
from sapwood.chat.messages import Message, ToolCall
from sapwood.chat.tools import ToolUse
from sapwood.errors import RequestError
from sapwood.types import SamplingDefaults

TOOL: dict[str, Any] = {"name": "f", "description": "does", "input_schema": {"z": 1, "a": 2}}


def parse(*messages: Any, defaults: SamplingDefaults | None = None, **fields: Any) -> MessagesCall:
    body = {"model": "m", "max_tokens": 9, "messages": list(messages) or [user("hi")], **fields}
    return parse_messages(body, vocab_size=100, defaults=defaults)


def refused(*messages: Any, **fields: Any) -> RequestError:
    with pytest.raises(RequestError) as error:
        parse(*messages, **fields)
    return error.value


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


def assistant(content: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": content}


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **more}


def test_system_comes_first_and_blocks_are_parts() -> None:
    call = parse(user([text("a"), text("b")]), system=[text("x"), text("y")])
    assert call.conversation.messages == (Message("system", ("x", "y")), Message("user", ("a", "b")))
    assert parse(user("a"), system="x").conversation.messages[0] == Message("system", ("x",))
    assert [message.role for message in parse(user("a"), system="").conversation.messages] == ["user"]


def test_turns_of_one_role_in_a_row_are_one_message() -> None:
    call = parse(user("a"), user([text("b")]), assistant("c"), user("d"))
    assert call.conversation.messages == (
        Message("user", ("a", "b")),
        Message("assistant", ("c",)),
        Message("user", ("d",)),
    )


def test_a_system_message_in_mid_conversation_stays_where_it_is() -> None:
    call = parse(user("a"), {"role": "system", "content": "s"}, user("b"), system="x")
    assert [(m.role, m.parts) for m in call.conversation.messages] == [
        ("system", ("x",)),
        ("user", ("a",)),
        ("system", ("s",)),
        ("user", ("b",)),
    ]


def test_calls_results_and_thoughts_have_their_own_places() -> None:
    used = {"type": "tool_use", "id": "t1", "name": "f", "input": {"z": "ü", "a": 1}}
    result = {
        "type": "tool_result",
        "tool_use_id": "t1",
        "content": [text("r1"), text("r2")],
        "is_error": True,
    }
    bare = {"type": "tool_result", "tool_use_id": "t2"}
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    hidden = {"type": "redacted_thinking", "data": "d"}
    call = parse(user("a"), assistant([thought, hidden, text("b"), used]), user([result, bare, text("c")]))
    assert call.conversation.messages == (
        Message("user", ("a",)),
        Message("assistant", ("b",), tool_calls=(ToolCall("t1", "f", '{"z": "ü", "a": 1}'),), reasoning="hm"),
        Message("tool", ("Error:", "r1", "r2"), tool_call_id="t1"),
        Message("tool", ("",), tool_call_id="t2"),
        Message("user", ("c",)),
    )


def test_tools_are_written_as_openai_writes_them_with_the_keys_in_their_order() -> None:
    (tool,) = parse(tools=[TOOL]).conversation.tools
    assert tool == {
        "type": "function",
        "function": {"name": "f", "description": "does", "parameters": {"z": 1, "a": 2}},
    }
    assert list(tool["function"]["parameters"]) == ["z", "a"]


@pytest.mark.parametrize(
    ("choice", "use"),
    [
        (None, ToolUse(frozenset({"f", "g"}))),
        ({"type": "auto"}, ToolUse(frozenset({"f", "g"}))),
        ({"type": "auto", "disable_parallel_tool_use": True}, ToolUse(frozenset({"f", "g"}), parallel=False)),
        ({"type": "none"}, None),
        ({"type": "any"}, ToolUse(frozenset({"f", "g"}), forced=True)),
        ({"type": "tool", "name": "g"}, ToolUse(frozenset({"g"}), forced=True, parallel=False)),
    ],
)
def test_tool_choice_says_what_may_or_must_be_called(choice: Any, use: ToolUse | None) -> None:
    assert parse(tools=[TOOL, {**TOOL, "name": "g"}], tool_choice=choice).calls == use


def test_without_tools_none_is_called_and_none_can_be_forced() -> None:
    assert parse(tool_choice={"type": "auto"}).calls is None
    assert refused(tool_choice={"type": "any"}).param == "tool_choice"
    assert refused(tools=[TOOL], tool_choice={"type": "tool", "name": "h"}).param == "tool_choice.name"


def test_an_assistants_last_turn_is_left_open() -> None:
    call = parse(user("a"), assistant("b"))
    assert call.conversation.continue_final_message
    assert not call.conversation.add_generation_prompt
    used = {"type": "tool_use", "id": "t", "name": "f", "input": {}}
    assert "tool_result" in refused(user("a"), assistant([used])).message


def test_sampling_is_what_is_asked_for_and_else_the_models_own() -> None:
    own = SamplingDefaults(temperature=0.5, top_k=7)
    params = parse(defaults=own, top_p=0.25, stop_sequences=["x"]).options.params
    assert (params.temperature, params.top_k, params.top_p) == (0.5, 7, 0.25)
    assert (params.stop, params.max_tokens) == (("x",), 9)
    assert parse(temperature=0, top_k=-1, defaults=own).options.params.top_k == 0


def test_the_billing_line_is_left_out_wherever_it_stands_first() -> None:
    line = "x-anthropic-billing-header: cch=1"
    for system in ([text(line), text("x")], f"{line}\nx"):
        assert parse(user("a"), system=system).conversation.messages[0].parts == ("x",)
    later = parse(user("a"), system=[text("x"), text(line)])
    assert later.conversation.messages[0].parts == ("x", line)
    assert [m.role for m in parse(user("a"), system=line).conversation.messages] == ["user"]


def test_pieces_are_in_prompt_order_with_their_lifetimes() -> None:
    marked = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    call = parse(
        user([text("a", cache_control={"type": "ephemeral"})]),
        system=[text("s", **marked)],
        tools=[{**TOOL, **marked}],
    )
    assert [(piece.level, piece.ttl) for piece in call.pieces] == [
        ("tools", 3600.0),
        ("system", 3600.0),
        ("messages", 300.0),
    ]


def test_the_bodys_own_marker_passes_over_what_cannot_have_one() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    call = parse(user([text("a"), text("")]), assistant([thought]), cache_control={"type": "ephemeral"})
    assert [piece.ttl for piece in call.pieces] == [300.0, None, None]
    assert all(piece.ttl is None for piece in parse(user(""), cache_control={"type": "ephemeral"}).pieces)


@pytest.mark.parametrize(
    ("marker", "param"),
    [
        ("ephemeral", "messages[0].content[0].cache_control"),
        ({"type": "persistent"}, "messages[0].content[0].cache_control.type"),
        ({"type": "ephemeral", "ttl": "2h"}, "messages[0].content[0].cache_control.ttl"),
        ({"type": "ephemeral", "ttl": ["5m"]}, "messages[0].content[0].cache_control.ttl"),
    ],
)
def test_a_malformed_marker_is_refused_by_its_place(marker: object, param: str) -> None:
    assert refused(user([text("a", cache_control=marker)])).param == param


def test_a_marker_inside_a_results_content_is_refused() -> None:
    inner = text("r", cache_control={"type": "ephemeral"})
    result = {"type": "tool_result", "tool_use_id": "t", "content": [inner]}
    error = refused(user([result]))
    assert error.param == "messages[0].content[0].content[0].cache_control"
    assert error.hint == "mark the block that it is in"


MANUAL = {"type": "text", "media_type": "text/plain", "data": "F7 is the pump."}


@pytest.mark.parametrize(
    ("block", "read"),
    [
        ({"type": "document", "source": MANUAL}, "F7 is the pump."),
        (
            {"type": "document", "title": "Fuses", "context": "of 2020", "source": MANUAL},
            "title: Fuses\ncontext: of 2020\nF7 is the pump.",
        ),
        ({"type": "document", "source": {"type": "content", "content": [text("a"), text("b")]}}, "a\nb"),
        ({"type": "document", "source": {"type": "content", "content": "a"}}, "a"),
        (
            {"type": "search_result", "source": "car.org", "title": "Fuses", "content": [text("F7")]},
            "title: Fuses\nsource: car.org\nF7",
        ),
    ],
)
def test_documents_and_search_results_are_text_alone_and_in_results_and_can_be_marked(
    block: dict[str, Any], read: str
) -> None:
    marked = {**block, "cache_control": {"type": "ephemeral"}, "citations": {"enabled": False}}
    call = parse(user([text("look"), marked, text("F7?")]))
    assert call.conversation.messages[0].parts == ("look", read, "F7?")
    assert [piece.ttl for piece in call.pieces] == [None, 300.0, None]
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block]}
    asked = assistant([{"type": "tool_use", "id": "t", "name": "f", "input": {}}])
    assert parse(user("hi"), asked, user([result])).conversation.messages[2].parts == (read,)


@pytest.mark.parametrize(
    ("block", "param"),
    [
        ({"type": "document"}, "source"),
        ({"type": "document", "source": {"type": "base64", "data": "JVBERi0="}}, "source.type"),
        ({"type": "document", "source": {"type": "text"}}, "source.data"),
        ({"type": "document", "title": 7, "source": MANUAL}, "title"),
        ({"type": "document", "source": MANUAL, "citations": {"enabled": True}}, "citations.enabled"),
        (
            {"type": "document", "source": {"type": "content", "content": [{"type": "image"}]}},
            "source.content[0].type",
        ),
        ({"type": "search_result", "title": "a", "source": "b", "content": 7}, "content"),
        (
            {"type": "search_result", "content": [{**text("a"), "cache_control": {"type": "ephemeral"}}]},
            "content[0].cache_control",
        ),
    ],
)
def test_what_of_a_document_cannot_be_read_is_refused_by_name(block: dict[str, Any], param: str) -> None:
    assert refused(user([block])).param == f"messages[0].content[0].{param}"


def test_settings_with_which_a_prefix_is_found_are_equal_for_spelled_out_defaults() -> None:
    plain = parse(tools=[TOOL]).settings
    assert (
        parse(tools=[TOOL], tool_choice={"type": "auto", "disable_parallel_tool_use": False}).settings
        == plain
    )
    assert (
        parse(tools=[TOOL], thinking={"type": "disabled"}, output_config={"effort": "high"}).settings == plain
    )
    for changed in (
        {"tool_choice": {"type": "none"}},
        {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        {"output_config": {"effort": "low"}},
        {"thinking": {"type": "enabled", "budget_tokens": 1024}, "max_tokens": 2000},
    ):
        other = parse(tools=[TOOL], **changed).settings
        assert other["system"] == plain["system"]
        assert other["messages"] != plain["messages"]
    assert parse(speed="fast").settings["system"] != plain["system"]


def test_diagnosis_is_asked_for_even_with_no_message_before() -> None:
    assert parse().diagnosis == Diagnosis()
    assert parse(diagnostics={"previous_message_id": None}).diagnosis == Diagnosis(asked=True)
    assert parse(diagnostics={"previous_message_id": "msg_1"}).diagnosis == Diagnosis(True, "msg_1")


def test_counting_needs_no_length_of_the_answer() -> None:
    call = parse_count({"model": "m", "messages": [user("a")], "system": "s"})
    assert (call.model, len(call.conversation.messages)) == ("m", 2)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"system": [[]]}, "system[0]"),
        ({"tools": ["f"]}, "tools[0]"),
        ({"tools": [{"name": 1, "input_schema": {}}]}, "tools[0].name"),
        ({"tools": [{"name": "f", "input_schema": {"a": "\ud800"}}]}, "tools[0].input_schema"),
        ({"tool_choice": {"type": "maybe"}}, "tool_choice.type"),
        ({"thinking": {}}, "thinking.type"),
        ({"max_tokens": True}, "max_tokens"),
        ({"mcp_servers": [{"name": "x"}]}, "mcp_servers"),
        ({"messages": [user(None)]}, "messages[0].content"),
        ({"messages": [user([text("a\0")])]}, "messages[0].content[0].text"),
        ({"messages": [user([{"type": None}])]}, "messages[0].content[0].type"),
        ({"messages": [user([{"type": "tool_use"}])]}, "messages[0].content[0].type"),
        ({"messages": [assistant([{"type": "tool_result"}])]}, "messages[0].content[0].type"),
        (
            {"messages": [user([{"type": "tool_result", "tool_use_id": "t", "is_error": 1}])]},
            "messages[0].content[0].is_error",
        ),
        (
            {"messages": [{"role": "system", "content": [{"type": "thinking"}]}]},
            "messages[0].content[0].type",
        ),
    ],
)
def test_the_first_wrong_field_is_named(fields: dict[str, Any], param: str) -> None:
    assert refused(**fields).param == param


def test_deep_schemas_and_inputs_are_refused_not_walked_into() -> None:
    deep: Any = {}
    for _ in range(500):
        deep = {"a": deep}
    assert "nested" in refused(tools=[{"name": "f", "input_schema": deep}]).message
    used = {"type": "tool_use", "id": "t", "name": "f", "input": deep}
    assert "nested" in refused(user("a"), assistant([used]), user("b")).message
