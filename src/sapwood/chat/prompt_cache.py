"""OpenAI's prompt-cache fields of a body → what they ask for, with a breakpoint's place in the conversation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sapwood.chat.body import Body, Text, read_body, shown
from sapwood.errors import RequestError

Mode = Literal["implicit", "explicit"]
_POINT = "prompt_cache_breakpoint"


@dataclass(frozen=True, slots=True)
class Breakpoint:
    """After part `part` of message `message`; `ttl` as it was written, None for the call's own."""

    message: int
    part: int
    ttl: str | None


@dataclass(frozen=True, slots=True)
class PromptCache:
    """Attributes:
    key: calls with unequal keys share nothing.
    retention: how long a prefix is kept, in one spelling; None for the usual.
    mode: who sets boundaries; None where the call knows of none, so that caching is automatic.
    ttl: of the boundaries that name none; None for the usual.
    """

    key: str | None = None
    retention: Literal["24h", "in_memory"] | None = None
    mode: Mode | None = None
    ttl: str | None = None
    breakpoints: tuple[Breakpoint, ...] = ()


class _Options(Body):
    mode: Mode | None = None
    ttl: Text | None = None


class _Cached(Body):
    prompt_cache_key: Text | None = None
    # Older clients write it with a hyphen.
    prompt_cache_retention: Literal["24h", "in_memory", "in-memory"] | None = None
    prompt_cache_options: _Options | None = None


def parse_prompt_cache(fields: Mapping[str, Any], points: Sequence[Breakpoint] | None = None) -> PromptCache:
    """The fields of a body. `points` are its breakpoints; None for those of its `messages`, which are checked already.

    Raises RequestError that names the offending field.
    """
    names = _Cached.model_fields
    body = read_body(_Cached, {name: fields[name] for name in names if name in fields}, {})
    options = body.prompt_cache_options
    if points is None:
        points = _breakpoints(fields.get("messages") or ())
    mode: Mode | None = "implicit" if options is not None or points else None
    return PromptCache(
        key=body.prompt_cache_key,
        retention="in_memory" if body.prompt_cache_retention == "in-memory" else body.prompt_cache_retention,
        mode=mode if options is None or options.mode is None else options.mode,
        ttl=None if options is None else options.ttl,
        breakpoints=tuple(points),
    )


def _breakpoints(messages: Sequence[Mapping[str, Any]]) -> list[Breakpoint]:
    found = []
    for i, message in enumerate(messages):
        content = message.get("content")
        for j, part in enumerate(content if isinstance(content, list) else ()):
            if part.get(_POINT) is None:
                continue
            path = f"messages[{i}].content[{j}].{_POINT}"
            if message["role"] == "assistant":
                raise RequestError(f"{path!r} is on an answer; only input can have one", param=path)
            found.append(Breakpoint(i, j, breakpoint_ttl(part[_POINT], path)))
    return found


def breakpoint_ttl(value: object, path: str) -> str | None:
    """What a breakpoint at `path` asks for; None for the call's own. Raises RequestError for what is none."""
    if not isinstance(value, dict) or value.get("mode") != "explicit":
        raise RequestError(
            f'{path!r} is {shown(value)}; it must be an object with "mode": "explicit"', param=path
        )
    ttl = value.get("ttl")
    if ttl is not None and not isinstance(ttl, str):
        raise RequestError(f"'{path}.ttl' is {shown(ttl)}; it must be a string", param=f"{path}.ttl")
    return ttl
