"""Counting, models and everything that is refused in the Gemini dialect, in Google's shape."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from google import genai
from google.genai import errors

from sapwood.errors import UnavailableError
from sapwood.server.errors import BodyTimeoutError, BodyTooLargeError, EngineFailedError, OperatorOnlyError
from sapwood.server.gemini_wire import GEMINI, CachedContentGoneError, CachedContentsFullError
from server.conftest import Served, serving
from server.fakes import FakeFacts
from server.test_gemini import LONG, ask, post, said, talking, usage_of


@pytest.fixture
def client(served: Served) -> Iterator[genai.Client]:
    with talking(served) as client:
        yield client


def test_tokens_are_counted_as_they_will_be_read(served: Served, client: genai.Client) -> None:
    counted = client.models.count_tokens(model="toy", contents="What?")
    assert counted.total_tokens == usage_of(ask(client, "What?")).prompt_token_count
    assert post(served, "countTokens", said("What?")) == {
        "totalTokens": counted.total_tokens,
        "cachedContentTokenCount": 0,
    }


def test_models_are_listed_and_found(served: Served, client: genai.Client) -> None:
    (listed,) = client.models.list()
    assert listed.name == "models/toy"
    assert listed.supported_actions is not None
    assert "generateContent" in listed.supported_actions
    found = client.models.get(model="toy")
    assert (found.name, found.input_token_limit) == ("models/toy", 4096)
    assert served.http.get("/v1beta/models/toy").json()["name"] == "models/toy"
    assert served.http.get("/v1beta/models").json()["models"][0]["name"] == "models/toy"


def test_one_list_of_models_is_read_by_three_sdks(served: Served, client: genai.Client) -> None:
    other = anthropic.Anthropic(base_url=served.url, api_key="none")
    assert [each.name for each in client.models.list()] == ["models/toy"]
    assert [each.id for each in served.openai.models.list()] == ["toy"]
    assert [each.id for each in other.models.list()] == ["toy"]
    assert served.openai.models.retrieve("toy").id == "toy"
    assert other.models.retrieve("toy").id == "toy"
    other.close()


def test_a_models_name_may_hold_colons_and_slashes() -> None:
    name = "org/toy:7b:q8"
    with serving(FakeFacts(model=name)) as served, talking(served) as client:
        served.script(b"ok")
        assert client.models.generate_content(model=f"models/{name}", contents="hi").text == "ok"
        assert client.models.get(model=f"models/{name}").name == f"models/{name}"
        path = f"/v1beta/models/{name}:countTokens"
        assert served.http.post(path, json=said("hi")).json()["totalTokens"] > 0
        unknown = served.http.post(f"/v1beta/models/{name}", json=said("hi"))
        assert (unknown.status_code, unknown.json()["error"]["status"]) == (404, "NOT_FOUND")


def test_an_unknown_model_is_not_found(client: genai.Client) -> None:
    for call in (client.models.generate_content, client.models.count_tokens):
        with pytest.raises(errors.ClientError) as caught:
            call(model="other", contents="hi")
        assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")
    with pytest.raises(errors.ClientError) as caught:
        client.models.get(model="other")
    assert (caught.value.code, caught.value.status) == (404, "NOT_FOUND")


@pytest.mark.parametrize(
    "path", ["/v1beta/nowhere", "/v1beta/models/toy:embedContent", "/v1/models/toy:batchEmbedContents"]
)
def test_what_is_not_there_is_said_in_googles_shape(served: Served, path: str) -> None:
    answer = served.http.post(path, json={})
    assert answer.status_code == 404
    assert set(answer.json()["error"]) == {"code", "message", "status"}
    assert answer.json()["error"]["status"] == "NOT_FOUND"
    assert served.http.get("/nowhere", headers={"x-goog-api-key": "k"}).json()["error"]["code"] == 404


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ({}, "contents"),
        ({"contents": []}, "contents"),
        ({"contents": "hi"}, "contents"),
        ({"contents": [{}]}, "contents[0].parts"),
        ({"contents": [None]}, "contents[0]"),
        ({"contents": [{"role": "system", "parts": [{"text": "a"}]}]}, "contents[0].role"),
        ({"contents": [{"parts": [{"text": 1}]}]}, "contents[0].parts[0].text"),
        ({"contents": [{"parts": [{"text": "a\0"}]}]}, "contents[0].parts[0].text"),
        ({"contents": [{"parts": [{"text": "\ud800"}]}]}, "contents[0].parts[0].text"),
        ({"contents": [{"parts": [{}]}]}, "contents[0].parts[0]"),
        ({"contents": [{"parts": [{"inlineData": {"data": ""}}]}]}, "contents[0].parts[0].inlineData"),
        ({"contents": [{"parts": [{"functionCall": {"name": "f"}}]}]}, "contents[0].parts[0].functionCall"),
        (said("a", generationConfig={"temperature": 3}), "generationConfig.temperature"),
        (said("a", generationConfig={"topP": 0}), "generationConfig.topP"),
        (said("a", generation_config={"top_k": -1}), "generation_config.top_k"),
        (said("a", generationConfig={"maxOutputTokens": 0}), "generationConfig.maxOutputTokens"),
        (said("a", generationConfig={"maxOutputTokens": 2**70}), "generationConfig.maxOutputTokens"),
        (said("a", generationConfig={"candidateCount": 10**30}), "generationConfig.candidateCount"),
        (said("a", generationConfig={"stopSequences": ["x"] * 65}), "generationConfig.stopSequences"),
        (said("a", generationConfig={"stopSequences": [""]}), "generationConfig.stopSequences"),
        (said("a", generationConfig={"logprobs": 2}), "generationConfig.logprobs"),
        (said("a", generationConfig={"responseMimeType": "image/png"}), "generationConfig.responseMimeType"),
        (
            said("a", generationConfig={"responseSchema": {"type": "OBJECT"}}),
            "generationConfig.responseMimeType",
        ),
        (
            said("a", generationConfig={"responseModalities": ["AUDIO"]}),
            "generationConfig.responseModalities",
        ),
        (said("a", generationConfig=7), "generationConfig"),
        (said("a", systemInstruction="Be brief."), "systemInstruction"),
        (said("a", tools=[{"googleSearch": {}}]), "tools[0].googleSearch"),
        (said("a", tools=[{"functionDeclarations": [{"name": "f"}, {"name": "f"}]}]), "tools"),
        (
            said("a", toolConfig={"functionCallingConfig": {"mode": "ANY"}}),
            "toolConfig.functionCallingConfig.mode",
        ),
        (said("a", cachedContent=7), "cachedContent"),
    ],
)
def test_a_bad_body_is_400_and_names_the_field(served: Served, body: Any, named: str) -> None:
    for verb in ("generateContent", "streamGenerateContent"):
        code, error = post(served, verb, body)
        assert (code, error["code"], error["status"]) == (400, 400, "INVALID_ARGUMENT")
        assert f"'{named}" in error["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"\xff", b"7" * 9000, b'{"contents":' + b"[" * 5000])
def test_what_is_no_json_is_400(served: Served, body: bytes) -> None:
    for path in ("/v1/models/toy:generateContent", "/v1beta/models/toy:countTokens", "/v1/cachedContents"):
        answer = served.http.post(path, content=body)
        assert (answer.status_code, answer.json()["error"]["status"]) == (400, "INVALID_ARGUMENT")


def test_deep_nesting_is_400(served: Served) -> None:
    deep: Any = {"type": "STRING"}
    for _ in range(200):
        deep = {"type": "ARRAY", "items": deep}
    config = {"responseMimeType": "application/json", "responseSchema": deep}
    code, error = post(served, "generateContent", said("a", generationConfig=config))
    assert code == 400
    assert "nested" in error["message"]


def test_fields_that_are_not_known_are_named_and_known_ones_are_not(served: Served) -> None:
    body = said(
        "a",
        safetySettings=[{"category": "x"}],
        generationConfig={"thinkingConfig": {"thinkingBudget": 0}, "newOne": 1, "max_output_tokens": 2},
        other_thing=1,
    )
    answer = served.http.post("/v1beta/models/toy:generateContent", json=body)
    assert answer.status_code == 200
    assert answer.headers["x-sapwood-ignored"] == "generationConfig.newOne,otherThing"


def test_a_wrong_key_is_401_and_a_tenants_prompts_are_its_own(tmp_path: Path) -> None:
    keys = tmp_path / "tenants.toml"
    keys.write_text('[[tenant]]\nname = "a"\nkey = "sk-a"\n[[tenant]]\nname = "b"\nkey = "sk-b"\n')
    with (
        serving(api_keys=keys) as served,
        talking(served, "sk-a") as first,
        talking(served, "sk-b") as second,
        talking(served, "sk-x") as nobody,
    ):
        served.script(b"ok")
        with pytest.raises(errors.ClientError) as caught:
            ask(nobody, LONG)
        assert (caught.value.code, caught.value.status) == (401, "UNAUTHENTICATED")
        ask(first, LONG)
        assert usage_of(ask(second, LONG)).cached_content_token_count is None
        assert usage_of(ask(first, LONG)).cached_content_token_count
        path = "/v1beta/models/toy:generateContent"
        assert served.http.post(f"{path}?key=sk-a", json=said("hi")).status_code == 200
        assert served.http.post(f"{path}?key=sk-x", json=said("hi")).json()["error"]["code"] == 401
        assert [each.name for each in first.models.list()] == ["models/toy"]
        assert first.models.count_tokens(model="toy", contents="hi").total_tokens


def test_what_goes_wrong_in_a_stream_begins_with_error_and_silence_is_a_blank_line() -> None:
    told = GEMINI.frame(GEMINI.error(EngineFailedError("it broke"), "req-1"))
    assert told == b'data: {"error":{"code":500,"message":"it broke","status":"INTERNAL"}}\n\n'
    assert GEMINI.keep_alive.strip() == b"", "the SDK takes a comment for JSON"


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (BodyTooLargeError(7), 413, "INVALID_ARGUMENT"),
        (BodyTimeoutError(7), 408, "DEADLINE_EXCEEDED"),
        (OperatorOnlyError("GET /x"), 403, "PERMISSION_DENIED"),
        (CachedContentGoneError(), 403, "PERMISSION_DENIED"),
        (CachedContentsFullError(), 429, "RESOURCE_EXHAUSTED"),
        (UnavailableError("later"), 503, "UNAVAILABLE"),
        (KeyError("secret"), 500, "INTERNAL"),
    ],
)
def test_each_failure_has_googles_name(error: Exception, code: int, status: str) -> None:
    told = GEMINI.error(error, "")["error"]
    assert (GEMINI.status(error), told["code"], told["status"]) == (code, code, status)
    assert "secret" not in told["message"]
