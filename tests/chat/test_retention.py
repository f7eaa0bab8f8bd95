from __future__ import annotations

from typing import Any

import pytest

from sapwood.chat import parse_chat, parse_completion
from sapwood.chat.retention import parse_retention
from sapwood.errors import RequestError
from sapwood.types import Retain


@pytest.mark.parametrize(
    ("value", "wishes"),
    [
        (None, ()),
        ([], ()),
        ({"priority": 80}, (Retain(80),)),
        ({"priority": 1, "ttl": None, "start": None, "end": None}, (Retain(1),)),
        ({"priority": 99, "ttl": "5m", "start": 4, "end": 5}, (Retain(99, 300.0, 4, 5),)),
        ([{"priority": 2, "ttl": 1.5}, {"priority": 3, "ttl": "90"}], (Retain(2, 1.5), Retain(3, 90.0))),
    ],
)
def test_a_wish_or_a_list_of_them_on_both_routes(value: Any, wishes: tuple[Retain, ...]) -> None:
    chat = parse_chat(
        {"messages": [{"role": "user", "content": "a"}], "cache_retention": value}, vocab_size=9
    )
    completion = parse_completion({"prompt": "a", "cache_retention": value}, vocab_size=9)
    assert chat.options.retain == completion.options.retain == wishes
    assert chat.options.ignored == ()


@pytest.mark.parametrize(
    ("value", "path", "said"),
    [
        ("5m", "cache_retention", "it must be an object"),
        ([{"priority": 1}, 7], "cache_retention[1]", "it must be an object"),
        ({}, "cache_retention.priority", "is required"),
        ({"priority": 0}, "cache_retention.priority", "from 1 to 99"),
        ({"priority": 100}, "cache_retention.priority", "from 1 to 99"),
        ({"priority": True}, "cache_retention.priority", "is true"),
        ({"priority": 1.0}, "cache_retention.priority", "a whole number"),
        ([{"priority": 1}, {"priority": 1, "ttl": "5x"}], "cache_retention[1].ttl", "seconds"),
        ({"priority": 1, "ttl": 0}, "cache_retention.ttl", "above 0"),
        ({"priority": 1, "ttl": 10**400}, "cache_retention.ttl", "above 0"),
        ({"priority": 1, "ttl": "0s"}, "cache_retention.ttl", "above 0"),
        ({"priority": 1, "ttl": float("inf")}, "cache_retention.ttl", "above 0"),
        ({"priority": 1, "ttl": False}, "cache_retention.ttl", "is false"),
        ({"priority": 1, "ttl": ["5m"]}, "cache_retention.ttl", "a list of 1 items"),
        ({"priority": 1, "start": -1}, "cache_retention.start", "0 or more"),
        ({"priority": 1, "start": 5, "end": 5}, "cache_retention.end", "after start (5)"),
        ({"priority": 1, "until": 5}, "cache_retention.until", "priority, ttl, start, end"),
    ],
)
def test_wrong_wishes_are_refused_by_path(value: Any, path: str, said: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_retention(value)
    assert caught.value.param == path
    assert repr(path) in caught.value.message
    assert said in caught.value.message


def test_more_than_sixteen_are_refused() -> None:
    with pytest.raises(RequestError, match="17 entries; at most 16"):
        parse_completion({"prompt": "a", "cache_retention": [{"priority": 1}] * 17}, vocab_size=9)
