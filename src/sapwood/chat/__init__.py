"""Between an HTTP body and token ids, both ways. No I/O."""

from __future__ import annotations

from sapwood.chat.body import at, clean_text, read_json, shown
from sapwood.chat.constrain import Guides
from sapwood.chat.detok import Detokenizer
from sapwood.chat.encode import encode_continuation, encode_conversation, encode_prompt
from sapwood.chat.forced_calls import constrained, forced_calls
from sapwood.chat.messages import Conversation, Message
from sapwood.chat.openai import (
    CompletionCall,
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
from sapwood.chat.pin import PinCall, parse_pin
from sapwood.chat.places import Place, place_in_conversation, place_in_prompt
from sapwood.chat.sse import DONE, KEEP_ALIVE, SseReader, encode_event
from sapwood.chat.template import ChatTemplate
from sapwood.chat.tokenizer import Tokenizer, TokenizerFacts
from sapwood.chat.tool_answer import AnswerReader, NumberedCall, ToolReading
from sapwood.chat.tools import ToolUse

__all__ = [
    "DONE",
    "KEEP_ALIVE",
    "AnswerReader",
    "ChatAnswer",
    "ChatStream",
    "ChatTemplate",
    "CompletionAnswer",
    "CompletionCall",
    "CompletionShape",
    "CompletionStream",
    "Conversation",
    "Detokenizer",
    "Echo",
    "Guides",
    "Head",
    "Json",
    "Message",
    "NumberedCall",
    "Options",
    "PinCall",
    "Place",
    "Render",
    "SseReader",
    "Tokenizer",
    "TokenizerFacts",
    "ToolReading",
    "ToolUse",
    "at",
    "check_tokens",
    "clean_text",
    "constrained",
    "encode_continuation",
    "encode_conversation",
    "encode_event",
    "encode_prompt",
    "forced_calls",
    "parse_chat",
    "parse_completion",
    "parse_conversation",
    "parse_pin",
    "parse_prompt",
    "place_in_conversation",
    "place_in_prompt",
    "read_json",
    "shown",
    "usage_json",
]
