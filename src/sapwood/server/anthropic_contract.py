"""What a message is billed for by Anthropic's cache rules: planned when it comes in, settled when it is answered."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sapwood.chat import Json
from sapwood.chat.anthropic import Diagnosis, MessagesCall
from sapwood.chat.anthropic_render import Counters, Settled
from sapwood.contract import ANTHROPIC, Billing, Block, Imprint, Plan, imprint
from sapwood.server.chat_prompt import ChatPrompt
from sapwood.server.generate import Order
from sapwood.server.ledgers import Ledgers
from sapwood.types import Usage

_FIVE_MINUTES, _HOUR = (ttl.seconds for ttl in ANTHROPIC.ttls)


@dataclass(frozen=True, slots=True)
class Planned:
    """A message that has not begun to be answered; called to settle it, once it is known how much was reused."""

    id: str
    namespace: str
    plan: Plan
    imprint: Imprint
    diagnosis: Diagnosis
    ledgers: Ledgers

    def __call__(self, usage: Usage) -> Settled:
        ledgers = self.ledgers
        billing = ledgers.anthropic.settle(self.plan, usage.reused)
        found = self._diagnosed(ledgers, billing)
        ledgers.diagnoses.note(self.namespace, self.id, self.imprint, billing.read + billing.written_tokens)
        written = (billing.written_at(_FIVE_MINUTES), billing.written_at(_HOUR))
        return Settled(Counters(billing.plain, billing.read, *written), found)

    def _diagnosed(self, ledgers: Ledgers, billing: Billing) -> Json | None:
        if self.diagnosis.previous is None:
            return None
        try:
            found = ledgers.diagnoses.compare(
                self.namespace, self.diagnosis.previous, self.imprint, billing.read
            )
        except KeyError:
            return {"cache_miss_reason": {"type": "previous_message_not_found"}}
        if found is None:
            return None
        if found.changed is None:  # It expired, was evicted, or lies too far back.
            return {"cache_miss_reason": {"type": "unavailable"}}
        reason = {"type": f"{found.changed}_changed", "cache_missed_input_tokens": found.missed}
        return {"cache_miss_reason": reason}


def by_contract(
    order: Order, id: str, call: MessagesCall, prompt: ChatPrompt, tokens: Sequence[int]
) -> Planned:
    """What the rules say of message `id`. `tokens` are sent."""
    blocks = _blocks(call, prompt)
    plan = order.ledgers.anthropic.plan(order.namespace, tokens, blocks, call.settings)
    marks = imprint(tokens, blocks, call.settings, {"model": order.served_name})
    return Planned(id, order.namespace, plan, marks, call.diagnosis, order.ledgers)


def physically(usage: Usage) -> Settled:
    """What was not computed is read; nothing is written."""
    return Settled(Counters(usage.prompt_tokens - usage.reused, usage.reused))


def _blocks(call: MessagesCall, prompt: ChatPrompt) -> tuple[Block, ...]:
    """The message's blocks that stand in its prompt; none where nobody asks, for finding them takes time."""
    pieces = [(piece, piece.spot) for piece in call.pieces if piece.spot is not None]
    if not call.diagnosis.asked and all(piece.ttl is None for piece, _ in pieces):
        return ()
    ends = prompt.ends([spot for _, spot in pieces])
    return tuple(Block(end, piece.level, piece.ttl) for end, (piece, _) in zip(ends, pieces, strict=True))
