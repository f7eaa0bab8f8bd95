"""Gemini's schemas (types in capitals, `nullable`, counts as strings) → JSON Schema."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sapwood.chat.body import object_at, shown
from sapwood.chat.gemini_fields import fields_of, listed
from sapwood.chat.openai_tools import MAX_DEPTH
from sapwood.chat.template_kwargs import check_json
from sapwood.errors import RequestError

_COUNTS = frozenset({"maxItems", "minItems", "maxLength", "minLength", "maxProperties", "minProperties"})
_LEFT_OUT = frozenset({"nullable", "propertyOrdering", "example"})
_OWN_FORMATS = ("enum", "int32", "int64", "float", "double")
_NAMES = {"defs": "$defs", "ref": "$ref"}.items()
_MAPS = frozenset({"properties", "$defs"})
_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_ONE = frozenset({"items", "additionalProperties"})
MOST_ENTRIES = 4096


@dataclass(frozen=True, slots=True)
class _Todo:
    """A schema still to be written into `made`."""

    given: object
    made: dict[str, Any]
    path: str


def json_schema(schema: object, path: str) -> dict[str, Any]:
    """`schema` as JSON Schema; one that is such already stays as it is. Raises RequestError."""
    fields_of(schema, path)
    check_json(schema, path, MAX_DEPTH)
    whole: dict[str, Any] = {}
    waiting = [_Todo(schema, whole, path)]
    while waiting:
        waiting += _write(waiting.pop())
    return whole


def _write(todo: _Todo) -> Iterator[_Todo]:
    """Writes one schema, and gives those that are inside it."""
    fields = fields_of(todo.given, todo.path)
    for given_name, value in fields.items():
        name = dict(_NAMES).get(given_name, given_name)
        inner = f"{todo.path}.{given_name}"
        if name == "type":
            _write_type(value, todo.made, inner)
        elif name in _MAPS:
            yield from _inside_map(value, name, fields, todo.made, inner)
        elif name in _LISTS:
            todo.made[name] = []
            for i, each in enumerate(listed(value, inner, MOST_ENTRIES)):
                todo.made[name].append({})
                yield _Todo(each, todo.made[name][-1], f"{inner}[{i}]")
        elif name in _ONE and isinstance(value, dict):
            todo.made[name] = {}
            yield _Todo(value, todo.made[name], inner)
        elif name in _COUNTS:
            todo.made[name] = _count(value, inner)
        elif name not in _LEFT_OUT and (name != "format" or value not in _OWN_FORMATS):
            todo.made[name] = value
    if fields.get("nullable") is True:
        _allow_null(todo.made)


def _inside_map(
    value: object, name: str, fields: Mapping[str, Any], made: dict[str, Any], path: str
) -> Iterator[_Todo]:
    value = object_at(value, path)
    order = fields.get("propertyOrdering") if name == "properties" else None
    first = (
        [each for each in order if isinstance(each, str) and each in value] if isinstance(order, list) else []
    )
    made[name] = {each: {} for each in (*first, *value)}
    for each, schema in made[name].items():
        yield _Todo(value[each], schema, f"{path}.{each[:64]}")


def _write_type(value: object, made: dict[str, Any], path: str) -> None:
    kinds = value if isinstance(value, list) else [value]
    if not kinds or not all(isinstance(kind, str) for kind in kinds):
        raise RequestError(f"{path!r} is {shown(value)}; it must be the name of a type", param=path)
    lowered = [str(kind).lower() for kind in kinds if kind != "TYPE_UNSPECIFIED"]
    if lowered:
        made["type"] = lowered if isinstance(value, list) else lowered[0]


def _count(value: object, path: str) -> int:
    """A count, which protocol buffers write as a string."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 16:
        value = int(value)
    if type(value) is not int or value < 0:
        raise RequestError(f"{path!r} is {shown(value)}; it must be a whole number, 0 or more", param=path)
    return value


def _allow_null(made: dict[str, Any]) -> None:
    kind = made.get("type")
    if isinstance(kind, str):
        made["type"] = [kind, "null"]
    elif "anyOf" in made:
        made["anyOf"].append({"type": "null"})
    if isinstance(made.get("enum"), list):
        made["enum"] = [*made["enum"], None]
