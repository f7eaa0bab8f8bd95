"""Scenes of Google's SDK, for every release."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pydantic
from google import genai
from google.genai import errors, types, version

from clients.stage import Stage, letters, play

MANUAL = "The pump is blue. " * 80
"""More tokens than the least that is cached: each byte is one."""
WEATHER = {
    "name": "weather",
    "description": "d" * 100,
    "parameters": {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]},
}
TOOLS: Any = [{"function_declarations": [WEATHER]}]
CALLS = (
    'Let me look.\n<tool_call>\n{"name": "weather", "arguments": {"city": "Oslo"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "weather", "arguments": {"city": "Malmö"}}\n</tool_call>'
)


class City(pydantic.BaseModel):
    """What an answer must be."""

    name: str
    people: int


class Asking:
    """A client; its calls end in what may be written as JSON."""

    def __init__(self, stage: Stage, key: str = "sk-one") -> None:
        self.sdk = genai.Client(
            api_key=key, http_options=types.HttpOptions(base_url=stage.url, timeout=60_000)
        )

    def create(self, **config: Any) -> Any:
        wanted: Any = {"contents": MANUAL, "ttl": "600s", **config}
        return dumped(self.sdk.caches.create(model="toy", config=wanted))

    def ask(self, contents: Any, **config: Any) -> Any:
        wanted: Any = {"max_output_tokens": 4, **config}
        return dumped(self.sdk.models.generate_content(model="toy", contents=contents, config=wanted))

    def usage(self, contents: Any, **config: Any) -> Any:
        return self.ask(contents, **config)["usage_metadata"]


def dumped(model: Any) -> Any:
    return model.model_dump(mode="json", exclude_none=True)


def refused(call: Any, *args: Any, **named: Any) -> Any:
    try:
        call(*args, **named)
    except errors.ClientError as error:
        return [error.code, error.status, error.message]
    return None


def an_object(stage: Stage) -> Any:
    """Made, got, its expiry set in both ways, used, deleted."""
    asking = Asking(stage)
    caches = asking.sdk.caches
    made = asking.create(display_name="manual", system_instruction="Be brief.")
    name = made["name"]
    told: dict[str, Any] = {"made": made, "got": dumped(caches.get(name=name))}
    stage.wait(100)
    told["ttl"] = dumped(caches.update(name=name, config={"ttl": "1000.5s"}))
    until = datetime.fromisoformat(told["ttl"]["expire_time"]).replace(microsecond=0).astimezone(UTC)
    told["until"] = until.isoformat()
    told["expire_time"] = dumped(caches.update(name=name, config={"expire_time": until}))
    told["used"] = asking.usage("What colour?", cached_content=name)
    told["again"] = asking.usage("What shape?", cached_content=name)
    told["beside it"] = refused(asking.ask, "What?", cached_content=name, system_instruction="Be long.")
    told["with tools"] = refused(asking.ask, "What?", cached_content=name, tools=TOOLS)
    told["by another"] = refused(Asking(stage, "sk-two").ask, "What?", cached_content=name)
    caches.delete(name=name)
    told["gone"] = [refused(caches.get, name=name), refused(asking.ask, "What?", cached_content=name)]
    return told


def a_list_in_pages(stage: Stage) -> Any:
    asking, another = Asking(stage), Asking(stage, "sk-two")
    made = [asking.create(display_name=str(i))["name"] for i in range(3)]
    pager = asking.sdk.caches.list(config={"page_size": 2})
    return {
        "made": made,
        "page": [each.name for each in pager.page],
        "all": [each.name for each in pager],
        "of another": [each.name for each in another.sdk.caches.list()],
    }


def by_the_clock(stage: Stage) -> Any:
    asking = Asking(stage)
    made = asking.create()
    stage.wait(590)
    used = asking.usage("What colour?", cached_content=made["name"])
    stage.wait(11)
    return {
        "size": made["usage_metadata"]["total_token_count"],
        "used": used,
        "got": refused(asking.sdk.caches.get, name=made["name"]),
        "asked": refused(asking.ask, "What?", cached_content=made["name"]),
        "small": refused(asking.create, contents="tiny"),
    }


def unasked(stage: Stage) -> Any:
    """Repeated without any object; by another tenant too."""
    asking, text = Asking(stage), letters(1500)
    return [
        asking.usage(text),
        asking.usage(text),
        Asking(stage, "sk-two").usage(text),
        asking.usage("short"),
    ]


def streamed(stage: Stage) -> Any:
    """A text by an object, then two calls whose results go back; a chat of two turns; two candidates."""
    asking = Asking(stage)
    name = asking.create()["name"]
    whole = asking.ask("What colour?", cached_content=name)
    config: Any = {"max_output_tokens": 4, "cached_content": name}
    parts = list(
        asking.sdk.models.generate_content_stream(model="toy", contents="What colour?", config=config)
    )
    stage.say(CALLS)
    tools: Any = {
        "tools": TOOLS,
        "max_output_tokens": 400,
        "automatic_function_calling": {"disable": True},
    }
    called = list(asking.sdk.models.generate_content_stream(model="toy", contents="Cold?", config=tools))
    calls = [call for part in called for call in part.function_calls or ()]
    stage.say("Yes.")
    history: Any = [
        types.UserContent("Cold?"),
        types.ModelContent([types.Part(function_call=call) for call in calls]),
        types.UserContent(
            [types.Part.from_function_response(name=str(c.name), response={"result": -3}) for c in calls]
        ),
    ]
    after = asking.sdk.models.generate_content(model="toy", contents=history, config=tools)
    two = asking.ask("Hi", candidate_count=2, max_output_tokens=10)
    return {
        "whole": whole["usage_metadata"],
        "last": dumped(parts[-1])["usage_metadata"],
        "text": "".join(part.text or "" for part in parts),
        "calls": [[call.name, call.args] for call in calls],
        "after": after.text,
        "candidates": [[each["index"], each["content"]["parts"]] for each in two["candidates"]],
    }


def formed(stage: Stage) -> Any:
    """An answer of a form, parsed by the SDK."""
    asking = Asking(stage)
    stage.say('{"name":"Oslo","people":700000}')
    config: Any = {"response_mime_type": "application/json", "response_schema": City}
    answer = asking.sdk.models.generate_content(model="toy", contents="Which?", config=config)
    return [type(answer.parsed).__name__, answer.parsed and dumped(answer.parsed)]


def run_by_the_sdk(stage: Stage) -> Any:
    """The SDK calls a function and sends its result back by itself."""
    asking, cities = Asking(stage), []

    def weather(city: str) -> str:
        """The weather of a city."""
        stage.say("Cold.")
        cities.append(city)
        return "-3"

    weather.__annotations__ = {"city": str, "return": str}  # Version 1 takes no names of types.
    stage.say(CALLS)
    config: Any = {"tools": [weather]}
    answer = asking.sdk.models.generate_content(model="toy", contents="Cold?", config=config)
    return {"cities": cities, "text": answer.text}


def a_chat(stage: Stage) -> Any:
    """The SDK keeps the turns; what the second streams goes back in pieces, as the SDK has kept them."""
    asking = Asking(stage)
    chat = asking.sdk.chats.create(model="toy", config={"max_output_tokens": 4})
    first = chat.send_message(letters(1500))
    parts = list(chat.send_message_stream("And?"))
    pieces = len(chat.get_history())
    last = chat.send_message("Then?")
    return {
        "usages": [dumped(each)["usage_metadata"] for each in (first, parts[-1], last)],
        "texts": [first.text, "".join(part.text or "" for part in parts), last.text],
        "pieces": pieces,
    }


def others(stage: Stage) -> Any:
    asking = Asking(stage)
    return {
        "models": [model.name for model in asking.sdk.models.list()],
        "counted": asking.sdk.models.count_tokens(model="toy", contents="Hi").total_tokens,
        "usage": asking.usage("Hi"),
        "unknown model": refused(asking.sdk.models.get, model="none"),
        "unknown key": refused(Asking(stage, "sk-none").ask, "Hi"),
        "too long": refused(asking.ask, letters(20_000)),
    }


if __name__ == "__main__":
    play(
        version.__version__,
        an_object,
        a_list_in_pages,
        by_the_clock,
        unasked,
        streamed,
        formed,
        run_by_the_sdk,
        a_chat,
        others,
    )
