"""A JSON schema whose objects hold what they list and nothing else, as constrained decoding commonly takes them.

JSON Schema lets an object have more than its `properties` unless it says otherwise. A model that is held to such
a schema often goes on inventing fields until its tokens run out, and then the text is no JSON at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

_MAPS = ("properties", "$defs", "definitions")
_LISTS = ("anyOf", "oneOf", "allOf", "prefixItems")
_ONE = ("items", "additionalProperties")
_COMBINING = ("allOf", "anyOf", "oneOf", "$ref", "if", "not", "dependentSchemas", "patternProperties")
"""Beside `properties` these may list, or count on, more of them."""


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A copy of `schema` in which each object that lists `properties` has no others.

    `additionalProperties` stands as it is where it is given. A schema that puts one object together of several
    is left as it is, for what one part does not list another may.
    """
    whole = dict(schema)
    found: list[dict[str, Any]] = []
    waiting = [whole]
    while waiting:
        each = waiting.pop()
        if _combines(each):
            return dict(schema)
        if "properties" in each and "additionalProperties" not in each and _can_be_closed(each):
            found.append(each)
        waiting += _copied_inside(each)
    for each in found:
        each["additionalProperties"] = False
    return whole


def _combines(schema: Mapping[str, Any]) -> bool:
    parts = schema.get("allOf")
    if isinstance(parts, list) and len(parts) > 1:
        return True
    return "properties" in schema and any(name in schema for name in _COMBINING)


def _can_be_closed(schema: Mapping[str, Any]) -> bool:
    """Whether something is left that fits: it must have what it needs."""
    properties, required, least = (schema.get(n) for n in ("properties", "required", "minProperties"))
    if not isinstance(properties, dict) or not isinstance(required, list | None):
        return False
    few = not isinstance(least, int) or least <= len(properties)
    return few and all(isinstance(name, str) and name in properties for name in required or ())


def _copied_inside(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Copies of the schemas inside, which take the place of the originals in `schema`."""
    for name in _MAPS:
        if isinstance(schema.get(name), dict):
            schema[name] = {key: _copy(value) for key, value in schema[name].items()}
            yield from _objects(schema[name].values())
    for name in _LISTS:
        if isinstance(schema.get(name), list):
            schema[name] = [_copy(value) for value in schema[name]]
            yield from _objects(schema[name])
    for name in _ONE:
        if isinstance(schema.get(name), dict):
            schema[name] = dict(schema[name])
            yield schema[name]


def _copy(value: object) -> object:
    return dict(value) if isinstance(value, dict) else value


def _objects(values: Any) -> Iterator[dict[str, Any]]:
    return (value for value in values if isinstance(value, dict))
