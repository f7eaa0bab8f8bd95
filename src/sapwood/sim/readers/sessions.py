"""Which requests are turns of one conversation, where a trace does not say so."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from sapwood.sim.trace import Names, TraceRequest

_STRETCH = 64
"""Tokens that are told apart as one where names are of tokens."""

_MOST_WAYS = 3
"""In which a turn goes on: its own unfinished block, the next turn, and one that was tried again."""


def continued(rows: Sequence[TraceRequest], unit_tokens: int) -> list[int]:
    """A number for each request, the same for those of a conversation.

    A request goes on from the latest earlier one, of the same scope, whose prompt, as far as it fills blocks, it begins
    with, and from which no other has gone on; of several from the longest. A prompt after which many go on differently
    is no turn but what they all begin with.
    """
    prefixes = [
        [(row.scope, key) for key in _prefixes(row.names, row.prompt_tokens, unit_tokens)] for row in rows
    ]
    common = _common(prefixes)
    found = [0] * len(rows)
    ends: dict[object, int] = {}
    for session, index in enumerate(sorted(range(len(rows)), key=lambda index: rows[index].arrival)):
        keys = prefixes[index]
        before = next((key for key in reversed(keys) if key in ends), None)
        found[index] = session if before is None else ends.pop(before)
        if keys and keys[-1] not in common:
            ends[keys[-1]] = found[index]
    return found


def _common(prefixes: Sequence[Sequence[object]]) -> set[object]:
    """Prefixes that go on in more ways than a conversation would."""
    ways: dict[object, set[object]] = {}
    for keys in prefixes:
        for key, after in pairwise(keys):
            ways.setdefault(key, set()).add(after)
    return {key for key, afters in ways.items() if len(afters) > _MOST_WAYS}


def _prefixes(names: Names, prompt_tokens: int, unit_tokens: int) -> list[int]:
    """A number for each prefix of whole blocks, or stretches; equal ones have equal numbers."""
    if unit_tokens > 1:
        return [int(name) for name in names[: prompt_tokens // unit_tokens]]
    chain, prefixes = 0, []
    for start in range(0, prompt_tokens - _STRETCH + 1, _STRETCH):
        chain = hash((chain, names[start : start + _STRETCH].tobytes()))
        prefixes.append(chain)
    return prefixes
