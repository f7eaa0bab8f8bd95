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
    # Prompt tokens that are scored are not looked up.
    scored = {"prompt": "something long", "max_tokens": 1, "echo": True, "logprobs": 0}
    served.http.post("/v1/completions", json=scored)
    after = counts()
    assert (after[0] - before[0], after[1] - before[1]) == (28, 13)
