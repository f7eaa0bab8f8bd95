"""Contents of a Gemini-shaped body → the neutral messages, part by part."""

from __future__ import annotations

import json
import re
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import Any, Literal

from sapwood.chat.body import object_at, shown, text_at
from sapwood.chat.draft import Draft
from sapwood.chat.gemini_fields import fields_of, listed
from sapwood.chat.messages import Message, ToolCall
from sapwood.chat.openai_tools import MAX_DEPTH
from sapwood.chat.template_kwargs import check_json
from sapwood.errors import RequestError

MAX_CONTENTS = 16_384
MAX_PARTS = 4096

NAME = re.compile(r"[A-Za-z_][\w.:-]{0,127}", re.ASCII)
"""Of a function."""

_SERVED = ("text", "functionCall", "functionResponse")
_OTHER = (
    "inlineData",
    "fileData",
    "executableCode",
    "codeExecutionResult",
    "toolCall",
    "toolResponse",
    "videoMetadata",
)
"""Known kinds of parts that would change the answer, and are not served."""

_Turn = Literal["user", "assistant"]


def parse_system(value: object) -> tuple[Message, ...]:
    """`systemInstruction`: one message, or none. Raises RequestError that names the offending field."""
    if value is None:
        return ()
    path = "systemInstruction"
    parts = listed(fields_of(value, path).get("parts"), f"{path}.parts", MAX_PARTS)
    texts = tuple(_system_text(part, f"{path}.parts[{i}]") for i, part in enumerate(parts))
    return (Message("system", texts),) if texts else ()


def parse_contents(value: object, *, letter: str = "c") -> tuple[Message, ...]:
    """`contents`: the turns. `letter` begins the ids of calls that have none of their own.

    Raises RequestError that names the offending field.
    """
    builder = _Builder(letter)
    for i, content in enumerate(listed(value, "contents", MAX_CONTENTS)):
        builder.add(content, f"contents[{i}]")
    return tuple(draft.message() for draft in builder.messages)


class _Builder:
    """Turns of one role in a row become one message: many templates take no other order than by turns."""

    def __init__(self, letter: str) -> None:
        self.messages: list[Draft] = []
        self._letter = letter
        self._calls = 0
        self._waiting: defaultdict[str, deque[str]] = defaultdict(deque)
        """By name: ids of calls, the first first, some of which may have been answered by their ids."""
        self._answered: set[str] = set()

    def add(self, content: object, path: str) -> None:
        fields = fields_of(content, path)
        role = _role(fields.get("role"), f"{path}.role")
        parts = listed(fields.get("parts"), f"{path}.parts", MAX_PARTS)
        if not parts:
            raise RequestError(
                f"'{path}.parts' is empty; it must hold at least one part", param=f"{path}.parts"
            )
        for i, part in enumerate(parts):
            self._add_part(role, part, f"{path}.parts[{i}]")

    def _add_part(self, role: _Turn, value: object, path: str) -> None:
        part = fields_of(value, path)
        kind = _kind(part, path)
        if kind is None:
            return
        if kind == "text":
            self._add_text(role, part, path)
        elif (kind, role) == ("functionCall", "assistant"):
            self._add_call(fields_of(part[kind], f"{path}.{kind}"), f"{path}.{kind}")
        elif (kind, role) == ("functionResponse", "user"):
            self._add_response(fields_of(part[kind], f"{path}.{kind}"), f"{path}.{kind}")
        else:
            whose = "the model's" if kind == "functionCall" else "the user's"
            raise RequestError(f"'{path}.{kind}' is {whose} to send", param=f"{path}.{kind}")

    def _add_text(self, role: _Turn, part: Mapping[str, Any], path: str) -> None:
        text = text_at(part["text"], f"{path}.text")
        message = self._turn(role)
        thought = role == "assistant" and part.get("thought") is True
        (message.thoughts if thought else message.parts).append(text)

    def _add_call(self, call: Mapping[str, Any], path: str) -> None:
        arguments = fields_as_sent(call.get("args", {}), f"{path}.args")
        made = ToolCall(
            self._id(call, path),
            function_name(call.get("name"), f"{path}.name"),
            json.dumps(arguments, ensure_ascii=False),
        )
        self._turn("assistant").calls.append(made)
        self._waiting[made.name].append(made.id)

    def _add_response(self, response: Mapping[str, Any], path: str) -> None:
        name = function_name(response.get("name"), f"{path}.name")
        if response.get("parts"):
            raise _not_served(f"{path}.parts")
        said = fields_as_sent(response.get("response", {}), f"{path}.response")
        self.messages.append(
            Draft(
                "tool",
                [json.dumps(said, ensure_ascii=False)],
                name=name,
                tool_call_id=self._answers(response, name, path),
            )
        )

    def _answers(self, response: Mapping[str, Any], name: str, path: str) -> str:
        """The id of the call that is answered: its own, or that of the first of its name."""
        if response.get("id"):
            id = text_at(response["id"], f"{path}.id")
            self._answered.add(id)
            return id
        waiting = self._waiting[name]
        while waiting:
            if (id := waiting.popleft()) not in self._answered:
                return id
        return self._id({}, path)

    def _id(self, call: Mapping[str, Any], path: str) -> str:
        """Nine letters and digits, where none is given: some templates insist on it."""
        self._calls += 1
        return text_at(call["id"], f"{path}.id") if call.get("id") else f"{self._letter}{self._calls:08d}"

    def _turn(self, role: _Turn) -> Draft:
        """The message of `role` that is being written, which is the last.

        What came of the model in pieces, as a stream has them, goes back in pieces: nothing stands between them.
        """
        if not self.messages or self.messages[-1].role != role:
            self.messages.append(Draft(role, joined=role == "assistant"))
        return self.messages[-1]


def function_name(value: object, path: str) -> str:
    """Raises RequestError for what is no name of a function."""
    if not isinstance(value, str) or not NAME.fullmatch(value):
        raise RequestError(
            f"{path!r} is {shown(value)}; it must start with a letter or '_' and go on with letters, digits,"
            " '_', '.', ':' or '-', 128 at most",
            param=path,
        )
    return value


def fields_as_sent(value: object, path: str) -> Mapping[str, Any]:
    """An object of the client's own, which no name is changed in. Raises RequestError."""
    fields = object_at(value, path)
    check_json(fields, path, MAX_DEPTH)
    return fields


def _kind(part: Mapping[str, Any], path: str) -> str | None:
    """What a part is; None for one that only carries a signature."""
    for other in _OTHER:
        if other in part:
            raise _not_served(f"{path}.{other}")
    kinds = [kind for kind in _SERVED if kind in part]
    if not kinds and ("thoughtSignature" in part or "thought" in part):
        return None
    if len(kinds) != 1:
        said = " and ".join(kinds) or "none of them"
        raise RequestError(
            f"{path!r} has {said}; it must have one of {', '.join(_SERVED)}",
            param=path,
        )
    return kinds[0]


def _system_text(value: object, path: str) -> str:
    part = fields_of(value, path)
    if _kind(part, path) != "text":
        raise RequestError(f"{path!r} must hold text", param=path)
    return text_at(part["text"], f"{path}.text")


def _role(value: object, path: str) -> _Turn:
    match value:
        case None | "" | "user" | "function" | "tool":
            return "user"
        case "model":
            return "assistant"
    raise RequestError(f"{path!r} is {shown(value)}; it must be 'user' or 'model'", param=path)


def _not_served(path: str) -> RequestError:
    return RequestError(
        f"{path!r} is not supported here; only {', '.join(_SERVED)} are",
        param=path,
        code="unsupported_parameter",
    )
