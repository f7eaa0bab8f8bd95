"""Calls of `/v1/responses` that several tests make."""

from __future__ import annotations

import json
from typing import Any

from server.conftest import Served

WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}
CALL = '<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>'
CALLS = f"Let me look.\n{CALL}\n{CALL.replace('Oslo', 'Malmö')}"


def ask(served: Served, input: Any = "Colour of the sky?", **options: Any) -> Any:
    return served.openai.responses.create(**{"model": "toy", "input": input, **options})


def final(served: Served, input: Any = "Colour of the sky?", **options: Any) -> Any:
    """The last response of a stream that the SDK's helper has read, of which it has seen every event."""
    with served.openai.responses.stream(**{"model": "toy", "input": input, **options}) as stream:
        return stream.get_final_response()


def events(served: Served, **body: Any) -> list[dict[str, Any]]:
    """Of a stream, as they are on the wire, once it is seen that each names itself and they are numbered."""
    answer = served.http.post("/v1/responses", json={"model": "toy", "stream": True, **body})
    assert answer.status_code == 200, answer.text
    frames = [frame.split("\n") for frame in answer.text.split("\n\n") if frame]
    found = [json.loads(data.removeprefix("data: ")) for _, data in frames]
    assert [name for name, _ in frames] == [f"event: {event['type']}" for event in found]
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    return found


def refusal(served: Served, **body: Any) -> dict[str, Any]:
    answer = served.http.post("/v1/responses", json={"model": "toy", **body})
    assert answer.status_code == 400, answer.text
    error: dict[str, Any] = answer.json()["error"]
    assert error["type"] == "invalid_request_error"
    return error


def prompt_of(served: Served, messages: list[Any], **body: Any) -> int:
    """Tokens of the prompt that the chat's route makes of messages."""
    answer = served.http.post("/tokenize", json={"model": "toy", "messages": messages, **body})
    return len(answer.json()["tokens"])


def tools_of(*tools: Any) -> Any:
    """As the SDK's types want them."""
    return list(tools)


def part(text: str) -> list[dict[str, str]]:
    return [{"type": "input_text", "text": text}]


def said(item: Any) -> tuple[Any, ...]:
    """An item without its id."""
    if item.type == "function_call":
        return (item.type, item.name, json.loads(item.arguments), item.status)
    return (item.type, item.content[0].text, item.status)
