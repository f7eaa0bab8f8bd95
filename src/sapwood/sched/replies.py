"""The latest answers of each namespace, to guess from: answers to one template share stretches that no prompt has.

With them how often guesses were right there, as where one answer follows a template the next will.
"""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from sapwood.cache import Namespace, Tokens
from sapwood.sched.credit import Record
from sapwood.sched.lookback import Pairs

MOST_TOKENS = 4096
"""Of one namespace."""
BUDGET = 2**24
"""Bytes, of all namespaces."""
BESIDE = Pairs.BYTES + 1024
"""Bytes that are kept with the tokens of each namespace."""
FRONT = 4
"""Tokens of the prompt that are kept before an answer, by which its beginning is found."""

_NOTHING = np.empty(0, np.int32)
_NOTHING.flags.writeable = False


class Replies:
    """A text for each namespace that has answered, in which the answers stand one behind the other.

    Over the budget, the tenant that has most of it loses the text that was added to least recently.
    """

    def __init__(self) -> None:
        self._tenants: dict[str | None, _Tenant] = {}
        self._size = 0

    @property
    def size(self) -> int:
        """Bytes that are used."""
        return self._size

    def of(self, namespace: Namespace) -> Tokens:
        text = self._text(namespace)
        return _NOTHING if text is None else text.tokens

    def may_go_on(self, namespace: Namespace, tokens: Tokens) -> bool:
        """False if the last two of these tokens do not stand side by side in any of them."""
        text = self._text(namespace)
        return text is not None and text.pairs.may_have_last_of(tokens)

    def record(self, namespace: Namespace) -> Record:
        """Of all guesses in a namespace; a new one, which nobody has yet, if it has no text."""
        text = self._text(namespace)
        return Record() if text is None else text.record

    def add(self, namespace: Namespace, tokens: Tokens, prompt_len: int, record: Record) -> None:
        """Remember the answer in `tokens`, of which the first `prompt_len` are the prompt.

        `record` is kept with it if it is the namespace's first.
        """
        if len(tokens) <= prompt_len:
            return
        tenant = self._tenants.setdefault(namespace.tenant, _Tenant())
        self._size += tenant.add(namespace, tokens[max(0, prompt_len - FRONT) :], record)
        while self._size > BUDGET:
            most = max(self._tenants, key=lambda name: self._tenants[name].size)
            self._size -= self._tenants[most].drop_oldest()
            if not self._tenants[most].texts:
                del self._tenants[most]

    def flush(self) -> None:
        self._tenants.clear()
        self._size = 0

    def _text(self, namespace: Namespace) -> _Text | None:
        tenant = self._tenants.get(namespace.tenant)
        return None if tenant is None else tenant.texts.get(namespace)


class _Text:
    """The last tokens of a text that grows."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self.tokens: Tokens = _NOTHING
        self.pairs = Pairs()

    @property
    def size(self) -> int:
        return BESIDE + self.tokens.nbytes

    def add(self, tokens: Tokens) -> None:
        new = tokens[-MOST_TOKENS:]
        kept = self.tokens[max(0, len(self.tokens) + len(new) - MOST_TOKENS) :]
        self.tokens = np.concatenate([kept, new])
        self.pairs.goes_on(self.tokens, len(new))


class _Tenant:
    """Its texts, the one added to least recently first."""

    def __init__(self) -> None:
        self.texts: OrderedDict[Namespace, _Text] = OrderedDict()
        self.size = 0

    def add(self, namespace: Namespace, tokens: Tokens, record: Record) -> int:
        """By how much it has become larger."""
        text = self.texts.get(namespace)
        before = 0 if text is None else text.size
        if text is None:
            text = self.texts[namespace] = _Text(record)
        text.add(tokens)
        self.texts.move_to_end(namespace)
        self.size += text.size - before
        return text.size - before

    def drop_oldest(self) -> int:
        """By how much it has become smaller."""
        _, text = self.texts.popitem(last=False)
        self.size -= text.size
        return text.size
