"""Gemini's cached contents end to end: the official SDK, a served fake model, and a clock of our own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from server.conftest import Clock, Served, serving

MANUAL = "The pump is blue. " * 80
"""More tokens than the least that is cached: each byte is one."""
TURN = len("\0user\n") + len("\0")
"""Tokens that the fake model's template writes around a user's text."""


@dataclass
class Rig:
    """A server, a client for it and the clock of its ledgers."""

    served: Served
    client: genai.Client
    clock: Clock

    def create(self, **config: Any) -> types.CachedContent:
        return self.client.caches.create(
            model="toy",
            config={"contents": MANUAL, "ttl": "600s", **config},  # type: ignore[arg-type]
        )

    def ask(self, text: str, **config: Any) -> types.GenerateContentResponse:
        return self.client.models.generate_content(
            model="toy",
            contents=text,
            config={"max_output_tokens": 4, **config},  # type: ignore[arg-type]
        )


@pytest.fixture(scope="module")
def shared() -> Iterator[Rig]:
    clock = Clock()
    with serving(clock=clock) as served, rigged(served, clock) as rig:
        yield rig


@pytest.fixture
def rig(shared: Rig) -> Rig:
    """Nothing is cached, there are no objects, and the time is only what the test makes it."""
    shared.clock.now += 3600
    shared.served.script(b"ok")
    assert shared.served.http.post("/flush_cache").status_code == 200
    for each in shared.client.caches.list():
        shared.client.caches.delete(name=name_of(each))
    return shared


@contextmanager
def rigged(served: Served, clock: Clock | None = None, key: str = "none") -> Iterator[Rig]:
    with genai.Client(api_key=key, http_options=types.HttpOptions(base_url=served.url)) as client:
        yield Rig(served, client, clock or Clock())


def name_of(cache: types.CachedContent) -> str:
    assert cache.name is not None
    return cache.name


def size_of(cache: types.CachedContent) -> int:
    assert cache.usage_metadata is not None
    assert cache.usage_metadata.total_token_count is not None
    return cache.usage_metadata.total_token_count


def usage_of(answer: types.GenerateContentResponse) -> types.GenerateContentResponseUsageMetadata:
    assert answer.usage_metadata is not None
    return answer.usage_metadata


def refused(call: Any, *args: Any, **named: Any) -> tuple[int, str | None, str]:
    with pytest.raises(errors.ClientError) as caught:
        call(*args, **named)
    return caught.value.code, caught.value.status, str(caught.value.message)


GONE = (403, "PERMISSION_DENIED", "CachedContent not found (or permission denied)")


def test_an_object_is_created_told_and_found_again_without_what_it_holds(rig: Rig) -> None:
    made = rig.create(display_name="manual", system_instruction="Be brief.")
    assert re.fullmatch(r"cachedContents/[0-9a-f]{24}", name_of(made))
    assert (made.model, made.display_name) == ("models/toy", "manual")
    assert size_of(made) == len("\0system\nBe brief.\0") + TURN + len(MANUAL)
    assert made.create_time is not None
    assert made.create_time == made.update_time
    assert made.expire_time == made.create_time + timedelta(seconds=600)
    assert rig.client.caches.get(name=name_of(made)) == made
    told = rig.served.http.get(f"/v1beta/{made.name}").json()
    assert set(told) == {
        "name",
        "model",
        "displayName",
        "createTime",
        "updateTime",
        "expireTime",
        "usageMetadata",
    }


def test_without_a_ttl_it_lives_an_hour(rig: Rig) -> None:
    made = rig.create(ttl=None)
    assert made.create_time is not None
    assert made.expire_time == made.create_time + timedelta(hours=1)


def test_its_first_use_reuses_all_of_it_and_bills_exactly_it(rig: Rig) -> None:
    made = rig.create()
    answer = rig.ask("What colour?", cached_content=made.name)
    usage, question = usage_of(answer), len("What colour?") + TURN + len("\0assistant\n")
    assert answer.text == "ok"
    assert usage.cached_content_token_count == size_of(made)
    assert usage.prompt_token_count == size_of(made) + question
    assert usage.cache_tokens_details == [
        types.ModalityTokenCount(modality=types.MediaModality.TEXT, token_count=size_of(made))
    ]
    told = answer.sdk_http_response
    assert told is not None
    assert told.headers is not None
    assert f"reused={size_of(made)}" in told.headers["x-sapwood-cache"].replace(" ", "")


def test_the_prompt_is_the_same_as_that_of_the_whole_conversation(rig: Rig) -> None:
    made = rig.create(system_instruction="Be brief.")
    rig.ask("What colour?", cached_content=made.name)
    whole = rig.client.models.generate_content(
        model="toy",
        contents=[
            types.Content(role="user", parts=[types.Part(text=MANUAL)]),
            types.Content(role="model", parts=[types.Part(text="ok")]),
            types.Content(role="user", parts=[types.Part(text="And?")]),
        ],
        config={"system_instruction": "Be brief.", "max_output_tokens": 4},
    )
    assert usage_of(whole).cached_content_token_count == size_of(made) + 1, "and the next turn's first token"


def test_what_was_evicted_is_computed_again_and_billed_the_same(rig: Rig) -> None:
    made = rig.create()
    first = rig.ask("What colour?", cached_content=made.name)
    assert rig.served.http.post("/flush_cache").json()["flushed_tokens"] > size_of(made)
    again = rig.ask("What colour?", cached_content=made.name)
    assert usage_of(again) == usage_of(first)
    explained = rig.served.http.get(f"/v1/requests/{again.response_id}/cache").json()
    assert explained["reused"]["hot"] == 0, "our own numbers say that it was computed"
    assert sum(explained["missed"].values()) == explained["prompt_tokens"]


def test_a_stream_bills_the_same_in_its_last_part(rig: Rig) -> None:
    made = rig.create()
    whole = rig.ask("What colour?", cached_content=made.name)
    parts = list(
        rig.client.models.generate_content_stream(
            model="toy", contents="What colour?", config={"max_output_tokens": 4, "cached_content": made.name}
        )
    )
    assert [part.usage_metadata for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert usage_of(parts[-1]) == usage_of(whole)


def test_contents_sent_again_are_counted_twice(rig: Rig) -> None:
    made = rig.create()
    usage = usage_of(rig.ask(MANUAL, cached_content=made.name))
    assert usage.cached_content_token_count == size_of(made)
    assert usage.prompt_token_count == 2 * size_of(made) + len("\0assistant\n")


def test_a_list_comes_in_pages_in_the_order_of_making(rig: Rig) -> None:
    made = [name_of(rig.create(display_name=str(i))) for i in range(5)]
    pager = rig.client.caches.list(config={"page_size": 2})
    assert [name_of(each) for each in pager.page] == made[:2]
    assert [name_of(each) for each in pager] == made
    listed = "/v1/cachedContents?pageSize="
    assert len(rig.served.http.get(f"{listed}9999").json()["cachedContents"]) == 5
    first = rig.served.http.get(f"{listed}4").json()
    second = rig.served.http.get(f"{listed}4&pageToken={first['nextPageToken']}").json()
    assert [each["name"] for each in second["cachedContents"]] == made[4:]
    assert "nextPageToken" not in second


def test_an_empty_list_is_one(rig: Rig) -> None:
    assert list(rig.client.caches.list()) == []


def test_all_can_be_deleted_while_they_are_listed(rig: Rig) -> None:
    for i in range(5):
        rig.create(display_name=str(i))
    for each in rig.client.caches.list(config={"page_size": 2}):
        rig.client.caches.delete(name=name_of(each))
    assert list(rig.client.caches.list()) == []


def test_a_ttl_and_a_time_are_set_anew(rig: Rig) -> None:
    made = rig.create()
    rig.clock.now += 100
    longer = rig.client.caches.update(name=name_of(made), config={"ttl": "1000.5s"})
    assert longer.update_time is not None
    assert made.update_time is not None
    assert longer.update_time - made.update_time == timedelta(seconds=100)
    assert longer.expire_time == longer.update_time + timedelta(seconds=1000.5)
    until = datetime(2050, 1, 2, 3, 4, 5, tzinfo=UTC)
    assert rig.client.caches.update(name=name_of(made), config={"expire_time": until}).expire_time == until
    assert rig.client.caches.get(name=name_of(made)).expire_time == until
    assert size_of(rig.client.caches.get(name=name_of(made))) == size_of(made)


def test_it_lives_up_to_its_time_and_no_longer(rig: Rig) -> None:
    made = rig.create()
    rig.clock.now += 590
    rig.ask("What colour?", cached_content=made.name)
    rig.clock.now += 11
    assert refused(rig.client.caches.get, name=name_of(made)) == GONE
    assert refused(rig.ask, "What colour?", cached_content=made.name) == GONE
    assert refused(rig.client.caches.update, name=name_of(made), config={"ttl": "600s"}) == GONE
    assert refused(rig.client.caches.delete, name=name_of(made)) == GONE
    assert list(rig.client.caches.list()) == []


def test_a_deleted_or_invented_one_cannot_be_used(rig: Rig) -> None:
    made = rig.create()
    rig.client.caches.delete(name=name_of(made))
    assert refused(rig.ask, "What colour?", cached_content=made.name) == GONE
    assert refused(rig.ask, "What colour?", cached_content="cachedContents/nothing") == GONE
    assert refused(rig.client.caches.get, name="cachedContents/nothing") == GONE


def test_what_belongs_to_the_object_is_refused_beside_it(rig: Rig) -> None:
    made = rig.create()
    for name, value in (
        ("system_instruction", "Be brief."),
        ("tools", [{"function_declarations": [{"name": "f"}]}]),
        ("tool_config", {"function_calling_config": {"mode": "NONE"}}),
    ):
        code, status, message = refused(rig.ask, "What?", cached_content=made.name, **{name: value})
        assert (code, status) == (400, "INVALID_ARGUMENT")
        assert "cannot be given together with 'cachedContent'" in message


def test_what_is_too_small_is_told_with_both_numbers(rig: Rig) -> None:
    assert refused(rig.create, contents="tiny") == (
        400,
        "INVALID_ARGUMENT",
        "Cached content is too small. total_token_count=11, min_total_token_count=1024",
    )


def test_its_tools_can_be_called_by_what_follows(rig: Rig) -> None:
    tools = [{"function_declarations": [{"name": "f", "description": "d" * 1100}]}]
    made = rig.create(contents=None, tools=tools)
    rig.served.script(b'<tool_call>\n{"name": "f", "arguments": {"a": 1}}\n</tool_call>')
    answer = rig.ask("What?", cached_content=made.name, max_output_tokens=100)
    assert answer.function_calls is not None
    assert [(call.name, call.args) for call in answer.function_calls] == [("f", {"a": 1})]
    assert usage_of(answer).cached_content_token_count == size_of(made)


def test_tokens_are_counted_with_the_object_in_front(rig: Rig) -> None:
    made = rig.create()
    asked = {"contents": [{"parts": [{"text": "What?"}]}], "cachedContent": made.name}
    for body in (asked, {"generateContentRequest": {"model": "models/toy", **asked}}):
        counted = rig.served.http.post("/v1beta/models/toy:countTokens", json=body).json()
        assert counted == {
            "totalTokens": usage_of(rig.ask("What?", cached_content=made.name)).prompt_token_count,
            "cachedContentTokenCount": size_of(made),
        }


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "'model' is required"),
        ({"model": "models/toy"}, "nothing to cache"),
        ({"model": "models/toy", "contents": []}, "nothing to cache"),
        ({"model": "models/toy", "contents": 7}, "'contents' is 7"),
        ({"model": "models/toy", "contents": [{"role": "model", "parts": [{"text": "a"}]}]}, "must not end"),
        ({"ttl": "600"}, "'ttl'"),
        ({"ttl": "-5s"}, "'ttl'"),
        ({"ttl": "0s"}, "'ttl'"),
        ({"ttl": "9" * 12 + "s"}, "'ttl'"),
        ({"ttl": "1e9s"}, "'ttl'"),
        ({"ttl": "١s"}, "'ttl'"),
        ({"expireTime": "2020-01-01T00:00:00Z"}, "later than now"),
        ({"expireTime": "9000-12-31T23:59:59Z"}, "later than now"),
        ({"expireTime": "0001-01-01T00:00:00+14:00"}, "'expireTime'"),
        ({"expireTime": "9999-12-31T23:59:59-14:00"}, "'expireTime'"),
        ({"expireTime": "2090-01-01T00:00:00"}, "with its zone"),
        ({"expireTime": "soon"}, "with its zone"),
        ({"ttl": "600s", "expireTime": "2090-01-01T00:00:00Z"}, "exclude each other"),
        ({"displayName": "x" * 129}, "at most 128"),
        ({"displayName": "\ud800"}, "surrogate"),
    ],
)
def test_what_cannot_be_created_is_400_in_googles_shape(rig: Rig, body: Any, said: str) -> None:
    if body and "model" not in body:
        body = {"model": "models/toy", "contents": [{"parts": [{"text": MANUAL}]}], **body}
    answer = rig.served.http.post("/v1beta/cachedContents", content=json.dumps(body))
    told = answer.json()["error"]
    assert (answer.status_code, told["code"], told["status"]) == (400, 400, "INVALID_ARGUMENT")
    assert said in told["message"]
    assert list(rig.client.caches.list()) == []


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "'ttl' or 'expireTime' is required"),
        ({"ttl": 5}, "'ttl' is 5"),
        ({"ttl": "5s", "expire_time": "2090-01-01T00:00:00Z"}, "exclude each other"),
        ({"expireTime": "2020-01-01T00:00:00Z"}, "later than now"),
        ({"contents": []}, "cannot be changed"),
        ({"display_name": "x"}, "cannot be changed"),
    ],
)
def test_what_cannot_be_changed_is_400_and_changes_nothing(rig: Rig, body: Any, said: str) -> None:
    made = rig.create()
    answer = rig.served.http.patch(f"/v1/{made.name}", json=body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert rig.client.caches.get(name=name_of(made)) == made


@pytest.mark.parametrize("query", ["pageSize=x", "pageSize=-1", "pageToken=ab", "pageSize=" + "9" * 30])
def test_a_page_that_is_none_is_400(rig: Rig, query: str) -> None:
    answer = rig.served.http.get(f"/v1beta/cachedContents?{query}")
    assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


def test_another_model_is_not_found(rig: Rig) -> None:
    body = {"model": "models/other", "contents": [{"parts": [{"text": MANUAL}]}]}
    answer = rig.served.http.post("/v1beta/cachedContents", json=body)
    assert (answer.status_code, answer.json()["error"]["status"]) == (404, "NOT_FOUND")


def test_one_longer_than_the_context_is_refused_and_not_kept(rig: Rig) -> None:
    code, status, message = refused(rig.create, contents="x" * 5000)
    assert (code, status) == (400, "INVALID_ARGUMENT")
    assert "4096" in message
    assert list(rig.client.caches.list()) == []
