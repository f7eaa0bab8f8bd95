"""Pins over HTTP: what they keep, and what is said of those that cannot be."""

from __future__ import annotations

import threading
from typing import Any

import httpx
import pytest

from server.conftest import Served
from server.fakes import FakeFacts

PINS = "/v1/cache/pins"
SMALL = FakeFacts(capacity_pages=1024, pin_tokens=512)


def error_of(answer: httpx.Response, status: int) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    return dict(answer.json()["error"])


def reused(served: Served, prompt: str) -> int:
    usage: Any = served.openai.completions.create(model="toy", prompt=prompt, max_tokens=1).usage
    return int(usage.prompt_tokens_details.cached_tokens)


def totals(served: Served) -> tuple[int, int]:
    facts = served.http.get("/v1/server").json()
    return facts["pinned_tokens"], facts["pin_budget_tokens"]


def test_a_pinned_prompt_outlives_a_flood_of_twenty_pools(serve: Any) -> None:
    """TI-13, by HTTP."""
    with serve(SMALL) as served:
        prompt = "Keep this. " * 45
        pinned = served.http.post(PINS, json={"id": "system", "prompt": prompt})
        size = len(prompt)
        assert pinned.json() == {
            "id": "system",
            "prompt_tokens": size,
            "pinned_tokens": size,
            "budget_tokens": 512,
            "total_pinned_tokens": size,
        }
        for i in range(41):
            served.openai.completions.create(model="toy", prompt=f"{i:03}" + "x" * 497, max_tokens=1)
        assert reused(served, prompt + "?") == size
        assert totals(served) == (size, 512)
        over = error_of(served.http.post(PINS, json={"prompt": "y" * 100}), 400)
        assert over["code"] == "pin_budget_exceeded"
        assert "100" in over["message"]
        assert "512" in over["message"]
        gone = served.http.delete(f"{PINS}/system").json()
        assert (gone["id"], gone["total_pinned_tokens"]) == ("system", 0)
        for i in range(41):
            served.openai.completions.create(model="toy", prompt=f"{i:03}" + "z" * 497, max_tokens=1)
        assert reused(served, prompt + "?") < size


def test_messages_are_pinned_as_a_conversation_begins_with_them(served: Served) -> None:
    system = {"role": "system", "content": "You are brief."}
    pinned = served.http.post(PINS, json={"messages": [system]}).json()
    assert pinned["id"].startswith("pin-")
    asked = {"messages": [system, {"role": "user", "content": "hi"}], "max_tokens": 1}
    usage = served.http.post("/v1/chat/completions", json=asked).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == pinned["prompt_tokens"]
    listed = served.http.get(PINS).json()
    assert listed["pins"] == [
        {name: pinned[name] for name in ("id", "prompt_tokens", "pinned_tokens")},
    ]
    assert (listed["budget_tokens"], listed["total_pinned_tokens"]) == (2048, pinned["pinned_tokens"])
    assert (
        f'sapwood_pinned_tokens{{model="toy"}} {pinned["pinned_tokens"]}.0'
        in served.http.get("/metrics").text
    )


def test_a_pin_holds_for_its_own_salt(served: Served) -> None:
    served.http.post(PINS, json={"prompt": "secret words", "cache_salt": "a"})
    body = {"prompt": "secret words", "max_tokens": 1}
    for salt, hit in (("a", 11), ("b", 0)):
        answer = served.http.post("/v1/completions", json={**body, "cache_salt": salt}).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == hit


def test_a_flush_ends_all_pins(served: Served) -> None:
    served.http.post(PINS, json={"id": "a", "prompt": "some words"})
    served.http.post("/flush_cache")
    assert served.http.get(PINS).json()["pins"] == []
    assert totals(served)[0] == 0
    assert error_of(served.http.delete(f"{PINS}/a"), 404)["code"] == "pin_not_found"


@pytest.mark.parametrize(
    ("body", "param", "said"),
    [
        ({}, "prompt", "either 'prompt' or 'messages'"),
        ({"prompt": "a", "messages": []}, "prompt", "not both"),
        ({"prompt": ""}, "prompt", "empty"),
        ({"prompt": [1, 999]}, "prompt[1]", "token id"),
        ({"prompt": ["a", "b"]}, "prompt[0]", "token id"),
        ({"prompt": "x" * 3000}, "prompt", "3000 tokens to be pinned; all pins together may hold 2048"),
        ({"prompt": "x" * 9000}, "prompt", "tokens"),
        ({"messages": [{"role": "user", "content": "x" * 3000}]}, "messages", "may hold 2048"),
        ({"messages": []}, "messages", "a list of 1 or more"),
        ({"messages": [{"role": "king", "content": "a"}]}, "messages[0].role", "one of"),
        ({"prompt": "a", "id": "a/b"}, "id", "letters"),
        ({"prompt": "a", "id": ""}, "id", "letters"),
        ({"promt": "a"}, "promt", "did you mean 'prompt'?"),
        ({"prompt": "a", "cache_salt": ""}, "cache_salt", "at least 1"),
        ({"prompt": "a", "model": "other"}, "model", "not served here"),
    ],
)
def test_wrong_pins_are_refused_by_name_and_before_any_work(
    served: Served, body: dict[str, Any], param: str, said: str
) -> None:
    steps = served.built.runner.steps
    answer = served.http.post(PINS, json=body)
    error = error_of(answer, 404 if param == "model" else 400)
    assert error["param"] == param
    assert said in error["message"]
    assert served.built.runner.steps == steps
    assert served.http.get(PINS).json()["pins"] == []


def test_an_id_that_is_taken_is_refused_and_free_again_afterwards(served: Served) -> None:
    for status in (200, 400):
        assert served.http.post(PINS, json={"id": "a", "prompt": "words"}).status_code == status
    served.http.delete(f"{PINS}/a")
    assert served.http.post(PINS, json={"id": "a", "prompt": "other words"}).status_code == 200
    served.http.delete(f"{PINS}/a")


def test_a_client_that_hangs_up_while_it_is_computed_has_pinned_nothing(served: Served) -> None:
    entered, go_on = threading.Event(), threading.Event()

    def hold(_: object) -> frozenset[Any]:
        entered.set()
        go_on.wait(10)
        return frozenset()

    served.built.runner.hook = hold
    try:
        with pytest.raises(httpx.ReadTimeout):
            served.http.post(PINS, json={"id": "a", "prompt": "some words"}, timeout=0.5)
        assert entered.wait(10)
        # By the time these are answered the server has heard of it.
        assert [served.http.get("/health").status_code for _ in range(3)] == [200] * 3
    finally:
        served.built.runner.hook = lambda _: frozenset()
        go_on.set()
    assert served.http.get(PINS).json()["pins"] == []


@pytest.mark.parametrize("index", ["radix", "blocks"])
def test_a_warm_verb_makes_all_whole_pages_reusable(serve: Any, index: str) -> None:
    """VA-10. A pin, and a call of no new tokens, of exactly four pages; then the same with a question."""
    policies = {"eviction": "lru", "schedule": "default", "prefix_index": index}
    with serve(FakeFacts(page_size=16, capacity_pages=64, pin_tokens=128, policies=policies)) as served:
        pinned, warmed = "p" * 64, "w" * 64
        assert served.http.post(PINS, json={"prompt": pinned}).json()["pinned_tokens"] == 64
        served.http.post("/v1/completions", json={"prompt": warmed, "max_tokens": 0})
        assert reused(served, pinned + " question") == 64
        assert reused(served, warmed + " question") == 64
        short = error_of(served.http.post(PINS, json={"prompt": "x" * 15}), 400)
        assert "less than one page of 16" in short["message"]


def test_nothing_is_pinned_where_nothing_is_reused(serve: Any) -> None:
    policies = {"eviction": "lru", "schedule": "default", "prefix_index": "none"}
    with serve(FakeFacts(policies=policies)) as served:
        error = error_of(served.http.post(PINS, json={"prompt": "abc"}), 400)
        assert error["code"] == "reuse_off"
        assert "--prefix-index" in error["message"]


def test_what_fits_the_pool_but_not_beside_the_pins_is_refused_for_now(serve: Any) -> None:
    with serve(SMALL) as served:
        served.http.post(PINS, json={"id": "wide", "prompt": "w" * 500}).raise_for_status()
        call = {"model": "toy", "prompt": "v" * 800, "max_tokens": 1}
        refused = served.http.post("/v1/completions", json=call)
        assert "pins hold the rest" in error_of(refused, 503)["message"]
        served.http.delete(f"{PINS}/wide").raise_for_status()
        assert served.http.post("/v1/completions", json=call).status_code == 200
