"""Tools in Gemini-shaped bodies: what may be called, and whether it must be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from sapwood.chat.body import shown, text_at
from sapwood.chat.gemini_fields import fields_of, listed
from sapwood.chat.gemini_schema import json_schema
from sapwood.chat.gemini_turns import fields_as_sent, function_name
from sapwood.chat.openai_tools import MAX_TOOLS, Tools
from sapwood.chat.tools import ToolUse
from sapwood.errors import RequestError

_CHOICE = "toolConfig.functionCallingConfig"


def parse_tools(tools: object, config: object) -> Tools:
    """`tools` and `toolConfig`. Raises RequestError that names the offending field."""
    defined: dict[str, Mapping[str, Any]] = {}
    for function in _declarations(tools):
        name = function["name"]
        if name in defined:
            raise RequestError(f"'tools' declares the function {name!r} more than once", param="tools")
        if len(defined) == MAX_TOOLS:
            raise RequestError(f"'tools' declares more than {MAX_TOOLS} functions", param="tools")
        defined[name] = {"type": "function", "function": function}
    return Tools(tuple(defined.values()), _use(frozenset(defined), config))


def _declarations(tools: object) -> Iterator[Mapping[str, Any]]:
    for i, tool in enumerate(listed(tools, "tools", MAX_TOOLS)):
        fields = fields_of(tool, f"tools[{i}]")
        for name in fields:
            if name != "functionDeclarations":
                raise RequestError(
                    f"'tools[{i}].{name[:80]}' is not supported here; only functionDeclarations are",
                    param=f"tools[{i}].{name[:80]}",
                    code="unsupported_parameter",
                )
        path = f"tools[{i}].functionDeclarations"
        for k, declared in enumerate(listed(fields.get("functionDeclarations"), path, MAX_TOOLS)):
            yield _function(declared, f"{path}[{k}]")


def _function(declared: object, path: str) -> Mapping[str, Any]:
    fields = fields_of(declared, path)
    function: dict[str, Any] = {"name": function_name(fields.get("name"), f"{path}.name")}
    if "description" in fields:
        function["description"] = text_at(fields["description"], f"{path}.description")
    if "parameters" in fields and "parametersJsonSchema" in fields:
        raise RequestError(
            f"'{path}.parameters' and '{path}.parametersJsonSchema' exclude each other",
            param=f"{path}.parametersJsonSchema",
        )
    if "parametersJsonSchema" in fields:
        function["parameters"] = fields_as_sent(
            fields["parametersJsonSchema"], f"{path}.parametersJsonSchema"
        )
    elif "parameters" in fields:
        function["parameters"] = json_schema(fields["parameters"], f"{path}.parameters")
    else:
        function["parameters"] = {"type": "object", "properties": {}}
    return function


def _use(names: frozenset[str], config: object) -> ToolUse | None:
    fields = {} if config is None else fields_of(config, "toolConfig")
    choice = fields_of(fields.get("functionCallingConfig", {}), _CHOICE)
    mode = choice.get("mode", "AUTO")
    allowed = _allowed(choice.get("allowedFunctionNames"), names)
    kind = mode.upper() if isinstance(mode, str) else None
    if kind not in ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED"):
        raise RequestError(
            f"'{_CHOICE}.mode' is {shown(mode)}; it must be AUTO, ANY, NONE or VALIDATED",
            param=f"{_CHOICE}.mode",
        )
    if allowed and kind not in ("ANY", "VALIDATED"):
        raise RequestError(
            f"'{_CHOICE}.allowedFunctionNames' needs 'mode' to be ANY or VALIDATED",
            param=f"{_CHOICE}.allowedFunctionNames",
        )
    if kind == "ANY" and not names:
        raise RequestError(f"'{_CHOICE}.mode' is ANY; it needs 'tools'", param=f"{_CHOICE}.mode")
    if kind == "NONE" or not names:
        return None
    return ToolUse(allowed or names, forced=kind == "ANY")


def _allowed(value: object, names: frozenset[str]) -> frozenset[str]:
    path = f"{_CHOICE}.allowedFunctionNames"
    if isinstance(value, dict):
        raise RequestError(f"{path!r} is {shown(value)}; it must be a list", param=path)
    chosen = listed(value, path, MAX_TOOLS)
    for name in chosen:
        if not isinstance(name, str) or name not in names:
            raise RequestError(f"{path!r} has {shown(name)}; it must be one of 'tools'", param=path)
    return frozenset(chosen)
