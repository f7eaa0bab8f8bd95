"""What was computed for the last tokens of prompts, so that a prompt that comes again is answered without the model.

A lookup never gives a prompt's last token, for its logits are drawn from. Its final hidden row, which these come
from, and its KV are functions of the prompt alone (the exactness contract): what was computed once is as good as new.

They are found by whose prompt it is and the page of the token before: who has that page has found or computed all
that comes before. The namespace counts too, as a public prefix's pages are everybody's: so nobody can tell from the
time of an answer what was asked in a namespace that is not his. Any other write to a page ends what was kept under it,
and a flush ends all.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Hashable

    from numpy.typing import NDArray

    from sapwood.model.kv import KvPool
    from sapwood.plan import SequenceWork, StepPlan

MOST_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class _Key:
    whose: Hashable
    page: int
    """Of the token before the last."""


@dataclass(frozen=True, slots=True, eq=False)
class _Kept:
    """`tokens` are the whole prompt; `k` and `v` are its last token's, [layers, kv_heads, head_dim]."""

    tokens: NDArray[np.int32]
    hidden: NDArray[np.float32]
    k: NDArray[Any]
    v: NDArray[Any]

    @property
    def nbytes(self) -> int:
        return self.tokens.nbytes + self.hidden.nbytes + self.k.nbytes + self.v.nbytes


class LastTokens:
    """Of the prompts that were read or repeated last, within `most_bytes`."""

    def __init__(self, kv: KvPool, most_bytes: int = MOST_BYTES) -> None:
        self._kv = kv
        self._most_bytes = most_bytes
        self._kept: dict[_Key, _Kept] = {}
        """What was used last stands last."""
        self._owners: dict[int, set[Hashable]] = {}
        """By page: whose something is kept under it."""
        self._bytes = 0
        self._flushes = 0

    def __len__(self) -> int:
        return len(self._kept)

    @property
    def nbytes(self) -> int:
        return self._bytes

    def recall(self, plan: StepPlan) -> dict[int, NDArray[np.float32]]:
        """The hidden rows [hidden_size] of the works that need not be computed, by sequence; their KV is written.

        To be called before the others are computed, of whose pages nothing is kept any more.
        """
        works = plan.works
        if plan.flushes != self._flushes:
            self._kept, self._owners, self._bytes, self._flushes = {}, {}, 0, plan.flushes
        found = {work.seq: (work, kept) for work in works if (kept := self._find(work)) is not None}
        for work in works:
            self._forget(work)
        for work, kept in found.values():
            self._write(work, kept)
        return {seq: kept.hidden for seq, (_, kept) in found.items()}

    def keep(self, work: SequenceWork, hidden: NDArray[np.float32]) -> None:
        """Remember the last row of a work that was computed, if it ends a prompt."""
        if not self._may_come_again(work) or not np.isfinite(hidden).all():
            return
        end = work.start + len(work.tokens)
        page, offset = self._place(work, end - 1)
        k, v = self._kv.k[:, page, offset].copy(), self._kv.v[:, page, offset].copy()
        assert work.sample is not None
        self._add(self._key(work), _Kept(work.sample.history.copy(), hidden.copy(), k, v))

    def _find(self, work: SequenceWork) -> _Kept | None:
        if len(work.tokens) != 1 or not self._may_come_again(work):
            return None
        kept = self._kept.get(self._key(work))
        assert work.sample is not None
        return kept if kept is not None and np.array_equal(kept.tokens, work.sample.history) else None

    def _forget(self, work: SequenceWork) -> None:
        first, last = work.start, work.start + len(work.tokens) - 1
        size = self._kv.page_size
        for page in work.pages[first // size : last // size + 1].tolist():
            for whose in self._owners.pop(page, ()):
                self._bytes -= self._kept.pop(_Key(whose, page)).nbytes

    def _write(self, work: SequenceWork, kept: _Kept) -> None:
        page, offset = self._place(work, work.start)
        self._kv.k[:, page, offset], self._kv.v[:, page, offset] = kept.k, kept.v
        self._add(self._key(work), kept)

    def _add(self, key: _Key, kept: _Kept) -> None:
        self._drop(key)
        self._bytes += kept.nbytes
        self._kept[key] = kept
        self._owners.setdefault(key.page, set()).add(key.whose)
        while self._bytes > self._most_bytes:
            self._drop(next(iter(self._kept)))

    def _drop(self, key: _Key) -> None:
        old = self._kept.pop(key, None)
        if old is not None:
            self._bytes -= old.nbytes
            owners = self._owners[key.page]
            owners.remove(key.whose)
            if not owners:
                del self._owners[key.page]

    def _key(self, work: SequenceWork) -> _Key:
        return _Key(work.whose, self._place(work, work.start + len(work.tokens) - 2)[0])

    def _may_come_again(self, work: SequenceWork) -> bool:
        """Whether it ends a prompt of somebody's whose last token begins a page: else the page before is not shared."""
        begins = (work.start + len(work.tokens) - 1) % self._kv.page_size == 0
        return begins and work.whose is not None and _ends_a_prompt(work)

    def _place(self, work: SequenceWork, position: int) -> tuple[int, int]:
        size = self._kv.page_size
        return int(work.pages[position // size]), position % size


def _ends_a_prompt(work: SequenceWork) -> bool:
    """Whether the first token of an answer is drawn from its last row, and nothing else is asked of it."""
    order, end = work.sample, work.start + len(work.tokens)
    return order is not None and work.score is None and 2 <= end == order.prompt_len == len(order.history)
