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
"""Of one namespace; twice as many are held at most, for a moment."""
MOST_NAMESPACES = 256
FRONT = 4
"""Tokens of the prompt that are kept before an answer, by which its beginning is found."""


class Replies:
    """A text for each namespace, in which the answers stand one behind the other."""

    def __init__(self) -> None:
        self._texts: OrderedDict[Namespace, _Text] = OrderedDict()

    def of(self, namespace: Namespace) -> Tokens:
        """A view, valid until the next call that adds."""
        text = self._texts.get(namespace)
        return np.empty(0, np.int32) if text is None else text.view

    def may_go_on(self, namespace: Namespace, tokens: Tokens) -> bool:
        """False if the last two of these tokens do not stand side by side in any of them."""
        text = self._texts.get(namespace)
        return text is not None and text.pairs.have_last_of(tokens)

    def add(self, namespace: Namespace, tokens: Tokens, prompt_len: int) -> None:
        """Remember the answer in `tokens`, of which the first `prompt_len` are the prompt."""
        if len(tokens) <= prompt_len:
            return
        self._text(namespace).add(tokens[max(0, prompt_len - FRONT, len(tokens) - MOST_TOKENS) :])

    def record(self, namespace: Namespace) -> Record:
        """Of all its guesses."""
        return self._text(namespace).record

    def _text(self, namespace: Namespace) -> _Text:
        text = self._texts.setdefault(namespace, _Text())
        self._texts.move_to_end(namespace)
        if len(self._texts) > MOST_NAMESPACES:
            self._texts.popitem(last=False)
        return text

    def flush(self) -> None:
        self._texts.clear()


class _Text:
    """The last tokens of a text that grows."""

    def __init__(self) -> None:
        self.record = Record()
        self.pairs = Pairs()
        self._buffer = np.empty(64, np.int32)
        self._size = 0

    @property
    def view(self) -> Tokens:
        return self._buffer[: self._size]

    def add(self, tokens: Tokens) -> None:
        if self._size + len(tokens) > len(self._buffer):
            kept = self.view[max(0, self._size - MOST_TOKENS) :]
            if len(kept) + len(tokens) > len(self._buffer):
                self._buffer = np.empty(2 * (len(kept) + len(tokens)), np.int32)
            self._buffer[: len(kept)] = kept
            self._size = len(kept)
            self.pairs = Pairs()
        self._buffer[self._size : self._size + len(tokens)] = tokens
        self._size += len(tokens)
        self.pairs.learn(self.view)
