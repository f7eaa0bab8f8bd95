"""The text of a request, near enough to what a chat template makes of it.

Tools come first, then the system's text, then each message under a line with its role, then the line that the answer
follows. So a turn's prompt begins with the prompt and the answer before it, as with most templates; the words of a
template itself, some tokens a message, are not there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

FLATTENED = (
    "messages are put together as tools, system, then each under a line with its role: nearly a template"
)
PROMPTS = ("messages", "prompt", "input")
"""Where a body may have what it asks."""


def is_prompt(value: Any) -> bool:
    """A text, or a list of messages; what is a number under such a name counts tokens."""
    return isinstance(value, str | list) and bool(value)


def text_of(body: Mapping[str, Any]) -> str:
    """Of a body of OpenAI's completions, chat completions or responses, or of Anthropic's messages."""
    if isinstance(prompt := body.get("prompt"), str) and prompt:
        return prompt
    tools = body.get("tools") or body.get("functions")
    parts = [f"tools\n{_dumped(tools)}\n"] if tools else []
    for name in ("system", "instructions"):
        if body.get(name):
            parts.append(f"system\n{content_text(body[name])}\n")
    messages = next((body[name] for name in PROMPTS if is_prompt(body.get(name))), ())
    if isinstance(messages, str):
        messages = ({"role": "user", "content": messages},)
    parts += [_message_text(message) for message in messages]
    return "".join(parts) + "assistant\n"


def answer_text(answer: Any) -> str | None:
    """What a model said, in an answer of any of these shapes; None if it is not there."""
    if isinstance(answer, str):
        return answer
    if not isinstance(answer, Mapping):
        return None
    choices = answer.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        first = choices[0]
        return first["text"] if isinstance(first.get("text"), str) else _said(first.get("message"))
    return _said(answer)


def content_text(content: Any) -> str:
    """Of a text, or of parts: texts as they are, all else as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, Mapping):
        return content["text"] if isinstance(content.get("text"), str) else _dumped(content)
    return "".join(map(content_text, content)) if isinstance(content, list) else _dumped(content)


def _said(message: Any) -> str | None:
    """A message without its role, as it will stand in the prompt after it."""
    if not isinstance(message, Mapping) or not {"content", "tool_calls"} & set(message):
        return None
    calls = message.get("tool_calls")
    return content_text(message.get("content")) + (_dumped(calls) if calls else "")


def _message_text(message: Any) -> str:
    if not isinstance(message, Mapping):
        return f"{_dumped(message)}\n"
    said = _said(message)
    return f"{message.get('role', message.get('type', ''))}\n{_dumped(message) if said is None else said}\n"


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
