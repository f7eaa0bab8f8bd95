"""Which tokens spell which bytes."""

from __future__ import annotations

import pytest

from sapwood.chat.alignment import token_ends
from sapwood.chat.replay import Replayed
from server.fakes import VOCAB, byte_tokenizer

LENGTHS = [len(byte_tokenizer().token_bytes(token)) for token in range(VOCAB)]
BEYOND = VOCAB + 40


@pytest.mark.parametrize(("text", "ends"), [("abc", [1, 2, 2, 3]), ("abXc", [1, 3, 3, 4])])
def test_a_replayed_id_without_an_entry_in_the_tokenizer_spells_nothing(text: str, ends: list[int]) -> None:
    replayed = [Replayed(start=1, end=len(text) - 1, first=1, stop=3)]
    found = token_ends(byte_tokenizer(), LENGTHS, text, (97, 98, BEYOND, 99), replayed)
    assert found is not None
    assert found.tolist() == ends


def test_no_tokens_spell_the_empty_text() -> None:
    found = token_ends(byte_tokenizer(), LENGTHS, "", ())
    assert found is not None
    assert found.size == 0
