"""What a contract promises is asked to be retained: by the official SDKs, in a pool too small for all that is sent."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import pytest

from sapwood.contract import ANTHROPIC, OPENAI, OPENAI_BREAKPOINTS, Block, Ledger, Plan, Profile
from sapwood.server.promises import wishes
from sapwood.types import Retain
from server.conftest import Served, serving
from server.fakes import FakeFacts

HOUR, DAY = 3600.0, 86_400.0
LONG = "s" * 1100


def plan(profile: Profile, length: int, *blocks: Block) -> Plan:
    return Ledger(profile).plan("n", range(length), blocks, {}, 0.0)


def test_a_marker_is_a_wish_for_all_before_it_and_a_longer_one_stands_higher() -> None:
    blocks = [Block(1100, "system", HOUR), Block(1500, "messages", 300.0), Block(2000, "messages", 300.0)]
    assert wishes(plan(ANTHROPIC, 2100, *blocks)) == [Retain(2, HOUR, 0, 1100), Retain(1, 300.0, 0, 2000)]


def test_what_is_too_short_to_be_promised_is_not_retained() -> None:
    assert wishes(plan(ANTHROPIC, 500, Block(400, "messages", HOUR))) == []


def test_steps_are_retained_only_if_a_day_was_asked_for() -> None:
    assert wishes(plan(OPENAI, 2000)) == []
    assert wishes(plan(OPENAI, 2000, Block(2000, "messages", DAY))) == [Retain(3, DAY, 0, 1920)]


def test_a_boundary_is_retained_as_long_as_it_lives() -> None:
    blocks = [Block(1200, "system", 1800.0), Block(1300, "messages", 1800.0, automatic=True)]
    assert wishes(plan(OPENAI_BREAKPOINTS, 1400, *blocks)) == [Retain(1, 1800.0, 0, 1300)]


@pytest.fixture(params=["radix", "blocks"])
def index(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def small(index: str) -> Iterator[Served]:
    """A pool of two long prompts and a half, and the contract told on all routes."""
    policies = {"eviction": "lru", "schedule": "lpm", "prefix_index": index}
    facts = FakeFacts(page_size=16, capacity_pages=188, policies=policies)
    with serving(facts, ledger="contract") as served:
        served.script(b"ok")
        yield served


def flood(served: Served) -> None:
    """As much as would evict all that nobody wants to keep."""
    for letter in "abcde":
        served.openai.completions.create(model="toy", prompt=letter * 1100, max_tokens=1)


def asked_by_anthropic(served: Served, marker: dict[str, Any]) -> int:
    with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0, timeout=30) as client:
        answer = client.messages.create(
            model="toy",
            max_tokens=2,
            system=[{"type": "text", "text": LONG, **marker}],  # type: ignore[typeddict-item]
            messages=[{"role": "user", "content": "u"}],
        )
    assert answer.usage.cache_read_input_tokens is not None
    return answer.usage.cache_read_input_tokens


def asked_by_openai(served: Served, **options: Any) -> int:
    usage = served.openai.completions.create(model="toy", prompt=LONG, max_tokens=1, extra_body=options).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return usage.prompt_tokens_details.cached_tokens or 0


def asked_by_decisions(served: Served, **options: Any) -> int:
    question: Any = {"type": "predicate", "instructions": "Is it?"}
    decision = served.openai.decisions.create(
        model="toy", input=LONG, questions=[question], extra_body=options
    )
    return int(decision.usage.input_tokens_details.cached_tokens)


def asked_by_chat(served: Served, point: dict[str, Any]) -> int:
    parts: Any = [{"type": "text", "text": LONG, **point}, {"type": "text", "text": "u"}]
    usage = served.openai.chat.completions.create(
        model="toy", messages=[{"role": "user", "content": parts}], max_tokens=1
    ).usage
    assert usage is not None
    assert usage.prompt_tokens_details is not None
    return usage.prompt_tokens_details.cached_tokens or 0


def test_a_marked_prefix_outlives_what_nobody_marked(small: Served, index: str) -> None:
    """Blocks are evicted in one order alone: there a promise is only told."""
    marker = {"cache_control": {"type": "ephemeral", "ttl": "1h"}}
    assert asked_by_anthropic(small, marker) == 0
    flood(small)
    assert (asked_by_anthropic(small, marker) > 1000) == (index == "radix")


def test_a_day_of_retention_outlives_what_asks_for_none(small: Served, index: str) -> None:
    for options, kept in (({}, False), ({"prompt_cache_retention": "24h"}, index == "radix")):
        asked_by_openai(small, **options)
        flood(small)
        assert (asked_by_openai(small, **options) > 1000) == kept


@pytest.mark.parametrize(
    "options", [{"prompt_cache_retention": "24h"}, {"prompt_cache_options": {"mode": "implicit"}}]
)
def test_the_input_of_decisions_is_retained_as_it_is_promised(
    small: Served, index: str, options: dict[str, Any]
) -> None:
    for wish, kept in (({"prompt_cache_key": "k"}, False), (options, index == "radix")):
        asked_by_decisions(small, **wish)
        flood(small)
        assert (asked_by_decisions(small, **wish) > 1000) == kept


def test_a_breakpoint_outlives_what_has_none(small: Served, index: str) -> None:
    point = {"prompt_cache_breakpoint": {"mode": "explicit"}}
    asked_by_chat(small, point)
    flood(small)
    assert (asked_by_chat(small, point) > 1000) == (index == "radix")


def test_under_the_physical_ledger_nothing_is_promised_and_nothing_retained() -> None:
    facts = FakeFacts(page_size=16, capacity_pages=188)
    with serving(facts, ledger="physical") as served:
        served.script(b"ok")
        marker = {"cache_control": {"type": "ephemeral"}}
        asked_by_anthropic(served, marker)
        flood(served)
        assert asked_by_anthropic(served, marker) < 100
