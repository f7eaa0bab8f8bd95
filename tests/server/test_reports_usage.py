"""Scenarios behind public bug reports about numbers: of usage, of pages, of requests that were dropped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import MappingProxyType
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from sapwood.config import LedgerName
from server.conftest import Served
from server.test_disconnect import idle, send
from server.test_reports import held
from waiting import eventually

Told = tuple[int, int]
"""Tokens said to be cached, and those of the prompt."""


def by_openai(answer: dict[str, Any]) -> Told:
    usage = answer["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]


def by_responses(answer: dict[str, Any]) -> Told:
    usage = answer["usage"]
    return usage["input_tokens_details"]["cached_tokens"], usage["input_tokens"]


def by_anthropic(answer: dict[str, Any]) -> Told:
    usage = answer["usage"]
    parts = (usage["input_tokens"], usage["cache_creation_input_tokens"], usage["cache_read_input_tokens"])
    assert min(parts) >= 0
    return usage["cache_read_input_tokens"], sum(parts)


def by_gemini(answer: dict[str, Any]) -> Told:
    usage = answer["usageMetadata"]
    return usage.get("cachedContentTokenCount", 0), usage["promptTokenCount"]


def by_sglang(answer: dict[str, Any]) -> Told:
    return answer["meta_info"]["cached_tokens"], answer["meta_info"]["prompt_tokens"]


def by_llamacpp(answer: dict[str, Any]) -> Told:
    """What it calls cached is what is so after the answer; its timings tell of the prompt's part that was not read."""
    assert answer["tokens_cached"] >= answer["tokens_evaluated"]
    return answer["tokens_evaluated"] - answer["timings"]["prompt_n"], answer["tokens_evaluated"]


def turns(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


Route = tuple[str, Callable[[str], dict[str, Any]], Callable[[dict[str, Any]], Told]]
ROUTES: Mapping[str, Route] = MappingProxyType(
    {
        "completions": ("/v1/completions", lambda t: {"prompt": t, "max_tokens": 1}, by_openai),
        "chat": ("/v1/chat/completions", lambda t: {"messages": turns(t), "max_tokens": 1}, by_openai),
        "two samples": (
            "/v1/chat/completions",
            lambda t: {"messages": turns(t), "max_tokens": 1, "n": 2},
            by_openai,
        ),
        "responses": (
            "/v1/responses",
            lambda t: {"model": "toy", "input": t, "max_output_tokens": 16},
            by_responses,
        ),
        "messages": (
            "/v1/messages",
            lambda t: {"model": "toy", "messages": turns(t), "max_tokens": 1},
            by_anthropic,
        ),
        "marked": (
            "/v1/messages",
            lambda t: {
                "model": "toy",
                "messages": turns(t),
                "max_tokens": 1,
                "cache_control": {"type": "ephemeral"},
            },
            by_anthropic,
        ),
        "gemini": (
            "/v1beta/models/toy:generateContent",
            lambda t: {"contents": [{"parts": [{"text": t}]}], "generationConfig": {"maxOutputTokens": 1}},
            by_gemini,
        ),
        "sglang": (
            "/generate",
            lambda t: {"text": t, "sampling_params": {"max_new_tokens": 1}},
            by_sglang,
        ),
        "llamacpp": ("/completion", lambda t: {"prompt": t, "n_predict": 1}, by_llamacpp),
    }
)


@pytest.mark.parametrize("ledger", ["physical", "contract"])
def test_more_is_never_cached_than_was_sent(serve: Any, ledger: LedgerName) -> None:
    """US-08. Prompts that share more and more, over all dialects that tell both numbers."""
    with serve(ledger=ledger, anthropic_minimum=8) as served:
        most = dict.fromkeys(ROUTES, 0)
        longest = 200 if ledger == "physical" else 1500
        for length in (1, 2, 3, 16, 17, longest, longest):
            for name, (path, body, told) in ROUTES.items():
                answer = served.http.post(path, json=body("u" * length))
                assert answer.status_code == 200, answer.text
                cached, prompt = told(answer.json())
                assert 0 <= cached <= prompt, (name, length)
                assert prompt >= length
                if ledger == "physical":
                    assert cached < prompt, (name, length)
                most[name] = max(most[name], cached)
        # By contract Anthropic's is told only where a marker stands.
        assert [name for name in ROUTES if not most[name]] == (["messages"] if ledger == "contract" else [])


# ---- pages -------------------------------------------------------------------------------------------------


def pages(served: Served) -> dict[str, float]:
    families = text_string_to_metric_families(served.http.get("/metrics").text)
    (gauge,) = [family for family in families if family.name == "sapwood_pages"]
    return {sample.labels["state"]: sample.value for sample in gauge.samples}


def test_pages_in_use_cached_and_free_are_told_apart_and_sum_to_the_pool(served: Served) -> None:
    """US-09. A gauge of what is in use falls to 0 after a request; that of what is cached does not."""
    assert pages(served) == {"free": 8192, "tree": 0, "leased": 0, "private": 0}
    body = {"prompt": "remember me", "max_tokens": 2}
    with ThreadPoolExecutor(1) as pool:
        with held(served, after=1) as waiting:
            answer = pool.submit(served.http.post, "/v1/completions", json=body)
            assert waiting.wait(10)
            running = pages(served)
        assert answer.result(20).status_code == 200
    assert running["leased"] + running["private"] >= len("remember me")
    assert sum(running.values()) == 8192
    assert eventually(lambda: idle(served))
    after = pages(served)
    assert (after["leased"], after["private"]) == (0, 0)
    assert after["tree"] >= len("remember me")
    assert after["free"] + after["tree"] == 8192


# ---- requests that were dropped ----------------------------------------------------------------------------


def test_a_dropped_stream_leaves_a_full_record(serve: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """US-10."""
    said: list[str] = []

    def last_record() -> dict[str, Any] | None:
        said.append(capsys.readouterr().err)
        records = [json.loads(line) for line in "".join(said).splitlines() if line.startswith("{")]
        return next((each for each in records if each["ending"] == "cancelled"), None)

    with serve(log_json=True) as served:
        prompt = "a long story: "
        served.http.post("/v1/completions", json={"prompt": prompt[:8], "max_tokens": 1})
        served.script(b"once upon a time")
        with held(served, after=3) as waiting:
            body = {"prompt": prompt, "max_tokens": 2000, "stream": True}
            connection = send(served, body)
            assert waiting.wait(10)
            received = b""
            while b'"text":"n"' not in received:
                received += (more := connection.recv(4096))
                assert more
            connection.close()
        assert eventually(lambda: last_record() is not None)
        record = last_record()
    assert record is not None
    assert (record["path"], record["status"]) == ("/v1/completions", 200)
    assert (record["prompt_tokens"], record["reused_tokens"]) == (len(prompt), 8)
    assert sum(record["missed_tokens"].values()) == len(prompt) - 8
    assert 2 <= record["completion_tokens"] <= len("once upon a time")
