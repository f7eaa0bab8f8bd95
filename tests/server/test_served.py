"""The real thing: `python -m sapwood serve` with the default model, through the official SDK."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import httpx
import openai
import pytest

SRC = Path(__file__).parents[2] / "src"
MODEL = "smollm2-135m"


def ready_url(stderr: IO[str]) -> str:
    """Where it serves, once it says so. Everything said before is shown if it never does."""
    said = []
    for line in stderr:
        said.append(line)
        if line.startswith("Sapwood serves "):
            return line.split(" at ")[1].split(" ")[0]
    raise AssertionError("the server ended before it was ready:\n" + "".join(said))


@contextmanager
def serving_default_model(*flags: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A process that serves the default model, and its address."""
    command = [sys.executable, "-m", "sapwood", "serve", "--port", "0", "--cache-dir", "none", *flags]
    environment = {**os.environ, "PYTHONPATH": str(SRC)}
    started = subprocess.Popen(
        command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    )
    assert started.stderr is not None
    url = ready_url(started.stderr)
    drain = threading.Thread(target=started.stderr.read, daemon=True)
    drain.start()
    try:
        yield started, url
    finally:  # Also where the test failed: a server left behind would burden all tests after it.
        started.send_signal(signal.SIGTERM)
        status = started.wait(20)
        drain.join(5)
        assert started.stdout is not None
        told = started.stdout.read()
        started.stdout.close()
        started.stderr.close()
    assert status == 0
    assert told == ""


@pytest.fixture(scope="module")
def process() -> Iterator[tuple[subprocess.Popen[str], str]]:
    with serving_default_model("--ledger", "physical", "--kv-memory", "256MiB") as served:
        yield served


@pytest.fixture(scope="module")
def client(process: tuple[subprocess.Popen[str], str]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{process[1]}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


@pytest.fixture(scope="module")
def http(process: tuple[subprocess.Popen[str], str]) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=process[1], timeout=120) as client:
        yield client


def tokens(seed: int, count: int) -> list[int]:
    """Token ids that no other test sends."""
    return [1000 + (seed * 7919 + i * 104729) % 40000 for i in range(count)]


def test_an_equal_prompt_is_reused_but_for_its_last_token(client: openai.OpenAI) -> None:
    prompt = tokens(1, 1500)
    cold = client.completions.create(model=MODEL, prompt=prompt, max_tokens=8, temperature=0)
    warm = client.completions.create(model=MODEL, prompt=prompt, max_tokens=8, temperature=0)
    assert cold.usage is not None
    assert warm.usage is not None
    assert cold.usage.prompt_tokens_details is not None
    assert warm.usage.prompt_tokens_details is not None
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert warm.usage.prompt_tokens_details.cached_tokens == 1499
    assert warm.choices[0].text == cold.choices[0].text


def test_a_chat_answers_sensibly(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "What is the capital of France?"}]
    answer = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=40, temperature=0)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    stream = client.chat.completions.create(
        model=MODEL,
        messages=messages,
        max_tokens=40,
        temperature=0,
        stream=True,
        stream_options={"include_usage": True},
    )
    chunks = list(stream)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == answer.choices[0].message.content
    usage: Any = chunks[-1].usage
    assert usage.prompt_tokens_details.cached_tokens == usage.prompt_tokens - 1


def test_the_next_turn_reuses_the_answer_too(client: openai.OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Name three rivers in Europe, one per line."}]
    first: Any = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=60, temperature=0)
    messages += [
        first.choices[0].message.model_dump(include={"role", "content"}),
        {"role": "user", "content": "More."},
    ]
    second: Any = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4, temperature=0)
    reused = second.usage.prompt_tokens_details.cached_tokens
    # A text need not be split into the tokens it was generated as; up to there everything is reused.
    assert reused >= first.usage.prompt_tokens
    if first.choices[0].finish_reason == "stop":
        assert reused > first.usage.prompt_tokens


def test_logprobs_are_equal_to_the_bit_cold_and_warm(client: openai.OpenAI) -> None:
    prompt = tokens(2, 60)
    options: Any = {"max_tokens": 6, "temperature": 0, "logprobs": 3}
    cold: Any = client.completions.create(model=MODEL, prompt=prompt, **options)
    warm: Any = client.completions.create(model=MODEL, prompt=prompt, **options)
    assert warm.usage.prompt_tokens_details.cached_tokens == 59
    assert warm.choices[0].logprobs == cold.choices[0].logprobs


def test_echoed_logprobs_agree_with_themselves(client: openai.OpenAI) -> None:
    answer: Any = client.completions.create(
        model=MODEL, prompt=[tokens(3, 20), tokens(4, 30)], max_tokens=1, logprobs=1, echo=True, temperature=0
    )
    for choice, length in zip(answer.choices, (20, 30), strict=True):
        listed = choice.logprobs
        assert len(listed.token_logprobs) == length + 1
        assert listed.token_logprobs[0] is None
        for name, value, top in zip(
            listed.tokens[1:], listed.token_logprobs[1:], listed.top_logprobs[1:], strict=True
        ):
            assert top[name] == value
        assert listed.token_logprobs[-1] == max(listed.top_logprobs[-1].values())


def test_health_answers_while_a_long_prompt_is_read(client: openai.OpenAI, http: httpx.Client) -> None:
    reader = threading.Thread(
        target=client.completions.create, kwargs={"model": MODEL, "prompt": tokens(5, 1500), "max_tokens": 1}
    )
    reader.start()
    slowest = 0.0
    while reader.is_alive():
        began = time.monotonic()
        assert http.get("/health").status_code == 200
        slowest = max(slowest, time.monotonic() - began)
        time.sleep(0.05)
    reader.join()
    assert slowest < 2.0


def test_server_facts_and_metrics(client: openai.OpenAI, http: httpx.Client) -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    facts = http.get("/v1/server").json()
    assert facts["exact"] is True
    assert facts["max_context"] == 8192
    assert facts["capacity_bytes"] <= 256 * 2**20
    assert set(facts["policies"]) == {"eviction", "schedule", "prefix_index"}
    assert facts["policies"]["prefix_index"] == "radix"
    metrics = http.get("/metrics").text
    assert "# TYPE sapwood_reused_tokens_total counter" in metrics
    assert "# TYPE sapwood_time_to_first_token_seconds histogram" in metrics


def test_text_tokens_round_trip(http: httpx.Client) -> None:
    text = "def f(x):\n\treturn x  # 🌲 日本語 <|im_start|>"
    answer = http.post("/tokenize", json={"prompt": text}).json()
    assert http.post("/detokenize", json={"tokens": answer["tokens"]}).json() == {"prompt": text}


def test_flush_makes_the_next_request_cold(client: openai.OpenAI, http: httpx.Client) -> None:
    prompt = tokens(6, 40)
    client.completions.create(model=MODEL, prompt=prompt, max_tokens=1)
    assert http.post("/flush_cache").json()["flushed_tokens"] >= 40
    usage: Any = client.completions.create(model=MODEL, prompt=prompt, max_tokens=1).usage
    assert usage.prompt_tokens_details.cached_tokens == 0


def test_scores_do_not_depend_on_what_was_asked_before(client: openai.OpenAI) -> None:
    """LP-01. Twenty overlapping prompts, scored in two orders with the cache on."""
    prompts = [tokens(7, 10 + i) for i in range(0, 40, 2)]

    def scores(prompt: list[int]) -> list[float | None]:
        answer: Any = client.completions.create(
            model=MODEL, prompt=prompt, max_tokens=0, logprobs=1, echo=True
        )
        listed: list[float | None] = answer.choices[0].logprobs.token_logprobs
        return listed

    upwards = [scores(prompt) for prompt in prompts]
    downwards = [scores(prompt) for prompt in reversed(prompts)]
    assert upwards == downwards[::-1]
    for prompt, listed in zip(prompts, upwards, strict=True):
        assert len(listed) == len(prompt)
        assert listed == upwards[-1][: len(prompt)]
