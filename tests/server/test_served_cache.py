"""What a really served model tells of its cache, in a pool of some 400 tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families

from server.test_served import serving_default_model, tokens

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"


@pytest.fixture(scope="module")
def http() -> Iterator[httpx.Client]:
    with (
        serving_default_model("--kv-memory", "9MiB", "--pin-share", "0.5") as (_, url),
        httpx.Client(base_url=url, timeout=120) as client,
    ):
        yield client


def explained(http: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    answer = http.post(path, json={"max_tokens": 1, "temperature": 0, **body})
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = http.get(f"/v1/requests/{answer.json()['id']}/cache").json()
    assert sum(told["reused"].values()) + sum(told["missed"].values()) == told["prompt_tokens"]
    short = [f"reused={told['reused']['hot']}", f"missed={sum(told['missed'].values())}"]
    short += [f"{reason}={count}" for reason, count in told["missed"].items() if count]
    assert answer.headers["x-sapwood-cache"] == ";".join(short)
    return told


def missed(told: dict[str, Any]) -> dict[str, int]:
    return {reason: count for reason, count in told["missed"].items() if count}


def test_one_hit_one_diverged_and_one_evicted_request_are_explained(http: httpx.Client) -> None:
    def ask(day: str) -> dict[str, Any]:
        system = f"You are a librarian and answer in one sentence. Today is {day}. Speak of books."
        messages = [
            {"role": "system", "content": system},
            {"role": "user", "content": "Name a book about trees, please."},
        ]
        return explained(http, CHAT, {"messages": messages})

    size = ask("Monday")["prompt_tokens"]
    hit = ask("Monday")
    assert (hit["reused"]["hot"], missed(hit)) == (size - 1, {"last_token": 1})
    assert (hit["diverged_at"], hit["evicted_seconds_ago"]) == (None, None)
    assert hit["time_saved_ms"] > 0

    diverged = ask("Friday")
    place = diverged["diverged_at"]
    assert diverged["reused"]["hot"] == place["token"]
    assert missed(diverged) == {"diverged": diverged["prompt_tokens"] - 1 - place["token"], "last_token": 1}
    assert (place["message"], place["part"]) == (0, "content")
    assert place["before"].endswith("Today is")
    assert place["after"].startswith(" Friday. Speak of")
    assert place["text"] == f"{place['before']}[HERE]{place['after']}"

    # Of prompts that nobody repeats the pool holds one and a bit.
    for i in range(3):
        explained(http, COMPLETIONS, {"prompt": tokens(20 + i, 300)})
    evicted = explained(http, COMPLETIONS, {"prompt": tokens(20, 300)})
    gone = missed(evicted)["evicted"]
    assert gone > 150
    assert evicted["reused"]["hot"] + gone == 299
    assert missed(evicted) == {"evicted": gone, "last_token": 1}
    assert 0 <= evicted["evicted_seconds_ago"] < 600
    assert evicted["diverged_at"] is None

    families = text_string_to_metric_families(http.get("/metrics").text)
    counted = {
        sample.labels["reason"]: sample.value
        for family in families
        if family.name == "sapwood_missed_tokens"
        for sample in family.samples
    }
    assert counted["evicted"] == gone
    assert counted["diverged"] == diverged["missed"]["diverged"]
    assert counted["other_namespace"] == 0
    explained(http, COMPLETIONS, {"prompt": tokens(20, 300), "cache_salt": "other"})
    told = http.get("/metrics").text
    assert 'sapwood_missed_tokens_total{model="smollm2-135m",reason="other_namespace"} 299.0' in told


def test_a_pinned_system_prompt_is_still_there_after_a_flood(http: httpx.Client) -> None:
    system = {"role": "system", "content": "You are a gardener. Answer with the name of one plant."}
    pinned = http.post("/v1/cache/pins", json={"id": "gardener", "messages": [system]}).json()
    facts = http.get("/v1/server").json()
    assert facts["pin_budget_tokens"] == facts["capacity_tokens"] // 2
    assert facts["pinned_tokens"] == pinned["pinned_tokens"] == pinned["prompt_tokens"]
    for i in range(4):
        explained(http, COMPLETIONS, {"prompt": tokens(40 + i, 300)})
    told = explained(http, CHAT, {"messages": [system, {"role": "user", "content": "Something red."}]})
    assert told["reused"]["hot"] == pinned["pinned_tokens"]
    refused = http.post("/v1/cache/pins", json={"prompt": tokens(50, 250)})
    assert refused.status_code == 400
    assert str(facts["pin_budget_tokens"]) in refused.json()["error"]["message"]
    assert http.delete("/v1/cache/pins/gardener").json()["total_pinned_tokens"] == 0


def test_the_curve_has_a_rate_for_each_size_once_prompts_repeat(http: httpx.Client) -> None:
    for _ in range(2):
        explained(http, COMPLETIONS, {"prompt": tokens(60, 300)})
    curve = http.get("/v1/cache/curve").json()
    capacity = http.get("/v1/server").json()["capacity_tokens"]
    sizes = [capacity // 4, capacity // 2, capacity, 2 * capacity, 4 * capacity, 8 * capacity]
    assert [point["capacity_tokens"] for point in curve] == sizes
    rates = [point["hit_rate"] for point in curve]
    assert rates == sorted(rates)
    assert 0 < rates[-1] < 1
