"""Tool calls in a JSON text that is complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn


@dataclass(frozen=True, slots=True)
class FoundCall:
    """A call in an answer. `arguments` is JSON text, an object."""

    name: str
    arguments: str


def calls_in(text: str, names: frozenset[str]) -> tuple[FoundCall, ...] | None:
    """The calls in a JSON text: an object, or a list of some. None if it is anything else."""
    try:
        value = json.loads(text, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None
    entries = value if isinstance(value, list) else [value]
    calls = [_call(entry, names) for entry in entries]
    found = tuple(call for call in calls if call is not None)
    return found if found and len(found) == len(calls) else None


def _call(entry: Any, names: frozenset[str]) -> FoundCall | None:
    if not isinstance(entry, dict):
        return None
    function = entry.get("function")
    if isinstance(function, dict):
        entry = function
    elif isinstance(function, str):
        entry = {"name": function, **entry}
    name, arguments = entry.get("name"), entry.get("arguments", entry.get("parameters", {}))
    if isinstance(arguments, str):
        arguments = _object(arguments)
    if not isinstance(name, str) or name not in names or not isinstance(arguments, dict):
        return None
    written = _written(arguments)
    return None if written is None else FoundCall(name, written)


def _written(arguments: Mapping[str, Any]) -> str | None:
    try:
        text = json.dumps(arguments, ensure_ascii=False, allow_nan=False)
        text.encode()
    except ValueError:  # A number so large that it is none, or half of a surrogate pair.
        return None
    return text


def _object(text: str) -> Any:
    try:
        return json.loads(text, strict=False, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")
