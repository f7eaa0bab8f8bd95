"""The body of `POST /v1/cache/pins`: a prompt, or the messages that a conversation begins with."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from sapwood.chat.body import Body, Text, read_body, shown
from sapwood.chat.messages import Conversation
from sapwood.chat.openai import LONGEST, Prompt, parse_conversation, parse_prompt
from sapwood.chat.unsupported import refuse_misspelt
from sapwood.errors import RequestError
from sapwood.types import Scope

_ID = re.compile(r"[\w.:-]{1,64}", re.ASCII)
_OF_MESSAGES = ("messages", "add_generation_prompt", "continue_final_message", "chat_template_kwargs")


@dataclass(frozen=True, slots=True)
class PinCall:
    """What to pin. `id` is None where the server is to choose; `field` is the one that gave the prompt."""

    id: str | None
    model: str | None
    scope: Scope
    field: Literal["prompt", "messages"]
    prompt: Prompt | Conversation
    add_special_tokens: bool


class _PinBody(Body):
    id: Text | None = None
    model: Text | None = None
    prompt: Any = None
    messages: Any = None
    cache_salt: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: Any = None


def parse_pin(fields: Mapping[str, Any], *, vocab_size: int) -> PinCall:
    """Raises RequestError that names the offending field.

    The assistant's turn is not opened unless asked for: whatever comes after the pinned messages may follow.
    """
    body = read_body(_PinBody, fields, LONGEST)
    refuse_misspelt(sorted(body.model_extra or {}), _PinBody.model_fields)
    if body.id is not None and not _ID.fullmatch(body.id):
        raise RequestError(
            f"'id' is {shown(body.id)}; it must have 1 to 64 letters, digits or any of . _ : -", param="id"
        )
    if (body.prompt is None) == (body.messages is None):
        raise RequestError(
            "either 'prompt' or 'messages' is required, and not both",
            param="prompt",
            code="missing_required_parameter" if body.prompt is None else "invalid_value",
        )
    if body.prompt is not None:
        prompt: Prompt | Conversation = parse_prompt(body.prompt, "prompt", vocab_size)
    else:
        conversation = {name: fields.get(name) for name in _OF_MESSAGES}
        conversation["add_generation_prompt"] = bool(body.add_generation_prompt)
        prompt = parse_conversation(conversation)
    return PinCall(
        body.id,
        body.model,
        Scope(salt=body.cache_salt or ""),
        "messages" if body.prompt is None else "prompt",
        prompt,
        body.add_special_tokens is not False,
    )
