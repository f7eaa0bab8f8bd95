"""Incremental text: equal to decoding at once, whole characters only, nothing held for ever."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.chat.detok import Detokenizer
from sapwood.chat.tokenizer import Tokenizer

MANY = settings(max_examples=300)
SMALL_IDS = st.integers(0, 280)
"""Of the tiny tokenizer: three control tokens, the 256 bytes, words, and ids without an entry."""


def byte_ids(raw: bytes) -> list[int]:
    return [3 + byte for byte in raw]


def run(tokenizer: Tokenizer, ids: Sequence[int], context: Sequence[int] = ()) -> tuple[list[str], str]:
    detokenizer = Detokenizer(tokenizer, context)
    return [detokenizer.add(token) for token in ids], detokenizer.flush()


def check(tokenizer: Tokenizer, ids: Sequence[int]) -> None:
    texts, last = run(tokenizer, ids)
    assert "".join(texts) + last == tokenizer.decode(ids)
    said = ""
    for count, text in enumerate(texts, start=1):
        said += text
        raw = b"".join(tokenizer.token_bytes(i) for i in ids[:count] if i not in tokenizer.special_ids)
        held = [raw[: len(raw) - n].decode("utf-8", "replace") for n in range(4)]
        if tokenizer.strips_first_space:
            held = [text.removeprefix(" ") for text in held]
        assert said in held


@MANY
@given(ids=st.lists(SMALL_IDS, max_size=60))
def test_any_tokens_give_what_decoding_gives(ids: list[int], small: Tokenizer) -> None:
    check(small, ids)


@MANY
@given(ids=st.lists(st.integers(0, 49_160), max_size=40))
def test_any_tokens_of_the_default_model(ids: list[int], smollm: Tokenizer) -> None:
    check(smollm, ids)


@MANY
@given(ids=st.lists(st.integers(0, 290), max_size=40))
def test_any_tokens_of_a_sentencepiece_model(ids: list[int], sentencepiece: Tokenizer) -> None:
    check(sentencepiece, ids)


@MANY
@given(text=st.text(max_size=30))
def test_bytes_of_text_come_out_as_whole_characters(text: str, small: Tokenizer) -> None:
    texts, last = run(small, byte_ids(text.encode()))
    assert last == ""
    assert [char for chunk in texts for char in chunk] == list(text)
    assert all(len(chunk) <= 1 for chunk in texts)


@MANY
@given(context=st.lists(SMALL_IDS, max_size=40), ids=st.lists(SMALL_IDS, max_size=20))
def test_text_goes_on_from_its_context(context: list[int], ids: list[int], small: Tokenizer) -> None:
    before, _ = run(small, context)
    texts, last = run(small, ids, context)
    assert "".join(before) + "".join(texts) + last == small.decode([*context, *ids])


def test_a_character_begun_in_the_context_is_completed(small: Tokenizer) -> None:
    emoji = byte_ids("😀".encode())
    assert run(small, emoji[2:], emoji[:2]) == (["", "😀"], "")


@pytest.mark.parametrize(
    ("raw", "texts", "last"),
    [
        (b"\xff", ["\ufffd"], ""),
        (b"\xf0\x9f\x98a", ["", "", "", "\ufffda"], ""),
        (b"\xe2\x82", ["", ""], "\ufffd"),
        (b"\xe2\xe2\x82\xac", ["", "\ufffd", "", "€"], ""),
        (b"\xc0\x80", ["\ufffd", "\ufffd"], ""),
        (b"\xed\xa0\x80", ["", "", "\ufffd" * 3], ""),
    ],
)
def test_bytes_that_are_no_character(raw: bytes, texts: list[str], last: str, small: Tokenizer) -> None:
    assert run(small, byte_ids(raw)) == (texts, last)


def test_control_tokens_are_skipped_even_inside_a_character(small: Tokenizer) -> None:
    first, second = byte_ids("é".encode())
    assert run(small, [first, 2, second]) == (["", "", "é"], "")


def test_the_first_space_is_dropped_at_a_text_s_beginning_only(sentencepiece: Tokenizer) -> None:
    hello, world = sentencepiece.encode("hello world")
    assert run(sentencepiece, [hello, world]) == (["hello", " world"], "")
    assert run(sentencepiece, [1, hello]) == (["", "hello"], "")
    assert run(sentencepiece, [world], [hello]) == ([" world"], "")
    assert run(sentencepiece, [world], [1]) == (["world"], "")
