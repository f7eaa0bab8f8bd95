"""Scenarios behind public bug reports on servers like this one, each with the outcome that would have been right."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from sapwood.chat import read_json
from server.conftest import Served
from server.fakes import FakeFacts

CHAT, COMPLETIONS, PINS = "/v1/chat/completions", "/v1/completions", "/v1/cache/pins"
PAGES_OF_16 = FakeFacts(page_size=16, capacity_pages=64)


def user(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def refused(answer: httpx.Response) -> str:
    assert answer.status_code == 400, answer.text
    return str(answer.json()["error"]["message"])


@contextmanager
def held(served: Served, after: int = 0) -> Iterator[threading.Event]:
    """The model waits before its next step, or so many later, until the block ends; the event is set when it does."""
    waiting, go_on = threading.Event(), threading.Event()
    first = served.built.runner.steps + 1

    def hold(_: object) -> frozenset[Any]:
        if served.built.runner.steps >= first + after:
            waiting.set()
            go_on.wait(20)
        return frozenset()

    served.built.runner.hook = hold
    try:
        yield waiting
    finally:
        served.built.runner.hook = lambda _: frozenset()
        go_on.set()


# ---- logprobs with reuse -----------------------------------------------------------------------------------


def test_prompts_around_a_page_are_scored_alike_cold_and_warm(serve: Any) -> None:
    """LP-02."""
    with serve(PAGES_OF_16) as served:
        for length in (15, 16, 17, 31, 32, 33):
            body = {"prompt": "s" * length, "max_tokens": 2, "echo": True, "logprobs": 2, "temperature": 0}
            cold, warm = (served.http.post(COMPLETIONS, json=body).json() for _ in range(2))
            scores = cold["choices"][0]["logprobs"]
            assert scores == warm["choices"][0]["logprobs"]
            assert len(scores["token_logprobs"]) == length + 2
            assert scores["token_logprobs"][0] is None
            assert None not in scores["token_logprobs"][1:]


def test_a_warm_prompt_has_a_score_for_each_token_it_is_answered_with(served: Served) -> None:
    """LP-04. No input scores, no alternatives."""
    served.script(b"abcde")
    body = {"messages": user("hi"), "max_tokens": 5, "logprobs": True, "top_logprobs": 0}
    cold, warm = (served.http.post(CHAT, json=body).json() for _ in range(2))
    assert warm["usage"]["prompt_tokens_details"]["cached_tokens"] > 0
    entries = warm["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in entries] == list("abcde")
    assert all(isinstance(entry["logprob"], float) for entry in entries)
    assert entries == cold["choices"][0]["logprobs"]["content"]


# ---- flush and admin calls ---------------------------------------------------------------------------------


def test_a_hundred_flushes_right_after_an_answer_empty_the_cache(served: Served) -> None:
    """AD-02."""
    for _ in range(100):
        answer = served.http.post(COMPLETIONS, json={"prompt": "a few words", "max_tokens": 1}).json()
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert served.http.post("/flush_cache").json()["kept_tokens"] == 0


@pytest.mark.parametrize(
    "path",
    ["/update_weights", "/release_memory_occupation", "/sleep", "/v1/cache/clear"],
)
def test_a_verb_that_is_not_there_never_says_yes(served: Served, path: str) -> None:
    """AD-03. What each verb that is there does is checked where the verb is."""
    assert served.http.post(path, json={}).json()["error"]["code"] == "unknown_url"


def test_a_flush_beside_a_long_queue_is_done_and_everybody_is_answered(serve: Any) -> None:
    """AD-04."""
    with serve(FakeFacts(capacity_pages=64)) as served, ThreadPoolExecutor(5) as pool:
        with held(served) as waiting:
            bodies = [{"prompt": f"{i}" * 50, "max_tokens": 10, "ignore_eos": True} for i in range(4)]
            answers = [pool.submit(served.http.post, COMPLETIONS, json=body) for body in bodies]
            assert waiting.wait(10)
            flush = pool.submit(served.http.post, "/flush_cache")
        assert flush.result(20).status_code == 200
        for answer in answers:
            assert answer.result(20).json()["usage"]["completion_tokens"] == 10
        again = served.http.post(COMPLETIONS, json={"prompt": "0" * 50, "max_tokens": 1})
        assert again.status_code == 200


# ---- limits and validation ---------------------------------------------------------------------------------


def test_empty_prompts_are_refused_on_every_route(served: Served) -> None:
    """VA-01."""
    for path in (COMPLETIONS, PINS, "/tokenize"):
        assert "prompt" in refused(served.http.post(path, json={"prompt": ""}))
    prompts: list[Any] = [[""], [], [[]]]
    for prompt in prompts:
        assert "prompt" in refused(served.http.post(COMPLETIONS, json={"prompt": prompt}))
        assert "prompt" in refused(served.http.post(PINS, json={"prompt": prompt}))
    for path in (CHAT, PINS, "/tokenize"):
        assert "messages" in refused(served.http.post(path, json={"messages": []}))
    assert served.http.post(CHAT, json={"messages": user("hi"), "max_tokens": 1}).status_code == 200


@pytest.mark.parametrize("more", [{}, {"echo": True}, {"echo": True, "logprobs": 1}, {"logprobs": 1}])
def test_no_tokens_may_be_asked_for_cold_and_warm(served: Served, more: dict[str, Any]) -> None:
    """VA-02."""
    for _ in range(2):
        answer = served.http.post(COMPLETIONS, json={"prompt": "score me", "max_tokens": 0, **more}).json()
        (choice,) = answer["choices"]
        assert choice["text"] == ("score me" if more.get("echo") else "")
        assert (choice["finish_reason"], answer["usage"]["completion_tokens"]) == ("length", 0)


@pytest.mark.parametrize("stream", [False, True])
def test_twice_the_limit_is_refused_with_numbers_before_any_work(served: Served, stream: bool) -> None:
    """VA-04."""
    steps = served.built.runner.steps
    bodies: dict[str, dict[str, Any]] = {
        COMPLETIONS: {"prompt": "x" * 8192},
        CHAT: {"messages": user("x" * 8192)},
    }
    for path, prompt in bodies.items():
        message = refused(served.http.post(path, json={**prompt, "stream": stream}))
        assert "the prompt has 8" in message
        assert "4096" in message
    assert served.built.runner.steps == steps


def test_what_is_longer_than_the_pool_is_refused_on_all_routes(serve: Any) -> None:
    """VA-05. The model would take 4096 tokens; there is room for 512."""
    with serve(FakeFacts(capacity_pages=512, pin_tokens=512)) as served:
        for path, body in (
            (COMPLETIONS, {"prompt": "x" * 600}),
            (COMPLETIONS, {"prompt": ["a", "x" * 600]}),
            (CHAT, {"messages": user("x" * 600)}),
            (PINS, {"prompt": "x" * 600}),
        ):
            assert "512" in refused(served.http.post(path, json={"max_tokens": 1, **body}))
        assert served.http.post(COMPLETIONS, json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_a_prompt_about_as_long_as_the_pool_has_text_or_an_error(serve: Any) -> None:
    """VA-06."""
    with serve(FakeFacts(capacity_pages=512)) as served:
        served.script(b"yes")
        for length in (*range(508, 514), *range(508, 514)):
            answer = served.http.post(COMPLETIONS, json={"prompt": "x" * length, "max_tokens": 1})
            if length <= 512:
                assert answer.json()["choices"][0]["text"] == "y"
            else:
                assert "512" in refused(answer)


def test_the_server_answers_others_while_it_reads_a_long_body(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """VA-07. Bodies are read by a worker thread: this one waits until others were answered."""
    reading, go_on = threading.Event(), threading.Event()

    def slow_read(body: bytes) -> Any:
        if len(body) > 2**20:
            reading.set()
            assert go_on.wait(20)
        return read_json(body)

    monkeypatch.setattr("sapwood.server.openai_routes.read_json", slow_read)
    served.script(b"z" * 30)
    with ThreadPoolExecutor(1) as pool:
        long = pool.submit(served.http.post, COMPLETIONS, json={"prompt": "x" * (20 * 2**20)})
        try:
            assert reading.wait(20)
            assert served.http.get("/health").status_code == 200
            stream = served.openai.completions.create(model="toy", prompt="a", max_tokens=30, stream=True)
            assert "".join(chunk.choices[0].text for chunk in stream) == "z" * 30
            assert not long.done()
        finally:
            go_on.set()
        assert "limited" in refused(long.result(20))
    over = served.http.post(COMPLETIONS, content=b"x" * (33 * 2**20))
    assert over.status_code == 413


def test_counting_tokens_first_leaves_a_prompt_cold(served: Served) -> None:
    """VA-11."""
    assert served.http.post("/tokenize", json={"prompt": "count me"}).json()["count"] == 8
    usage = served.http.post(COMPLETIONS, json={"prompt": "count me", "max_tokens": 1}).json()["usage"]
    assert usage["prompt_tokens_details"]["cached_tokens"] == 0
