"""Objects in Gemini-shaped bodies: names in camelCase or snake_case, and one entry where a list may be."""

from __future__ import annotations

from typing import Any

from pydantic import ConfigDict
from pydantic.alias_generators import to_camel

from sapwood.chat.body import Body, object_at, shown
from sapwood.errors import RequestError


class ProtoBody(Body):
    """A body whose fields have both spellings; errors name them in the client's."""

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)


def fields_of(value: object, path: str) -> dict[str, Any]:
    """The fields that an object has, null aside, by their camelCase names. Raises RequestError."""
    fields = object_at(value, path)
    return {
        to_camel(name) if "_" in name else name: each for name, each in fields.items() if each is not None
    }


def listed(value: object, path: str, most: int) -> list[Any]:
    """A list; one object alone is a list of one, and nothing is an empty one. Raises RequestError."""
    if value is None or isinstance(value, dict):
        return [] if value is None else [value]
    if not isinstance(value, list):
        raise RequestError(f"{path!r} is {shown(value)}; it must be a list", param=path)
    if len(value) > most:
        raise RequestError(f"{path!r} has {len(value)} entries; at most {most} are taken", param=path)
    return value
