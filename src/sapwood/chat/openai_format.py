"""What form an answer must have, in OpenAI-shaped bodies: `response_format`, and vLLM's names for the same."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from sapwood.chat.body import at, clean_text, shown
from sapwood.chat.closed_schema import closed
from sapwood.chat.template_kwargs import check_json
from sapwood.errors import RequestError
from sapwood.types import Constraint

MAX_TEXT = 2**19
"""Characters of a schema or grammar."""
MAX_CHOICES = 4096
MAX_DEPTH = 64
MAX_PROPERTIES = 2000
"""Of one object in a schema: what they cost grows with the square."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ANY_OBJECT = json.dumps({"type": "object"})


def parse_format(fields: Mapping[str, Any]) -> Constraint | None:
    """The constraint that `fields` of a body ask for, if one does. Raises RequestError naming the field."""
    return only_one(
        parse(value, name) for name, parse in _FIELDS.items() if (value := fields.get(name)) is not None
    )


def any_object(path: str) -> Constraint:
    """Any JSON object, as the field at `path` asks for."""
    return Constraint("json_schema", _ANY_OBJECT, path)


def _response_format(value: object, path: str) -> Constraint | None:
    kind = value.get("type") if isinstance(value, dict) else value
    match value:
        case {"type": "text"}:
            return None
        case {"type": "json_object"}:
            return any_object(path)
        case {"type": "json_schema", "json_schema": dict(named)}:
            return _named_schema(named, f"{path}.json_schema")
        case {"type": "json_schema"}:
            raise RequestError(f"'{path}.json_schema' is required", param=f"{path}.json_schema")
    raise RequestError(
        f"'{path}.type' is {shown(kind)}; it must be 'text', 'json_object' or 'json_schema'",
        param=f"{path}.type",
    )


def _named_schema(named: Mapping[str, Any], path: str) -> Constraint:
    name, strict = named.get("name"), named.get("strict")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(
            f"'{path}.name' is {shown(name)}; it must be 1 to 64 of letters, digits, '_' and '-'",
            param=f"{path}.name",
        )
    if not isinstance(strict, bool | None):
        raise RequestError(
            f"'{path}.strict' is {shown(strict)}; it must be true or false", param=f"{path}.strict"
        )
    return parse_schema(named.get("schema") or {}, f"{path}.schema", strict=bool(strict))


def parse_schema(value: object, path: str, *, strict: bool = False) -> Constraint:
    """A JSON schema, or the text of one. Raises RequestError.

    Keywords that cannot be enforced are refused if `strict`, else left out. Objects are `closed`.
    """
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            raise RequestError(f"{path!r} is not valid JSON", param=path) from None
    if not isinstance(value, dict):
        raise RequestError(f"{path!r} is {shown(value)}; it must be an object", param=path)
    check_json(value, path, MAX_DEPTH)
    check_objects(value, path)
    given = closed(value) if strict else {**closed(value), "x-guidance": {"lenient": True}}
    return Constraint("json_schema", _bounded(json.dumps(given), path), path)


def check_objects(schema: Mapping[str, Any], path: str) -> None:
    """Raises RequestError for an object of more entries than any schema needs."""
    waiting: list[object] = [schema]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if len(value) > MAX_PROPERTIES:
                raise RequestError(
                    f"{path!r} has an object of {len(value)} entries; at most {MAX_PROPERTIES} are taken",
                    param=path,
                    code="invalid_schema",
                )
            waiting += value.values()
        elif isinstance(value, list):
            waiting += value


def parse_regex(value: object, path: str) -> Constraint | None:
    """A regular expression of the whole answer; an empty one is none. Raises RequestError."""
    return Constraint("regex", text, path) if (text := _text(value, path)) else None


def parse_grammar(value: object, path: str) -> Constraint | None:
    """A grammar in Lark, or GBNF as llama.cpp and SGLang write it; an empty one is none. Raises RequestError."""
    return Constraint("grammar", text, path) if (text := _text(value, path)) else None


def only_one(found: Iterable[Constraint | None]) -> Constraint | None:
    """The one constraint of `found`, if there is one. Raises RequestError for two."""
    asked = [each for each in found if each is not None]
    if len(asked) > 1:
        raise RequestError(
            f"{asked[0].param!r} and {asked[1].param!r} exclude each other", param=asked[1].param
        )
    return asked[0] if asked else None


def _choice(value: object, path: str) -> Constraint | None:
    if not isinstance(value, list) or len(value) > MAX_CHOICES:
        raise RequestError(f"{path!r} must be a list of at most {MAX_CHOICES} strings", param=path)
    texts = [_text(each, f"{path}[{i}]") for i, each in enumerate(value)]
    if not texts:
        return None
    return Constraint("grammar", _bounded("start: " + " | ".join(map(json.dumps, texts)), path), path)


def _json_object(value: object, path: str) -> Constraint | None:
    if not isinstance(value, bool):
        raise RequestError(f"{path!r} is {shown(value)}; it must be true or false", param=path)
    return any_object(path) if value else None


def _structured(value: object, path: str) -> Constraint | None:
    """vLLM's `structured_outputs`: one of several."""
    if not isinstance(value, dict):
        raise RequestError(f"{path!r} is {shown(value)}; it must be an object", param=path)
    given = {name: each for name, each in value.items() if each is not None and each not in (False, [], "")}
    if len(given) > 1:
        raise RequestError(f"{path!r} has {len(given)} entries; only one can be obeyed", param=path)
    for name, each in given.items():
        if name not in _STRUCTURED:
            raise RequestError(
                f"'{path}.{name[:80]}' is not supported; {', '.join(_STRUCTURED)} are",
                param=f"{path}.{name[:80]}",
                code="unsupported_parameter",
            )
        return _STRUCTURED[name](each, f"{path}.{name}")
    return None


_Parse = Callable[[object, str], Constraint | None]

_STRUCTURED: Mapping[str, _Parse] = MappingProxyType(
    {
        "json": parse_schema,
        "regex": parse_regex,
        "choice": _choice,
        "grammar": parse_grammar,
        "json_object": _json_object,
    }
)
_FIELDS: Mapping[str, _Parse] = MappingProxyType(
    {
        "response_format": _response_format,
        "structured_outputs": _structured,
        "guided_json": parse_schema,
        "guided_regex": parse_regex,
        "guided_choice": _choice,
        "guided_grammar": parse_grammar,
    }
)


def _text(value: object, path: str) -> str:
    if not isinstance(value, str):
        raise RequestError(f"{path!r} is {shown(value)}; it must be a string", param=path)
    return _bounded(at(path, clean_text, value), path)


def _bounded(text: str, path: str) -> str:
    if len(text) > MAX_TEXT:
        raise RequestError(f"{path!r} has {len(text)} characters; at most {MAX_TEXT} are taken", param=path)
    return text
