"""Names of pages: equal for equal prefixes, and no two namespaces spelled alike."""

from __future__ import annotations

import hashlib

import pytest

from sapwood.cache import Namespace
from sapwood.cache.chain import blake2b_128, root_hash


def test_a_hash_has_128_bits_and_is_the_same_in_every_process() -> None:
    """[82] Nothing random goes in, so that what one process wrote another can find."""
    assert blake2b_128(b"abc").hex() == "cf4ab791c62b8d2b2109c90275287816"
    spelled = bytes(16) + b"\1" + (1).to_bytes(8, "little") + b"m" + 4 * b"\0"
    assert root_hash(Namespace("m")) == hashlib.blake2b(spelled, digest_size=16).digest()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (Namespace("m"), Namespace("m", salt="")),
        (Namespace("m", adapter="x"), Namespace("m", salt="x")),
        (Namespace("m", adapter="x"), Namespace("m", tenant="x")),
        (Namespace("m", tenant="ab", salt="c"), Namespace("m", tenant="a", salt="bc")),
        (Namespace("m", tenant="a\0b"), Namespace("m", tenant="a", salt="b")),
        (Namespace("m", salt="None"), Namespace("m", salt=None)),
        (Namespace("m", salt="é"), Namespace("m", salt="e\u0301")),
    ],
    ids=repr,
)
def test_namespaces_that_differ_never_have_the_same_root(one: Namespace, other: Namespace) -> None:
    """[TE-06]"""
    assert root_hash(one) != root_hash(other)


def test_a_name_that_is_no_proper_text_is_a_name_all_the_same() -> None:
    assert root_hash(Namespace("m", salt="\ud800")) != root_hash(Namespace("m", salt="\ud801"))
