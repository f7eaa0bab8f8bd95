"""Between an HTTP body and token ids, both ways. No I/O."""

from __future__ import annotations

from sapwood.chat.body import clean_text, read_json, shown
from sapwood.chat.messages import Conversation, Message
from sapwood.chat.openai import (
    Options,
    check_tokens,
    parse_chat,
    parse_completion,
    parse_conversation,
    parse_prompt,
)
from sapwood.chat.openai_render import (
    ChatAnswer,
    ChatStream,
    CompletionAnswer,
    CompletionShape,
    CompletionStream,
    Echo,
    Head,
    Json,
    Render,
    usage_json,
)
from sapwood.chat.sse import DONE, KEEP_ALIVE, SseReader, encode_event

__all__ = [
    "DONE",
    "KEEP_ALIVE",
    "ChatAnswer",
    "ChatStream",
    "CompletionAnswer",
    "CompletionShape",
    "CompletionStream",
    "Conversation",
    "Echo",
    "Head",
    "Json",
    "Message",
    "Options",
    "Render",
    "SseReader",
    "check_tokens",
    "clean_text",
    "encode_event",
    "parse_chat",
    "parse_completion",
    "parse_conversation",
    "parse_prompt",
    "read_json",
    "shown",
    "usage_json",
]
