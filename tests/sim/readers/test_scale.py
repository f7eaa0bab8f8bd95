"""Texts in stretches of bytes."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import pytest

from sapwood.errors import UsageError
from sapwood.sim.readers.call import Call
from sapwood.sim.readers.scale import BYTES_PER_TOKEN, Scale, Stretches
from sapwood.sim.readers.usage import Usage


def call(size: int, told: int | None) -> Call:
    return Call(0.0, b"x" * size, usage=Usage(told))


def alike(one: Sequence[object], other: Sequence[object]) -> int:
    """Leading items that are equal."""
    return next(
        (k for k, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )


def whole_stretches(size: int, bytes_per_token: float) -> int:
    """One by one, those that end at or before `size`."""
    stretches = 0
    while int((stretches + 1) * bytes_per_token) <= size:
        stretches += 1
    return stretches


@pytest.mark.parametrize("bytes_per_token", [0.4, 1.0, 2.5, 4.0, 4.7123, 11.0])
def test_two_texts_share_what_is_equal_byte_by_byte_rounded_down(bytes_per_token: float) -> None:
    draw = random.Random(7)
    stretches = Stretches(Scale(bytes_per_token))
    for _ in range(200):
        same = bytes(draw.choices(b"ab", k=draw.randrange(90)))
        one, other = (same + bytes(draw.choices(b"ab", k=draw.randrange(1, 40))) for _ in range(2))
        equal = alike(one, other)
        shared = alike(stretches.names(one).tolist(), stretches.names(other).tolist())
        if equal < min(len(one), len(other)):
            assert shared == whole_stretches(equal, bytes_per_token)
        else:  # What is left of the shorter one may be a stretch of the longer.
            assert shared >= min(whole_stretches(equal, bytes_per_token), stretches.scale.count(equal))


@pytest.mark.parametrize("bytes_per_token", [0.4, 1.0, 3.1, 4.7123, 0.1 + 0.2])
def test_a_text_has_the_tokens_that_begin_in_it(bytes_per_token: float) -> None:
    scale = Scale(bytes_per_token)
    for size in range(1, 200):
        ends = scale.ends(size)
        assert scale.count(size) == len(ends) - 1
        assert ends[-1] == size > ends[-2]
        assert ends == sorted(ends)
        assert ends[:-1] == [int(k * bytes_per_token) for k in range(len(ends) - 1)]


def test_the_same_stretch_has_the_same_number_and_none_that_a_token_has() -> None:
    stretches = Stretches(Scale(2.0), first=100)
    assert stretches.names(b"ababc").tolist() == [100, 100, 101]
    assert stretches.names(b"c\0c").tolist() == [102, 101]
    assert stretches.names(b"").dtype == np.int32


def test_all_prompts_together_have_the_tokens_that_were_counted() -> None:
    scale = Scale.of([call(400, 100), call(500, 125), call(300, 50), call(77, None)])
    assert scale.bytes_per_token == pytest.approx(1200 / 275)
    assert (scale.texts, scale.told) == (4, 3)
    (note,) = scale.notes()
    assert note.startswith(
        "token counts are those of the log's usage, 4.36 bytes a token over 3 of 4 prompts"
    )


def test_how_far_single_prompts_are_off_is_told() -> None:
    scale = Scale.of([call(400, 100)] * 95 + [call(400, 200)] * 5)
    assert scale.apart == pytest.approx(1 - 100 / 105)
    assert "off by up to 5 %" in scale.notes()[0]


def test_where_nobody_counted_a_guess_is_told_as_one() -> None:
    scale = Scale.of([call(400, None), call(10, 0)])
    assert scale.bytes_per_token == BYTES_PER_TOKEN
    assert scale.notes()[0].startswith("token counts are guessed, 4 bytes a token")


def test_tokens_are_not_scaled() -> None:
    scale = Scale.of([Call(0.0, np.array([1, 2], np.int32), usage=Usage(9))])
    assert (scale, scale.notes()) == (Scale(), ())


def test_answers_that_nobody_counted_are_told_beside_prompts_that_somebody_did() -> None:
    told = [Call(0.0, b"p" * 50, b"a" * 20, Usage(10)), Call(0.0, b"p" * 50, b"a" * 20, Usage(10, 3))]
    notes = Scale.of(told).notes()
    assert notes[0].startswith(
        "token counts are those of the log's usage, 5 bytes a token over all 2 prompts"
    )
    assert notes[1:] == ("1 answers that nobody counted are as long as their texts, 5 bytes a token",)
    assert len(Scale.of(told[1:]).notes()) == 1


def test_where_no_number_is_left_for_texts_that_is_told() -> None:
    assert Stretches(Scale(2.0), first=2**31 - 2).names(b"abcd").tolist() == [2**31 - 2, 2**31 - 1]
    with pytest.raises(UsageError, match="there is the token id 2147483647: too few numbers are left"):
        Stretches(Scale(2.0), first=2**31).names(b"ab")
