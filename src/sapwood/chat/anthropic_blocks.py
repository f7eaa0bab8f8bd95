"""What the blocks of an Anthropic-shaped turn have in common, and those that hold a text of somebody else's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sapwood.chat.body import at, clean_text, object_at, shown, text_in
from sapwood.errors import RequestError

MAX_BLOCKS = 4096
"""Blocks of one turn."""

SOURCES = frozenset({"document", "search_result"})


def source_text(block: Mapping[str, Any], path: str) -> str:
    """A document or search result as the model reads it: a line for each thing said of it, then its text.

    Raises RequestError for documents that are not text, and where citations of it are asked for.
    """
    _refuse_citations(block.get("citations"), f"{path}.citations")
    if block["type"] == "search_result":
        names, texts = ("title", "source"), inner_texts(block.get("content"), f"{path}.content")
    else:
        names, texts = ("title", "context"), _document(object_at(block.get("source"), f"{path}.source"), path)
    said = [f"{name}: {text_in(block, name, path)}" for name in names if block.get(name) is not None]
    return "\n".join([*said, *texts])


def _document(source: Mapping[str, Any], path: str) -> tuple[str, ...]:
    match source.get("type"):
        case "text":
            return (text_in(source, "data", f"{path}.source"),)
        case "content":
            return inner_texts(source.get("content"), f"{path}.source.content")
        case _:
            raise RequestError(
                f"'{path}.source.type' is {shown(source.get('type'))}; only text and content are supported here",
                param=f"{path}.source.type",
                code="unsupported_parameter",
            )


def _refuse_citations(citations: object, path: str) -> None:
    if isinstance(citations, dict) and citations.get("enabled"):
        raise RequestError(
            f"'{path}.enabled' is true; answers have no citations here",
            param=f"{path}.enabled",
            code="unsupported_parameter",
        )


def inner_texts(content: object, path: str, sources: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """The texts of the blocks inside another; at least one: a tool that says nothing has said the empty text."""
    if isinstance(content, str):
        return (at(path, clean_text, content),)
    parts = []
    for i, block in enumerate(block_list(content, path)):
        fields, inner = object_at(block, f"{path}[{i}]"), f"{path}[{i}]"
        refuse_nested_markers([fields], inner)
        kind = fields.get("type")
        if kind == "text":
            parts.append(text_in(fields, "text", inner))
        elif isinstance(kind, str) and kind in sources:
            parts.append(source_text(fields, inner))
        else:
            raise not_served(fields, inner, ", ".join(["text", *sorted(sources)]))
    return tuple(parts) or ("",)


def refuse_nested_markers(nested: object, path: str) -> None:
    """Raises RequestError for a marker on what is inside another block."""
    for each in nested if isinstance(nested, list) else ():
        if isinstance(each, dict) and each.get("cache_control") is not None:
            raise RequestError(
                f"'{path}' has cache_control inside another block, where none may be",
                param=f"{path}.cache_control",
                hint="mark the block that it is in",
            )


def not_served(block: Mapping[str, Any], path: str, served: str) -> RequestError:
    """The error for a block of another type than those that are `served`."""
    kind = block.get("type")
    if not isinstance(kind, str):
        return RequestError(f"'{path}.type' is {shown(kind)}; it must be a string", param=f"{path}.type")
    return RequestError(
        f"'{path}' is a block of type {shown(kind)}; only {served} is supported here",
        param=f"{path}.type",
        code="unsupported_parameter",
    )


def block_list(value: object, path: str) -> list[Any]:
    """A list of blocks. Raises RequestError for anything else, and for too many."""
    if not isinstance(value, list):
        raise RequestError(f"{path!r} is {shown(value)}; it must be a string or a list of blocks", param=path)
    if len(value) > MAX_BLOCKS:
        raise RequestError(f"{path!r} has {len(value)} blocks; at most {MAX_BLOCKS} are taken", param=path)
    return value
