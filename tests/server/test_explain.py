"""Why tokens were computed: the header, and the explanation afterwards."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.errors import NotFoundError
from sapwood.server.caller import Caller
from sapwood.server.explain import PLACES, REASONS, Explanations, cache_header
from sapwood.types import Usage
from server.conftest import Served

CHAT = "/v1/chat/completions"
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
        "guessed": {"tokens": 0, "right": 0},
    } | {"time_saved_ms": explanation(served, id)["time_saved_ms"]}
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
    assert [explanations.get(f"cmpl-{i}", Caller())["prompt_tokens"] for i in (2, 3, 4)] == [4, 4, 4]
    for i in (0, 1):
        with pytest.raises(NotFoundError, match="latest 3"):
            explanations.get(f"cmpl-{i}", Caller())


def test_calls_of_many_prompts_make_others_be_forgotten_sooner_but_never_themselves() -> None:
    explanations, operator = Explanations(kept=3, kept_prompts=5), Caller()
    usage = Usage(1, 0, {"last_token": 1})
    for call, prompts in (("cmpl-1", 2), ("cmpl-2", 2), ("cmpl-3", 9)):
        for prompt in range(prompts):
            explanations.note(call, prompt, usage)
            explanations.note(call, prompt, usage)
    assert len(explanations.get("cmpl-3", operator)["requests"]) == 9
    for call in ("cmpl-1", "cmpl-2"):
        with pytest.raises(NotFoundError):
            explanations.get(call, operator)
    explanations.note("cmpl-4", 0, usage)
    explanations.note("cmpl-5", 0, usage)
    assert explanations.get("cmpl-4", operator)["prompt_tokens"] == 1


def test_a_forgotten_call_that_goes_on_is_remembered_again() -> None:
    explanations = Explanations(kept=1)
    for call in ("cmpl-a", "cmpl-b", "cmpl-a"):
        explanations.note(call, 0, Usage(1, 0, {"last_token": 1}))
    assert explanations.get("req-a", Caller())["id"] == "cmpl-a"


def test_reasons_that_are_new_are_counted_too() -> None:
    usage = Usage(10, 2, {"zzz": 1, "last_token": 1, "never_seen": 6})
    assert cache_header([usage]) == "reused=2;missed=8;never_seen=6;last_token=1;zzz=1"
    explanations = Explanations()
    explanations.note("cmpl-a", 0, usage)
    assert sum(explanations.get("cmpl-a", Caller())["missed"].values()) == 8


# ---- what else is told ------------------------------------------------------------------------------------


def chat(served: Served, *texts: str, **options: Any) -> dict[str, Any]:
    """The explanation of a conversation of these texts, users' and the assistant's in turn."""
    roles = ["user", "assistant"]
    messages = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    answer = served.http.post(CHAT, json={"messages": messages, "max_tokens": 1, **options})
    return explanation(served, answer.json()["id"])


def test_where_a_conversation_diverged_is_told_for_people(served: Served) -> None:
    chat(served, "It is ten past nine.", "Thanks.", "Go on.")
    later = chat(served, "It is six past nine.", "Thanks.", "Go on.")
    header = len("user\n") + 1
    assert later["reused"]["hot"] == header + len("It is ")
    assert later["missed"]["diverged"] == later["prompt_tokens"] - later["reused"]["hot"] - 1
    assert later["diverged_at"] == {
        "token": header + len("It is "),
        "message": 0,
        "part": "content",
        "before": "r\nIt is ",
        "after": "six past",
        "text": "r\nIt is [HERE]six past",
    }
    third = chat(served, "It is ten past nine.", "Thanks.", "Stop.")
    assert (third["diverged_at"]["message"], third["diverged_at"]["part"]) == (2, "content")
    shorter = chat(served, "It is ten", add_generation_prompt=False)
    assert shorter["diverged_at"] is None, "its last token is where it ends, and that is always computed"


def test_prompts_of_one_call_have_their_own_places(served: Served) -> None:
    for prompt in ("abcdef", "ghijkl"):
        served.http.post("/v1/completions", json={"prompt": prompt, "max_tokens": 1})
    asked = ["zzz", "abcXYZ", "gXYZ"]
    answer = served.http.post("/v1/completions", json={"prompt": asked, "max_tokens": 1})
    explained = explanation(served, answer.json()["id"])
    places = [each["diverged_at"] for each in explained["requests"]]
    assert places[0] is None
    assert [(at["token"], at["message"], at["part"], at["text"]) for at in places[1:]] == [
        (3, None, "prompt", "abc[HERE]XYZ"),
        (1, None, "prompt", "g[HERE]XYZ"),
    ]
    assert explained["diverged_at"] == places[1]


def test_a_place_that_cannot_be_found_leaves_the_token_and_the_answer(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    served.http.post("/v1/completions", json={"prompt": "abcdef", "max_tokens": 1})
    monkeypatch.setattr("sapwood.server.openai_routes.place_in_prompt", fail)
    answer = served.http.post("/v1/completions", json={"prompt": "abcxyz", "max_tokens": 1})
    assert answer.status_code == 200
    place = explanation(served, answer.json()["id"])["diverged_at"]
    assert place == {"token": 3, "message": None, "part": None, "text": None}


def test_only_so_many_places_of_one_call_are_remembered(served: Served) -> None:
    served.http.post("/v1/completions", json={"prompt": "abcdef", "max_tokens": 1})
    prompts = [f"abc{chr(65 + i)}xx" for i in range(PLACES + 4)]
    answer = served.http.post("/v1/completions", json={"prompt": prompts, "max_tokens": 1})
    places = [each["diverged_at"] for each in explanation(served, answer.json()["id"])["requests"]]
    assert [at["text"] is not None for at in places] == [True] * PLACES + [False] * 4


def test_seconds_are_told_as_people_read_them_and_several_prompts_are_put_together() -> None:
    explanations = Explanations()
    late = Usage(
        9,
        4,
        {"evicted": 5},
        evicted_seconds_ago=40.1234,
        waited_for_leader_seconds=0.0126,
        saved_seconds=0.8124,
    )
    explanations.note("cmpl-a", 0, Usage(4, 0, {"never_seen": 4}, saved_seconds=0.0))
    explanations.note("cmpl-a", 1, late)
    told = explanations.get("cmpl-a", Caller())
    names = ("evicted_seconds_ago", "waited_for_leader_ms", "time_saved_ms")
    assert [told[name] for name in names] == [40.1, 13, 812]
    assert [told["requests"][0][name] for name in names] == [None, 0, 0]
    explanations.note("cmpl-a", 2, Usage(4, 2, {"never_seen": 2}))
    assert explanations.get("cmpl-a", Caller())["time_saved_ms"] is None, "of one prompt it is not known"


def test_new_reasons_are_in_the_header_and_in_the_metrics(served: Served) -> None:
    body = {"prompt": "abcdef", "max_tokens": 1}
    served.http.post("/v1/completions", json=body)
    diverged = served.http.post("/v1/completions", json={**body, "prompt": "abcxyz"})
    assert diverged.headers["x-sapwood-cache"] == "reused=3;missed=3;diverged=2;last_token=1"
    salted = served.http.post("/v1/completions", json={**body, "cache_salt": "s"})
    assert salted.headers["x-sapwood-cache"] == "reused=0;missed=6;other_namespace=5;last_token=1"
    metrics = served.http.get("/metrics").text
    for reason in REASONS:
        assert f'sapwood_missed_tokens_total{{model="toy",reason="{reason}"}}' in metrics
