"""Items of a responses body: checked, put into the form in which the API lists them, and read as a conversation."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sapwood.chat.body import at, clean_text, object_at, shown, text_in
from sapwood.chat.draft import Draft
from sapwood.chat.messages import Message, Role, ToolCall, parsed_object
from sapwood.chat.openai_render import Json
from sapwood.chat.openai_tools import MAX_DEPTH
from sapwood.chat.prompt_cache import Breakpoint, breakpoint_ttl
from sapwood.chat.template_kwargs import check_json
from sapwood.errors import RequestError

MAX_ITEMS = 16_384
MAX_PARTS = 4096
"""Parts of one item's content."""

_POINT = "prompt_cache_breakpoint"
_PREFIXES: Mapping[str, str] = MappingProxyType(
    {"message": "msg", "function_call": "fc", "function_call_output": "fco", "reasoning": "rs"}
)
_SEAL = "sapwood1:"


@dataclass(frozen=True, slots=True)
class Turns:
    """What a list of items says. `breakpoints` have the places of `messages`."""

    messages: tuple[Message, ...]
    breakpoints: tuple[Breakpoint, ...]


def sealed(thought: str) -> str:
    """Reasoning for a client to carry: opaque to it, and not secret, for it has the text beside it anyway."""
    return _SEAL + base64.urlsafe_b64encode(thought.encode()).decode()


def parse_items(value: object, *, stem: str, taken: Iterable[str] = ()) -> tuple[Json, ...]:
    """`input` of a body, each item with an id of its own: one made of `stem` where it has none or one that is `taken`.

    Raises RequestError that names the offending field.
    """
    if isinstance(value, str):
        value = [{"role": "user", "content": at("input", clean_text, value)}]
    items = _list(value, "input", "items", MAX_ITEMS)
    ids = set(taken)
    listed = []
    for i, item in enumerate(items):
        path = f"input[{i}]"
        fields = object_at(item, path)
        checked = _checked(fields, path)
        id = fields.get("id")
        if not isinstance(id, str) or not 0 < len(id) <= 256 or id in ids:
            id = f"{_PREFIXES[checked['type']]}_{stem}_in{i}"
        ids.add(at(f"{path}.id", clean_text, id))
        listed.append({"id": id, **checked})
    return tuple(listed)


def turns_of(instructions: str | None, items: Sequence[Json]) -> Turns:
    """The conversation of checked items. What the assistant thought, said and called in a row is one turn."""
    built = _Builder()
    if instructions is not None:
        built.add(Draft("system", [instructions]))
    for item in items:
        match item["type"]:
            case "message":
                built.add_message(item["role"], item["content"])
            case "function_call":
                built.add_call(ToolCall(item["call_id"], item["name"], item["arguments"] or "{}"))
            case "function_call_output":
                built.add_result(item["call_id"], item["output"])
            case _:
                built.add_thought("".join(part["text"] for part in item.get("content") or ()))
    return Turns(tuple(draft.message() for draft in built.messages), tuple(built.breakpoints))


class _Builder:
    def __init__(self) -> None:
        self.messages: list[Draft] = []
        self.breakpoints: list[Breakpoint] = []

    def add(self, message: Draft) -> None:
        self.messages.append(message)

    def add_message(self, role: Role, content: Sequence[Json]) -> None:
        parts = [part["text"] for part in content]
        last = self.messages[-1] if self.messages else None
        if role == "assistant" and last is not None and last.role == "assistant" and not last.parts:
            last.parts = parts
            return
        self._note_breakpoints(content)
        self.add(Draft(role, parts))

    def add_call(self, call: ToolCall) -> None:
        self._assistant().calls.append(call)

    def add_result(self, call_id: str, output: str | Sequence[Json]) -> None:
        content = [{"text": output}] if isinstance(output, str) else output
        self._note_breakpoints(content)
        self.add(Draft("tool", [part["text"] for part in content], tool_call_id=call_id))

    def add_thought(self, text: str) -> None:
        if not text:
            return
        if self.messages and (self.messages[-1].parts or self.messages[-1].calls):
            self.add(Draft("assistant"))
        self._assistant().thoughts.append(text)

    def _assistant(self) -> Draft:
        if not self.messages or self.messages[-1].role != "assistant":
            self.add(Draft("assistant"))
        return self.messages[-1]

    def _note_breakpoints(self, content: Sequence[Json]) -> None:
        """Of the message that is added next."""
        index = len(self.messages)
        for part, fields in enumerate(content):
            if _POINT in fields:
                self.breakpoints.append(Breakpoint(index, part, fields[_POINT].get("ttl")))


def _checked(fields: Mapping[str, Any], path: str) -> Json:
    kind = fields.get("type", "message")
    match kind:
        case "message":
            return _message(fields, path)
        case "function_call":
            return _call(fields, path)
        case "function_call_output":
            return _result(fields, path)
        case "reasoning":
            return _reasoning(fields, path)
    raise RequestError(
        f"'{path}.type' is {shown(kind)}; only {', '.join(_PREFIXES)} are supported",
        param=f"{path}.type",
        code="unsupported_parameter",
    )


def _message(fields: Mapping[str, Any], path: str) -> Json:
    role = fields.get("role")
    if role not in ("system", "developer", "user", "assistant"):
        raise RequestError(
            f"'{path}.role' is {shown(role)}; it must be 'system', 'developer', 'user' or 'assistant'",
            param=f"{path}.role",
        )
    content = _parts(fields.get("content"), f"{path}.content", answer=role == "assistant")
    return {"type": "message", "role": role, "status": "completed", "content": content}


def _call(fields: Mapping[str, Any], path: str) -> Json:
    arguments = text_in(fields, "arguments", path)
    check_json(parsed_object(arguments), f"{path}.arguments", MAX_DEPTH)
    return {
        "type": "function_call",
        "call_id": text_in(fields, "call_id", path),
        "name": text_in(fields, "name", path),
        "arguments": arguments,
        "status": "completed",
    }


def _result(fields: Mapping[str, Any], path: str) -> Json:
    given, path_of = fields.get("output"), f"{path}.output"
    output = at(path_of, clean_text, given) if isinstance(given, str) else _parts(given, path_of)
    call_id = text_in(fields, "call_id", path)
    return {"type": "function_call_output", "call_id": call_id, "output": output, "status": "completed"}


def _reasoning(fields: Mapping[str, Any], path: str) -> Json:
    """What was thought: in plain words, or as this server sealed it. A summary is no part of the prompt."""
    content = fields.get("content")
    thought = "".join(_texts([] if content is None else content, f"{path}.content"))
    summary = fields.get("summary")
    summaries = _texts([] if summary is None else summary, f"{path}.summary")
    return {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": text} for text in summaries],
        "content": [
            {"type": "reasoning_text", "text": thought or _unsealed(fields.get("encrypted_content"))}
        ],
    }


def _unsealed(value: object) -> str:
    """Empty for what others have sealed."""
    if not isinstance(value, str) or not value.startswith(_SEAL):
        return ""
    try:
        return clean_text(base64.urlsafe_b64decode(value[len(_SEAL) :]).decode())
    except (binascii.Error, ValueError):
        return ""


def _parts(content: object, path: str, *, answer: bool = False) -> list[Json]:
    if isinstance(content, str):
        content = [{"type": "input_text", "text": at(path, clean_text, content)}]
    parts = _list(content, path, "text parts", MAX_PARTS)
    if not parts:
        raise RequestError(f"{path!r} is empty; it must hold at least one part", param=path)
    return [_part(object_at(part, f"{path}[{i}]"), f"{path}[{i}]", answer) for i, part in enumerate(parts)]


def _part(part: Mapping[str, Any], path: str, answer: bool) -> Json:
    match part.get("type"):
        case "input_text" | "output_text" | "text":
            text = text_in(part, "text", path)
        case "refusal":
            text = text_in(part, "refusal", path)
        case kind:
            raise RequestError(
                f"'{path}.type' is {shown(kind)}; only text is supported",
                param=f"{path}.type",
                code="unsupported_parameter",
            )
    point = part.get(_POINT)
    if answer:
        if point is not None:
            raise RequestError(f"'{path}.{_POINT}' is on an answer; only input can have one", param=path)
        return {"type": "output_text", "text": text, "annotations": []}
    if point is None:
        return {"type": "input_text", "text": text}
    ttl = breakpoint_ttl(point, f"{path}.{_POINT}")
    marker = {"mode": "explicit"} if ttl is None else {"mode": "explicit", "ttl": ttl}
    return {"type": "input_text", "text": text, _POINT: marker}


def _texts(parts: object, path: str) -> list[str]:
    listed = _list(parts, path, "text parts", MAX_PARTS)
    return [text_in(object_at(part, f"{path}[{i}]"), "text", f"{path}[{i}]") for i, part in enumerate(listed)]


def _list(value: object, path: str, of: str, most: int) -> list[Any]:
    if value is None:
        raise RequestError(f"{path!r} is required", param=path, code="missing_required_parameter")
    if not isinstance(value, list):
        raise RequestError(f"{path!r} is {shown(value)}; it must be a string or a list of {of}", param=path)
    if len(value) > most:
        raise RequestError(f"{path!r} has {len(value)} entries; at most {most} are taken", param=path)
    return value
