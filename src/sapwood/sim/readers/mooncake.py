"""Rows of block ids: Mooncake's (FAST 2025), Qwen-Bailian's, and those made of ShareGPT with replies named.

    {"timestamp": 27482, "input_length": 6955, "output_length": 52, "hash_ids": [46, 47, …]}

An id stands for a block and all before it. In Mooncake's the last block of a prompt, which is partial, has an id of its
own, so a later turn does not find it. With `output_hash_ids` the blocks go on through the reply, and only whole ones
have ids: what is left of a prompt gets a name that nobody else has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from sapwood.errors import UsageError
from sapwood.sim.readers.builder import TraceBuilder
from sapwood.sim.readers.sessions import continued
from sapwood.sim.readers.source import Row, Source
from sapwood.sim.trace import Trace, TraceRequest

_UNITS = (512, 16, 32, 64, 128, 256, 1024, 2048)
"""Tokens a block, as published; Mooncake's first, for traces so short that several fit."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """A row, checked as far as it can be alone."""

    row: Row
    at: float
    prompt: int
    output: int
    blocks: Sequence[object]
    reply: Sequence[object]

    @classmethod
    def of(cls, row: Row, order: int) -> _Asked:
        fields = row.fields
        at = row.real("timestamp") if "timestamp" in fields else float(order)
        reply = row.array("output_hash_ids") if "output_hash_ids" in fields else ()
        output = row.tokens("output_length", 0) if "output_length" in fields else 0
        blocks = row.array("hash_ids")
        for name, ids in (("hash_ids", blocks), ("output_hash_ids", reply)):
            if not {type(id) for id in ids} <= {int, str}:
                raise row.fault(name, "a list of whole numbers or texts")
        return cls(row, at, row.tokens("input_length", 1), output, blocks, reply)

    def fits(self, unit: int) -> bool:
        return len(self.blocks) in (self.prompt // unit, -(-self.prompt // unit))


def read_mooncake(source: Source) -> Trace:
    """Raises UsageError, naming the line at fault."""
    asked = [_Asked.of(row, order) for order, row in enumerate(source.rows())]
    if not asked:
        raise UsageError(f"{source} has no requests")
    builder = TraceBuilder(source.name.removesuffix("_trace"), _unit(asked))
    first = asked[0].row.fields
    for one in asked:
        if ("timestamp" in one.row.fields) != ("timestamp" in first):
            raise UsageError(
                f"{one.row.where}: all lines have a timestamp, or none; this is not as the first"
            )
    chats = "chat_id" in first
    second = 1.0 if chats else 1e-3
    if "timestamp" not in first:
        second = 1.0
        builder.notes.append("the trace has no times: a request a second, in the order of the file")
    elif not chats:
        builder.notes.append(
            "times are taken as milliseconds, as Mooncake's are: rows without chat_id do not say"
        )
    begin = min(0.0, *(one.at for one in asked))
    rows = [_request(builder, one, (one.at - begin) * second) for one in asked]
    sessions = _chats(asked) if chats else continued(rows, builder.unit_tokens)
    if not chats:
        builder.notes.append(
            "sessions are guessed: a prompt that goes on from a whole earlier one is of its session"
        )
    if any(one.reply for one in asked):
        builder.notes.append("replies have names as far as they fill blocks")
    else:
        builder.notes.append(
            "replies have no names: one is reused where the next prompt names it, never before"
        )
    for row, session in zip(rows, sessions, strict=True):
        builder.add(
            TraceRequest(
                row.arrival, row.prompt_tokens, row.output_tokens, row.names, row.known_tokens, session
            )
        )
    return builder.build()


def _unit(asked: Sequence[_Asked]) -> int:
    """Tokens a block. Raises UsageError for a row that is not made of such blocks."""
    first = asked[0].row
    stated = first.whole("block_size", 1) if "block_size" in first.fields else None
    units = _UNITS if stated is None else (stated,)
    left: tuple[int, ...] = units
    for one in asked:
        left = tuple(unit for unit in left if one.fits(unit))
        if not left:
            raise UsageError(
                f"{one.row.where} has {len(one.blocks)} blocks for {one.prompt} tokens; that is no size of a block"
                f" that all lines before it have (known: {', '.join(map(str, sorted(units)))})",
                hint="the file is damaged, or its blocks are of another size: state it as block_size in each line",
            )
    smaller = any(one.reply for one in asked) or "chat_id" in first.fields
    return min(left) if smaller else left[0]


def _request(builder: TraceBuilder, one: _Asked, arrival: float) -> TraceRequest:
    unit, total = builder.unit_tokens, one.prompt + one.output
    names = builder.blocks((*one.blocks, *one.reply))
    known = min(len(names) * unit, total if one.reply else one.prompt)
    if known < one.prompt:
        known, names = one.prompt, np.concatenate((names, builder.fresh(1)))
    if len(names) != -(-known // unit):
        raise UsageError(
            f"{one.row.where} has {len(one.blocks)} + {len(one.reply)} blocks of {unit} tokens for {one.prompt} +"
            f" {one.output} tokens"
        )
    return TraceRequest(arrival, one.prompt, one.output, names, known, 0)


def _chats(asked: Sequence[_Asked]) -> list[int]:
    """By the first of each chain of `parent_chat_id`."""
    roots: dict[str, int] = {}
    for index, one in enumerate(asked):
        parent = str(one.row.fields.get("parent_chat_id"))
        roots[str(one.row.whole("chat_id", 0))] = roots.get(parent, index)
    return [roots[str(one.row.fields["chat_id"])] for one in asked]
