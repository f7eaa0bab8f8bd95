"""Scenes of LiteLLM, through each of the dialects that it speaks to a server."""

from __future__ import annotations

from importlib.metadata import version
from typing import Any

import httpx
import litellm

from clients.stage import Stage, letters, play

EPHEMERAL = {"type": "ephemeral"}
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}
CALL = 'Let me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Malmö"}}\n</tool_call>'
PATHS = {"openai": "/v1", "anthropic": "", "gemini": "/v1beta"}
MANUAL = " ".join(["pump"] * 1200)
"""Long enough for LiteLLM, which counts with a tokenizer of its own, to have it cached."""


class Asking:
    """`completion` by one of the dialects."""

    def __init__(self, stage: Stage, dialect: str, path: str | None = None, **to: Any) -> None:
        path = PATHS[dialect] if path is None else path
        self._to = {
            "model": f"{dialect}/toy",
            "api_base": stage.url + path,
            "api_key": "sk-one",
            "max_retries": 0,
            "timeout": 60,
            **to,
        }

    def ask(self, messages: Any, **options: Any) -> Any:
        return litellm.completion(**self._to, messages=messages, **{"max_tokens": 4, **options})

    def usage(self, messages: Any, **options: Any) -> Any:
        return dumped(self.ask(messages, **options).usage)

    def streamed(self, messages: Any, **options: Any) -> Any:
        """What LiteLLM itself makes of the chunks."""
        chunks = list(self.ask(messages, stream=True, stream_options={"include_usage": True}, **options))
        return litellm.stream_chunk_builder(chunks, messages=messages)


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json")


def user(content: Any) -> list[Any]:
    return [{"role": "user", "content": content}]


def marked(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text, "cache_control": EPHEMERAL}


def conversation(system: str, *turns: Any) -> list[Any]:
    roles = ("user", "assistant")
    messages = [{"role": roles[i % 2], "content": turn} for i, turn in enumerate(turns)]
    return [{"role": "system", "content": [marked(system)]}, *messages]


def through_openai(stage: Stage) -> Any:
    asking, text = Asking(stage, "openai"), user(letters(1500))
    return told_by(asking, text) | {"calls": called(stage, asking)}


def through_anthropic(stage: Stage) -> Any:
    asking, system = Asking(stage, "anthropic"), letters(1500)
    told = told_by(asking, conversation(system, "Hi")) | {"calls": called(stage, asking)}
    stage.say("ok")
    turns = ["Hi", "ok", [marked("Then?")]]
    return told | {"turns": [asking.usage(conversation(system, *turns)) for _ in range(2)]}


def through_gemini(stage: Stage) -> Any:
    """Without a marker: what the server reuses unasked."""
    asking, text = Asking(stage, "gemini"), user(letters(1500))
    return told_by(asking, text) | {"calls": called(stage, asking)}


def told_by(asking: Asking, messages: Any) -> dict[str, Any]:
    """The usage of a first call, of the same again, and of the same in a stream."""
    first, second = asking.usage(messages), asking.usage(messages)
    streamed = asking.streamed(messages)
    text = streamed.choices[0].message.content
    return {"usages": [first, second, dumped(streamed.usage)], "text": text}


def called(stage: Stage, asking: Asking) -> Any:
    """A call, whole and in a stream, and the answer to its result."""
    stage.say(CALL)
    options: Any = {"tools": [WEATHER], "max_tokens": 300}
    whole = asking.ask(user("Cold?"), **options).choices[0]
    streamed = asking.streamed(user("Cold?"), **options).choices[0]
    stage.say("Yes.")
    (call,) = whole.message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "name": "weather", "content": "-3"}
    after = asking.ask([*user("Cold?"), dumped(whole.message), result], **options).choices[0]
    return [*map(calls_of, (whole, streamed)), after.message.content]


def calls_of(choice: Any) -> Any:
    calls = [[call.function.name, call.function.arguments] for call in choice.message.tool_calls]
    return [choice.finish_reason, calls]


def a_named_cache(stage: Stage) -> Any:
    """For Gemini, LiteLLM makes a cached content of what is marked: it looks for one, creates it, and uses it.

    By another path to the server it knows of none, and finds the one in the list.
    """
    asking, elsewhere = Asking(stage, "gemini"), Asking(stage, "gemini", "/v1")
    questions = ("What colour?", "What shape?")
    usages = [asking.usage(conversation(MANUAL, question)) for question in questions]
    usages.append(elsewhere.usage(conversation(MANUAL, "What size?")))
    objects = httpx.get(f"{stage.url}/v1beta/cachedContents", headers={"x-goog-api-key": "sk-one"}).json()
    return {"usages": usages, "objects": objects["cachedContents"]}


def as_aider(stage: Stage) -> Any:
    """Markers in OpenAI-style parts: on the system text, the files, the last message; then a ping that keeps it."""
    asking = Asking(stage, "openai")
    system, files = letters(1200), "f" * 300
    messages = [
        {"role": "system", "content": [marked(system)]},
        {"role": "user", "content": [marked(files)]},
        {"role": "assistant", "content": "Ok."},
        {"role": "user", "content": [marked("Add a test.")]},
    ]
    ping = asking.usage(messages, max_tokens=1)
    return [ping, asking.usage(messages)]


def errors(stage: Stage) -> Any:
    """The classes that LiteLLM makes of errors, by which it decides what to do next."""
    told = []
    for dialect in PATHS:
        cases: Any = ({"model": f"{dialect}/none"}, {"api_key": "sk-none"}, {})
        for options in cases:
            asking = Asking(stage, dialect, **options)
            try:
                asking.ask(user("Hi" if options else letters(20_000)))
            except Exception as error:
                told.append([dialect, type(error).__name__])
    return told


if __name__ == "__main__":
    play(
        version("litellm"),
        through_openai,
        through_anthropic,
        through_gemini,
        a_named_cache,
        as_aider,
        errors,
    )
