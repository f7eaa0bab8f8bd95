"""The bodies that create a cached object and change how long it lives."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field

from sapwood.chat.body import Text, read_body, shown
from sapwood.chat.gemini import GeminiPrompt, model_name
from sapwood.chat.gemini_fields import ProtoBody
from sapwood.chat.gemini_tools import parse_tools
from sapwood.chat.gemini_turns import parse_contents, parse_system
from sapwood.errors import RequestError
from sapwood.types import LONGEST_SECONDS

_TTL = re.compile(r"([0-9]{1,12}(?:\.[0-9]{0,9})?)s", re.ASCII)


_LAST_MOMENT = 250_000_000_000.0
"""Before the year 9999 ends, wherever."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """Until when an object lives: `seconds` from now on, or up to a `moment` (seconds since 1970); one is None."""

    seconds: float | None = None
    moment: float | None = None


@dataclass(frozen=True, slots=True)
class CreateCall:
    """`lifetime` is None where the client leaves it to the server."""

    model: str
    prompt: GeminiPrompt
    display_name: str
    lifetime: Lifetime | None


class _LifeBody(ProtoBody):
    ttl: Text | None = None
    expire_time: Text | None = None


class _CreateBody(_LifeBody):
    model: Text
    contents: Any = None
    system_instruction: Any = None
    tools: Any = None
    tool_config: Any = None
    display_name: Annotated[Text, Field(max_length=128)] | None = None


class _UpdateBody(_LifeBody):
    contents: Any = None
    system_instruction: Any = None
    tools: Any = None
    tool_config: Any = None
    display_name: Any = None


def parse_create(fields: Mapping[str, Any]) -> CreateCall:
    """The body of `POST cachedContents`. Raises RequestError that names the offending field."""
    body = read_body(_CreateBody, fields, {})
    turns = parse_contents(body.contents, letter="o")
    prompt = GeminiPrompt(
        parse_system(body.system_instruction), turns, parse_tools(body.tools, body.tool_config)
    )
    if turns and turns[-1].role == "assistant":
        raise RequestError("'contents' must not end with the model's turn", param="contents")
    if not (turns or prompt.system or prompt.tools.defined):
        raise RequestError("there is nothing to cache: 'contents' is empty", param="contents")
    return CreateCall(model_name(body.model), prompt, body.display_name or "", _lifetime(body))


def parse_update(fields: Mapping[str, Any]) -> Lifetime:
    """The body of `PATCH cachedContents/…`. Raises RequestError that names the offending field."""
    body = read_body(_UpdateBody, fields, {})
    for name in ("contents", "system_instruction", "tools", "tool_config", "display_name"):
        if getattr(body, name) is not None:
            raise RequestError(f"{name!r} cannot be changed; only ttl and expire_time can", param=name)
    lifetime = _lifetime(body)
    if lifetime is None:
        raise RequestError(
            "'ttl' or 'expireTime' is required", param="ttl", code="missing_required_parameter"
        )
    return lifetime


def _lifetime(body: _LifeBody) -> Lifetime | None:
    if body.ttl is not None and body.expire_time is not None:
        raise RequestError("'ttl' and 'expireTime' exclude each other", param="expireTime")
    if body.ttl is not None:
        return Lifetime(seconds=_seconds(body.ttl))
    return None if body.expire_time is None else Lifetime(moment=_moment(body.expire_time))


def _seconds(ttl: str) -> float:
    found = _TTL.fullmatch(ttl)
    seconds = float(found[1]) if found else 0.0
    if not 0 < seconds <= LONGEST_SECONDS:
        raise RequestError(
            f"'ttl' is {shown(ttl)}; it must be seconds above 0 and at most {LONGEST_SECONDS:.0f}, such as '300s'",
            param="ttl",
        )
    return seconds


def _moment(text: str) -> float:
    """Seconds since 1970."""
    try:
        moment = datetime.fromisoformat(text)
        seconds = moment.timestamp()
        if moment.tzinfo is None or not 0 <= seconds < _LAST_MOMENT:
            raise ValueError
        return seconds
    except (ValueError, OverflowError):
        raise RequestError(
            f"'expireTime' is {shown(text)}; it must be a time since 1970 with its zone, such as"
            " '2030-01-31T12:00:00Z'",
            param="expireTime",
        ) from None
