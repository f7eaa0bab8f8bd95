"""Scenes of OpenAI's SDK, for every release: what a release has no field for goes into `extra_body`."""

from __future__ import annotations

import asyncio
from typing import Any

import openai
import pydantic

from clients.stage import Stage, letters, play

AROUND = len("\0user\n\0\0assistant\n")
"""Tokens that the fake model's template writes around the text of one user."""
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
CHAT_TOOL: Any = {
    "type": "function",
    "function": {"name": "weather", "strict": True, "parameters": PARAMETERS},
}
TOOL: Any = {"type": "function", "name": "weather", "strict": True, "parameters": PARAMETERS}
CALLS = (
    'Let me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Malmö"}}\n</tool_call>'
)
EXPLICIT = {"prompt_cache_options": {"mode": "explicit"}}


class City(pydantic.BaseModel):
    """What an answer must be."""

    name: str
    people: int


def client(stage: Stage, key: str = "sk-one") -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{stage.url}/v1", api_key=key, max_retries=0, timeout=60)


def user(content: Any) -> list[Any]:
    return [{"role": "user", "content": content}]


def chat(sdk: openai.OpenAI, content: Any, **extra: Any) -> Any:
    """The usage of a chat."""
    answer = sdk.chat.completions.create(model="toy", messages=user(content), max_tokens=4, extra_body=extra)
    return dumped(answer.usage)


def respond(sdk: openai.OpenAI, input: Any, **extra: Any) -> Any:
    """The usage of a response."""
    return dumped(sdk.responses.create(model="toy", input=input, extra_body=extra).usage)


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json")


def repeated_chats(stage: Stage) -> Any:
    one, two = client(stage), client(stage, "sk-two")
    long, short = letters(1500 - AROUND), letters(1023 - AROUND)
    return {
        "first": chat(one, long),
        "second": chat(one, long),
        "other key": chat(one, long, prompt_cache_key="other"),
        "other salt": chat(one, long, cache_salt="other"),
        "other tenant": chat(two, long),
        "short": [chat(one, short), chat(one, short)],
    }


def repeated_responses(stage: Stage) -> Any:
    one, two = client(stage), client(stage, "sk-two")
    long, short = letters(1500 - AROUND), letters(1023 - AROUND)
    return {
        "first": respond(one, long),
        "second": respond(one, long),
        "other key": respond(one, long, prompt_cache_key="other"),
        "other tenant": respond(two, long),
        "short": [respond(one, short), respond(one, short)],
    }


def streamed_chat(stage: Stage) -> Any:
    sdk, text = client(stage), letters(1500)
    chat(sdk, text)
    whole = chat(sdk, text)
    chunks = list(
        sdk.chat.completions.create(
            model="toy",
            messages=user(text),
            max_tokens=4,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    return {
        "whole": whole,
        "usages": [chunk.usage and dumped(chunk.usage) for chunk in chunks],
        "text": "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices),
    }


def streamed_response(stage: Stage) -> Any:
    sdk, text = client(stage), letters(1500)
    respond(sdk, text)
    whole = respond(sdk, text)
    with sdk.responses.stream(model="toy", input=text) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    return {"whole": whole, "last": dumped(final.usage), "kinds": kinds, "text": final.output_text}


def called_in_chat(stage: Stage) -> Any:
    """Twice at once, collected by the SDK."""
    stage.say(CALLS)
    asked: dict[str, Any] = {
        "model": "toy",
        "messages": user("Cold?"),
        "tools": [CHAT_TOOL],
        "max_tokens": 400,
        "n": 2,
    }
    sdk = client(stage)
    with sdk.chat.completions.stream(**asked, stream_options={"include_usage": True}) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_completion()
    whole = sdk.chat.completions.create(**asked)
    single = sdk.chat.completions.create(**{**asked, "n": 1, "max_tokens": 1})
    return {
        "kinds": kinds,
        "choices": [called(choice) for choice in final.choices],
        "whole": [called(choice) for choice in whole.choices],
        "parsed": [call.function.parsed_arguments for call in final.choices[0].message.tool_calls or ()],
        "prompt_tokens": [each.usage.prompt_tokens for each in (final, whole, single) if each.usage],
    }


def called(choice: Any) -> Any:
    message = choice.message
    calls = [[call.function.name, call.function.arguments] for call in message.tool_calls]
    return {"text": message.content, "calls": calls, "why": choice.finish_reason}


def called_in_response(stage: Stage) -> Any:
    """Streamed, answered, and gone on from by its id."""
    stage.say(CALLS)
    sdk = client(stage)
    with sdk.responses.stream(model="toy", input="Cold?", tools=[TOOL]) as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    made: list[Any] = [item for item in final.output if item.type == "function_call"]
    stage.say("Yes.")
    results: Any = [
        {"type": "function_call_output", "call_id": each.call_id, "output": "-3"} for each in made
    ]
    after = sdk.responses.create(model="toy", input=results, previous_response_id=final.id, tools=[TOOL])
    return {
        "kinds": kinds,
        "text": final.output_text,
        "calls": [[each.name, each.arguments, each.parsed_arguments] for each in made],
        "kept": dumped(sdk.responses.retrieve(final.id).usage) == dumped(final.usage),
        "after": after.output_text,
        "tokens": [final.usage and final.usage.total_tokens, after.usage and after.usage.input_tokens],
    }


def formed(stage: Stage) -> Any:
    """Answers of a form, parsed by the SDK."""
    stage.say('{"name":"Oslo","people":700000}')
    sdk = client(stage)
    chat = sdk.chat.completions.parse(model="toy", messages=user("Which?"), response_format=City)
    response = sdk.responses.parse(model="toy", input="Which?", text_format=City)
    return [each and dumped(each) for each in (chat.choices[0].message.parsed, response.output_parsed)]


def in_parallel(stage: Stage) -> Any:
    """Eight streams at once, by the client for asyncio."""

    async def one(sdk: openai.AsyncOpenAI) -> str:
        stream = await sdk.chat.completions.create(model="toy", messages=user("Hi"), stream=True)
        return "".join([chunk.choices[0].delta.content or "" async for chunk in stream if chunk.choices])

    async def all_of_them() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{stage.url}/v1", api_key="sk-one", timeout=60) as sdk:
            return await asyncio.gather(*(one(sdk) for _ in range(8)))

    return asyncio.run(all_of_them())


def breakpoints(stage: Stage) -> Any:
    """The newer rules, in both routes: exact boundaries."""
    sdk, boundary = client(stage), {"prompt_cache_breakpoint": {"mode": "explicit"}}

    def parts(kind: str, question: str) -> list[Any]:
        return [{"type": kind, "text": letters(1100), **boundary}, {"type": kind, "text": question}]

    told = {
        "chats": [chat(sdk, parts("text", each), **EXPLICIT) for each in ("One?", "And two?")],
        "responses": [respond(sdk, user(parts("input_text", each)), **EXPLICIT) for each in ("3?", "And 4?")],
    }
    stage.wait(31 * 60)
    told["later"] = [chat(sdk, parts("text", "Five?"), **EXPLICIT)]
    return told


def anthropics_markers(stage: Stage) -> Any:
    """As aider and others send them, in parts of a chat."""
    sdk, marker = client(stage), {"cache_control": {"type": "ephemeral"}}
    part = {"type": "text", "text": letters(1500 - AROUND)}
    return [chat(sdk, [{**part, **marker}]), chat(sdk, part["text"])]


def by_the_clock(stage: Stage) -> Any:
    """Read at the ninth minute, at the eighteenth, and at the thirtieth; then with a day's retention."""
    sdk, text = client(stage), letters(1500)
    told = [chat(sdk, text)]
    for minutes in (9, 9, 12):
        stage.wait(minutes * 60)
        told.append(chat(sdk, text))
    chat(sdk, text, prompt_cache_retention="24h")
    stage.wait(23 * 3600)
    told.append(chat(sdk, text, prompt_cache_retention="24h"))
    return told


def others(stage: Stage) -> Any:
    """Models, completions, errors and their classes."""
    sdk = client(stage)
    completion = sdk.completions.create(model="toy", prompt=["a", "b"], n=2, max_tokens=4)
    return {
        "models": [model.id for model in sdk.models.list()],
        "model": sdk.models.retrieve("toy").id,
        "completions": [[choice.index, choice.text] for choice in completion.choices],
        "errors": [
            refused(lambda: sdk.models.retrieve("none")),
            refused(lambda: chat(client(stage, "sk-none"), "Hi")),
            refused(lambda: chat(sdk, "Hi", temperature=-1)),
            refused(lambda: respond(sdk, "Hi", previous_response_id="resp_none")),
            refused(lambda: chat(sdk, letters(20_000))),
        ],
    }


def refused(call: Any) -> Any:
    try:
        call()
    except openai.APIStatusError as error:
        return [type(error).__name__, error.code, error.param, error.request_id is not None]
    return None


if __name__ == "__main__":
    play(
        openai.__version__,
        repeated_chats,
        repeated_responses,
        streamed_chat,
        streamed_response,
        called_in_chat,
        called_in_response,
        formed,
        in_parallel,
        breakpoints,
        anthropics_markers,
        by_the_clock,
        others,
    )
