"""From a JSON body to checked fields: strict types, texts that can be encoded, errors that name the field."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from sapwood.chat.json_shape import check_shape
from sapwood.errors import RequestError


def clean_text(text: str) -> str:
    """`text` itself. Raises ValueError if it holds NUL or half of a surrogate pair: neither is text."""
    if "\0" in text:
        raise ValueError(f"holds a NUL character at {text.index(chr(0))}; remove it")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"holds half of a surrogate pair at {error.start}; it must be valid Unicode"
        ) from None
    return text


Text = Annotated[str, AfterValidator(clean_text)]
Integer = Annotated[int, Field(ge=-(2**63), lt=2**63)]
Number = Annotated[float, Field(allow_inf_nan=False)]


MAX_FIELDS = 200
"""Fields of a body."""


class Body(BaseModel):
    """Base of request bodies. Nothing is coerced: `true` is not 1. `model_extra` holds the unknown fields."""

    model_config = ConfigDict(strict=True, extra="allow", frozen=True, protected_namespaces=())


BodyT = TypeVar("BodyT", bound=BaseModel)


def read_json(data: bytes) -> Mapping[str, Any]:
    """The JSON object in `data`. Raises RequestError when it is not UTF-8, not JSON or not an object."""
    check_shape(data)
    try:
        value = json.loads(data.decode(), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise RequestError(f"the body is not UTF-8 (byte {error.start})", code="invalid_json") from None
    except RecursionError:
        raise RequestError("the body is nested too deeply", code="invalid_json") from None
    except json.JSONDecodeError as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from None
    except _NoConstantError as error:
        raise RequestError(
            f"the body is not valid JSON: {error} is not a number", code="invalid_json"
        ) from None
    except ValueError:  # Python converts no longer ones.
        raise RequestError("the body holds a number of thousands of digits", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestError("the body must be a JSON object", code="invalid_json")
    return value


def read_body(model: type[BodyT], fields: Mapping[str, Any], longest: Mapping[str, int]) -> BodyT:
    """`fields` as `model`. Raises RequestError that names the first wrong field.

    `longest` limits lists and objects before they are looked into: every wrong entry costs an error.
    """
    _check_lengths(fields, longest)
    try:
        return model.model_validate(fields)
    except ValidationError as error:
        raise _explain(error) from None


def _check_lengths(fields: Mapping[str, Any], longest: Mapping[str, int]) -> None:
    if len(fields) > MAX_FIELDS:
        raise RequestError(f"the body has {len(fields)} fields; at most {MAX_FIELDS} are taken")
    for name, value in fields.items():
        if "\0" in name or not _is_unicode(name):
            raise RequestError(f"the body has a field of the name {json.dumps(name)[:80]}; that is no text")
        if isinstance(value, list | dict) and len(value) > longest.get(name, len(value)):
            raise RequestError(
                f"{name!r} has {len(value)} entries; at most {longest[name]} are taken", param=name
            )


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def at(path: str, check: Callable[[str], str], text: str) -> str:
    """`check(text)`, its ValueError turned into a RequestError for the field at `path`."""
    try:
        return check(text)
    except ValueError as error:
        raise RequestError(f"{path!r} {error}", param=path) from None


def object_at(value: object, path: str) -> dict[str, Any]:
    """The object at `path`. Raises RequestError for anything else."""
    if not isinstance(value, dict):
        raise RequestError(f"{path!r} is {shown(value)}; it must be an object", param=path)
    return value


def text_at(value: object, path: str) -> str:
    """The text at `path`. Raises RequestError for anything else."""
    if not isinstance(value, str):
        raise RequestError(f"{path!r} is {shown(value)}; it must be a string", param=path)
    return at(path, clean_text, value)


def text_in(fields: Mapping[str, Any], name: str, path: str) -> str:
    """The text that is field `name` of the object at `path`. Raises RequestError where there is none."""
    inner = f"{path}.{name}"
    if fields.get(name) is None:
        raise RequestError(f"{inner!r} is required", param=inner, code="missing_required_parameter")
    return text_at(fields[name], inner)


def shown(value: object) -> str:
    """`value` in a few characters, for a message."""
    if isinstance(value, dict | list) and value:
        return f"a list of {len(value)} items" if isinstance(value, list) else "an object"
    text = "null" if value is None else json.dumps(value, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


_EXPECTED: Mapping[str, str] = MappingProxyType(
    {
        "bool_type": "true or false",
        "dict_type": "an object",
        "finite_number": "a finite number",
        "float_type": "a number",
        "greater_than": "above {gt}",
        "greater_than_equal": "at least {ge}",
        "int_from_float": "a whole number",
        "int_type": "a whole number",
        "less_than": "below {lt}",
        "less_than_equal": "at most {le}",
        "list_type": "a list",
        "literal_error": "one of {expected}",
        "model_attributes_type": "an object",
        "model_type": "an object",
        "string_too_long": "at most {max_length} characters long",
        "string_too_short": "at least {min_length} characters long",
        "string_type": "a string",
        "too_long": "a list of {max_length} or fewer",
        "too_short": "a list of {min_length} or more",
    }
)
"""pydantic's kind of fault → what was expected, in our words."""


class _NoConstantError(ValueError):
    """JSON has no NaN and no Infinity."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NoConstantError(name)


def _explain(error: ValidationError) -> RequestError:
    first = error.errors(include_url=False)[0]
    path = _path(first["loc"])
    kind, value = first["type"], shown(first.get("input"))
    if kind in ("too_short", "too_long") and isinstance(first.get("input"), str):
        kind = f"string_{kind}"  # pydantic's word for a length checked after one of our own checks
    if kind == "missing":
        return RequestError(f"{path!r} is required", param=path, code="missing_required_parameter")
    if kind == "string_unicode":
        return RequestError(f"{path!r} holds half of a surrogate pair; it must be valid Unicode", param=path)
    if kind == "value_error":
        return RequestError(f"{path!r} {first['ctx']['error']}", param=path)
    bounds = {name: _plain(bound) for name, bound in first.get("ctx", {}).items()}
    expected = _EXPECTED[kind].format(**bounds) if kind in _EXPECTED else "of another kind"
    return RequestError(f"{path!r} is {value}; it must be {expected}", param=path)


def _plain(bound: object) -> object:
    return int(bound) if isinstance(bound, float) and bound.is_integer() else bound


def _path(location: tuple[int | str, ...]) -> str:
    path = ""
    for step in location:
        path += f"[{step}]" if isinstance(step, int) else f".{step}" if path else step
    return path


def one_or_list(value: Any) -> Any:
    """Before a list of texts is validated: one text alone is a list of one."""
    return [value] if isinstance(value, str) else value
