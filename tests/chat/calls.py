"""What a parser of tool calls gives, put together."""

from __future__ import annotations

from collections.abc import Iterable

from sapwood.chat.found_calls import FoundCall
from sapwood.chat.tool_calls import ArgumentsText, CallHead, CallTail, Piece, ToolCallParser
from sapwood.chat.tools import ToolStyle


def collected(pieces: Iterable[Piece]) -> list[str | FoundCall]:
    """Neighbouring texts joined, and each call in one."""
    found: list[str | FoundCall] = []
    name, arguments = "", ""
    for piece in pieces:
        match piece:
            case str():
                if found and isinstance(found[-1], str):
                    found[-1] += piece
                else:
                    found.append(piece)
            case CallHead():
                name, arguments = piece.name, ""
            case ArgumentsText():
                arguments += piece.text
            case CallTail():
                found.append(FoundCall(name, arguments))
    return found


def read_calls(style: ToolStyle, names: frozenset[str], *deltas: str) -> list[str | FoundCall]:
    parser = ToolCallParser(style, names)
    return collected([piece for delta in deltas for piece in parser.feed(delta)] + parser.end())
