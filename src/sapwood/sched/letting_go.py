"""How a sequence hands over what it computed, and lets go of its pages."""

from __future__ import annotations

from sapwood.cache import PrefixCache
from sapwood.sched.sequence import Sequence


def commit(cache: PrefixCache, sequence: Sequence) -> None:
    """What is computed of it goes into the tree."""
    assert sequence.lease is not None
    cache.commit(sequence.lease, sequence.tokens[: sequence.computed])


def vacate(cache: PrefixCache, sequence: Sequence) -> None:
    """It stays in the tree as evictable, and as it was wished to be kept."""
    commit(cache, sequence)
    assert sequence.lease is not None
    for wish in sequence.request.retain:
        end = sequence.prompt_len if wish.end is None else wish.end
        cache.retain(sequence.lease, wish.priority, wish.seconds, wish.start, end)
    release(cache, sequence)


def release(cache: PrefixCache, sequence: Sequence) -> None:
    """What was not committed is freed."""
    assert sequence.lease is not None
    cache.release(sequence.lease)
    sequence.lease = None
