"""A runner that watches: every row a model computes is kept by the tokens it is a function of."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, cast

import numpy as np

from sapwood.model import ModelRunner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from sapwood.model.decoder import Decoder
    from sapwood.model.kv import KvPool
    from sapwood.model.ops import StepSpans
    from sapwood.plan import SequenceWork, StepPlan, StepResult
    from sapwood.types import SeqId


class Witness:
    """The exactness contract as a dictionary: tokens 0..i → the bits of row i. A second value is an AssertionError.

    `new` counts rows seen for the first time, `compared` those that were held against an earlier one.
    """

    def __init__(self) -> None:
        self.new = 0
        self.compared = 0
        self._rows: dict[bytes, bytes] = {}

    def see(self, kind: str, prefix: bytes, position: int, row: NDArray[np.float32]) -> None:
        key = kind.encode() + prefix
        self._hold(key, hashlib.blake2b(row.tobytes(), digest_size=16).digest(), kind, position)

    def see_again(self, other: Witness) -> None:
        """What another has seen, as if it were computed here."""
        for key, bits in other._rows.items():
            self._hold(key, bits, "bits of a row", "some")

    def _hold(self, key: bytes, bits: bytes, kind: str, position: int | str) -> None:
        known = self._rows.setdefault(key, bits)
        if known is bits:
            self.new += 1
            return
        assert known == bits, f"the {kind} at position {position} have other bits than before"
        self.compared += 1


class Watched:
    """Stands in for a Decoder and keeps the rows of the last step."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.ops = decoder.ops
        self.hidden = np.empty((0, 0), np.float32)
        self.logit_calls: list[NDArray[np.float32]] = []

    def forward(self, tokens: NDArray[np.int32], spans: StepSpans, kv: KvPool) -> NDArray[np.float32]:
        hidden = self.decoder.forward(tokens, spans, kv)
        self.hidden, self.logit_calls = hidden.copy(), []
        return hidden

    def logits(self, hidden: NDArray[np.float32]) -> NDArray[np.float32]:
        self.logit_calls.append(self.decoder.logits(hidden))
        return self.logit_calls[-1]


class RecordingRunner:
    """Runs plans on a real model and shows every final hidden row, and every row of logits drawn from, to a witness.

    A row is known by its tokens once its sequence draws; rows of a sequence that never draws are not shown, and
    neither are those of wrong guesses: they are of a text that nobody said.
    """

    def __init__(self, decoder: Decoder, kv: KvPool, witness: Witness) -> None:
        self.kv = kv
        self.widths: list[int] = []
        self.recalled = 0
        self._watched = Watched(decoder)
        self._runner = ModelRunner(cast("Decoder", self._watched), kv)
        self._witness = witness
        self._pending: dict[SeqId, dict[int, NDArray[np.float32]]] = {}
        self._prefixes: dict[SeqId, list[bytes]] = {}

    def run(self, plan: StepPlan) -> StepResult:
        """`widths` grows by the number of sequences in the step, `recalled` by those whose row was kept from before."""
        self._watched.hidden, self._watched.logit_calls = np.empty((0, 0), np.float32), []
        result = self._runner.run(plan)
        self.widths.append(len(plan.works))
        drawing = [work for work in plan.works if work.sample is not None]
        logits = self._watched.logit_calls[0] if drawing else np.empty((0, 0), np.float32)
        assert len(logits) == sum(1 + len(work.guesses) for work in drawing)
        computed = [work for work in plan.works if work.seq not in self._runner.recalled]
        self.recalled += len(plan.works) - len(computed)
        rows = np.split(self._watched.hidden, np.cumsum([len(work.tokens) for work in computed])[:-1])
        for work, hidden in zip(computed, rows, strict=bool(computed)):
            pending = self._pending.setdefault(work.seq, {})
            pending.update(enumerate(hidden, start=work.start))
        followed = {each.seq: len(each.followed) for each in result.results}
        for work in drawing:
            self._show(work, logits[: 1 + followed[work.seq]])
            logits = logits[1 + len(work.guesses) :]
        return result

    def _show(self, work: SequenceWork, logits: NDArray[np.float32]) -> None:
        """`logits` are the rows that were drawn from."""
        assert work.sample is not None
        last = (work.sample, *work.guesses)[len(logits) - 1]
        prefixes = self._prefixes_of(work.seq, last.history)
        for position, row in self._pending.pop(work.seq, {}).items():
            if position < len(prefixes):
                self._witness.see("hidden", prefixes[position], position, row)
        for position, row in enumerate(logits, start=len(prefixes) - len(logits)):
            self._witness.see("logits", prefixes[position], position, row)

    def _prefixes_of(self, seq: SeqId, history: NDArray[np.int32]) -> list[bytes]:
        """For each position i a name of tokens 0..i; a chain, as a sequence only grows."""
        chain = self._prefixes.setdefault(seq, [])
        for token in history[len(chain) :].tolist():
            link = (chain[-1] if chain else b"") + token.to_bytes(4, "little")
            chain.append(hashlib.blake2b(link, digest_size=16).digest())
        return chain
