from __future__ import annotations

import threading
import time
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.testclient import TestClient

from sapwood.config import ServerConfig
from sapwood.server import Slot, create_app
from server.conftest import Served
from server.fakes import build_fake


def samples(served: Served) -> dict[tuple[str, str], float]:
    """(name, the label besides model) → value. Only what has our own name."""
    answer = served.http.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    found = {}
    families = text_string_to_metric_families(answer.text)
    for family in (each for each in families if each.name.startswith("sapwood_")):
        for sample in family.samples:
            assert sample.labels.pop("model") == "toy"
            found[sample.name, ",".join(sample.labels.values())] = sample.value
    return found


def settled(served: Served) -> dict[tuple[str, str], float]:
    """The metrics once nothing runs: a client has its last token a moment before the engine counts it."""
    deadline = time.monotonic() + 10
    while (found := samples(served))["sapwood_requests_running", ""] and time.monotonic() < deadline:
        time.sleep(0.01)
    return found


def test_models_are_listed_and_found_by_id(served: Served) -> None:
    (listed,) = served.openai.models.list().data
    assert (listed.id, listed.object, listed.owned_by) == ("toy", "model", "sapwood")
    assert served.openai.models.retrieve("toy") == listed
    answer = served.http.get("/v1/models/hf:some/other")
    assert answer.status_code == 404
    assert answer.json()["error"]["code"] == "model_not_found"


def test_health_and_server_facts(served: Served) -> None:
    assert served.http.get("/health").json() == {"status": "ok"}
    assert served.http.head("/health").status_code == 200
    facts = served.http.get("/v1/server").json()
    assert (facts["model"], facts["exact"], facts["page_size"], facts["ops"]) == ("toy", True, 1, "fake")
    assert facts["capacity_tokens"] == 8192
    assert facts["capacity_pages"] == 8192
    assert facts["capacity_bytes"] == 8192 * 16
    assert facts["policies"] == {"eviction": "lru", "schedule": "lpm", "prefix_index": "radix"}
    assert facts["fingerprint"]
    assert facts["version"]


def test_lost_lines_are_counted_only_where_something_is_captured(served: Served) -> None:
    assert "sapwood_capture_lost" not in served.http.get("/metrics").text


def test_metrics_count_what_usage_reports(served: Served) -> None:
    served.script(b"abc")
    before = settled(served)
    usages = [served.openai.completions.create(model="toy", prompt="metric prompt").usage for _ in range(2)]
    after = settled(served)

    def rise(name: str, label: str = "") -> float:
        return after[name, label] - before.get((name, label), 0)

    assert rise("sapwood_prompt_tokens_total") == sum(u.prompt_tokens for u in usages if u)
    assert rise("sapwood_generated_tokens_total") == sum(u.completion_tokens for u in usages if u) == 8
    assert rise("sapwood_reused_tokens_total", "hot") == len("metric prompt") - 1
    assert rise("sapwood_missed_tokens_total", "never_seen") == len("metric prompt") - 1
    assert rise("sapwood_missed_tokens_total", "last_token") == 2
    assert rise("sapwood_time_to_first_token_seconds_count") == 2
    assert rise("sapwood_inter_token_seconds_count") == 6
    assert rise("sapwood_queue_seconds_count") == 2
    steps, right = rise("sapwood_step_seconds_count", "run"), rise("sapwood_guessed_right_tokens_total")
    assert steps + right >= 8
    assert rise("sapwood_aborts_total") == 0


def test_pages_sum_to_the_pool_before_and_after(served: Served) -> None:
    """US-09: what is cached and idle is told apart from what is free. Of pages in use, see the reports' tests."""
    served.openai.completions.create(model="toy", prompt="remember me", max_tokens=2)
    found = settled(served)
    pages = {state: found["sapwood_pages", state] for state in ("free", "tree", "leased", "private")}
    assert sum(pages.values()) == 8192
    assert pages["tree"] >= len("remember me")
    assert found["sapwood_requests_running", ""] == found["sapwood_requests_waiting", ""] == 0


def test_the_curve_is_empty_then_says_what_a_repeated_prompt_would_hit(serve: Any) -> None:
    with serve() as served:
        capacities = [2048, 4096, 8192, 16384, 32768, 65536]
        empty = [{"capacity_tokens": capacity, "hit_rate": None} for capacity in capacities]
        assert served.http.get("/v1/cache/curve").json() == empty
        labels = ["0.25x", "0.5x", "1x", "2x", "4x", "8x"]
        assert not [name for name, _ in samples(served) if name == "sapwood_hit_rate_estimate"]
        prompt = "The same words, over and over. " * 10  # four stretches and some
        for _ in range(2):
            served.openai.completions.create(model="toy", prompt=prompt, max_tokens=2)
        found = settled(served)
        curve = served.http.get("/v1/cache/curve").json()
        assert [point["capacity_tokens"] for point in curve] == capacities
        for label, point in zip(labels, curve, strict=True):
            assert point["hit_rate"] == pytest.approx(0.5, abs=0.01)
            assert found["sapwood_hit_rate_estimate", label] == point["hit_rate"]


def test_a_flush_empties_what_the_curve_stands_on(serve: Any) -> None:
    with serve() as served:
        for _ in range(2):
            served.openai.completions.create(model="toy", prompt="Forget me not. " * 20, max_tokens=2)
            settled(served)
            served.http.post("/flush_cache")
        assert {point["hit_rate"] for point in served.http.get("/v1/cache/curve").json()} == {0.0}


def test_flush_forgets_and_says_how_much(served: Served) -> None:
    prompt = "flush me away"
    served.openai.completions.create(model="toy", prompt=prompt, max_tokens=1)
    report = served.http.post("/flush_cache").json()
    assert report == {"flushed_tokens": len(prompt), "kept_tokens": 0, "reason": None}
    usage: Any = served.openai.completions.create(model="toy", prompt=prompt, max_tokens=1).usage
    assert usage.prompt_tokens_details.cached_tokens == 0


def test_flush_while_a_stream_runs_lets_it_finish_and_nothing_old_matches(served: Served) -> None:
    served.script(b"z" * 400)
    pause, waiting = threading.Event(), threading.Event()

    def hold(_: object) -> frozenset[Any]:
        if not pause.is_set() and served.built.runner.steps > started + 5:
            waiting.set()
            pause.wait(10)
        return frozenset()

    started = served.built.runner.steps
    served.built.runner.hook = hold
    prompt = "long running prompt"
    stream = served.openai.completions.create(model="toy", prompt=prompt, max_tokens=300, stream=True)
    try:
        assert waiting.wait(10)
        reports: list[dict[str, Any]] = []
        flusher = threading.Thread(target=lambda: reports.append(served.http.post("/flush_cache").json()))
        flusher.start()
        pause.set()
        flusher.join(10)
        text = "".join(chunk.choices[0].text for chunk in stream)
    finally:
        pause.set()
        served.built.runner.hook = lambda _: frozenset()
    assert text == "z" * 300
    assert reports[0]["kept_tokens"] >= len(prompt)
    assert reports[0]["reason"]
    usage: Any = served.openai.completions.create(model="toy", prompt=prompt, max_tokens=1).usage
    assert usage.prompt_tokens_details.cached_tokens == 0


def test_tokenize_and_detokenize_are_inverse_and_leave_the_cache_alone(served: Served) -> None:
    text = "Grüße 🌲"
    before = settled(served)
    tokens = served.http.post("/tokenize", json={"prompt": text, "model": "toy"}).json()
    assert tokens == {"tokens": list(text.encode()), "count": len(text.encode()), "max_model_len": 4096}
    assert served.http.post("/detokenize", json={"tokens": tokens["tokens"]}).json() == {"prompt": text}
    messages = [{"role": "user", "content": "hi"}]
    chat = served.http.post("/tokenize", json={"messages": messages}).json()["tokens"]
    rendered = served.http.post("/detokenize", json={"tokens": chat}).json()["prompt"]
    assert rendered == "<|start|>user\nhi<|end|><|start|>assistant\n"
    assert samples(served) == before


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": 3}, "prompt"),
        ("/tokenize", {"prompt": ""}, "prompt"),
        ("/tokenize", {"prompt": "a", "add_special_tokens": 1}, "add_special_tokens"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": "abc"}, "tokens"),
        ("/detokenize", {"tokens": [1, 259]}, "tokens[1]"),
    ],
)
def test_token_routes_refuse_by_name(served: Served, path: str, body: dict[str, Any], param: str) -> None:
    answer = served.http.post(path, json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == param


def test_null_messages_are_none(served: Served) -> None:
    assert served.http.post("/tokenize", json={"messages": None, "prompt": "a"}).json()["tokens"] == [97]
    both = {"messages": [{"role": "user", "content": "a"}], "prompt": "a"}
    assert served.http.post("/tokenize", json=both).json()["error"]["param"] == "prompt"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"content": "x"}, "prompt"),
        ("/tokenize", {"prompt": None}, "prompt"),
        ("/detokenize", {"ids": [1]}, "tokens"),
    ],
)
def test_a_missing_field_is_said_to_be_missing(
    served: Served, path: str, body: dict[str, Any], param: str
) -> None:
    error = served.http.post(path, json=body).json()["error"]
    assert (error["message"], error["code"]) == (f"'{param}' is required", "missing_required_parameter")


def test_everything_but_health_is_503_while_loading() -> None:
    slot = Slot(None, "named")
    client = TestClient(create_app(slot, ServerConfig(served_model_name="named")))
    assert client.get("/health").status_code == 503
    assert client.get("/health").json() == {"status": "loading"}
    for method, path in (("POST", "/v1/chat/completions"), ("GET", "/v1/models"), ("GET", "/metrics")):
        answer = client.request(method, path, json={} if method == "POST" else None)
        assert answer.status_code == 503
        assert "loading" in answer.json()["error"]["message"]
        assert answer.headers["retry-after"] == "1"
        assert "x-should-retry" not in answer.headers
    built = build_fake()
    slot.fill(built)
    assert client.get("/health").status_code == 200
    assert client.get("/v1/models").json()["data"][0]["id"] == "named"
    built.loop.shutdown()
    assert client.get("/health").json() == {"status": "dead"}
    assert client.get("/health").status_code == 503
    assert client.post("/v1/completions", json={"prompt": "a"}).status_code == 503


def test_a_served_name_is_the_only_name(serve: Any) -> None:
    with serve(served_model_name="my/model") as served:
        assert served.openai.models.retrieve("my/model").id == "my/model"
        answer = served.openai.completions.create(model="my/model", prompt="a", max_tokens=1)
        assert answer.model == "my/model"
        assert served.http.post("/v1/completions", json={"prompt": "a", "model": "toy"}).status_code == 404
