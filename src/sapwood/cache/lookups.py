"""What the hash index remembers of prompts that it looked up lately: the waiting ones are looked up in every step.

Hashing all pages of a long prompt takes milliseconds. So its chained hashes are kept, and the blocks that were
found: the next lookup goes on from there.
"""

from __future__ import annotations

from typing import TypeAlias

from sapwood.cache.block import Block, Parent
from sapwood.cache.block_map import BlockMap
from sapwood.cache.chain import ChainHash, HashFunction, root_hash
from sapwood.cache.keys import Namespace, Tokens

MOST_PAGES = 1 << 18
"""Pages of all prompts remembered, at some 150 bytes each: four million tokens at sixteen a page."""

_TOKEN_BYTES = 4

_Key: TypeAlias = tuple[Namespace, int]
"""With the address of the first token. It only says where to look: what lies there is compared."""


class Lookup:
    """The full pages of one prompt, hashed and found as far as somebody asked."""

    __slots__ = ("_found", "_hash_of", "_hashes", "_width", "data", "namespace")

    def __init__(self, namespace: Namespace, data: bytes, width: int, hash_of: HashFunction) -> None:
        self.namespace = namespace
        self.data = data
        """Of whole pages, `width` bytes each; more may be added."""
        self._width = width
        self._hash_of = hash_of
        self._hashes: list[ChainHash] = []
        self._found: list[Block] = []

    @property
    def pages(self) -> int:
        return len(self.data) // self._width

    def content(self, page: int) -> bytes:
        return self.data[page * self._width : (page + 1) * self._width]

    def hash(self, page: int) -> ChainHash:
        """Of a page and of everything before it."""
        hashes = self._hashes
        while len(hashes) <= page:
            before = hashes[-1] if hashes else root_hash(self.namespace, self._hash_of)
            hashes.append(self._hash_of(before + self.content(len(hashes))))
        return hashes[page]

    def found(self, blocks: BlockMap) -> list[Block]:
        """The longest prefix that is held.

        No block is evicted before one that follows it, so if the last one found is still held, all are.
        """
        found = self._found
        while found and not found[-1].filed:
            found.pop()
        parent: Parent = found[-1] if found else self.namespace
        for page in range(len(found), self.pages):
            content = self.content(page)
            block = blocks.find(self.hash(page), parent, content)
            if block is None:
                break
            found.append(block)
            parent = block
        return found


class Lookups:
    """The prompts looked up last, as many as have `most_pages` pages together."""

    def __init__(self, page_size: int, hash_of: HashFunction, most_pages: int = MOST_PAGES) -> None:
        self._width = page_size * _TOKEN_BYTES
        self._hash_of = hash_of
        self._most_pages = most_pages
        self._pages = 0
        self._known: dict[_Key, Lookup] = {}

    def of(self, namespace: Namespace, tokens: Tokens) -> Lookup:
        """It may have more pages than these tokens: those of a longer prompt that begins with them."""
        data = tokens.tobytes()
        data = data[: len(data) // self._width * self._width]
        key = (namespace, tokens.__array_interface__["data"][0])
        lookup = self._known.pop(key, None)
        if lookup is not None:
            self._pages -= lookup.pages
        if lookup is not None and data.startswith(lookup.data):
            lookup.data = data
        elif lookup is None or not lookup.data.startswith(data):
            lookup = Lookup(namespace, data, self._width, self._hash_of)
        self._known[key] = lookup
        self._pages += lookup.pages
        while self._pages > self._most_pages and len(self._known) > 1:
            self._pages -= self._known.pop(next(iter(self._known))).pages
        return lookup
