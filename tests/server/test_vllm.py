"""What vLLM's users ask of a server besides OpenAI's routes."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from server.conftest import Served


def test_resetting_the_prefix_cache_forgets(served: Served) -> None:
    def cached() -> int:
        body = {"prompt": "something long", "max_tokens": 1}
        usage = served.http.post("/v1/completions", json=body).json()["usage"]
        count: int = usage["prompt_tokens_details"]["cached_tokens"]
        return count

    assert (cached(), cached()) == (0, 13)
    assert served.http.post("/reset_prefix_cache").json() == {"success": True}
    assert cached() == 0


def test_version_and_load_are_told(served: Served) -> None:
    assert served.http.get("/load").json() == {"server_load": 0}
    version = served.http.get("/version").json()["version"]
    assert version == served.http.get("/v1/server").json()["version"]


def test_tokens_are_told_with_their_texts_if_asked_for(served: Served) -> None:
    plain = served.http.post("/tokenize", json={"prompt": "añ"}).json()
    assert plain == {"tokens": list("añ".encode()), "count": 3, "max_model_len": 4096}
    told = served.http.post("/tokenize", json={"prompt": "ab</s>", "return_token_strs": True}).json()
    assert told["token_strs"] == ["a", "b", "</s>"]
    refused = served.http.post("/tokenize", json={"prompt": "a", "return_token_strs": 1})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "return_token_strs"


def test_prefix_hits_are_counted_under_vllms_names(served: Served) -> None:
    def counts() -> tuple[float, float]:
        families = text_string_to_metric_families(served.http.get("/metrics").text)
        found = {sample.name: sample for family in families for sample in family.samples}
        queries, hits = (found[f"vllm:prefix_cache_{name}_total"] for name in ("queries", "hits"))
        assert queries.labels == hits.labels == {"model_name": "toy", "engine": "0"}
        return queries.value, hits.value

    before = counts()
    for _ in range(2):
        served.http.post("/v1/completions", json={"prompt": "something long", "max_tokens": 1})
    # Prompt tokens that are computed for their scores alone are not looked up: all here but the last.
    scored = {"prompt": "something long", "max_tokens": 1, "echo": True, "logprobs": 0}
    served.http.post("/v1/completions", json=scored)
    after = counts()
    assert (after[0] - before[0], after[1] - before[1]) == (29, 13)


def test_what_a_reset_may_be_asked_besides_is_done_anyway_or_refused(served: Served) -> None:
    path = "/reset_prefix_cache?reset_running_requests=true&reset_external=False"
    assert served.http.post(path).json() == {"success": True}
    refused = served.http.post("/reset_prefix_cache?reset_external=perhaps")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "reset_external"


def test_a_ping_is_answered_without_words(served: Served) -> None:
    for method in ("GET", "POST", "HEAD"):
        answer = served.http.request(method, "/ping")
        assert (answer.status_code, answer.content) == (200, b"")


def test_a_conversation_is_told_in_tokens(served: Served) -> None:
    messages = [{"role": "user", "content": "hi"}]
    told = served.http.post("/tokenize", json={"model": "toy", "messages": messages}).json()
    usage = served.http.post("/v1/chat/completions", json={"messages": messages, "max_tokens": 1}).json()
    assert told["count"] == len(told["tokens"]) == usage["usage"]["prompt_tokens"]
    closed = {"messages": messages, "add_generation_prompt": False}
    assert (
        served.http.post("/tokenize", json=closed).json()["tokens"] == told["tokens"][: -len("assistant") - 2]
    )
