"""Bodies of `/v1/responses` → calls, and their items → conversations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

from sapwood.chat.messages import Message, ToolCall
from sapwood.chat.openai_render import Json
from sapwood.chat.prompt_cache import Breakpoint
from sapwood.chat.responses import ResponseCall, parse_response
from sapwood.chat.responses_items import parse_items, sealed, turns_of
from sapwood.chat.responses_output import Output
from sapwood.errors import RequestError


def parse(recall: Sequence[Json] = (), /, **body: Any) -> ResponseCall:
    return parse_response(
        {"input": "hi", **body}, stem="s", recall=lambda _id: recall, usual_ttl="30m", vocab_size=300
    )


def messages(items: list[Any], instructions: str | None = None) -> tuple[Message, ...]:
    return turns_of(instructions, parse_items(items, stem="s")).messages


def text(role: str, *texts: str) -> dict[str, Any]:
    return {"role": role, "content": [{"type": "input_text", "text": each} for each in texts]}


def call(id: str, arguments: str = "{}") -> dict[str, Any]:
    return {"type": "function_call", "call_id": id, "name": "f", "arguments": arguments}


def thought(text: str) -> dict[str, Any]:
    return {"type": "reasoning", "summary": [], "content": [{"type": "reasoning_text", "text": text}]}


def test_instructions_come_first_and_roles_are_kept() -> None:
    found = messages([text("developer", "a"), text("user", "b", "c")], "rules")
    assert found == (
        Message("system", ("rules",)),
        Message("developer", ("a",)),
        Message("user", ("b", "c")),
    )


def test_what_the_assistant_thought_said_and_called_in_a_row_is_one_turn() -> None:
    found = messages([thought("hm"), text("assistant", "so"), call("1"), call("2", '{"a": 1}')])
    calls = (ToolCall("1", "f", "{}"), ToolCall("2", "f", '{"a": 1}'))
    assert found == (Message("assistant", ("so",), tool_calls=calls, reasoning="hm"),)


def test_a_text_after_calls_belongs_to_their_turn() -> None:
    (turn,) = messages([call("1"), text("assistant", "so")])
    assert (turn.parts, len(turn.tool_calls)) == (("so",), 1)


def test_a_thought_after_something_said_begins_another_turn() -> None:
    found = messages([text("assistant", "one"), thought("hm"), call("1")])
    assert [(turn.parts, turn.reasoning, len(turn.tool_calls)) for turn in found] == [
        (("one",), None, 0),
        ((), "hm", 1),
    ]


def test_users_turns_are_not_joined() -> None:
    assert [turn.parts for turn in messages([text("user", "a"), text("user", "b")])] == [("a",), ("b",)]


def test_results_are_turns_of_the_tool() -> None:
    result = {
        "type": "function_call_output",
        "call_id": "1",
        "output": [{"type": "input_text", "text": "-3"}],
    }
    assert messages([result]) == (Message("tool", ("-3",), tool_call_id="1"),)


def test_a_refusal_is_what_was_said() -> None:
    item = {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}
    assert messages([item]) == (Message("assistant", ("No.",)),)


def test_sealed_thoughts_are_opened_and_plain_ones_go_before_them() -> None:
    sealed_one = {"type": "reasoning", "summary": [], "encrypted_content": sealed("wörd")}
    both = {**thought("plain"), "encrypted_content": sealed("other")}
    assert [turn.reasoning for turn in messages([sealed_one, call("1"), both])] == ["wörd", "plain"]


def test_an_empty_thought_makes_no_turn() -> None:
    assert messages([{"type": "reasoning", "summary": [{"type": "summary_text", "text": "x"}]}]) == ()


def test_items_get_ids_that_are_taken_by_no_other() -> None:
    items = [text("user", "a"), {**call("1"), "id": "mine"}, {**text("user", "b"), "id": "mine"}]
    ids = [item["id"] for item in parse_items(items, stem="s", taken=["msg_s_in0x"])]
    assert ids == ["msg_s_in0", "mine", "msg_s_in2"]
    assert parse_items([{**call("1"), "id": "mine"}], stem="t", taken=["mine"])[0]["id"] == "fc_t_in0"


def test_breakpoints_have_the_places_of_their_messages() -> None:
    point = {"prompt_cache_breakpoint": {"mode": "explicit", "ttl": "12h"}}
    marked = {
        "role": "user",
        "content": [{"type": "input_text", "text": "a"}, {"type": "text", "text": "b", **point}],
    }
    result = {
        "type": "function_call_output",
        "call_id": "1",
        "output": [{"type": "input_text", "text": "c", **point}],
    }
    found = parse(instructions="rules", input=[marked, call("1"), result])
    assert found.cache.breakpoints == (Breakpoint(1, 1, "12h"), Breakpoint(3, 0, "12h"))
    assert found.cache.mode == "implicit"


def test_what_came_before_is_put_before_the_input() -> None:
    before = parse_items([text("user", "a"), text("assistant", "b")], stem="earlier")
    found = parse(before, previous_response_id="x", input="c", instructions="new")
    assert [turn.text for turn in found.conversation.messages] == ["new", "a", "b", "c"]
    assert len({item["id"] for item in found.items}) == 3


def test_tools_are_told_as_in_a_chat_and_others_left_out() -> None:
    function = {"name": "f", "description": "d", "parameters": {"type": "object"}}
    found = parse(
        tools=[{"type": "web_search"}, {"type": "function", **function}, {"type": "web_search"}, {"type": 5}]
    )
    assert found.conversation.tools == ({"type": "function", "function": function},)
    assert found.options.ignored == ("tools.web_search", "tools.unknown")


@pytest.mark.parametrize(
    ("choice", "names", "forced"),
    [
        ("auto", {"f", "g"}, False),
        ("required", {"f", "g"}, True),
        ({"type": "function", "name": "g"}, {"g"}, True),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "f"}]},
            {"f"},
            True,
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "web_search"}]}, None, False),
        ("none", None, False),
    ],
)
def test_the_choice_of_tools(choice: Any, names: set[str] | None, forced: bool) -> None:
    tools = [{"type": "function", "name": name} for name in ("f", "g")]
    use = parse(tools=tools, tool_choice=choice).tool_use
    assert (None if use is None else (set(use.names), use.forced)) == (
        None if names is None else (names, forced)
    )


def test_the_form_is_flat_and_names_its_own_field() -> None:
    form = {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True}
    constraint = parse(text={"format": form}).options.params.constraint
    assert constraint is not None
    assert (json.loads(constraint.text), constraint.param) == ({"type": "object"}, "text.format.schema")
    assert parse(text={"format": {"type": "text"}}).options.params.constraint is None


def test_prewarming_generates_nothing_and_needs_no_form() -> None:
    found = parse(
        prompt_cache_options={"prewarm": True},
        text={"format": {"type": "json_object"}},
        max_output_tokens=9,
        top_logprobs=2,
    )
    params = found.options.params
    assert (params.max_tokens, params.constraint, params.logprobs) == (0, None, None)


def test_usual_values_that_are_spelled_out_are_the_same_prefix() -> None:
    spelled = parse(
        parallel_tool_calls=True,
        tools=[],
        text={"format": {"type": "text"}, "verbosity": "medium"},
        reasoning={"effort": "medium"},
        service_tier="auto",
    )
    assert spelled.settings == parse().settings


def test_unknown_fields_are_named() -> None:
    found = parse(
        sparkle=1, client_metadata={"a": "b"}, user="u", stream_options={"include_obfuscation": False}
    )
    assert found.options.ignored == ("sparkle",)


@pytest.mark.parametrize("name", ["stop", "n", "logit_bias", "max_tokens", "presence_penalty"])
def test_what_would_change_the_answer_and_is_not_there_is_refused(name: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse(**{name: {"stop": ["x"], "logit_bias": {"1": 2}}.get(name, 2)})
    assert caught.value.param == name


def test_a_call_that_is_cut_short_says_so() -> None:
    output = Output("s", seal=False)
    output.begin_call("1", "f")
    output.argue('{"a": ')
    output.end_call()
    assert (output.items[0]["status"], output.items[0]["arguments"]) == ("incomplete", '{"a": ')


def test_events_do_not_change_after_they_were_told() -> None:
    output = Output("s", seal=True)
    events = [*output.think("a"), *output.think("b"), *output.say("c", [{"token": "c"}])]
    before = json.dumps(events)
    events += [*output.say("d", [{"token": "d"}]), *output.close()]
    assert json.dumps(events[: len(json.loads(before))]) == before
    assert [item["type"] for item in output.items] == ["reasoning", "message"]
    assert output.items[0]["encrypted_content"] == sealed("ab")
