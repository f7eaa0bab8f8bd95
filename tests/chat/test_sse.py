from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.chat import DONE, KEEP_ALIVE, SseReader, encode_event

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@given(TEXTS)
def test_an_event_is_one_data_line_whatever_the_text(text: str) -> None:
    event = encode_event({"text": text}).decode()
    assert event.startswith("data: ")
    assert event.endswith("\n\n")
    # `splitlines` cuts at every break that some client's reader may know.
    assert len(event.rstrip("\n").splitlines()) == 1
    assert json.loads(event[len("data: ") :]) == {"text": text}


@given(st.lists(TEXTS, max_size=5), st.lists(st.integers(1, 40), min_size=1))
def test_reading_does_not_depend_on_how_the_network_cuts(texts: list[str], cuts: list[int]) -> None:
    stream = b"".join(encode_event({"text": text}) + KEEP_ALIVE for text in texts) + DONE
    reader, read, at = SseReader(), list[str](), 0
    while at < len(stream):
        step = cuts[len(read) % len(cuts)]
        read += reader.feed(stream[at : at + step])
        at += step
    assert read.pop() == "[DONE]"
    assert [json.loads(data)["text"] for data in read] == texts


def test_reader_takes_carriage_returns_other_fields_and_many_data_lines() -> None:
    reader = SseReader()
    assert reader.feed(b"event: x\r\nid: 7\r\ndata: a\r\ndata:b\r\n\r\n") == ["a\nb"]


def test_nan_is_refused_rather_than_sent() -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode_event({"logprob": float("nan")})
