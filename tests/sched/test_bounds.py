from __future__ import annotations

import pytest

from sapwood.errors import ContextLengthError
from sapwood.sched import Bounds


def test_an_answer_may_fill_what_is_smaller_and_its_last_token_needs_no_page() -> None:
    assert Bounds(context=100, pool=50).max_len(20, 31) == 51
    assert Bounds(context=100, pool=50).max_len(20, None) == Bounds(100, 50).longest == 51
    assert Bounds(context=40, pool=50).max_len(20, None) == Bounds(40, 50).longest == 40
    assert Bounds(context=100, pool=50).max_len(50, 0) == 50


@pytest.mark.parametrize(
    ("bounds", "prompt", "answer", "why"),
    [
        (Bounds(40, 50), 20, 21, "context is limited to 40"),
        (Bounds(40, 50), 40, None, "context is limited to 40"),
        (Bounds(100, 50), 20, 32, "pool holds 50"),
        (Bounds(100, 50), 51, 0, "pool holds 50"),
        (Bounds(100, 50), 51, None, "pool holds 50"),
    ],
)
def test_what_can_never_be_placed_is_refused(
    bounds: Bounds, prompt: int, answer: int | None, why: str
) -> None:
    with pytest.raises(ContextLengthError, match=why):
        bounds.max_len(prompt, answer)
