"""API keys: who is let in, to which routes, and that nobody learns or uses what another tenant has cached."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
from prometheus_client.parser import text_string_to_metric_families
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route
from starlette.testclient import TestClient

from sapwood.cache.blocks import BlockIndex
from sapwood.config import ServerConfig
from sapwood.errors import NotFoundError, UsageError
from sapwood.server import Slot, create_app
from sapwood.server.caller import Caller, caller_of
from sapwood.server.door import FOR_TENANTS, OPEN, Door
from sapwood.server.explain import Explanations
from sapwood.server.generate import GenerateEndpoint, Job, Order
from sapwood.server.guard import Guard
from sapwood.server.log import RequestLog
from sapwood.server.openai_routes import prepare_completion
from sapwood.server.tenants import Tenants, load_tenants
from sapwood.server.wire import OPENAI
from sapwood.types import Scope, Usage
from server.conftest import Served, serving
from server.fakes import FakeFacts, build_fake

FILE = """
[[tenant]]
name = "a"
key = "sk-a"
[[tenant]]
name = "b"
key = "sk-b"
[[tenant]]
name = "ops"
key = "sk-ops"
operator = true
"""
COMPLETIONS = "/v1/completions"
DOCS = Path(__file__).parents[2] / "docs" / "tenants.md"


@pytest.fixture(scope="session")
def keys_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("keys") / "tenants.toml"
    path.write_text(FILE)
    return path


@pytest.fixture(scope="session")
def locked(keys_file: Path) -> Iterator[Served]:
    with serving(api_keys=keys_file) as served:
        yield served


@pytest.fixture
def served(locked: Served) -> Served:
    """The server with three tenants, and with nothing in its cache."""
    locked.script(None)
    assert send(locked, "ops", "POST", "/flush_cache").status_code == 200
    return locked


def send(served: Served, tenant: str, method: str, path: str, body: Any = None) -> httpx.Response:
    return served.http.request(method, path, json=body, headers={"authorization": f"Bearer sk-{tenant}"})


def complete(served: Served, who: str, prompt: str, /, **fields: Any) -> httpx.Response:
    answer = send(
        served, who, "POST", COMPLETIONS, {"prompt": prompt, "max_tokens": 1, "temperature": 0, **fields}
    )
    assert answer.status_code == 200, answer.text
    return answer


def cached(answer: httpx.Response) -> int:
    tokens: int = answer.json()["usage"]["prompt_tokens_details"]["cached_tokens"]
    return tokens


def explained(served: Served, tenant: str, answer: httpx.Response) -> dict[str, Any]:
    told = send(served, tenant, "GET", f"/v1/requests/{answer.json()['id']}/cache")
    assert told.status_code == 200, told.text
    explanation: dict[str, Any] = told.json()
    return explanation


def missed(served: Served, tenant: str, answer: httpx.Response) -> dict[str, int]:
    """Reason → tokens, without zeros."""
    return {reason: count for reason, count in explained(served, tenant, answer)["missed"].items() if count}


# ---- the key -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["sk-a", "sk-wrong"])
@pytest.mark.parametrize("where", ["authorization", "x-api-key", "x-goog-api-key", "query"])
def test_a_key_is_taken_wherever_the_dialects_put_it(served: Served, where: str, key: str) -> None:
    headers = {} if where == "query" else {where: f"bearer  {key}" if where == "authorization" else key}
    answer = served.http.get("/v1/models", headers=headers, params={"key": key} if where == "query" else {})
    if key == "sk-a":
        assert answer.status_code == 200
    else:
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"
        assert key not in answer.text


@pytest.mark.parametrize(
    ("headers", "said"),
    [
        ([], "an API key is required"),
        ([("authorization", "Bearer")], "an API key is required"),
        ([("authorization", "Basic sk-a")], "an API key is required"),
        ([("x-api-key", "")], "an API key is required"),
        ([("authorization", "sk-a")], "an API key is required"),
        ([("authorization", "Bearer sk-a sk-a")], "not known"),
        ([("authorization", "Bearer SK-A")], "not known"),
        ([("x-api-key", hashlib.sha256(b"sk-a").hexdigest())], "not known"),
        ([("x-api-key", "sk-a\xff")], "not known"),
        ([("x-api-key", "sk-" + "a" * 30_000)], "not known"),
        ([("authorization", "Bearer sk-a"), ("x-api-key", "sk-b")], "two different API keys"),
        ([("authorization", "Bearer sk-a"), ("authorization", "Bearer sk-x")], "two different API keys"),
    ],
)
def test_what_is_no_key_of_one_tenant_is_401(
    served: Served, headers: list[tuple[str, str]], said: str
) -> None:
    raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
    for path, method in (("/v1/models", "GET"), (COMPLETIONS, "POST"), ("/nowhere", "GET")):
        answer = served.http.request(method, path, headers=raw)
        assert answer.status_code == 401
        assert said in answer.json()["error"]["message"]
        assert answer.json()["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "query", ["key=%FF%00", "key=sk-a&key=sk-b", "key=", "Key=sk-a", "key", "a;key=sk-a"]
)
def test_a_query_without_one_good_key_is_401(served: Served, query: str) -> None:
    assert served.http.get(f"/v1/models?{query}").status_code == 401


def test_the_same_key_twice_is_one_key(served: Served) -> None:
    headers = {"authorization": "Bearer sk-a", "x-api-key": "sk-a"}
    assert served.http.get("/v1/models?key=sk-a", headers=headers).status_code == 200


def test_the_openai_client_meets_its_own_error_and_nothing_was_computed(served: Served) -> None:
    before = send(served, "ops", "GET", "/metrics").text
    client = openai.OpenAI(base_url=f"{served.url}/v1", api_key="sk-wrong", max_retries=2)
    with pytest.raises(openai.AuthenticationError) as caught:
        client.chat.completions.create(model="toy", messages=[{"role": "user", "content": "hi"}])
    assert (caught.value.status_code, caught.value.code) == (401, "invalid_api_key")
    client.close()
    counted = [line for line in before.splitlines() if line.startswith("sapwood_prompt_tokens_total")]
    assert counted
    assert set(counted) <= set(send(served, "ops", "GET", "/metrics").text.splitlines())


def test_keys_are_asked_for_while_the_model_loads_but_for_health(keys_file: Path) -> None:
    client = TestClient(create_app(Slot(None, "toy"), ServerConfig(api_keys=keys_file)))
    assert client.get("/health").json() == {"status": "loading"}
    assert client.get("/v1/models").status_code == 401
    assert client.get("/v1/models", headers={"x-api-key": "sk-a"}).status_code == 503


def test_a_refusal_is_said_in_the_dialect_of_its_route(keys_file: Path) -> None:
    other = replace(OPENAI, error=lambda error, _id: {"oops": type(error).__name__}, status=lambda _: 499)
    endpoint = GenerateEndpoint(prepare_completion, Slot(None, "toy"), Explanations(), 1000, other)
    app = within_the_door(keys_file, Route("/say/{verb}", endpoint, methods=["POST"]))
    refused = TestClient(app).post("/say/it", json={})
    assert (refused.status_code, refused.json()) == (499, {"oops": "AuthenticationError"})
    assert TestClient(app).get("/say/it").status_code == 401, "no route of that method, no dialect"


@pytest.mark.parametrize(
    ("path", "shape"),
    [
        (COMPLETIONS, {"error": {"type": "invalid_request_error", "code": "invalid_api_key"}}),
        ("/v1/messages", {"type": "error", "error": {"type": "authentication_error"}}),
        ("/v1/messages/count_tokens", {"type": "error", "error": {"type": "authentication_error"}}),
        ("/generate", {"error": {"code": 401}}),
        ("/completion", {"error": {"code": 401}}),
        ("/api/chat", {"error": "the API key is not known here"}),
        ("/api/show", {"error": "the API key is not known here"}),
    ],
)
def test_each_dialect_says_401_in_its_own_shape(served: Served, path: str, shape: dict[str, Any]) -> None:
    answer = send(served, "wrong", "POST", path, {})
    assert answer.status_code == 401
    told = answer.json()
    for name, value in shape.items():
        if isinstance(value, dict):
            assert value.items() <= told[name].items()
        else:
            assert told[name] == value


def within_the_door(keys_file: Path, *routes: Route) -> Starlette:
    tenants = load_tenants(keys_file, {})
    guard = Middleware(Guard, log=RequestLog(as_json=True))
    return Starlette(routes=list(routes), middleware=[guard, Middleware(Door, tenants=tenants)])


# ---- what a key opens --------------------------------------------------------------------------------------


def test_every_route_is_either_a_tenants_or_an_operators_alone(keys_file: Path) -> None:
    """What generates is a tenant's; of all others each that is open to tenants is in the table."""
    app = create_app(Slot(None, "toy"), ServerConfig(api_keys=keys_file))
    client = TestClient(app)
    for route in app.routes:
        assert isinstance(route, Route)
        path = re.sub(r"\{[^}]*\}", "x", route.path)
        for method in route.methods or ():
            asked = {
                key: client.request(method, path, headers={"x-api-key": f"sk-{key}"}, json={}).status_code
                for key in ("a", "ops", "wrong")
            }
            # The model is still loading: 503 says that the request came to the handler.
            if route.path in OPEN:
                assert len(set(asked.values())) == 1
                assert asked["wrong"] not in (401, 403)
            elif route.path in FOR_TENANTS or isinstance(route.endpoint, GenerateEndpoint):
                assert (asked["a"], asked["wrong"]) == (asked["ops"], 401), path
            else:
                assert (asked["a"], asked["wrong"]) == (403, 401), path
                assert asked["ops"] not in (401, 403), path


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/metrics"),
        ("GET", "/v1/cache/curve"),
        ("POST", "/flush_cache"),
        ("GET", "/flush_cache"),
        ("POST", "/reset_prefix_cache"),
        ("GET", "/server_info"),
        ("GET", "/load"),
        ("GET", "/slots"),
        ("GET", "/v1/cache/pins"),
        ("POST", "/v1/cache/pins"),
        ("DELETE", "/v1/cache/pins/mine"),
    ],
)
def test_what_shows_or_changes_others_things_is_an_operators(served: Served, method: str, path: str) -> None:
    pin = {"id": "mine", "prompt": "abc"}
    assert send(served, "ops", "POST", "/v1/cache/pins", pin).status_code == 200
    refused = send(served, "a", method, path, pin)
    assert refused.status_code == 403
    assert "operator = true" in refused.text
    assert "is for operators" in refused.text
    assert len(send(served, "ops", "GET", "/v1/cache/pins").json()["pins"]) == 1, "nothing has changed"
    body = {**pin, "id": "other"} if path.endswith("pins") else None
    assert send(served, "ops", method, path, body).status_code == 200


def test_a_tenant_is_told_of_the_server_what_does_not_change(served: Served) -> None:
    own, all_ = (send(served, who, "GET", "/v1/server").json() for who in ("a", "ops"))
    assert all_.keys() - own.keys() == {"pinned_tokens"}
    assert own == {name: all_[name] for name in own}


def test_an_unknown_route_is_404_to_a_tenant_and_a_wrong_method_405(served: Served) -> None:
    assert send(served, "a", "GET", "/v1/nothing").status_code == 404
    assert send(served, "a", "DELETE", COMPLETIONS).status_code == 405
    assert send(served, "a", "POST", "/metrics").status_code == 405


def test_nobody_is_served_who_did_not_come_through_the_door() -> None:
    with pytest.raises(KeyError):
        caller_of({})


# ---- one tenant's prefixes are not another's ---------------------------------------------------------------


def test_equal_prompts_are_shared_within_a_tenant_and_with_nobody_else(served: Served) -> None:
    clients = {
        tenant: openai.OpenAI(base_url=f"{served.url}/v1", api_key=f"sk-{tenant}", max_retries=0)
        for tenant in ("a", "b", "ops")
    }
    messages: Any = [{"role": "user", "content": "the secret is 1234"}]
    seen = []
    for tenant in ("a", "b", "a", "b", "ops"):
        answer = clients[tenant].chat.completions.create(model="toy", messages=messages, max_tokens=1)
        assert answer.usage is not None
        assert answer.usage.prompt_tokens_details is not None
        seen.append((tenant, answer.usage.prompt_tokens_details.cached_tokens))
        own = send(served, tenant, "GET", f"/v1/requests/{answer.id}/cache").json()
        if seen[-1][1] == 0:
            assert own["missed"]["never_seen"] == answer.usage.prompt_tokens - 1
            assert own["missed"]["other_namespace"] == own["missed"]["evicted"] == 0
    whole = seen[2][1]
    assert whole is not None
    assert whole > 20
    assert seen == [("a", 0), ("b", 0), ("a", whole), ("b", whole), ("ops", 0)]
    for client in clients.values():
        client.close()


def test_what_was_evicted_is_evicted_to_its_tenant_and_never_seen_by_others(
    serve: Any, keys_file: Path
) -> None:
    with serve(FakeFacts(capacity_pages=256), api_keys=keys_file) as served:
        secret = "the secret is 1234, " * 5
        complete(served, "a", secret)
        for i in range(4):
            complete(served, "a", f"{i}" * 200)
        assert missed(served, "b", complete(served, "b", secret)) == {
            "never_seen": len(secret) - 1,
            "last_token": 1,
        }
        own = complete(served, "a", secret)
        assert missed(served, "a", own) == {"evicted": len(secret) - 1, "last_token": 1}
        assert explained(served, "a", own)["evicted_seconds_ago"] is not None


def test_a_right_guess_at_anothers_prompt_is_told_as_a_wrong_one(served: Served) -> None:
    """TE-05."""
    secret = "my number is 1234"
    complete(served, "a", secret)
    told = []
    for guess in (secret, "my number is 1235", secret[:-2] + "99", "MY NUMBER IS 1234"):
        assert send(served, "ops", "POST", "/flush_cache").status_code == 200
        complete(served, "a", secret)
        answer = complete(served, "b", guess)
        explanation = explained(served, "b", answer)
        names = ("prompt_tokens", "reused", "missed", "diverged_at", "evicted_seconds_ago")
        told.append(
            (
                answer.headers["x-sapwood-cache"],
                answer.json()["usage"],
                [explanation[name] for name in names],
                explanation["waited_for_leader_ms"],
            )
        )
    assert told[1:] == told[:1] * 3


def test_a_salt_in_the_body_narrows_the_own_namespace_and_opens_no_other(served: Served) -> None:
    """TE-04. Nor does any other field or header name a tenant."""
    prompt = "behind a salt"
    complete(served, "a", prompt, cache_salt="s")
    complete(served, "a", prompt)
    for fields in (
        {"cache_salt": "s"},
        {"tenant": "a"},
        {"cache_salt": "a"},
        {"cache_salt": "sk-a"},
        {"user": "a"},
        {"scope": {"tenant": "a"}},
        {"extra_body": {"tenant": "a"}},
    ):
        assert send(served, "ops", "POST", "/flush_cache").status_code == 200
        complete(served, "a", prompt, cache_salt="s")
        complete(served, "a", prompt)
        assert cached(complete(served, "b", prompt, **fields)) == 0
    assert cached(complete(served, "a", prompt, cache_salt="s")) == len(prompt) - 1
    assert cached(complete(served, "a", prompt)) == len(prompt) - 1


def test_a_tenants_name_and_a_salt_of_that_name_never_meet(served: Served) -> None:
    """TE-06. What is told of other namespaces is told of the own tenant's."""
    prompt = "names and salts"
    whole = len(prompt) - 1
    for tenant, salt in (("a", "b"), ("b", "a"), ("b", None), ("b", "b")):
        answer = complete(served, tenant, prompt, **({"cache_salt": salt} if salt else {}))
        assert cached(answer) == 0
        # What is cached under a salt is told to nobody without it; what is without one, to the own tenant.
        reason = "other_namespace" if (tenant, salt) == ("b", "b") else "never_seen"
        assert missed(served, tenant, answer) == {reason: whole, "last_token": 1}
    assert missed(served, "a", complete(served, "a", prompt)) == {"never_seen": whole, "last_token": 1}
    for tenant, salt in (("a", "b"), ("b", "a"), ("b", "b")):
        assert cached(complete(served, tenant, prompt, cache_salt=salt)) == whole


def test_under_a_page_hash_of_eight_bits_no_tenant_is_given_anothers_pages(
    serve: Any, keys_file: Path
) -> None:
    """TE-01. Prompts whose pages collide: answers are those of a cold cache, and b reuses nothing of a."""
    policies = {"eviction": "lru", "schedule": "lpm", "prefix_index": "blocks"}
    with serve(FakeFacts(page_size=4, capacity_pages=512, policies=policies), api_keys=keys_file) as served:
        engine = served.built.loop._engine
        engine.cache._index = BlockIndex(4, lambda data: hashlib.blake2b(data, digest_size=1).digest())
        cold: dict[str, str] = {}
        for i in range(24):
            prompt = hashlib.sha256(b"%d" % i).hexdigest()[:33]
            answers = [complete(served, tenant, prompt, max_tokens=4) for tenant in ("a", "b", "a")]
            cold[prompt] = answers[0].json()["choices"][0]["text"]
            assert {answer.json()["choices"][0]["text"] for answer in answers} == {cold[prompt]}
            assert [cached(answer) for answer in answers[:2]] == [0, 0]
        assert send(served, "ops", "POST", "/flush_cache").status_code == 200
        for prompt, text in cold.items():
            assert complete(served, "b", prompt, max_tokens=4).json()["choices"][0]["text"] == text


def test_a_dialect_that_forgets_the_tenant_or_names_another_is_kept_in_the_callers_namespace(
    keys_file: Path,
) -> None:
    seen: list[Scope] = []
    built = build_fake()
    real = built.loop.generate

    def generate(request: Any) -> Any:
        seen.append(request.scope)
        return real(request)

    def careless(order: Order) -> Job:
        job = prepare_completion(order)
        return replace(
            job, requests=tuple(replace(each, scope=Scope("victim", salt="s")) for each in job.requests)
        )

    built.loop.generate = generate  # type: ignore[method-assign]
    endpoint = GenerateEndpoint(careless, Slot(built, None), Explanations(), 1000)
    client = TestClient(within_the_door(keys_file, Route("/x", endpoint, methods=["POST"])))
    body = {"prompt": ["abc", "def"], "max_tokens": 1}
    assert client.post("/x", json=body, headers={"x-api-key": "sk-b"}).status_code == 200
    assert seen == [Scope("b", salt="s")] * 2
    built.loop.shutdown()


def test_a_prefix_is_its_tenants_whatever_dialect_it_comes_in(served: Served) -> None:
    prompt = "one cache for every dialect"
    bodies: dict[str, Any] = {
        "/generate": {"text": prompt, "sampling_params": {"max_new_tokens": 1}},
        "/completion": {"prompt": prompt, "n_predict": 1},
        "/api/generate": {"model": "toy", "prompt": prompt, "raw": True, "stream": False},
    }
    for path, body in bodies.items():
        assert send(served, "ops", "POST", "/flush_cache").status_code == 200
        assert send(served, "a", "POST", path, body).status_code == 200
        assert cached(complete(served, "b", prompt)) == 0
        assert cached(complete(served, "a", prompt)) == len(prompt) - 1, path


def test_counting_tokens_is_open_to_tenants_and_caches_nothing(served: Served) -> None:
    assert send(served, "a", "POST", "/tokenize", {"prompt": "count me"}).json()["count"] == 8
    assert cached(complete(served, "a", "count me")) == 0


def test_a_pin_is_held_for_the_operator_who_made_it(served: Served) -> None:
    pin = {"id": "p", "prompt": "for the operator"}
    assert send(served, "ops", "POST", "/v1/cache/pins", pin).json()["tenant"] == "ops"
    (listed,) = send(served, "ops", "GET", "/v1/cache/pins").json()["pins"]
    assert (listed["id"], listed["tenant"]) == ("p", "ops")
    assert cached(complete(served, "a", pin["prompt"])) == 0
    assert cached(complete(served, "ops", pin["prompt"])) == len(pin["prompt"]) - 1


# ---- explanations, metrics, the log ------------------------------------------------------------------------


def test_an_explanation_is_its_tenants_and_an_operators(served: Served) -> None:
    answer = complete(served, "a", "explain me")
    for id in (answer.json()["id"], answer.headers["x-request-id"]):
        path = f"/v1/requests/{id}/cache"
        assert send(served, "a", "GET", path).json() == send(served, "ops", "GET", path).json()
        refused = send(served, "b", "GET", path)
        unknown = send(served, "b", "GET", f"/v1/requests/{id[::-1]}/cache")
        assert refused.status_code == unknown.status_code == 404
        assert refused.text == unknown.text.replace(id[::-1], id), "it looks like one that never was"


def test_how_long_calls_are_remembered_does_not_depend_on_other_tenants() -> None:
    explanations = Explanations(kept=2)
    explanations.note("cmpl-mine", 0, Usage(1, 0, {"last_token": 1}), "b")
    for i in range(9):
        explanations.note(f"cmpl-{i}", 0, Usage(1, 0, {"last_token": 1}), "a")
    assert explanations.get("cmpl-mine", Caller("b", operator=False))["id"] == "cmpl-mine"
    for caller in (Caller("a", operator=False), Caller("c", operator=False), Caller("", operator=False)):
        with pytest.raises(NotFoundError):
            explanations.get("cmpl-mine", caller)


def test_metrics_are_counted_by_tenant_and_name_those_of_the_file_alone(serve: Any, keys_file: Path) -> None:
    with serve(api_keys=keys_file) as served:
        served.script(b"yes")
        complete(served, "a", "abcdef", max_tokens=3)
        complete(served, "a", "abcdef", max_tokens=2, tenant="zz")
        complete(served, "b", "abc")
        values: dict[tuple[str, str, str], float] = {}
        for family in text_string_to_metric_families(send(served, "ops", "GET", "/metrics").text):
            for sample in family.samples:
                kind = sample.labels.get("reason") or sample.labels.get("tier", "")
                values[sample.name, sample.labels.get("tenant", ""), kind] = sample.value
        names = {
            "prompt_tokens": "",
            "reused_tokens": "hot",
            "missed_tokens": "never_seen",
            "generated_tokens": "",
            "finished": "",
        }
        for name, kind in names.items():
            tenants = {who for found, who, _ in values if found == f"sapwood_{name}_total"}
            assert tenants == {"a", "b", "ops"}
            counted = [values[f"sapwood_{name}_total", who, kind] for who in ("a", "b", "ops")]
            expected = {
                "prompt_tokens": [12, 3, 0],
                "reused_tokens": [5, 0, 0],
                "missed_tokens": [5, 2, 0],
                "generated_tokens": [5, 1, 0],
                "finished": [2, 1, 0],
            }
            assert counted == expected[name], name
        stats = served.built.loop.stats()
        assert (stats.prompt_tokens, stats.generated_tokens, stats.finished) == (15, 6, 3)
        assert ("sapwood_pages", "", "") in values, "what is nobody's has no such label"


def test_without_a_file_everyone_is_the_operator_of_one_cache_and_no_metric_names_a_tenant(
    serve: Any,
) -> None:
    with serve() as served:
        assert cached(served.http.post(COMPLETIONS, json={"prompt": "abc", "max_tokens": 1})) == 0
        headers = {"x-api-key": "anything"}
        again = served.http.post(COMPLETIONS, json={"prompt": "abc", "max_tokens": 1}, headers=headers)
        assert cached(again) == 2
        assert "tenant" not in served.http.get("/metrics").text
        assert served.http.post("/flush_cache").status_code == 200


def test_the_log_says_whose_request_it_was_and_never_the_key(
    served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    complete(served, "a", "abc")
    served.http.get("/v1/models?key=sk-b")
    served.http.get("/v1/models?key=sk-secret")
    logged = capsys.readouterr().err
    assert "POST /v1/completions · 200 · a · " in logged
    assert "GET /v1/models · 200 · b · " in logged
    assert "GET /v1/models · 401 · " in logged
    assert "sk-" not in logged


# ---- the file ----------------------------------------------------------------------------------------------


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Tenants]:
    def write_and_load(text: str | bytes, **environ: str) -> Tenants:
        path = tmp_path / "tenants.toml"
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return load_tenants(path, environ)

    return write_and_load


def test_a_key_may_be_written_hashed_or_lie_in_the_environment(load: Callable[..., Tenants]) -> None:
    digest = hashlib.sha256(b"sk-2").hexdigest()
    tenants = load(
        '[[tenant]]\nname = "one"\nkey = "sk-1"\noperator = false\n'
        f'[[tenant]]\nname = "two"\nkey_sha256 = "{digest.upper()}"\noperator = true\n'
        '[[tenant]]\nname = "three"\nkey_env = "THREE"\n',
        THREE="sk-3",
    )
    assert tenants.names == ("one", "two", "three")
    found = [
        tenants.find(key) for key in (b"sk-1", b"sk-2", b"sk-3", digest.encode(), b"THREE", b"", b"sk-4")
    ]
    assert found[:3] == [Caller("one", False), Caller("two", True), Caller("three", False)]
    assert found[3:] == [None] * 4


NAMED = '[[tenant]]\nname = "one"\n'
GOOD = f'{NAMED}key = "sk-secret"\n'


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "there is no [[tenant]]"),
        ("tenant = []", "there is no [[tenant]]"),
        ('tenant = "x"', "written as [[tenant]]"),
        ("[tenant]\nname = 'x'", "written as [[tenant]]"),
        ("tenant = [1]", "written as [[tenant]]"),
        ('[[tenant]]\nkey = "sk-secret" x', "not valid TOML (at line 2, column 19)"),
        (b'[[tenant]]\nname = "\xff"', "not valid TOML"),
        ("a = " + "[" * 5000 + "]" * 5000, "not valid TOML"),
        (GOOD + "[server]\nport = 1", "there is no field 'server'"),
        (GOOD + "oprator = true", "there is no field 'oprator'; the fields are name, key,"),
        (GOOD + "operator = 1", "operator is 1; it must be true or false"),
        (GOOD + 'operator = "yes"', "operator is yes"),
        (GOOD + "max_hot_tokens = -5", "max_hot_tokens is -5; it must be a whole number of tokens"),
        (GOOD + "max_hot_tokens = true", "max_hot_tokens is True"),
        (GOOD + 'max_hot_tokens = "5"', "max_hot_tokens is 5"),
        (GOOD + "max_hot_tokens = 1.5", "max_hot_tokens is 1.5"),
        (NAMED, "it has no key; it must have one of key, key_sha256, key_env"),
        (GOOD + 'key_env = "X"', "it has key and key_env"),
        (NAMED + 'key = ""', "key is missing or empty"),
        (NAMED + "key = 5", "key must be a string"),
        (NAMED + 'key = "sk secret"', "none of them a space"),
        (NAMED + 'key = "sk-sécret"', "all of them ASCII"),
        (NAMED + 'key_sha256 = "sk-secret"', "64 hex digits"),
        (NAMED + 'key_env = "NOTHERE"', "the environment has no 'NOTHERE'"),
        (NAMED + 'key_env = "EMPTY"', "the environment has no 'EMPTY'"),
        ('[[tenant]]\nkey = "sk-secret"', "[[tenant]] number 1: name is missing"),
        ('[[tenant]]\nname = ""\nkey = "sk-secret"', "name is missing or empty"),
        ('[[tenant]]\nname = "a b"\nkey = "sk-secret"', "name is 'a b'; it must have 1 to 64"),
        ('[[tenant]]\nname = ["a"]\nkey = "sk-secret"', "name must be a string"),
        (GOOD + GOOD.replace("secret", "other"), "two tenants are called 'one'"),
        (GOOD + GOOD.replace("one", "two"), "'one' and 'two' have the same key"),
        (
            GOOD + f'[[tenant]]\nname="two"\nkey_sha256="{hashlib.sha256(b"sk-secret").hexdigest()}"',
            "'one' and 'two' have the same key",
        ),
        (GOOD + '[[tenant]]\nname = "two"', "[[tenant]] number 2: it has no key"),
    ],
)
def test_a_file_that_is_wrong_is_told_in_words_and_no_key_is_shown(
    load: Callable[..., Tenants], text: str | bytes, said: str
) -> None:
    with pytest.raises(UsageError) as caught:
        load(text, EMPTY="")
    assert said in str(caught.value)
    assert "tenants.toml" in caught.value.message
    assert not re.search("s.?cret", str(caught.value))


@pytest.mark.parametrize("what", ["nothing", "a folder"])
def test_a_file_that_cannot_be_read_is_named_before_a_port_is_bound(tmp_path: Path, what: str) -> None:
    path = tmp_path / "keys"
    if what == "a folder":
        path.mkdir()
    with pytest.raises(UsageError, match=r"cannot read the tenants file .*keys"), serving(api_keys=path):
        pass


def test_a_tenant_shows_no_hash_of_its_key(load: Callable[..., Tenants]) -> None:
    shown = repr(load(GOOD)._tenants)
    assert "one" in shown
    assert "sha" not in shown


def test_the_examples_of_the_docs_make_a_tenants_file(load: Callable[..., Tenants], tmp_path: Path) -> None:
    (tmp_path / "rules.txt").write_text("Be brief.")
    examples = re.findall(r"```toml\n(.*?)```", DOCS.read_text(), re.DOTALL)
    tenants = load("".join(examples), OPS_KEY="sk-ops")
    assert tenants.quotas == {"team-b": 20000}
    assert len(tenants.names) >= 3
    assert tenants.find(b"sk-ops") == Caller("operations", operator=True)
