"""Tools of a responses body: flat where the chat's are nested. Tools of other kinds than functions are left out."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sapwood.chat.body import object_at
from sapwood.chat.openai_render import Json
from sapwood.chat.openai_tools import MAX_DEPTH, Tools, parse_tools
from sapwood.chat.template_kwargs import check_json
from sapwood.errors import RequestError

_KIND = re.compile(r"\w{1,64}", re.ASCII)


@dataclass(frozen=True, slots=True)
class ResponseTools:
    """Attributes:
    tools: the functions, and how they may be called.
    listed: the functions, as the body has them.
    skipped: kinds of the tools left out, which only the provider itself could run.
    """

    tools: Tools
    listed: tuple[Json, ...] = ()
    skipped: tuple[str, ...] = ()


def parse_response_tools(tools: list[Any] | None, choice: object, parallel: bool | None) -> ResponseTools:
    """`tools`, `tool_choice` and `parallel_tool_calls`. Raises RequestError that names the offending field."""
    functions, skipped = [], []
    for i, tool in enumerate(tools or ()):
        kind = object_at(tool, f"tools[{i}]").get("type", "function")
        if kind == "function":
            check_json(tool, f"tools[{i}]", MAX_DEPTH)
            functions.append((i, tool))
        else:
            skipped.append(kind if isinstance(kind, str) and _KIND.fullmatch(kind) else "unknown")
    nested = [{"type": "function", "function": _without_type(tool)} for _, tool in functions]
    try:
        parsed = parse_tools(nested, _nested_choice(choice), parallel)
    except RequestError as error:
        raise _flat(error, [i for i, _ in functions]) from None
    return ResponseTools(parsed, tuple(tool for _, tool in functions), tuple(dict.fromkeys(skipped)))


def _nested_choice(choice: object) -> object:
    match choice:
        case {"type": "function", "name": name}:
            return {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "tools": list(tools), **rest}:
            allowed = [
                {"type": "function", "function": _without_type(tool)}
                for tool in tools
                if isinstance(tool, dict) and tool.get("type", "function") == "function"
            ]
            mode = rest.get("mode", "auto")
            if not allowed and mode == "auto":  # All of them are of kinds that are left out.
                return "none"
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
    return choice


def _without_type(tool: Mapping[str, Any]) -> Json:
    return {name: value for name, value in tool.items() if name != "type"}


def _flat(error: RequestError, places: list[int]) -> RequestError:
    """The error, with the body's own paths instead of the chat's."""

    def own(text: str) -> str:
        text = re.sub(r"tools\[(\d+)\](?=\.function)", lambda found: f"tools[{places[int(found[1])]}]", text)
        return text.replace(".function", "").replace("tool_choice.allowed_tools", "tool_choice")

    param = None if error.param is None else own(error.param)
    return RequestError(own(error.message), param=param, code=error.code, hint=error.hint)
