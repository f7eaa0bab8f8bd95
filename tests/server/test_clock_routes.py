"""`POST /v1/ledgers/clock`: what was promised for a time expires at once; only where the operator wants that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from sapwood.server.stepped_clock import FARTHEST
from server.conftest import Served, serving

CLOCK = "/v1/ledgers/clock"


@pytest.fixture(scope="module")
def stepped() -> Iterator[Served]:
    with serving(clock=lambda: 0.0, step_ledger_clock=True) as served:
        yield served


def step(served: Served, seconds: Any) -> httpx.Response:
    return served.http.post(CLOCK, json={"advance": seconds})


def read(served: Served) -> int:
    """What a marked message reads of the one before."""
    marked = {"type": "text", "text": "a" * 1100, "cache_control": {"type": "ephemeral"}}
    body = {"model": "toy", "max_tokens": 1, "messages": [{"role": "user", "content": [marked]}]}
    count = served.http.post("/v1/messages", json=body).json()["usage"]["cache_read_input_tokens"]
    assert isinstance(count, int)
    return count


def test_five_minutes_pass_when_they_are_told_to(stepped: Served) -> None:
    read(stepped)
    assert read(stepped) > 1100
    assert step(stepped, 299.5).json() == {"ahead_seconds": 299.5}
    assert read(stepped) > 1100
    assert step(stepped, 300).json() == {"ahead_seconds": 599.5}
    assert read(stepped) == 0


def test_a_cached_content_expires_by_the_same_clock(stepped: Served) -> None:
    contents = [{"role": "user", "parts": [{"text": "b" * 1100}]}]
    body = {"model": "models/toy", "contents": contents, "ttl": "600s"}
    name = stepped.http.post("/v1beta/cachedContents", json=body).json()["name"]
    step(stepped, 590)
    assert stepped.http.get(f"/v1beta/{name}").status_code == 200
    step(stepped, 10)
    assert stepped.http.get(f"/v1beta/{name}").status_code == 403


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0, "'advance' is 0; it must be above 0"),
        (-1, "'advance' is -1; it must be above 0"),
        ("60", "'advance' is \"60\"; it must be a number"),
        (True, "'advance' is true; it must be a number"),
        (None, "'advance' is null; it must be a number"),
        (FARTHEST + 1, "it may be 315360000 s at most"),
    ],
)
def test_time_goes_forwards_and_not_for_ever(stepped: Served, seconds: Any, said: str) -> None:
    answer = step(stepped, seconds)
    assert answer.status_code == 400
    assert said in answer.json()["error"]["message"]
    assert answer.json()["error"]["param"] == "advance"


@pytest.mark.parametrize("body", [b"{}", b"[]", b"", b'{"advance": 1e999}', b'{"advance": NaN}', b"\xff"])
def test_a_body_that_says_no_time_is_400(stepped: Served, body: bytes) -> None:
    assert stepped.http.post(CLOCK, content=body).status_code == 400


def test_dates_can_still_be_told_at_the_farthest() -> None:
    with serving(step_ledger_clock=True) as served:
        assert step(served, FARTHEST).status_code == 200
        contents = [{"role": "user", "parts": [{"text": "b" * 1100}]}]
        body = {"model": "models/toy", "contents": contents}
        assert served.http.post("/v1beta/cachedContents", json=body).status_code == 200


def test_without_the_flag_there_is_no_such_route(served: Served) -> None:
    assert step(served, 60).status_code == 404


def test_it_is_an_operators(tmp_path: Path) -> None:
    keys = '[[tenant]]\nname = "a"\nkey = "sk-a"\n[[tenant]]\nname = "o"\nkey = "sk-o"\noperator = true\n'
    (tmp_path / "tenants.toml").write_text(keys)
    with serving(step_ledger_clock=True, api_keys=tmp_path / "tenants.toml") as served:
        answers = {
            key: served.http.post(CLOCK, json={"advance": 1}, headers={"x-api-key": key}).status_code
            for key in ("sk-a", "sk-o", "sk-none")
        }
    assert answers == {"sk-a": 403, "sk-o": 200, "sk-none": 401}
