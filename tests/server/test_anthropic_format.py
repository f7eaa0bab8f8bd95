"""Structured output on Anthropic's route, through the official SDK. The fake model draws from what is allowed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import anthropic
import pytest
from pydantic import BaseModel, ConfigDict, Field

from server.conftest import Served

USER: list[Any] = [{"role": "user", "content": "a pet"}]
TOOL: Any = {"name": "f", "input_schema": {"type": "object", "properties": {}, "additionalProperties": False}}


class Pet(BaseModel):
    model_config = ConfigDict(extra="forbid")

    kind: Literal["cat", "dog"]
    legs: Annotated[int, Field(ge=0, le=8)]


FORMAT: Any = {"format": {"type": "json_schema", "schema": Pet.model_json_schema()}}


@pytest.fixture
def client(served: Served) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0, timeout=30) as client:
        yield client


def test_an_answer_is_of_the_schema_whole_and_streamed(client: anthropic.Anthropic) -> None:
    asked: dict[str, Any] = {"model": "toy", "max_tokens": 400, "messages": USER, "output_config": FORMAT}
    answer = client.messages.create(**asked)
    assert answer.stop_reason == "end_turn"
    assert answer.content[0].type == "text"
    Pet.model_validate_json(answer.content[0].text)
    with client.messages.stream(**asked) as stream:
        Pet.model_validate_json(stream.get_final_text())


class Tame(BaseModel):
    tame: bool


def test_the_sdk_parses_a_model_of_its_own(client: anthropic.Anthropic) -> None:
    """It leaves bounds of numbers out of the schema, as the vendor does not know them."""
    parsed = client.messages.parse(model="toy", max_tokens=400, messages=USER, output_format=Tame)
    assert isinstance(parsed.parsed_output, Tame)


def test_with_tools_the_answer_is_of_the_schema_or_a_call(client: anthropic.Anthropic) -> None:
    answer = client.messages.create(
        model="toy", max_tokens=2000, messages=USER, output_config=FORMAT, tools=[TOOL]
    )
    assert answer.stop_reason in ("end_turn", "tool_use")
    for block in answer.content:
        if block.type == "text":
            Pet.model_validate_json(block.text)


def test_a_schema_that_is_none_is_refused(client: anthropic.Anthropic) -> None:
    wrong: Any = {"format": {"type": "json_schema", "schema": {"type": 3}}}
    with pytest.raises(anthropic.BadRequestError, match=r"output_config\.format\.schema"):
        client.messages.create(model="toy", max_tokens=4, messages=USER, output_config=wrong)
