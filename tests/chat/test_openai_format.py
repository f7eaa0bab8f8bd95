from __future__ import annotations

import json
from typing import Any

import pytest

from sapwood.chat.openai_format import parse_format
from sapwood.errors import RequestError


def json_schema(**named: Any) -> dict[str, Any]:
    return {"response_format": {"type": "json_schema", "json_schema": named}}


NOTHING: list[dict[str, Any]] = [
    {},
    {"response_format": None},
    {"response_format": {"type": "text"}},
    {"structured_outputs": {}},
    {"structured_outputs": {"regex": None, "json_object": False}},
    {"guided_choice": [], "guided_regex": "", "guided_grammar": ""},
]


@pytest.mark.parametrize("fields", NOTHING)
def test_nothing_asked_is_nothing_constrained(fields: dict[str, Any]) -> None:
    assert parse_format(fields) is None


@pytest.mark.parametrize(
    ("fields", "kind", "text", "param"),
    [
        (
            {"response_format": {"type": "json_object"}},
            "json_schema",
            '{"type": "object"}',
            "response_format",
        ),
        (
            json_schema(name="pet", schema={"type": "object"}, strict=True),
            "json_schema",
            '{"type": "object"}',
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"regex": "a+"}}, "regex", "a+", "structured_outputs.regex"),
        ({"guided_regex": "a+"}, "regex", "a+", "guided_regex"),
        ({"guided_choice": ['a"', "b"]}, "grammar", 'start: "a\\"" | "b"', "guided_choice"),
        ({"guided_grammar": 'root ::= "a"'}, "grammar", 'root ::= "a"', "guided_grammar"),
    ],
)
def test_each_field_has_its_constraint(fields: dict[str, Any], kind: str, text: str, param: str) -> None:
    constraint = parse_format(fields)
    assert constraint is not None
    assert (constraint.kind, constraint.text, constraint.param) == (kind, text, param)


@pytest.mark.parametrize("strict", [False, True])
def test_objects_have_no_fields_that_are_not_listed(strict: bool) -> None:
    schema = {"properties": {"legs": {"type": "integer"}}}
    constraint = parse_format(json_schema(name="a", schema=schema, strict=strict))
    assert constraint is not None
    assert json.loads(constraint.text)["additionalProperties"] is False


def test_keywords_that_cannot_be_enforced_are_left_out_unless_strict() -> None:
    schema = {"type": "string", "format": "colour"}
    strict = parse_format(json_schema(name="a", schema=schema, strict=True))
    lenient = parse_format(json_schema(name="a", schema=schema))
    assert strict is not None
    assert lenient is not None
    assert json.loads(strict.text) == schema
    assert json.loads(lenient.text) == {**schema, "x-guidance": {"lenient": True}}


def test_a_schema_may_come_as_text() -> None:
    constraint = parse_format({"guided_json": '{"type": "object"}'})
    assert constraint is not None
    assert json.loads(constraint.text)["type"] == "object"


FAULTS: list[tuple[dict[str, Any], str]] = [
    ({"response_format": "json"}, "response_format.type"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
    ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    (json_schema(schema={}), "response_format.json_schema.name"),
    (json_schema(name="a b"), "response_format.json_schema.name"),
    (json_schema(name="a", strict=1), "response_format.json_schema.strict"),
    (json_schema(name="a", schema=[1]), "response_format.json_schema.schema"),
    ({"guided_json": "{"}, "guided_json"),
    ({"guided_choice": "a"}, "guided_choice"),
    ({"guided_choice": ["a", 1]}, "guided_choice[1]"),
    ({"guided_regex": "a" * 2**20}, "guided_regex"),
    ({"guided_regex": "a", "guided_choice": ["a"]}, "guided_choice"),
    ({"structured_outputs": {"regex": "a", "json_object": True}}, "structured_outputs"),
    ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs.structural_tag"),
    ({"structured_outputs": []}, "structured_outputs"),
]


@pytest.mark.parametrize(("fields", "param"), FAULTS)
def test_faults_name_the_field(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_format(fields)
    assert caught.value.param == param


def test_a_schema_nested_without_end_is_refused() -> None:
    schema: dict[str, Any] = {}
    for _ in range(200):
        schema = {"items": schema}
    with pytest.raises(RequestError, match="nested"):
        parse_format({"guided_json": schema})


def test_an_object_of_more_properties_than_can_be_compiled_is_refused() -> None:
    def asked(count: int) -> dict[str, Any]:
        many = {f"p{i}": True for i in range(count)}
        return json_schema(name="a", schema={"items": {"properties": many}})

    assert parse_format(asked(2000)) is not None
    with pytest.raises(RequestError, match="an object of 2001 entries; at most 2000"):
        parse_format(asked(2001))
