"""Scenes of Anthropic's SDK, for every release: what a release has no field for goes into `extra_body`."""

from __future__ import annotations

from typing import Any

import anthropic
import pydantic

from clients.stage import Stage, letters, play

MARK = {"cache_control": {"type": "ephemeral"}}
HOUR = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
WEATHER: Any = {"name": "weather", "description": "d" * 1100, "input_schema": SCHEMA}
CALLS = (
    'Let me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Malmö"}}\n</tool_call>'
)


class City(pydantic.BaseModel):
    """What an answer must be."""

    name: str
    people: int


class Asking:
    """A client; all its calls end in the same shape."""

    def __init__(self, stage: Stage, key: str = "sk-one") -> None:
        self.sdk = anthropic.Anthropic(base_url=stage.url, api_key=key, max_retries=0, timeout=60)

    def usage(self, *turns: Any, **options: Any) -> Any:
        return dumped(self.sdk.messages.create(**asked(*turns, **options)).usage)


def asked(*turns: Any, **options: Any) -> Any:
    """Turns by turns of user and assistant; the first of them is the user's."""
    turns_of = ("user", "assistant")
    messages = [{"role": turns_of[i % 2], "content": turn} for i, turn in enumerate(turns)]
    return {"model": "toy", "max_tokens": 4, "messages": messages, **options}


def text(content: str, **marker: Any) -> dict[str, Any]:
    return {"type": "text", "text": content, **marker}


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json")


def refused(call: Any) -> Any:
    try:
        call()
    except anthropic.APIStatusError as error:
        body: Any = error.body
        return [
            type(error).__name__,
            body["error"]["type"],
            body["error"]["message"],
            error.request_id is not None,
        ]
    return None


def turns_of_an_agent(stage: Stage) -> Any:
    """Markers on a tool, the system text and the last block; then other prefixes, and who does not share them."""
    asking = Asking(stage)
    options: Any = {"system": [text("s" * 1100, **MARK)], "tools": [{**WEATHER, **MARK}]}
    turns = ([text("u" * 40)], "ok", [text("v" * 30, **MARK)])
    other_tool = {**WEATHER, **MARK, "description": "e" * 1100}
    return {
        "first": asking.usage([text("u" * 40, **MARK)], **options),
        "second": asking.usage(*turns, **options),
        "tools and system": asking.usage([text("w" * 40)], **options),
        "other choice": asking.usage(*turns, **options, tool_choice={"type": "none"}),
        "other tool": asking.usage(*turns, **{**options, "tools": [other_tool]}),
        "other tenant": Asking(stage, "sk-two").usage(*turns, **options),
    }


def far_back(stage: Stage) -> Any:
    """25 blocks come between two turns; then the same with a marker among them."""
    told: dict[str, Any] = {}
    for name, middle in (("unmarked", {}), ("marked", MARK)):
        asking, start = Asking(stage), text(name[0] * 1500)
        first = asking.usage([{**start, **MARK}])
        between = [text(f"b{i}", **(middle if i == 12 else {})) for i in range(25)]
        told[name] = [first, asking.usage([start, *between, text("last", **MARK)])]
    return told


def what_is_refused(stage: Stage) -> Any:
    asking, long = Asking(stage), letters(1500)
    five = [text(f"{i}{long}", **MARK) for i in range(5)]
    thinking = [{"type": "thinking", "thinking": "hm", "signature": "s", **MARK}, text("ok")]
    return {
        "five markers": refused(lambda: asking.usage(five)),
        "5m before 1h": refused(lambda: asking.usage([text(long, **MARK), text("b", **HOUR)])),
        "on thinking": refused(lambda: asking.usage("a", thinking, "b")),
        "on no text": refused(lambda: asking.usage([text("", **MARK)])),
        "below the minimum": asking.usage([text("short", **MARK)]),
        "unknown model": refused(lambda: asking.usage("a", model="none")),
        "unknown key": refused(lambda: Asking(stage, "sk-none").usage("a")),
        "too long": refused(lambda: asking.usage(letters(20_000))),
    }


def prewarmed(stage: Stage) -> Any:
    asking, system = Asking(stage), [text("s" * 1100, **MARK)]
    warm = asking.sdk.messages.create(**asked("a", system=system, max_tokens=0))
    return {
        "warm": dumped(warm),
        "next": asking.usage("Another", system=system),
        "streamed": refused(
            lambda: list(asking.sdk.messages.create(**asked("a", max_tokens=0, stream=True)))
        ),
    }


def by_the_clock(stage: Stage) -> Any:
    """For five minutes and for an hour: read at four fifths of it, at nine fifths, and at three."""
    told = []
    for marker, fifth in ((MARK, 60.0), (HOUR, 720.0)):
        asking, block = Asking(stage), text(letters(1500) + str(fifth), **marker)
        usages = [asking.usage([block])]
        for fifths in (4, 4.9, 6):
            stage.wait(fifths * fifth)
            usages.append(asking.usage([block]))
        told.append(usages)
    return told


def two_lives(stage: Stage) -> Any:
    blocks = [text(letters(1500), **HOUR), text("b" * 300, **MARK), text("end")]
    return [Asking(stage).usage(blocks), Asking(stage).usage(blocks)]


def streamed(stage: Stage) -> Any:
    """A text, and two calls, collected by the SDK."""
    asking, system = Asking(stage), [text("s" * 1100, **MARK)]
    first = asking.usage("Hi", system=system)
    whole = asking.usage("Hi", system=system)
    with asking.sdk.messages.stream(**asked("Hi", system=system)) as stream:
        said, message = "".join(stream.text_stream), dumped(stream.get_final_message())
    stage.say(CALLS)
    options: Any = {"tools": [WEATHER], "max_tokens": 400}
    with asking.sdk.messages.stream(**asked("Cold?", **options)) as stream:
        kinds = [event.type for event in stream]
        called = stream.get_final_message()
    calls: Any = [block for block in called.content if block.type == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": call.id, "content": "-3"} for call in calls]
    stage.say("Yes.")
    content = [dumped(block) for block in called.content]
    after = asking.sdk.messages.create(**asked("Cold?", content, results, **options))
    return {
        "usages": [first, whole, message["usage"]],
        "said": said,
        "kinds": kinds,
        "calls": [[call.name, call.input] for call in calls],
        "text": content[0]["text"],
        "why": called.stop_reason,
        "after": [dumped(block)["text"] for block in after.content],
    }


def newer_fields(stage: Stage) -> Any:
    """The automatic marker, and why a prompt missed; both through `extra_body`, as an old release must."""
    asking = Asking(stage)
    automatic = {"cache_control": {"type": "ephemeral"}}
    told: dict[str, Any] = {
        "automatic": [
            asking.usage(letters(1500), extra_body=automatic),
            asking.usage(letters(1500), "ok", "More", extra_body=automatic),
        ]
    }

    def diagnosed(system: str, previous: str | None) -> Any:
        options: Any = {"system": [text(system, **MARK)]}
        body = {"diagnostics": {"previous_message_id": previous}}
        return dumped(asking.sdk.messages.create(**asked("Hi", **options), extra_body=body))

    first = diagnosed("t" * 1100, None)
    told["missed"] = diagnosed("u" + "t" * 1099, first["id"]).get("diagnostics")
    return told


def formed(stage: Stage) -> Any:
    """An answer of a form, parsed by the SDK; the older release has that among its betas."""
    asking = Asking(stage)
    stage.say('{"name":"Oslo","people":700000}')
    plain: Any = asking.sdk.messages
    messages: Any = plain if hasattr(plain, "parse") else asking.sdk.beta.messages
    parsed = messages.parse(**asked("Which?", max_tokens=100), output_format=City)
    return dumped(parsed.parsed_output)


def run_by_the_sdk(stage: Stage) -> Any:
    """The SDK calls a tool and sends its result back by itself, streamed or not."""
    asking, cities = Asking(stage), []

    @anthropic.beta_tool
    def weather(city: str) -> str:
        """The weather of a city."""
        stage.say("Cold.")
        cities.append(city)
        return "-3"

    texts = []
    for streamed in (False, True):
        stage.say(CALLS)
        options: Any = asked("Cold?", max_tokens=400, tools=[weather], stream=streamed)
        runner: Any = asking.sdk.beta.messages.tool_runner(**options)
        messages = [each.get_final_message() if streamed else each for each in runner]
        texts.append([dumped(message.content[0])["text"] for message in messages])
    return {"cities": cities, "texts": texts}


def others(stage: Stage) -> Any:
    asking = Asking(stage)
    beta = asking.sdk.beta.messages.create(**asked("Hi"), betas=["context-1m-2025-08-07"])
    options: Any = {"model": "toy", "messages": asked("Hi")["messages"]}
    return {
        "models": [model.id for model in asking.sdk.models.list()],
        "beta": dumped(beta.content[0])["text"],
        "counted": asking.sdk.messages.count_tokens(**options).input_tokens,
        "usage": dumped(asking.sdk.messages.create(**asked("Hi")).usage),
    }


if __name__ == "__main__":
    play(
        anthropic.__version__,
        turns_of_an_agent,
        far_back,
        what_is_refused,
        prewarmed,
        by_the_clock,
        two_lives,
        streamed,
        newer_fields,
        formed,
        run_by_the_sdk,
        others,
    )
