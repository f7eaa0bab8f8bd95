"""The grammar of an answer that must call a tool, in its model's own format."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sapwood.chat.constrain import inline_json
from sapwood.chat.openai_format import check_objects
from sapwood.chat.tools import CLOSE, OPEN, TOOL_CALLS, ToolStyle, ToolUse
from sapwood.types import Constraint

MAX_CALLS = 16
"""Calls in one answer. Without a bound, small models call until they are stopped."""


def constrained(
    wanted: Constraint | None,
    tools: Sequence[Mapping[str, Any]],
    use: ToolUse | None,
    style: ToolStyle,
    markers: Mapping[int, str],
) -> Constraint | None:
    """What an answer must be that is to have the form `wanted`, and may or must call tools.

    A regular expression or grammar of the client's own is not joined with calls: it says all.
    """
    if use is None or (not use.forced and (wanted is None or wanted.kind != "json_schema")):
        return wanted
    return forced_calls(style, tools, use, markers, None if use.forced else wanted)


def forced_calls(
    style: ToolStyle,
    tools: Sequence[Mapping[str, Any]],
    use: ToolUse,
    markers: Mapping[int, str],
    otherwise: Constraint | None = None,
) -> Constraint:
    """A call of one of the tools that may be called, or several if `use.parallel`; or `otherwise`, of JSON.

    `markers` are the vocabulary's control tokens that open calls: text cannot spell those.
    Raises RequestError for parameters that are too many.
    """
    functions = [tool["function"] for tool in tools if tool["function"]["name"] in use.names]
    most = MAX_CALLS - 1 if use.parallel else 0
    rules = [f"calls: {_calls(style, most, markers)}"]
    if otherwise is None:
        rules.append("start: calls")
    else:
        schema = json.loads(otherwise.text)
        lenient = schema.pop("x-guidance", None) is not None
        rules += ["start: answer | calls", "answer: " + inline_json(schema, lenient=lenient)]
    rules.append("call: " + " | ".join(f"call{i}" for i in range(len(functions))))
    key = "parameters" if style == "llama3" else "arguments"
    for i, function in enumerate(functions):
        head = f'{{"name": {json.dumps(function["name"])}, "{key}": '
        rules.append(f'call{i}: {json.dumps(head)} arguments{i} "}}"')
        schema = {"type": "object", **(function.get("parameters") or {})}
        check_objects(schema, "tools")
        rules.append(f"arguments{i}: " + inline_json(schema, lenient=function.get("strict") is not True))
    return Constraint("grammar", "\n".join(rules) + "\n", "tools" if otherwise is None else otherwise.param)


def _calls(style: ToolStyle, more: int, markers: Mapping[int, str]) -> str:
    """The calls of an answer: one, and at most `more` after it."""

    def written(text: str) -> str:
        return next((f"<[{token}]>" for token, marker in markers.items() if marker == text), json.dumps(text))

    match style:
        case "hermes":
            one = f'{written(OPEN)} "\\n" call "\\n" {written(CLOSE)}'
            return f'{one} ("\\n" {one}){{0,{more}}}' if more else one
        case "mistral":
            return f'{written(TOOL_CALLS)} "[" call{_more(", ", more)} "]"'
        case "llama3":
            return f"call{_more('; ', more)}"
        case "json":
            return f'call | "[" call{_more(", ", more)} "]"' if more else "call"


def _more(between: str, count: int) -> str:
    return f" ({json.dumps(between)} call){{0,{count}}}" if count else ""
