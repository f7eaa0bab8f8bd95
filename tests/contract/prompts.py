"""Prompts for the ledger, made of named blocks: the same name is the same tokens."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sapwood.contract import Billing, Block, Ledger, Plan

NO_SETTINGS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Piece:
    """A block to be: its tokens follow from its name."""

    name: str
    tokens: int
    level: str = "messages"
    ttl: float | None = None
    automatic: bool = False


@dataclass(frozen=True)
class Prompt:
    tokens: tuple[int, ...]
    blocks: tuple[Block, ...]


def prompt(pieces: Sequence[Piece], tail: int = 10) -> Prompt:
    """The pieces, and `tail` tokens that open the answer."""
    tokens: list[int] = []
    blocks = []
    for piece in pieces:
        first = zlib.crc32(piece.name.encode()) % 10_000
        tokens += range(first, first + piece.tokens)
        blocks.append(Block(len(tokens), piece.level, piece.ttl, automatic=piece.automatic))
    return Prompt((*tokens, *[7] * tail), tuple(blocks))


@dataclass
class Desk:
    """A ledger with a clock that the test steps; everything that was ever computed is physically there."""

    ledger: Ledger
    now: float = 0.0
    namespace: str = "ours"
    settings: Mapping[str, str] = field(default_factory=dict)

    def plan(self, wanted: Prompt, settings: Mapping[str, str] | None = None) -> Plan:
        told = self.settings if settings is None else settings
        return self.ledger.plan(self.namespace, wanted.tokens, wanted.blocks, told, self.now)

    def ask(
        self, wanted: Prompt, settings: Mapping[str, str] | None = None, reused: int | None = None
    ) -> Billing:
        """One request from start to answer. All but the last token is there, if `reused` says nothing else."""
        there = len(wanted.tokens) - 1 if reused is None else reused
        billing = self.ledger.settle(self.plan(wanted, settings), there, self.now)
        assert billing.read + billing.written_tokens + billing.plain == len(wanted.tokens)
        assert 0 <= billing.read <= there
        assert billing.plain >= 0
        return billing
