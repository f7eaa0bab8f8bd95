"""Gemini's schemas → JSON Schema, and the tools that carry them."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.chat.gemini_schema import json_schema
from sapwood.chat.gemini_tools import parse_tools
from sapwood.chat.tools import ToolUse
from sapwood.errors import RequestError


@pytest.mark.parametrize(
    ("given", "made"),
    [
        ({"type": "STRING", "format": "enum", "enum": ["a"]}, {"type": "string", "enum": ["a"]}),
        ({"type": "STRING", "format": "date"}, {"type": "string", "format": "date"}),
        (
            {"type": "ARRAY", "items": {"type": "NUMBER"}, "minItems": "2"},
            {"type": "array", "items": {"type": "number"}, "minItems": 2},
        ),
        ({"type": "ARRAY", "max_items": 3}, {"type": "array", "maxItems": 3}),
        ({"type": "TYPE_UNSPECIFIED"}, {}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": "STRING", "nullable": True, "enum": ["a"]},
            {"type": ["string", "null"], "enum": ["a", None]},
        ),
        (
            {"any_of": [{"type": "STRING"}], "nullable": True},
            {"anyOf": [{"type": "string"}, {"type": "null"}]},
        ),
        (
            {"anyOf": [{"type": "STRING"}], "example": 1, "title": "t"},
            {"anyOf": [{"type": "string"}], "title": "t"},
        ),
        ({"additionalProperties": False}, {"additionalProperties": False}),
        ({"additional_properties": {"type": "STRING"}}, {"additionalProperties": {"type": "string"}}),
        (
            {"defs": {"A": {"type": "STRING"}}, "ref": "#/$defs/A"},
            {"$defs": {"A": {"type": "string"}}, "$ref": "#/$defs/A"},
        ),
        ({"default": {"max_items": "x"}}, {"default": {"max_items": "x"}}),
        ({"format": []}, {"format": []}),
    ],
)
def test_a_schema_is_written_as_json_schema(given: Any, made: Any) -> None:
    assert json_schema(given, "s") == made
    assert json_schema(made, "s") == made


def test_properties_keep_their_names_and_take_the_order_that_is_asked_for() -> None:
    given = {
        "type": "OBJECT",
        "properties": {"max_items": {"type": "STRING"}, "type": {"type": "STRING"}, "b": {}},
        "propertyOrdering": ["b", "gone", "type"],
    }
    assert list(json_schema(given, "s")["properties"].items()) == [
        ("b", {}),
        ("type", {"type": "string"}),
        ("max_items", {"type": "string"}),
    ]


@pytest.mark.parametrize(
    "schema",
    [
        7,
        {"type": 1},
        {"type": []},
        {"properties": []},
        {"properties": {"a": 1}},
        {"anyOf": 1},
        {"anyOf": [1]},
        {"minItems": "x"},
        {"minItems": -1},
        {"maxItems": "9" * 40},
        {"description": "\ud800"},
    ],
)
def test_what_is_no_schema_is_refused(schema: Any) -> None:
    with pytest.raises(RequestError, match="'s"):
        json_schema(schema, "s")


F: Any = {
    "name": "f",
    "description": "d",
    "parameters": {"type": "OBJECT", "properties": {"a": {"type": "STRING"}}},
}
G: Any = {"name": "g", "parametersJsonSchema": {"type": "object", "max_items": 1}}


def test_declarations_become_tools_in_their_order() -> None:
    tools = parse_tools(
        [{"functionDeclarations": [F]}, {}, {"function_declarations": [G, {"name": "h"}]}], None
    )
    assert [dict(tool["function"]) for tool in tools.defined] == [
        {
            "name": "f",
            "description": "d",
            "parameters": {"type": "object", "properties": {"a": {"type": "string"}}},
        },
        {"name": "g", "parameters": {"type": "object", "max_items": 1}},
        {"name": "h", "parameters": {"type": "object", "properties": {}}},
    ]
    assert tools.use == ToolUse(frozenset("fgh"))


@pytest.mark.parametrize(
    ("choice", "use"),
    [
        ({}, ToolUse(frozenset("fg"))),
        ({"mode": "AUTO"}, ToolUse(frozenset("fg"))),
        ({"mode": "auto"}, ToolUse(frozenset("fg"))),
        ({"mode": "MODE_UNSPECIFIED"}, ToolUse(frozenset("fg"))),
        ({"mode": "VALIDATED", "allowed_function_names": ["g"]}, ToolUse(frozenset("g"))),
        ({"mode": "ANY"}, ToolUse(frozenset("fg"), forced=True)),
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, ToolUse(frozenset("f"), forced=True)),
        ({"mode": "NONE"}, None),
    ],
)
def test_whether_one_must_be_called(choice: Any, use: ToolUse | None) -> None:
    for config in ({"functionCallingConfig": choice}, {"function_calling_config": choice}):
        tools = parse_tools([{"functionDeclarations": [F, G]}], config)
        assert tools.use == use
        assert len(tools.defined) == 2, "the prompt shows them all the same"


@pytest.mark.parametrize(
    ("tools", "config", "said"),
    [
        (7, None, "'tools' is 7"),
        ([{"codeExecution": {}}], None, "tools[0].codeExecution"),
        ([{"functionDeclarations": [{}]}], None, "functionDeclarations[0].name"),
        ([{"functionDeclarations": [{**F, "parametersJsonSchema": {}}]}], None, "exclude each other"),
        ([{"functionDeclarations": [F]}, {"functionDeclarations": [F]}], None, "more than once"),
        ([{"functionDeclarations": [{"name": f"f{i}"} for i in range(1000)]}] * 2, None, "more than once"),
        (None, {"functionCallingConfig": {"mode": "ANY"}}, "needs 'tools'"),
        (None, 7, "'toolConfig' is 7"),
        ([{"functionDeclarations": [F]}], {"functionCallingConfig": {"mode": "SOME"}}, ".mode"),
        (
            [{"functionDeclarations": [F]}],
            {"functionCallingConfig": {"allowedFunctionNames": ["f"]}},
            "needs 'mode'",
        ),
        (
            [{"functionDeclarations": [F]}],
            {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["x"]}},
            "one of",
        ),
        (
            [{"functionDeclarations": [F]}],
            {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": {}}},
            "a list",
        ),
    ],
)
def test_tools_that_are_none_are_refused(tools: Any, config: Any, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_tools(tools, config)
    assert said in caught.value.message


def test_there_is_a_most_of_functions() -> None:
    tools = [{"functionDeclarations": [{"name": f"f{i}x{k}"} for k in range(1000)]} for i in range(2)]
    with pytest.raises(RequestError, match="more than 1024 functions"):
        parse_tools(tools, None)
