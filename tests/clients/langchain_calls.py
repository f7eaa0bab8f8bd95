"""Scenes of LangChain's chat models of OpenAI and of Anthropic."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pydantic
from langchain_anthropic import ChatAnthropic
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from clients.stage import Stage, letters, play

CALL = 'Let me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Malmö"}}\n</tool_call>'
MARK = {"type": "ephemeral"}
HOUR = {"type": "ephemeral", "ttl": "1h"}


class City(pydantic.BaseModel):
    """What an answer must be."""

    name: str
    people: int


@tool  # type: ignore[untyped-decorator]
def weather(city: str) -> str:
    """The weather of a city."""
    return f"In {city} it is cold."


def openai(stage: Stage, **options: Any) -> Any:
    return ChatOpenAI(
        model="toy",
        base_url=f"{stage.url}/v1",
        api_key="sk-one",
        max_retries=0,
        timeout=60,
        **options,
    )


def anthropic(stage: Stage, **options: Any) -> Any:
    return ChatAnthropic(
        model="toy",
        base_url=stage.url,
        api_key="sk-one",
        max_retries=0,
        timeout=60,
        max_tokens=options.pop("max_tokens", 4),
        **options,
    )


def used(message: Any) -> Any:
    return message.usage_metadata


def gathered(model: Any, messages: Any) -> Any:
    """A stream's chunks, added up as LangChain does."""
    chunks = list(model.stream(messages))
    whole = chunks[0]
    for chunk in chunks[1:]:
        whole = whole + chunk
    return whole


def through_chats(stage: Stage) -> Any:
    model = openai(stage, max_tokens=4, stream_usage=True)
    usages = [used(model.invoke(letters(1500))) for _ in range(2)]
    streamed = gathered(model, letters(1500))
    return {"usages": [*usages, used(streamed)], "text": streamed.text, "calls": called(stage, openai)}


def through_responses(stage: Stage) -> Any:
    model = openai(stage, use_responses_api=True)
    usages = [used(model.invoke(letters(1500))) for _ in range(2)]
    streamed = gathered(model, letters(1500))

    def make(stage: Stage, **options: Any) -> Any:
        return openai(stage, use_responses_api=True, **options)

    return {"usages": [*usages, used(streamed)], "text": streamed.text, "calls": called(stage, make)}


def through_messages(stage: Stage) -> Any:
    model, messages = anthropic(stage), [system(), HumanMessage("Hi")]
    usages = [used(model.invoke(messages)) for _ in range(2)]
    streamed = gathered(model, messages)
    return {"usages": [*usages, used(streamed)], "text": streamed.text, "calls": called(stage, anthropic)}


def written_by_openai(stage: Stage) -> Any:
    """By the rules of the models with boundaries, a message's end is written."""
    model = openai(stage, max_tokens=4, extra_body={"prompt_cache_options": {"mode": "implicit"}})
    turns = [HumanMessage(letters(1500)), AIMessage("ok"), HumanMessage("More")]
    return [used(model.invoke(turns[:1])), used(model.invoke(turns))]


def system() -> SystemMessage:
    return SystemMessage([{"type": "text", "text": letters(1500), "cache_control": MARK}])


def formed(stage: Stage) -> Any:
    """Answers of a form: by a schema at OpenAI's routes, by a call that must be made at Anthropic's."""
    stage.say('{"name":"Oslo","people":700000}')
    made = [
        openai(stage, use_responses_api=responses).with_structured_output(City).invoke("Which?")
        for responses in (False, True)
    ]
    stage.say('<tool_call>\n{"name": "City", "arguments": {"name": "Oslo", "people": 700000}}\n</tool_call>')
    made.append(anthropic(stage, max_tokens=200).with_structured_output(City).invoke("Which?"))
    return [each.model_dump() for each in made]


def two_lives(stage: Stage) -> Any:
    """An hour's marker, then one of five minutes; then another turn."""
    model = anthropic(stage)
    blocks: list[Any] = [
        {"type": "text", "text": letters(1500), "cache_control": HOUR},
        {"type": "text", "text": "b" * 300, "cache_control": MARK},
    ]
    more: list[Any] = [{"type": "text", "text": "c" * 20, "cache_control": MARK}]
    turns = [HumanMessage(blocks), AIMessage("ok"), HumanMessage(more)]
    return [used(model.invoke(turns[:1])), used(model.invoke(turns))]


def called(stage: Stage, make: Callable[..., Any]) -> Any:
    """A call, whole and in a stream, and the answer to its result."""
    stage.say(CALL)
    model = make(stage, max_tokens=300).bind_tools([weather])
    whole, streamed = model.invoke("Cold?"), gathered(model, "Cold?")
    stage.say("Yes.")
    (call,) = whole.tool_calls
    result = ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"])
    after = model.invoke([HumanMessage("Cold?"), whole, result])
    calls = [[each["name"], each["args"]] for message in (whole, streamed) for each in message.tool_calls]
    return {"calls": calls, "text": whole.text, "after": after.text}


if __name__ == "__main__":
    versions = " ".join(version(f"langchain-{name}") for name in ("openai", "anthropic"))
    play(versions, through_chats, through_responses, through_messages, written_by_openai, formed, two_lives)
