"""Each native dialect on a really served model: the answer of the OpenAI route, and the counts of its cache."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest

from server.test_served import serving_default_model

PROMPT = "The three primary colours are red, yellow and"
MESSAGES = [{"role": "user", "content": "Name three primary colours."}]


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with (
        serving_default_model("--kv-memory", "64MiB") as (_, url),
        httpx.Client(base_url=url, timeout=120) as client,
    ):
        yield client


def post(http: httpx.Client, path: str, **body: Any) -> Any:
    answer = http.post(path, json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def completed(http: httpx.Client) -> tuple[str, int]:
    """What the OpenAI route says, and the tokens of the prompt."""
    answer = post(http, "/v1/completions", prompt=PROMPT, max_tokens=8, temperature=0)
    return answer["choices"][0]["text"], answer["usage"]["prompt_tokens"]


def test_sglang(http: httpx.Client, completed: tuple[str, int]) -> None:
    http.get("/flush_cache")
    params = {"temperature": 0, "max_new_tokens": 8}
    cold, warm = (post(http, "/generate", text=PROMPT, sampling_params=params) for _ in range(2))
    assert cold["text"] == warm["text"] == completed[0]
    assert cold["output_ids"] == warm["output_ids"]
    counts = [each["meta_info"]["cached_tokens"] for each in (cold, warm)]
    assert counts == [0, completed[1] - 1]


def test_llama(http: httpx.Client, completed: tuple[str, int]) -> None:
    post(http, "/reset_prefix_cache")
    body = {"prompt": PROMPT, "temperature": 0, "n_predict": 8, "return_tokens": True}
    cold, warm, aside = (
        post(http, "/completion", **body, cache_prompt=reuse) for reuse in (True, True, False)
    )
    assert cold["content"] == warm["content"] == aside["content"] == completed[0]
    assert cold["tokens"] == warm["tokens"] == aside["tokens"]
    assert [each["timings"]["cache_n"] for each in (cold, warm, aside)] == [0, completed[1] - 1, 0]
    assert cold["timings"]["prompt_ms"] > 0
    assert cold["timings"]["predicted_ms"] > 0


def test_ollama(http: httpx.Client) -> None:
    answer = post(http, "/v1/chat/completions", messages=MESSAGES, max_tokens=8, temperature=0)
    options = {"temperature": 0, "num_predict": 8}
    with ollama.Client(host=str(http.base_url), timeout=120) as client:
        (name,) = [each.model for each in client.list().models]
        assert name is not None
        whole = client.chat(name, messages=MESSAGES, options=options)
        pieces = client.chat(name, messages=MESSAGES, options=options, stream=True)
        streamed = "".join(piece.message.content or "" for piece in pieces)
    assert whole.message.content == streamed == answer["choices"][0]["message"]["content"]
    assert whole.prompt_eval_count == answer["usage"]["prompt_tokens"]
    assert (whole.eval_duration or 0) > 0
