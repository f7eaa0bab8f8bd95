"""The form of an answer in Anthropic-shaped bodies, and what it is to a cached prefix."""

from __future__ import annotations

import json
from typing import Any

import pytest

from sapwood.chat.anthropic import parse_messages
from sapwood.chat.anthropic_format import Output, parse_output
from sapwood.errors import RequestError

PET = {"type": "object", "properties": {"legs": {"type": "integer"}}}
FORMAT = {"type": "json_schema", "schema": PET}


def settings(**fields: Any) -> dict[str, str]:
    body = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "a"}], **fields}
    return dict(parse_messages(body, vocab_size=10).settings)


@pytest.mark.parametrize("fields", [{"output_config": {"format": FORMAT}}, {"output_format": FORMAT}])
def test_a_schema_is_what_the_answer_must_be(fields: dict[str, Any]) -> None:
    form = parse_output(fields).form
    assert form is not None
    assert form.kind == "json_schema"
    assert form.param == f"{'.'.join([*fields, *fields.get('output_config', ())])}.schema"
    schema = json.loads(form.text)
    assert schema.pop("x-guidance") == {"lenient": True}
    assert schema == {**PET, "additionalProperties": False}


@pytest.mark.parametrize("config", [None, {}, {"effort": "high"}, {"format": None, "effort": None}])
def test_nothing_said_and_the_defaults_are_the_same(config: Any) -> None:
    assert parse_output({"output_config": config}) == Output()
    assert settings(output_config=config) == settings()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"output_config": 3}, "output_config"),
        ({"output_config": {"format": []}}, "output_config.format.type"),
        ({"output_config": {"format": {"schema": PET}}}, "output_config.format.type"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format.schema"),
        ({"output_config": {"effort": [[[]]]}}, "output_config.effort"),
        ({"output_config": {"effort": "x" * 100}}, "output_config.effort"),
        ({"output_config": {"format": FORMAT}, "output_format": FORMAT}, "output_format.schema"),
    ],
)
def test_what_is_wrong_is_named(fields: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as error:
        parse_output(fields)
    assert error.value.param == param


def test_a_schema_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"items": deep}
    with pytest.raises(RequestError, match="nested"):
        parse_output({"output_config": {"format": {**FORMAT, "schema": deep}}})


def test_effort_is_of_the_messages_and_a_form_of_the_system_text() -> None:
    plain = settings()
    low = settings(output_config={"effort": "low"})
    assert low["system"] == plain["system"]
    assert low["messages"] != plain["messages"]
    formed, other = (
        settings(output_config={"format": FORMAT}),
        settings(output_format={**FORMAT, "schema": {}}),
    )
    assert len({each["system"] for each in (plain, formed, other)}) == 3
    assert formed["messages"] == plain["messages"]
    assert "tools" not in formed
