"""Google's SDK, this generation and the one before, unmodified: cached contents, implicit caching, streams, tools."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

from clients.conftest import Environment, Theatre, Told

VERSIONS: dict[Environment, str] = {"new": "3.6.1", "old": "1.52.0"}
GONE = [403, "PERMISSION_DENIED", "CachedContent not found (or permission denied)"]
ANSWER = len("\0assistant\n")


@pytest.fixture(scope="module", params=list(VERSIONS))
def told(theatre: Theatre, request: pytest.FixtureRequest) -> Told:
    played = theatre.play("gemini_calls", request.param)
    assert played.version == VERSIONS[request.param]
    return played


def size_of(cache: Any) -> int:
    size = cache["usage_metadata"]["total_token_count"]
    assert isinstance(size, int)
    return size


def cached(usage: Any) -> int | None:
    """Cached tokens, once it is seen that the sums are right; None is how the SDKs read "nothing"."""
    assert usage["total_token_count"] == usage["prompt_token_count"] + usage["candidates_token_count"]
    count: int | None = usage.get("cached_content_token_count")
    assert count is None or 0 < count < usage["prompt_token_count"]
    return count


def moment(cache: Any, name: str) -> datetime:
    return datetime.fromisoformat(cache[name])


def test_an_object_is_made_and_found_again(told: Told) -> None:
    scene = told["an_object"]
    made = scene["made"]
    assert scene["got"] == made
    assert (made["model"], made["display_name"]) == ("models/toy", "manual")
    assert moment(made, "expire_time") - moment(made, "create_time") == timedelta(seconds=600)
    assert size_of(made) == len("\0system\nBe brief.\0\0user\n\0") + 80 * len("The pump is blue. ")


def test_its_expiry_is_set_by_a_ttl_and_by_a_time(told: Told) -> None:
    scene = told["an_object"]
    changed = scene["ttl"]
    assert moment(changed, "update_time") - moment(scene["made"], "update_time") == timedelta(seconds=100)
    assert moment(changed, "expire_time") - moment(changed, "update_time") == timedelta(seconds=1000.5)
    assert moment(scene["expire_time"], "expire_time") == datetime.fromisoformat(scene["until"])


def test_what_uses_it_has_all_of_it_cached(told: Told) -> None:
    scene = told["an_object"]
    size = size_of(scene["made"])
    for name, question in (("used", "What colour?"), ("again", "What shape?")):
        assert cached(scene[name]) == size
        assert scene[name]["prompt_token_count"] == size + len(f"\0user\n{question}\0") + ANSWER


def test_what_belongs_to_it_is_refused_beside_it(told: Told) -> None:
    for name in ("beside it", "with tools"):
        code, status, message = told["an_object"][name]
        assert (code, status) == (400, "INVALID_ARGUMENT")
        assert "cannot be given together with 'cachedContent'" in message


def test_deleted_expired_or_anothers_it_cannot_be_used(told: Told) -> None:
    scene, expired = told["an_object"], told["by_the_clock"]
    assert scene["gone"] == [GONE, GONE]
    assert scene["by another"] == GONE
    assert expired["got"] == expired["asked"] == GONE
    assert cached(expired["used"]) == expired["size"]


def test_too_little_is_refused_with_both_numbers(told: Told) -> None:
    said = "Cached content is too small. total_token_count=11, min_total_token_count=1024"
    assert told["by_the_clock"]["small"] == [400, "INVALID_ARGUMENT", said]


def test_a_list_comes_in_pages_and_holds_the_tenants_own(told: Told) -> None:
    scene = told["a_list_in_pages"]
    assert scene["page"] == scene["made"][:2]
    assert scene["all"] == scene["made"]
    assert scene["of another"] == []


def test_without_an_object_what_was_reused_is_told_from_1024_tokens_on(told: Told) -> None:
    first, second, anothers, short = told["unasked"]
    assert [cached(usage) for usage in (first, anothers, short)] == [None, None, None]
    assert cached(second) == second["prompt_token_count"] - 1


def test_a_stream_tells_the_same_usage_in_its_last_part(told: Told) -> None:
    scene = told["streamed"]
    assert scene["last"] == scene["whole"]
    assert cached(scene["last"])
    assert scene["text"] == "ok"


def test_streamed_calls_are_made_and_their_results_go_back(told: Told) -> None:
    scene = told["streamed"]
    assert scene["calls"] == [["weather", {"city": "Oslo"}], ["weather", {"city": "Malmö"}]]
    assert scene["after"] == "Yes."


def test_two_candidates_are_two(told: Told) -> None:
    assert told["streamed"]["candidates"] == [[index, [{"text": "Yes."}]] for index in (0, 1)]


def test_each_turn_of_a_chat_reuses_the_turns_before_streamed_or_not(told: Told) -> None:
    scene = told["a_chat"]
    first, second, third = scene["usages"]
    assert scene["texts"] == ["ok"] * 3
    assert scene["pieces"] > 4
    assert cached(first) is None
    for before, after, question in ((first, second, "And?"), (second, third, "Then?")):
        # The answer too, but for its end, which was drawn and not computed.
        assert cached(after) == before["total_token_count"] - 1
        assert (
            after["prompt_token_count"] == before["total_token_count"] + len(f"\0user\n{question}\0") + ANSWER
        )


def test_a_form_is_obeyed_and_parsed(told: Told) -> None:
    assert told["formed"] == ["City", {"name": "Oslo", "people": 700_000}]


def test_functions_are_run_by_the_sdk_itself(told: Told) -> None:
    assert told["run_by_the_sdk"] == {"cities": ["Oslo", "Malmö"], "text": "Cold."}


def test_models_counts_and_errors(told: Told) -> None:
    scene = told["others"]
    assert scene["models"] == ["models/toy"]
    assert scene["counted"] == scene["usage"]["prompt_token_count"] == len("\0user\nHi\0") + ANSWER
    assert scene["unknown model"][:2] == [404, "NOT_FOUND"]
    assert scene["unknown key"][:2] == [401, "UNAUTHENTICATED"]
    assert scene["too long"][:2] == [400, "INVALID_ARGUMENT"]
