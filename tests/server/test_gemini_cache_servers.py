"""Gemini's cached contents on servers of several kinds: with tenants, other ledgers and indexes, a real model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
from google import genai
from google.genai import types

from sapwood.server.promises import kept_for
from server.conftest import serving
from server.fakes import FakeFacts, build_fake
from server.test_gemini_cache import GONE, MANUAL, name_of, refused, rigged, size_of, usage_of
from server.test_served import serving_default_model


def test_another_tenants_object_is_as_if_it_were_not(tmp_path: Path) -> None:
    keys = tmp_path / "tenants.toml"
    keys.write_text('[[tenant]]\nname = "a"\nkey = "sk-a"\n[[tenant]]\nname = "b"\nkey = "sk-b"\n')
    with (
        serving(api_keys=keys) as served,
        rigged(served, key="sk-a") as mine,
        rigged(served, key="sk-b") as theirs,
        rigged(served, key="sk-x") as nobody,
    ):
        served.script(b"ok")
        made = mine.create()
        for call in (theirs.client.caches.get, theirs.client.caches.delete):
            assert refused(call, name=name_of(made)) == GONE
        assert refused(theirs.client.caches.update, name=name_of(made), config={"ttl": "1s"}) == GONE
        assert refused(theirs.ask, "What?", cached_content=made.name) == GONE
        assert list(theirs.client.caches.list()) == []
        assert size_of(theirs.create()) == size_of(made)
        assert [name_of(each) for each in mine.client.caches.list()] == [name_of(made)]
        assert usage_of(mine.ask("What?", cached_content=made.name)).cached_content_token_count
        code, status, _ = refused(nobody.client.caches.get, name=name_of(made))
        assert (code, status) == (401, "UNAUTHENTICATED")
        by_query = served.http.get(f"/v1beta/{made.name}?key=sk-a")
        assert by_query.json()["name"] == made.name


def test_the_physical_ledger_tells_what_was_reused() -> None:
    with serving(ledger="physical") as served, rigged(served) as rig:
        served.script(b"ok")
        made = rig.create()
        assert usage_of(rig.ask("What?", cached_content=made.name)).cached_content_token_count == size_of(
            made
        )
        assert served.http.post("/flush_cache").status_code == 200
        assert usage_of(rig.ask("What?", cached_content=made.name)).cached_content_token_count is None


def test_an_index_that_cannot_keep_one_longer_is_not_asked_to() -> None:
    blocks = {"eviction": "lru", "schedule": "fcfs", "prefix_index": "blocks"}
    facts = FakeFacts(page_size=16, capacity_pages=512, policies=blocks)
    with serving(facts) as served, rigged(served) as rig:
        served.script(b"ok")
        made = rig.create()
        assert usage_of(rig.ask("What?", cached_content=made.name)).cached_content_token_count == size_of(
            made
        )


def test_the_wish_to_keep_it_covers_the_object_alone_and_until_it_expires() -> None:
    built = build_fake()
    try:
        (wish,) = kept_for(built, 600.0, 2000)
        assert (wish.start, wish.end, wish.seconds) == (0, 2000, 600.0)
    finally:
        built.loop.shutdown(0)


def test_a_real_model_reads_on_from_its_object_turn_after_turn() -> None:
    with serving_default_model("--kv-memory", "64MiB") as (_, url):
        options = types.HttpOptions(base_url=url)
        with genai.Client(api_key="none", http_options=options) as client, httpx.Client(base_url=url) as http:
            made = client.caches.create(
                model="smollm2-135m",
                config={"contents": MANUAL * 4, "system_instruction": "You know pumps."},
            )
            config: Any = {"cached_content": made.name, "max_output_tokens": 12, "temperature": 0}
            chat = client.chats.create(model="smollm2-135m", config=config)
            first = usage_of(chat.send_message("What colour is the pump?"))
            assert first.cached_content_token_count == size_of(made)
            assert first.prompt_token_count is not None
            assert first.candidates_token_count is not None
            second = chat.send_message("Are you sure?")
            reused = http.get(f"/v1/requests/{second.response_id}/cache").json()["reused"]["hot"]
            assert usage_of(second).cached_content_token_count == size_of(made)
            assert reused >= first.prompt_token_count + first.candidates_token_count - 1, (
                "the answer is replayed"
            )
