"""Objects that hold what their schema lists."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from sapwood.chat.closed_schema import closed

NAME: dict[str, Any] = {"type": "object", "properties": {"name": {"type": "string"}}}
CLOSED = {**NAME, "additionalProperties": False}


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        (NAME, CLOSED),
        ({"type": "array", "items": NAME}, {"type": "array", "items": CLOSED}),
        ({"anyOf": [NAME, {"type": "null"}]}, {"anyOf": [CLOSED, {"type": "null"}]}),
        ({"properties": {"a": NAME}}, {"properties": {"a": CLOSED}, "additionalProperties": False}),
        (
            {"$ref": "#/$defs/N", "$defs": {"N": NAME}},
            {"$ref": "#/$defs/N", "$defs": {"N": CLOSED}},
        ),
        ({"allOf": [NAME]}, {"allOf": [CLOSED]}),
        ({"additionalProperties": NAME}, {"additionalProperties": CLOSED}),
    ],
)
def test_objects_that_list_their_properties_have_no_others(schema: Any, expected: Any) -> None:
    before = copy.deepcopy(schema)
    assert closed(schema) == expected
    assert schema == before, "what was given stays as it was"


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object"},
        {**NAME, "additionalProperties": True},
        {**NAME, "additionalProperties": {"type": "integer"}},
        {**NAME, "required": ["name", "unlisted"]},
        {**NAME, "minProperties": 2},
        {**NAME, "anyOf": [{"required": ["name"]}]},
        {"allOf": [NAME, {"properties": {"legs": {"type": "integer"}}}]},
        {"$defs": {"Base": NAME}, "allOf": [{"$ref": "#/$defs/Base"}, {"type": "object"}]},
        {"properties": {"a": NAME}, "patternProperties": {"^x": {}}},
        {"const": NAME},
        {"enum": [NAME]},
        {"properties": 5, "items": [1], "anyOf": "x", "required": 3},
    ],
)
def test_what_says_otherwise_or_may_need_more_stays_open(schema: Any) -> None:
    assert closed(schema) == schema
