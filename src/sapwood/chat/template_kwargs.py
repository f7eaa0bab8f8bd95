"""A request's own variables for the chat template: `chat_template_kwargs`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from sapwood.chat.body import at, clean_text, shown
from sapwood.chat.template import RESERVED_NAMES
from sapwood.errors import RequestError

MAX_KWARGS_DEPTH = 32


def check_template_kwargs(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """`given` if a template may have them. Raises RequestError for a name that is taken or a value that is no text."""
    for name, value in given.items():
        path = f"chat_template_kwargs.{name[:64]}"
        if not (name.isascii() and name.isidentifier()) or name.startswith("_"):
            raise RequestError(
                f"'chat_template_kwargs' has the key {shown(name)}; it must be the name of a variable",
                param="chat_template_kwargs",
            )
        if name in RESERVED_NAMES:
            raise RequestError(f"{path!r} cannot be given: the name is the server's own", param=path)
        check_json(value, path, MAX_KWARGS_DEPTH)
    return given


def check_json(value: object, path: str, depth: int) -> None:
    """Raises RequestError for texts that are none, for nesting that would exhaust the stack, and for numbers that
    JSON cannot write again: it spells infinity as 1e999."""
    layer: list[object] = [value]
    for _ in range(depth):
        for each in layer:
            if isinstance(each, str):
                at(path, clean_text, each)
            elif isinstance(each, float) and not math.isfinite(each):
                raise RequestError(f"{path!r} holds a number that is not finite", param=path)
        layer = [inner for each in layer for inner in _inside(each)]
        if not layer:
            return
    raise RequestError(f"{path!r} is nested more than {depth} deep", param=path)


def _inside(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return [*value.keys(), *value.values()]
    return value if isinstance(value, list) else ()
