from __future__ import annotations

from typing import Any

import pytest

from sapwood.chat.messages import ToolCall
from sapwood.chat.openai_tools import parse_tool_calls, parse_tools
from sapwood.chat.tools import ToolUse
from sapwood.errors import RequestError


def tool(name: str = "f", **more: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, **more}}


TWO = [tool("f"), tool("g")]
NAMED = {"type": "function", "function": {"name": "g"}}
FG = frozenset({"f", "g"})


def allowed(mode: str, *names: str) -> dict[str, Any]:
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [tool(name) for name in names]}}


@pytest.mark.parametrize(
    ("choice", "use"),
    [
        (None, ToolUse(FG)),
        ("auto", ToolUse(FG)),
        ("none", None),
        ("required", ToolUse(FG, forced=True)),
        (NAMED, ToolUse(frozenset({"g"}), forced=True, parallel=False)),
        (allowed("auto", "f"), ToolUse(frozenset({"f"}))),
        (allowed("required", "f"), ToolUse(frozenset({"f"}), forced=True)),
    ],
)
def test_the_choice_says_what_may_and_must_be_called(choice: object, use: ToolUse | None) -> None:
    tools = parse_tools(TWO, choice, None)
    assert tools.use == use
    assert tools.defined == tuple(TWO)


def test_one_at_a_time_can_be_asked_for() -> None:
    assert parse_tools(TWO, None, False).use == ToolUse(FG, parallel=False)


@pytest.mark.parametrize(("tools", "choice"), [(None, None), ([], "auto"), (None, "none")])
def test_without_tools_there_is_nothing_to_call(tools: list[Any] | None, choice: object) -> None:
    assert parse_tools(tools, choice, None).use is None


FAULTS: list[tuple[Any, Any, str]] = [
    (None, "required", "tool_choice"),
    (TWO, "sometimes", "tool_choice"),
    (TWO, {"type": "function"}, "tool_choice"),
    (TWO, {"type": "function", "function": {"name": "h"}}, "tool_choice.function.name"),
    (TWO, allowed("auto"), "tool_choice.allowed_tools.tools"),
    (TWO, allowed("auto", "h"), "tool_choice.allowed_tools.tools"),
    ([3], None, "tools[0]"),
    ([tool(), {"type": "custom"}], None, "tools[1].type"),
    ([{"type": "function"}], None, "tools[0].function"),
    ([tool("a b")], None, "tools[0].function.name"),
    ([tool(description=1)], None, "tools[0].function.description"),
    ([tool(parameters=[])], None, "tools[0].function.parameters"),
    ([tool(description="a\0b")], None, "tools[0]"),
]


@pytest.mark.parametrize(("tools", "choice", "param"), FAULTS)
def test_faults_name_the_field(tools: Any, choice: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_tools(tools, choice, None)
    assert caught.value.param == param


def made(**function: Any) -> dict[str, Any]:
    return {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{}", **function}}


def test_calls_made_before_are_taken_as_they_were_written() -> None:
    calls = parse_tool_calls([made(arguments='{"b":1,  "a":2}'), made(arguments="")], "m")
    assert calls == (ToolCall("c1", "f", '{"b":1,  "a":2}'), ToolCall("c1", "f", "{}"))
    assert parse_tool_calls(None, "m") == ()


@pytest.mark.parametrize(
    ("calls", "param"),
    [
        ("x", "m"),
        ([3], "m[0]"),
        ([{"id": "c", "function": {"name": "f"}}], "m[0].function.arguments"),
        ([{"function": {"name": "f", "arguments": "{}"}}], "m[0].id"),
        ([made(arguments={"a": 1})], "m[0].function.arguments"),
        ([made(name="")], "m[0].function.name"),
        ([made(arguments='{"a":' + "[" * 200 + "]" * 200 + "}")], "m[0].function.arguments"),
        ([made(arguments="\ud800")], "m[0].function.arguments"),
        ([made()] * 2000, "m"),
    ],
)
def test_faults_of_calls_name_the_field(calls: Any, param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_tool_calls(calls, "m")
    assert caught.value.param == param
