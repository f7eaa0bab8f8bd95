"""max_hot_tokens: a tenant keeps its share of the pool, and a busy one leaves the others' prefixes alone."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from server.conftest import Served, serving
from server.fakes import FakeFacts
from server.test_tenants import cached, complete, explained, missed, send

FILE = """
[[tenant]]
name = "a"
key = "sk-a"
max_hot_tokens = 200
[[tenant]]
name = "b"
key = "sk-b"
[[tenant]]
name = "ops"
key = "sk-ops"
operator = true
max_hot_tokens = 100
"""
POOL = 1000


@pytest.fixture(params=[("radix", "lru"), ("radix", "default"), ("blocks", "lru")])
def served(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Served]:
    index, eviction = request.param
    path = tmp_path / "tenants.toml"
    path.write_text(FILE)
    policies = {"eviction": eviction, "schedule": "lpm", "prefix_index": index}
    with serving(FakeFacts(capacity_pages=POOL, policies=policies, pin_tokens=300), api_keys=path) as served:
        yield served


def kept(served: Served, tenant: str) -> int:
    """Tokens that a tenant has in the pool, counted by the cache."""

    def count(engine: Any) -> int:
        (own,) = (account for account in engine.cache._accounts if account.tenant == tenant)
        pages: int = own.pages
        return pages

    return served.built.loop.call(count).result()


def test_what_the_next_of_a_call_is_about_to_read_is_not_given_up_for_the_quota(served: Served) -> None:
    """Else every prompt of a call would compute again what they share, if that is more than its tenant may keep."""
    shared, count = "s" * 300, 12
    before = served.built.loop.stats().computed_tokens
    complete(served, "a", [f"{shared}{n:02}" for n in range(count)])  # type: ignore[arg-type]
    assert served.built.loop.stats().computed_tokens - before < 2 * len(shared)
    assert kept(served, "a") <= 200


def test_what_a_busy_tenant_does_leaves_anothers_prefixes_in_place(served: Served) -> None:
    """All that it asks for would fill the pool many times over; what runs of it at once has room beside the other."""
    mine = "b" * 300
    complete(served, "b", mine)
    with ThreadPoolExecutor(3) as pool:
        for _ in pool.map(lambda n: complete(served, "a", f"{n:03} " + "x" * 196, max_tokens=4), range(30)):
            pass
    assert cached(complete(served, "b", mine)) == len(mine) - 1
    assert 0 < kept(served, "a") <= 200


def test_one_without_a_quota_takes_what_the_pool_has(served: Served) -> None:
    complete(served, "a", "a" * 150)
    for n in range(10):
        complete(served, "b", f"{n:03} " + "x" * 196)
    assert cached(complete(served, "a", "a" * 150)) < 149


def test_a_tenant_reuses_what_it_may_keep_and_is_told_what_became_of_the_rest(served: Served) -> None:
    prompt = "the quota " * 30
    complete(served, "a", prompt)
    assert kept(served, "a") == 200
    again = complete(served, "a", prompt)
    assert cached(again) == 200
    assert again.headers["x-sapwood-cache"].startswith("reused=200")
    assert missed(served, "a", again) == {"evicted": len(prompt) - 201, "last_token": 1}
    assert explained(served, "a", again)["evicted_seconds_ago"] is not None


def test_a_salt_gives_a_tenant_no_more(served: Served) -> None:
    for salt in ("r", "s", "t"):
        complete(served, "a", "the same prompt " * 9, cache_salt=salt)
        assert kept(served, "a") <= 200
    assert cached(complete(served, "a", "the same prompt " * 9, cache_salt="t")) == 143


def test_a_request_may_be_longer_than_the_quota_of_its_tenant(served: Served) -> None:
    answer = complete(served, "a", "z" * 600, max_tokens=20, ignore_eos=True)
    assert answer.json()["usage"]["completion_tokens"] == 20
    assert kept(served, "a") == 200


def test_a_pin_counts_towards_its_operators_quota_and_stays(served: Served) -> None:
    assert send(served, "ops", "POST", "/v1/cache/pins", {"id": "p", "prompt": "p" * 80}).status_code == 200
    for n in range(5):
        complete(served, "ops", f"{n}" * 150)
    assert kept(served, "ops") == 100
    assert cached(complete(served, "ops", "p" * 90)) == 80
    refused = send(served, "ops", "POST", "/v1/cache/pins", {"id": "q", "prompt": "q" * 101})
    assert refused.status_code == 400
    assert "its tenant may keep 100" in refused.text
    assert "max_hot_tokens" in refused.text


def test_a_flush_gives_a_tenant_its_quota_back(served: Served) -> None:
    complete(served, "a", "f" * 300)
    assert send(served, "ops", "POST", "/flush_cache").status_code == 200
    assert kept(served, "a") == 0
    complete(served, "a", "f" * 150)
    assert cached(complete(served, "a", "f" * 150)) == 149


@pytest.mark.parametrize("index", ["radix", "blocks"])
def test_in_a_crowd_that_does_not_fit_all_end_with_the_answers_of_one_that_is_alone(
    index: str, tmp_path: Path
) -> None:
    """Whoever is preempted loses what is above the quota, and computes it again."""
    path = tmp_path / "tenants.toml"
    path.write_text(FILE.replace("max_hot_tokens = 200", "max_hot_tokens = 0"))
    policies = {"eviction": "lru", "schedule": "default", "prefix_index": index}
    prompts = [f"{n % 6}" * 150 for n in range(12)]
    fields: dict[str, Any] = {"max_tokens": 40, "ignore_eos": True}
    with serving(FakeFacts(capacity_pages=400, policies=policies), api_keys=path) as served:
        alone = [complete(served, "b", prompt, **fields).json()["choices"] for prompt in prompts]
        with ThreadPoolExecutor(12) as pool:
            crowd = pool.map(lambda prompt: complete(served, "a", prompt, **fields), prompts)
            assert [answer.json()["choices"] for answer in crowd] == alone
        assert kept(served, "a") == 0
        assert served.built.loop.stats().preemptions > 0
