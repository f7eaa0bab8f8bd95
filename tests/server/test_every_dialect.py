"""What holds on the chats of all dialects: a prefix is its tenant's, and errors speak of the call's own fields."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import pytest

from server.conftest import Served, serving

TEXT = "one cache for every dialect"
TURN = {"role": "user", "content": TEXT}
CONTENTS = [{"role": "user", "parts": [{"text": TEXT}]}]
CHATS: Mapping[str, tuple[str, dict[str, Any]]] = MappingProxyType(
    {
        "openai": ("/v1/chat/completions", {"messages": [TURN]}),
        "responses": ("/v1/responses", {"model": "toy", "input": TEXT}),
        "anthropic": ("/v1/messages", {"model": "toy", "max_tokens": 3000, "messages": [TURN]}),
        "gemini": ("/v1beta/models/toy:generateContent", {"contents": CONTENTS}),
        "ollama": ("/api/chat", {"model": "toy", "messages": [TURN]}),
    }
)
"""A call of each: its path and its body."""
NAMES = MappingProxyType({"gemini": "contents", "responses": "input"})
"""What the messages are called there."""


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    keys = tmp_path_factory.mktemp("keys") / "tenants.toml"
    tenants = "".join(f'[[tenant]]\nname = "{name}"\nkey = "sk-{name}"\n' for name in "ab")
    keys.write_text(f'{tenants}[[tenant]]\nname = "o"\nkey = "sk-o"\noperator = true\n')
    with serving(api_keys=keys) as served:
        yield served


def reused(served: Served, key: str, dialect: str) -> int:
    """Tokens that a call reuses, as its header says."""
    path, body = CHATS[dialect]
    answer = served.http.post(
        path, json={**body, "stream": False}, headers={"authorization": f"Bearer {key}"}
    )
    assert answer.status_code == 200, answer.text
    return int(answer.headers["x-sapwood-cache"].split(";")[0].removeprefix("reused="))


@pytest.mark.parametrize("dialect", CHATS)
def test_a_prefix_is_its_tenants_in_whatever_dialect_it_comes_again(keyed: Served, dialect: str) -> None:
    keyed.script(b"ok")
    flushed = keyed.http.post("/flush_cache", headers={"authorization": "Bearer sk-o"})
    assert flushed.status_code == 200
    assert reused(keyed, "sk-a", dialect) == 0
    assert reused(keyed, "sk-b", dialect) == 0
    prompt = len("<user\n") + len(TEXT) + len(">") + len("<assistant\n")
    assert {other: reused(keyed, "sk-a", other) for other in CHATS} == dict.fromkeys(CHATS, prompt - 1)


@pytest.mark.parametrize("dialect", CHATS)
def test_what_is_too_long_is_told_of_by_the_name_that_it_has_in_the_call(keyed: Served, dialect: str) -> None:
    path, body = CHATS[dialect]
    long = json.loads(json.dumps(body).replace(TEXT, "x" * 100_000))
    answer = keyed.http.post(path, json=long, headers={"authorization": "Bearer sk-a"})
    assert answer.status_code == 400
    assert f"'{NAMES.get(dialect, 'messages')}" in answer.text
    assert "100000 bytes" in answer.text
