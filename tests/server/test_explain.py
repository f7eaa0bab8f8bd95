"""Why tokens were computed: the header, and the explanation afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.errors import NotFoundError
from sapwood.server.explain import Explanations, cache_header
from sapwood.types import Usage
from server.conftest import Served

HI: Any = [{"role": "user", "content": "hi"}]


def explanation(served: Served, id: str) -> dict[str, Any]:
    answer = served.http.get(f"/v1/requests/{id}/cache")
    assert answer.status_code == 200, answer.text
    explained: dict[str, Any] = answer.json()
    assert sum(explained["reused"].values()) + sum(explained["missed"].values()) == explained["prompt_tokens"]
    return explained


def test_the_header_names_each_reason(served: Served) -> None:
    body = {"prompt": "x" * 1024, "max_tokens": 1}
    cold, warm = (served.http.post("/v1/completions", json=body) for _ in range(2))
    assert cold.headers["x-sapwood-cache"] == "reused=0;missed=1024;never_seen=1023;last_token=1"
    assert warm.headers["x-sapwood-cache"] == "reused=1023;missed=1;last_token=1"


def test_every_field_of_the_interface_is_there(served: Served) -> None:
    body = {"messages": HI, "max_tokens": 1}
    answers = [served.http.post("/v1/chat/completions", json=body) for _ in range(2)]
    id, tokens = answers[1].json()["id"], answers[1].json()["usage"]["prompt_tokens"]
    assert explanation(served, id) == {
        "id": id,
        "prompt_tokens": tokens,
        "reused": {"hot": tokens - 1, "host": 0, "disk": 0, "shared": 0},
        "missed": {
            "never_seen": 0,
            "diverged": 0,
            "evicted": 0,
            "other_namespace": 0,
            "page_tail": 0,
            "in_flight": 0,
            "last_token": 1,
            "reuse_off": 0,
        },
        "diverged_at": None,
        "evicted_seconds_ago": None,
        "waited_for_leader_ms": 0,
        "time_saved_ms": None,
    }
    assert explanation(served, answers[1].headers["x-request-id"]) == explanation(served, id)
    assert explanation(served, answers[0].json()["id"])["missed"]["never_seen"] == tokens - 1


def test_a_stream_is_explained_too(served: Served) -> None:
    stream = served.openai.chat.completions.create(model="toy", messages=HI, stream=True, max_tokens=2)
    ids = {chunk.id for chunk in stream}
    assert explanation(served, ids.pop())["missed"]["never_seen"] > 0


def test_prompts_of_one_call_are_summed_and_listed(served: Served) -> None:
    served.http.post("/v1/completions", json={"prompt": "abcdef", "max_tokens": 1})
    answer = served.http.post("/v1/completions", json={"prompt": ["abcdef", "xyz"], "max_tokens": 1, "n": 2})
    assert answer.headers["x-sapwood-cache"] == "reused=5;missed=4;never_seen=2;last_token=2"
    explained = explanation(served, answer.json()["id"])
    assert (explained["prompt_tokens"], explained["reused"]["hot"]) == (9, 5)
    first, second = explained["requests"]
    assert (first["prompt"], first["reused"]["hot"], first["missed"]["last_token"]) == (0, 5, 1)
    assert (second["prompt"], second["missed"]["never_seen"]) == (1, 2)


@pytest.mark.parametrize("wrong", ["chatcmpl", "req", "", "x"])
def test_unknown_ids_are_not_found(served: Served, wrong: str) -> None:
    id = served.http.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).json()["id"]
    key = id.removeprefix("cmpl-")
    for asked in (f"{wrong}-{key[::-1]}", f"{wrong}{key}", "nothing"):
        answer = served.http.get(f"/v1/requests/{asked}/cache")
        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "request_not_found"
    assert served.http.get(f"/v1/requests/chatcmpl-{key}/cache").status_code == 404


def test_a_refused_call_has_no_explanation(served: Served) -> None:
    answer = served.http.post("/v1/completions", json={"prompt": "x" * 5000})
    assert served.http.get(f"/v1/requests/{answer.headers['x-request-id']}/cache").status_code == 404


def test_only_the_latest_calls_are_kept() -> None:
    explanations = Explanations(kept=3)
    for i in range(5):
        explanations.note(f"cmpl-{i}", 0, Usage(4, 1, {"never_seen": 3}))
    assert [explanations.get(f"cmpl-{i}")["prompt_tokens"] for i in (2, 3, 4)] == [4, 4, 4]
    for i in (0, 1):
        with pytest.raises(NotFoundError, match="latest 3"):
            explanations.get(f"cmpl-{i}")


def test_a_forgotten_call_that_goes_on_is_remembered_again() -> None:
    explanations = Explanations(kept=1)
    for call in ("cmpl-a", "cmpl-b", "cmpl-a"):
        explanations.note(call, 0, Usage(1, 0, {"last_token": 1}))
    assert explanations.get("req-a")["id"] == "cmpl-a"


def test_reasons_that_are_new_are_counted_too() -> None:
    usage = Usage(10, 2, {"zzz": 1, "last_token": 1, "never_seen": 6})
    assert cache_header([usage]) == "reused=2;missed=8;never_seen=6;last_token=1;zzz=1"
    explanations = Explanations()
    explanations.note("cmpl-a", 0, usage)
    assert sum(explanations.get("cmpl-a")["missed"].values()) == 8
