"""Tools in OpenAI-shaped chat bodies: what may be called, whether it must be, and the calls made before."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sapwood.chat.body import at, clean_text, object_at, shown, text_in
from sapwood.chat.messages import ToolCall, parsed_object
from sapwood.chat.template_kwargs import check_json
from sapwood.chat.tools import ToolUse
from sapwood.errors import RequestError

MAX_TOOLS = 1024
MAX_CALLS = 1024
"""Calls in one message."""
MAX_DEPTH = 64
"""Of a tool's schema, and of the arguments of a call."""

_NAME = re.compile(r"[\w.-]{1,256}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Tools:
    """The tools of a call. `defined` is what the prompt shows; `use` is None if the answer may call none.

    With `tool_choice: "none"` the prompt still shows them, so that its prefix stays what it was.
    """

    defined: tuple[Mapping[str, Any], ...] = ()
    use: ToolUse | None = None


def parse_tools(tools: list[Any] | None, choice: object, parallel: bool | None) -> Tools:
    """`tools`, `tool_choice` and `parallel_tool_calls`. Raises RequestError that names the offending field."""
    defined = tuple(_tool(tool, f"tools[{i}]") for i, tool in enumerate(tools or ()))
    names = frozenset(tool["function"]["name"] for tool in defined)
    chosen = _chosen(choice, names)
    if chosen is None or not defined:
        if chosen is not None and chosen.forced:
            raise RequestError("'tool_choice' needs 'tools'", param="tool_choice")
        return Tools(defined)
    return Tools(defined, ToolUse(chosen.names, chosen.forced, chosen.parallel and parallel is not False))


def parse_tool_calls(calls: object, path: str) -> tuple[ToolCall, ...]:
    """`tool_calls` of an assistant's message. Raises RequestError."""
    if calls is None:
        return ()
    if not isinstance(calls, list):
        raise RequestError(f"{path!r} is {shown(calls)}; it must be a list", param=path)
    if len(calls) > MAX_CALLS:
        raise RequestError(f"{path!r} has {len(calls)} entries; at most {MAX_CALLS} are taken", param=path)
    return tuple(_made(call, f"{path}[{i}]") for i, call in enumerate(calls))


def _made(call: object, path: str) -> ToolCall:
    function = _function(call, path)
    arguments = function.get("arguments")
    inner = f"{path}.function.arguments"
    if not isinstance(arguments, str):
        raise RequestError(f"{inner!r} is {shown(arguments)}; it must be JSON in a string", param=inner)
    check_json(parsed_object(arguments), inner, MAX_DEPTH)
    return ToolCall(
        text_in(object_at(call, path), "id", path),
        _name(function, f"{path}.function"),
        at(inner, clean_text, arguments) or "{}",
    )


def _tool(tool: object, path: str) -> Mapping[str, Any]:
    function = _function(tool, path)
    _name(function, f"{path}.function")
    for name, kind, words in (("description", str, "a string"), ("parameters", dict, "an object")):
        value = function.get(name)
        if value is not None and not isinstance(value, kind):
            inner = f"{path}.function.{name}"
            raise RequestError(f"{inner!r} is {shown(value)}; it must be {words}", param=inner)
    check_json(tool, path, MAX_DEPTH)
    return object_at(tool, path)


def _chosen(choice: object, names: frozenset[str]) -> ToolUse | None:
    """The tools that may be called; None for no calls at all."""
    match choice:
        case "none":
            return None
        case None | "auto":
            return ToolUse(names)
        case "required":
            return ToolUse(names, forced=True)
        case {"type": "function", "function": {"name": str(name)}}:
            return ToolUse(_known([name], names, "tool_choice.function.name"), forced=True, parallel=False)
        case {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(tools)},
        }:
            path = "tool_choice.allowed_tools.tools"
            allowed = [_name(_function(each, f"{path}[{i}]"), path) for i, each in enumerate(tools)]
            return ToolUse(_known(allowed, names, path), forced=mode == "required")
    raise RequestError(
        f"'tool_choice' is {shown(choice)}; it must be 'none', 'auto', 'required' or name a function",
        param="tool_choice",
    )


def _known(chosen: list[str], names: frozenset[str], path: str) -> frozenset[str]:
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        what = shown(unknown[0]) if unknown else "empty"
        raise RequestError(f"{path!r} is {what}; it must be one of 'tools'", param=path)
    return frozenset(chosen)


def _function(value: object, path: str) -> Mapping[str, Any]:
    kind = object_at(value, path).get("type", "function")
    if kind != "function":
        raise RequestError(
            f"'{path}.type' is {shown(kind)}; only functions are supported",
            param=f"{path}.type",
            code="unsupported_parameter",
        )
    return object_at(object_at(value, path).get("function"), f"{path}.function")


def _name(function: Mapping[str, Any], path: str) -> str:
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"'{path}.name' is {shown(name)}; it must be letters, digits, '_', '-' and '.', 256 at most",
            param=f"{path}.name",
        )
    return name
