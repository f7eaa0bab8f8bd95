"""The name of a page by content: a hash chained through all pages before it, down to its namespace.

    namespace ──▶ root hash ──▶ hash of page 0 ──▶ hash of page 1 ──▶ …      each over (hash before, tokens)

So equal hashes mean equal prefixes, as far as the hash is trusted. After Kwon et al., vLLM's automatic prefix
caching; 128 bits of BLAKE2b (RFC 7693) here, and where tokens are at hand they are compared besides.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import fields
from typing import TypeAlias

from sapwood.cache.keys import Namespace

ChainHash: TypeAlias = bytes
"""Of a page and of everything before it."""

HashFunction: TypeAlias = Callable[[bytes], bytes]

_DIGEST_BYTES = 16
_BEFORE_ALL = bytes(_DIGEST_BYTES)
"""Stands where a page has the hash before it, so that no namespace can be spelled to look like a page."""
_LENGTH_BYTES = 8


def blake2b_128(data: bytes) -> ChainHash:
    return hashlib.blake2b(data, digest_size=_DIGEST_BYTES).digest()


def root_hash(namespace: Namespace, hash_of: HashFunction = blake2b_128) -> ChainHash:
    """What the first page of a namespace is chained to."""
    values: list[str | None] = [getattr(namespace, each.name) for each in fields(namespace)]
    return hash_of(_BEFORE_ALL + b"".join(_typed(value) for value in values))


def _typed(value: str | None) -> bytes:
    """A field with its type and length in front: neither None and "" nor two neighbours can be mixed up."""
    if value is None:
        return b"\0"
    # A client may name half a surrogate pair; that is a name like any other.
    text = value.encode("utf-8", "surrogatepass")
    return b"\1" + len(text).to_bytes(_LENGTH_BYTES, "little") + text
