"""What was answered lately, so that a chat that carries an answer back gets the very tokens that were generated.

Text alone does not tell them: a model may spell a word in other tokens than its tokenizer would, and write a call
in other JSON than a template does. Kept are the tokens and digests of the rest: neither prompts nor texts.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from sapwood.chat.messages import Message, parsed_object
from sapwood.types import Scope

STORE_BYTES = 64 * 2**20
"""Of all tenants together."""
MOST_ALIKE = 256
"""Answers of equal words to different prompts."""
_OVERHEAD = 600
"""Bytes that a reply takes besides its tokens, about."""


@dataclass(frozen=True, slots=True)
class ToldCall:
    """A call as a client knows it; `arguments` is JSON text. Ids differ from dialect to dialect."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Told:
    """What a client knows of an answer, and sends back."""

    text: str
    calls: tuple[ToldCall, ...] = ()
    reasoning: str = ""

    @classmethod
    def of(cls, message: Message) -> Told:
        calls = tuple(ToldCall(call.name, call.arguments) for call in message.tool_calls)
        # Dialects differ in whether text around calls is one part or several.
        text = "".join(message.parts) if calls else message.text
        return cls(text, calls, message.reasoning or "")

    def digest(self) -> bytes:
        """Equal for what is equal; in arguments, white space and the order of keys make no difference."""
        hasher = hashlib.blake2b(digest_size=16)
        calls = [entry for call in self.calls for entry in (call.name, _canonical(call.arguments))]
        for text in (self.text, self.reasoning, *calls):
            encoded = text.encode("utf-8", "surrogatepass")
            hasher.update(len(encoded).to_bytes(8, "little") + encoded)
        return hasher.digest()


def _canonical(arguments: str) -> str:
    value = parsed_object(arguments)
    return arguments if value is None else json.dumps(value, sort_keys=True)


@dataclass(frozen=True, slots=True)
class Opening:
    """Where an answer begins.

    Attributes:
        turn: index of its message.
        start: characters of the rendered prompt.
        text, ids: digests of the prompt, as text and as tokens.
        before: characters of the message's text that stand in the prompt: where a message is continued.
    """

    turn: int
    start: int
    text: bytes
    ids: bytes
    before: int = 0


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer's tokens, as int32, without the one that ended it.

    `covered` is how many characters of the told text they spell, where that is not all.
    """

    opening: Opening
    tokens: bytes
    covered: int | None = None

    @property
    def ids(self) -> list[int]:
        ids: list[int] = np.frombuffer(self.tokens, np.int32).tolist()
        return ids


@dataclass(frozen=True, slots=True)
class _Name:
    """Under which replies are looked up."""

    adapter: str
    salt: str
    turn: int
    told: bytes


_Alike = OrderedDict[Opening, Reply]


@dataclass(slots=True)
class _Shelf:
    """One tenant's replies, the least lately used first."""

    entries: OrderedDict[_Name, _Alike] = field(default_factory=OrderedDict)
    size: int = 0

    def put(self, name: _Name, reply: Reply) -> None:
        alike = self.entries.setdefault(name, OrderedDict())
        self.entries.move_to_end(name)
        if reply.opening in alike:  # The same words in other tokens: what was replayed once stays.
            return
        alike[reply.opening] = reply
        self.size += _size(reply)
        if len(alike) > MOST_ALIKE:
            self.size -= _size(alike.popitem(last=False)[1])

    def drop_oldest(self) -> int:
        """Returns the bytes that it took."""
        _, alike = self.entries.popitem(last=False)
        freed = sum(map(_size, alike.values()))
        self.size -= freed
        return freed


class ReplyStore:
    """The replies of all tenants, for any thread. When it is full, who has the most loses the oldest first."""

    def __init__(self, most_bytes: int = STORE_BYTES) -> None:
        self._most_bytes = most_bytes
        self._shelves: dict[str, _Shelf] = {}
        self._lock = threading.Lock()

    def of(self, scope: Scope) -> OwnReplies:
        """Those that a request in `scope` may see."""
        return OwnReplies(self, scope)

    @property
    def size(self) -> int:
        """Bytes held, about."""
        with self._lock:
            return sum(shelf.size for shelf in self._shelves.values())

    def holds(self, scope: Scope) -> bool:
        with self._lock:
            return scope.tenant in self._shelves

    def find(self, scope: Scope, turn: int, told: bytes) -> tuple[Reply, ...]:
        with self._lock:
            shelf = self._shelves.get(scope.tenant)
            name = _Name(scope.adapter, scope.salt, turn, told)
            if shelf is None or name not in shelf.entries:
                return ()
            shelf.entries.move_to_end(name)
            return tuple(shelf.entries[name].values())

    def add(self, scope: Scope, told: bytes, reply: Reply) -> None:
        with self._lock:
            shelf = self._shelves.setdefault(scope.tenant, _Shelf())
            shelf.put(_Name(scope.adapter, scope.salt, reply.opening.turn, told), reply)
            held = sum(each.size for each in self._shelves.values())
            while held > self._most_bytes:
                tenant = max(self._shelves, key=lambda each: self._shelves[each].size)
                held -= self._shelves[tenant].drop_oldest()
                if not self._shelves[tenant].entries:
                    del self._shelves[tenant]


@dataclass(frozen=True, slots=True)
class OwnReplies:
    """A store as one scope sees it."""

    store: ReplyStore
    scope: Scope

    def any(self) -> bool:
        """Whether it is worth looking."""
        return self.store.holds(self.scope)

    def find(self, turn: int, told: Told) -> tuple[Reply, ...]:
        """Answers at that turn, of any conversation, of which a client was told the same."""
        return self.store.find(self.scope, turn, told.digest())

    def add(self, opening: Opening, told: Told, ids: Sequence[int], covered: int | None = None) -> None:
        """Keep an answer. `covered` as in `Reply`."""
        reply = Reply(opening, np.asarray(ids, np.int32).tobytes(), covered)
        self.store.add(self.scope, told.digest(), reply)


def _size(reply: Reply) -> int:
    return len(reply.tokens) + _OVERHEAD
