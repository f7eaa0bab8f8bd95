from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.engine.stops import StopMatcher


def shown(stops: tuple[str, ...], pieces: list[str]) -> tuple[str, str | None]:
    matcher, text = StopMatcher(stops), ""
    for piece in pieces:
        cut = matcher.feed(piece)
        text += cut.text
        if cut.stop is not None:
            return text, cut.stop
    return text + matcher.flush(), None


def by_definition(stops: tuple[str, ...], text: str) -> tuple[str, str | None]:
    """Character by character: the first end of a stop string, and of those that end there the longest."""
    for end in range(1, len(text) + 1):
        ending = [stop for stop in stops if text[:end].endswith(stop)]
        if ending:
            stop = max(ending, key=len)
            return text[: end - len(stop)], stop
    return text, None


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), max_size=3).map(tuple),
    pieces=st.lists(st.text("abc", max_size=4), max_size=8),
)
def test_where_the_pieces_are_cut_makes_no_difference(stops: tuple[str, ...], pieces: list[str]) -> None:
    assert shown(stops, pieces) == by_definition(stops, "".join(pieces))


@given(
    stops=st.lists(st.text("ab", min_size=1, max_size=4), min_size=1, max_size=3).map(tuple),
    text=st.text("abc"),
)
def test_no_shown_text_is_part_of_a_stop_string(stops: tuple[str, ...], text: str) -> None:
    matcher, seen = StopMatcher(stops), ""
    for character in text:
        cut = matcher.feed(character)
        seen += cut.text
        if cut.stop is not None:
            break
    assert by_definition(stops, text)[0].startswith(seen)


@pytest.mark.parametrize(
    ("pieces", "text", "stop"),
    [
        (["Hello wor", "ld"], "Hello ", "world"),
        (["Hello wor", "m"], "Hello worm", None),
        (["aworl", "world!"], "aworl", "world"),
        (["wor"], "wor", None),
        (["x\n", "\nUser:"], "x", "\n\n"),
    ],
)
def test_examples(pieces: list[str], text: str, stop: str | None) -> None:
    assert shown(("world", "\n\n"), pieces) == (text, stop)


def test_text_that_cannot_begin_a_stop_string_is_not_held() -> None:
    matcher = StopMatcher(("END",))
    assert matcher.feed("some text E").text == "some text "
    assert matcher.feed("NO").text == "ENO"
    assert matcher.flush() == ""
