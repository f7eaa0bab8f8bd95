"""How routers name prefixes: the one rule, for what is placed and for what replicas tell.

Block i of a prompt is its tokens i·n .. (i+1)·n-1, and its key is a hash chained through all blocks before it down
to the namespace (`cache.chain`). So a key stands for a whole prefix of one namespace, a router keeps no prompts, and
what is at hand of one tenant can never be found under another.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

from sapwood.cache import Namespace, Tokens
from sapwood.cache.chain import ChainHash, blake2b_128, root_hash
from sapwood.cache.keys import require_int32

BlockKey: TypeAlias = ChainHash
"""Of a block and of everything before it."""

BLOCK_TOKENS = 64
"""Matches are told apart by so much. Smaller blocks cost memory and time in proportion."""


def block_keys(
    namespace: Namespace, tokens: Tokens, block_tokens: int = BLOCK_TOKENS, known: Sequence[BlockKey] = ()
) -> list[BlockKey]:
    """Keys of all whole blocks. `known` are those of its first blocks, where somebody has them."""
    require_int32(tokens)
    keys = list(known)
    data, width = tokens.tobytes(), tokens.itemsize * block_tokens
    before = keys[-1] if keys else root_hash(namespace)
    for end in range(width * (len(keys) + 1), len(data) + 1, width):
        before = blake2b_128(before + data[end - width : end])
        keys.append(before)
    return keys
