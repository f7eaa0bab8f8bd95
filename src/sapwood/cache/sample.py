"""Which stretches of a prompt are watched when only a share of the traffic can be.

A stretch is named by a hash of itself and of all that stands before it, so equal names mean equal prefixes, and it
is watched if its hash is small. Then whoever asks for a watched stretch again is seen to do so, every time, and
what is watched of a prompt, in order, is again a path in a tree of prefixes. Source: SHARDS' spatial sampling
(Waldspurger, Park, Garthwaite and Ahmad, "Efficient MRC Construction with SHARDS", USENIX FAST 2015).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from sapwood.cache.keys import Namespace, Tokens

_DIGEST = np.dtype([("draw", "<u8"), ("name", "<i4")])
"""Two independent parts of one hash: what decides whether the stretch is watched, and what it is called."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The watched stretches of one sequence, in order."""

    names: Tokens
    """What each is called. 32 bits: that two differ and are called the same is rarer than any error of sampling."""
    places: NDArray[np.intp]
    """Where each stands among the full stretches of the sequence, from 0; ascends."""

    def within(self, count: int) -> int:
        """How many of them are among the first `count` stretches of the sequence."""
        return int(np.searchsorted(self.places, count))


class StretchSampler:
    """Watches the share `rate` of all stretches of `stretch_tokens` tokens; the same ones every time."""

    def __init__(self, stretch_tokens: int, rate: float) -> None:
        self.stretch_tokens = stretch_tokens
        self.rate = rate

    def sample(self, namespace: Namespace, tokens: Tokens) -> Sample:
        """What is watched of a sequence; the tail that fills no stretch never is."""
        digests = np.frombuffer(self._digests(namespace, tokens), dtype=_DIGEST)
        # The upper 53 bits, all that a float holds: a number in [0, 1).
        draws = (digests["draw"] >> np.uint64(11)) * 2.0**-53
        (places,) = np.nonzero(draws < self.rate)
        return Sample(digests["name"][places], places)

    def _digests(self, namespace: Namespace, tokens: Tokens) -> bytes:
        fields = (namespace.fingerprint, namespace.adapter, namespace.tenant, namespace.salt)
        # repr keeps None, "" and every other choice of fields apart, and never fails to encode.
        running = hashlib.blake2b(repr(fields).encode(), digest_size=_DIGEST.itemsize)
        data, step = tokens.tobytes(), tokens.itemsize * self.stretch_tokens
        digests = []
        for end in range(step, len(data) + 1, step):
            running.update(data[end - step : end])
            digests.append(running.digest())
        return b"".join(digests)
