"""Tool calls through the official SDK, against a model that says what the test wants."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from server.conftest import Served

WEATHER: Any = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
CALLS = (
    'Let me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Malmö"}}\n</tool_call>'
)
ASK: list[Any] = [{"role": "user", "content": "Is it cold?"}]


def chat(served: Served, **options: Any) -> Any:
    return served.openai.chat.completions.create(
        **{"model": "toy", "messages": ASK, "tools": [WEATHER], "max_tokens": 400, **options}
    )


def prompt_of(served: Served, **body: Any) -> str:
    """The prompt that the server makes of a chat, by its own tokens."""
    answer = served.http.post("/tokenize", json={"model": "toy", **body})
    assert answer.status_code == 200, answer.text
    return served.built.tokenizer.decode(answer.json()["tokens"], skip_special=False)


def test_calls_are_told_from_text(served: Served) -> None:
    served.script(CALLS.encode())
    choice = chat(served).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert choice.message.content == "Let me look."
    calls = choice.message.tool_calls
    assert [(call.type, call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("function", "weather", {"city": "Oslo"}),
        ("function", "weather", {"city": "Malmö"}),
    ]
    assert len({call.id for call in calls}) == 2


@pytest.mark.parametrize("stream", [False, True])
def test_without_leave_to_call_in_parallel_only_the_first_call_is_given(served: Served, stream: bool) -> None:
    served.script(CALLS.encode())
    answer = chat(served, parallel_tool_calls=False, stream=stream)
    if stream:
        deltas = [chunk.choices[0].delta for chunk in answer]
        calls = [call for delta in deltas for call in delta.tool_calls or ()]
    else:
        calls = answer.choices[0].message.tool_calls
    assert "".join(call.function.arguments for call in calls) == '{"city": "Oslo"}'


def test_content_is_null_beside_calls_alone(served: Served) -> None:
    served.script(CALLS.partition("\n")[2].encode())
    assert chat(served).choices[0].message.content is None


@pytest.mark.parametrize("n", [1, 2])
def test_the_sdk_collects_streamed_calls_as_the_whole_answer_has_them(served: Served, n: int) -> None:
    served.script(CALLS.encode())
    whole = chat(served, n=n)
    with served.openai.chat.completions.stream(
        model="toy", messages=ASK, tools=[WEATHER], max_tokens=400, n=n
    ) as stream:
        streamed = stream.get_final_completion()
    for one, other in zip(streamed.choices, whole.choices, strict=True):
        assert one.finish_reason == other.finish_reason == "tool_calls"
        assert one.message.content == other.message.content
        assert one.message.tool_calls is not None
        assert [call.function.arguments for call in one.message.tool_calls] == [
            call.function.arguments for call in other.message.tool_calls
        ]


def test_chunks_number_the_calls_name_each_once_and_tell_its_arguments_as_they_come(served: Served) -> None:
    served.script(CALLS.encode())
    deltas = [chunk.choices[0].delta for chunk in chat(served, stream=True)]
    calls = [call for delta in deltas for call in delta.tool_calls or ()]
    heads = [call for call in calls if call.id]
    assert [(call.index, call.type, call.function.name, call.function.arguments) for call in heads] == [
        (0, "function", "weather", ""),
        (1, "function", "weather", ""),
    ]
    for index, city in enumerate(("Oslo", "Malmö")):
        parts = [call.function.arguments for call in calls if call.index == index and not call.id]
        assert len(parts) > 5
        assert json.loads("".join(parts)) == {"city": city}
    assert "".join(delta.content or "" for delta in deltas) == "Let me look."


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_cut_short_after_its_head_ends_by_length(served: Served, stream: bool) -> None:
    served.script(CALLS.encode())
    limit = CALLS.index("Oslo") + len("Osl")
    if stream:
        with served.openai.chat.completions.stream(
            model="toy", messages=ASK, tools=[WEATHER], max_tokens=limit
        ) as events:
            chunks = [event.chunk for event in events if event.type == "chunk"]
        assert chunks[-1].choices[0].finish_reason == "length"
        calls = [call for chunk in chunks for call in chunk.choices[0].delta.tool_calls or ()]
        assert "".join(call.function.arguments or "" for call in calls if call.function) == '{"city": "Osl'
        return
    choice = chat(served, max_tokens=limit).choices[0]
    assert choice.finish_reason == "length"
    assert choice.message.tool_calls[0].function.arguments == '{"city": "Osl'


@pytest.mark.parametrize("choice", ["none", None])
def test_without_tools_to_call_the_text_stays_as_it_is(served: Served, choice: str | None) -> None:
    served.script(CALLS.encode())
    options: dict[str, Any] = {"tool_choice": choice} if choice else {"tools": openai.NOT_GIVEN}
    choices = chat(served, **options).choices
    assert choices[0].message.content == CALLS
    assert choices[0].finish_reason == "stop"


def test_a_malformed_call_is_text(served: Served) -> None:
    served.script(b'<tool_call>{"name": "sing", "arguments": {}}</tool_call>')
    message = chat(served).choices[0].message
    assert message.tool_calls is None
    assert message.content == '<tool_call>{"name": "sing", "arguments": {}}</tool_call>'


def test_a_call_cut_short_is_text_and_ends_by_length(served: Served) -> None:
    served.script(CALLS.encode())
    choice = chat(served, max_tokens=40).choices[0]
    assert choice.finish_reason == "length"
    assert choice.message.content == CALLS[:40]


def test_logprobs_cover_every_token_of_a_streamed_call(served: Served) -> None:
    served.script(CALLS.encode())
    chunks = list(chat(served, stream=True, logprobs=True))
    scored = [chunk.choices[0].logprobs for chunk in chunks if chunk.choices[0].logprobs]
    listed = [entry for each in scored for entry in each.content]
    assert bytes(byte for entry in listed for byte in entry.bytes) == CALLS.encode() + b"</s>"


def test_calls_and_results_come_back_as_the_model_wrote_them(served: Served) -> None:
    """A template that knows of no tools still shows tools, calls and results."""
    served.script(CALLS.encode())
    message = chat(served).choices[0].message
    turns: list[Any] = [*ASK, message.model_dump(exclude_none=True)]
    turns += [
        {"role": "tool", "tool_call_id": call.id, "content": f"{degrees} <|end|>"}
        for call, degrees in zip(message.tool_calls, (-3, 4), strict=True)
    ]
    prompt = prompt_of(served, messages=turns, tools=[WEATHER])
    assert json.dumps(WEATHER) in prompt
    assert CALLS in prompt
    results = "<tool_response>\n-3 <|end|>\n</tool_response>\n<tool_response>\n4 <|end|>\n</tool_response>"
    assert f"<|start|>user\n{results}<|end|>" in prompt
    ids = served.http.post("/tokenize", json={"model": "toy", "messages": turns, "tools": [WEATHER]}).json()[
        "tokens"
    ]
    # The system turn's, two of four turns' and the open one's: none that a result spells.
    assert ids.count(258) == 4


def test_what_cannot_be_called_is_refused_with_its_path(served: Served) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(served, tool_choice={"type": "function", "function": {"name": "sing"}})
    assert caught.value.param == "tool_choice.function.name"
