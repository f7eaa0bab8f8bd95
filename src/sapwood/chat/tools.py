"""Tools in a prompt: the format in which a model calls them, and words for templates that know of none.

Formats are told by what a chat template writes around a call. Where it never looks at `tools`, they are put
into the system message, and calls and results into the turns' own texts, in the tags that Hermes and Qwen
models are trained on (NousResearch, "Hermes Function Calling"): small models of other makes often know them
too, and a call in them is told from text without doubt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

ToolStyle = Literal["hermes", "llama3", "mistral", "json"]
"""`<tool_call>{…}</tool_call>`; `{"name": …, "parameters": …}`; `[TOOL_CALLS][…]`; `{"name": …, "arguments": …}`."""

PYTHON_TAG = "<|python_tag|>"
TOOL_CALLS = "[TOOL_CALLS]"
ARGS = "[ARGS]"
OPEN, CLOSE = "<tool_call>", "</tool_call>"
MARKERS = (OPEN, CLOSE, TOOL_CALLS, ARGS, PYTHON_TAG)
"""Control tokens, in some vocabularies, that open or divide calls."""


@dataclass(frozen=True, slots=True)
class ToolUse:
    """How an answer may call tools.

    Attributes:
        names: those that it may call.
        forced: it must call one, and says nothing else.
        parallel: it may call several.
    """

    names: frozenset[str]
    forced: bool = False
    parallel: bool = True


def style_of(source: str, *, knows_tools: bool) -> ToolStyle:
    """The format in which a model with this chat template calls tools."""
    if TOOL_CALLS in source:
        return "mistral"
    if OPEN in source or not knows_tools:
        return "hermes"
    return "llama3" if PYTHON_TAG in source or '"parameters"' in source else "json"


def without_tools(
    messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any]]:
    """The conversation for a template that knows of no tools, calls or results: all of them as text."""
    told: list[dict[str, Any]] = []
    after_result = False
    for message in messages:
        is_result = message["role"] == "tool"
        turn = _as_text(message)
        if is_result and after_result:
            # Some templates refuse two turns of one role in a row.
            told[-1]["content"] += "\n" + turn["content"]
        else:
            told.append(turn)
        after_result = is_result
    if not tools:
        return told
    if told[0]["role"] == "system":
        told[0]["content"] = _joined(told[0]["content"], _instructions(tools))
        return told
    return [{"role": "system", "content": _instructions(tools)}, *told]


def _as_text(message: Mapping[str, Any]) -> dict[str, Any]:
    if message["role"] == "tool":
        return {"role": "user", "content": f"<tool_response>\n{message['content']}\n</tool_response>"}
    calls = message.get("tool_calls", ())
    turn = {key: value for key, value in message.items() if key != "tool_calls"}
    written = "\n".join(f"{OPEN}\n{_json(_call(call['function']))}\n{CLOSE}" for call in calls)
    turn["content"] = _joined(turn["content"], written, "\n")
    return turn


def _call(function: Mapping[str, Any]) -> dict[str, Any]:
    return {"name": function["name"], "arguments": function["arguments"]}


def _instructions(tools: Sequence[Mapping[str, Any]]) -> str:
    listed = "\n".join(_json(tool) for tool in tools)
    return (
        "You have tools. These are their signatures, one a line:\n"
        f"<tools>\n{listed}\n</tools>\n\n"
        "To call a tool, write its name and its arguments as one JSON object between these tags:\n"
        f'{OPEN}\n{{"name": "the tool\'s name", "arguments": {{"argument": "value"}}}}\n{CLOSE}\n'
        "The result will be given to you. Where no tool is of use, answer in plain words."
    )


def _joined(first: str, second: str, between: str = "\n\n") -> str:
    return between.join(text for text in (first, second) if text)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
