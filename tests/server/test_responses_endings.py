"""Responses of a model that thinks, streams that fail, and what tenants see of each other's responses: nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from server.conftest import Served, serving
from server.fakes import TEMPLATE

SWITCH = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
THOUGHT = "Nörth wind."
OFF = len("<think>\n\n</think>\n\n")
"""Tokens by which a prompt is longer that has the model not think."""


@pytest.fixture(scope="module")
def thinks() -> Iterator[Served]:
    with serving(template=TEMPLATE + SWITCH) as served:
        yield served


@pytest.fixture
def thinker(thinks: Served) -> Served:
    thinks.script(f"<think>\n{THOUGHT}\n</think>\n\nYes.".encode())
    return thinks


def ask(served: Served, input: Any = "Is it cold?", **options: Any) -> Any:
    return served.openai.responses.create(**{"model": "toy", "input": input, **options})


def test_thoughts_are_an_item_of_their_own(thinker: Served) -> None:
    response = ask(thinker)
    thought, message = response.output
    assert (thought.type, thought.content[0].text, thought.summary) == ("reasoning", THOUGHT, [])
    assert thought.encrypted_content is None
    assert response.output_text == message.content[0].text == "Yes."
    details = response.usage.output_tokens_details
    assert len(THOUGHT.encode()) < details.reasoning_tokens < response.usage.output_tokens


def test_streamed_thoughts_are_told_before_the_text(thinker: Served) -> None:
    whole = ask(thinker)
    with thinker.openai.responses.stream(model="toy", input="Is it cold?") as stream:
        events = list(stream)
        final = stream.get_final_response()
    kinds = dict.fromkeys(event.type.removeprefix("response.") for event in events)
    assert list(kinds)[2:7] == [
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
    ]
    deltas = [event.delta for event in events if event.type == "response.reasoning_text.delta"]
    assert "".join(deltas) == THOUGHT
    assert [item.type for item in final.output] == ["reasoning", "message"]
    assert final.usage is not None
    assert final.usage.output_tokens_details == whole.usage.output_tokens_details


@pytest.mark.parametrize("plain", [True, False])
def test_thoughts_come_back_in_plain_words_or_sealed(thinker: Served, plain: bool) -> None:
    response = ask(thinker, include=["reasoning.encrypted_content"], store=False)
    thought, message = (item.model_dump(exclude_none=True) for item in response.output)
    assert THOUGHT not in thought["encrypted_content"]
    del thought["encrypted_content" if plain else "content"]
    turns = [
        {"role": "user", "content": "Is it cold?"},
        thought,
        message,
        {"role": "user", "content": "Why?"},
    ]
    after = ask(thinker, turns)
    items = [item.to_dict() for item in thinker.openai.responses.input_items.list(after.id, order="asc")]
    assert items[1]["content"] == [{"type": "reasoning_text", "text": THOUGHT}]


@pytest.mark.parametrize("sealed", ["gAAAA-another", "sapwood1:x", "sapwood1:Lf8="])
def test_what_others_have_sealed_is_no_thought(thinker: Served, sealed: str) -> None:
    turns = [
        {"role": "user", "content": "Is it cold?"},
        {"type": "reasoning", "summary": [], "encrypted_content": sealed},
        {"role": "user", "content": "Well?"},
    ]
    without = [turns[0], turns[2]]
    count = thinker.openai.responses.input_tokens.count
    tokens = [count(model="toy", input=each).input_tokens for each in (turns, without)]  # type: ignore[arg-type]
    assert tokens[0] == tokens[1]


def test_no_effort_means_no_thinking(thinker: Served) -> None:
    usual = ask(thinker).usage.input_tokens
    thinker.script(b"Yes.")
    response = ask(thinker, reasoning={"effort": "none"})
    assert [item.type for item in response.output] == ["message"]
    assert response.usage.input_tokens - usual == OFF
    counted = thinker.openai.responses.input_tokens.count(
        model="toy", input="Is it cold?", reasoning={"effort": "none"}
    )
    assert counted.input_tokens == response.usage.input_tokens


def test_an_answer_that_must_have_a_form_does_not_think(thinker: Served) -> None:
    thinker.script(b'{"a":1}')
    form = {"type": "json_schema", "name": "a", "schema": {"enum": [{"a": 1}]}}
    response = ask(thinker, text={"format": form})
    assert [item.type for item in response.output] == ["message"]
    assert json.loads(response.output_text) == {"a": 1}


def test_a_stream_that_fails_says_so_in_its_own_response(served: Served) -> None:
    served.built.runner.hook = lambda plan: frozenset(work.seq for work in plan.works)
    try:
        whole = served.http.post("/v1/responses", json={"model": "toy", "input": "x"})
        streamed = list(served.openai.responses.create(model="toy", input="x", stream=True))
    finally:
        served.built.runner.hook = lambda _: frozenset()
    assert whole.status_code == 500
    assert "told to fail" in whole.json()["error"]["message"]
    assert [event.type for event in streamed] == [
        "response.created",
        "response.in_progress",
        "response.failed",
    ]
    assert [event.sequence_number for event in streamed] == [0, 1, 2]
    last: Any = streamed[-1]
    assert last.response.status == "failed"
    assert "told to fail" in last.response.error.message
    with pytest.raises(openai.NotFoundError):
        served.openai.responses.retrieve(last.response.id)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    path: Path = tmp_path_factory.mktemp("keys") / "tenants.toml"
    path.write_text("".join(f'[[tenant]]\nname = "{name}"\nkey = "sk-{name}"\n' for name in ("a", "b")))
    with serving(api_keys=path) as served:
        served.script(b"ok")
        yield served


def test_no_tenant_finds_anothers_response(locked: Served) -> None:
    a, b = (
        openai.OpenAI(base_url=f"{locked.url}/v1", api_key=f"sk-{name}", max_retries=0) for name in ("a", "b")
    )
    with a, b:
        response = a.responses.create(model="toy", input="mine")
        seen: Any = (
            b.responses.retrieve,
            b.responses.delete,
            b.responses.cancel,
            b.responses.input_items.list,
        )
        for call in seen:
            with pytest.raises(openai.NotFoundError) as caught:
                call(response.id)
            assert caught.value.code == "response_not_found"
        followed: Any = (b.responses.create, b.responses.input_tokens.count)
        for call in followed:
            with pytest.raises(openai.BadRequestError) as refused:
                call(model="toy", input="x", previous_response_id=response.id)
            assert refused.value.code == "previous_response_not_found"
        cache: Any = {"comparison_response_id": response.id}
        found = b.responses.create(model="toy", input="mine", prompt_cache_options=cache)
        assert found.prompt_cache_diagnostics is not None
        assert found.prompt_cache_diagnostics.type == "comparison_response_not_found"
        assert found.usage is not None
        assert found.usage.input_tokens_details.cached_tokens == 0
        assert a.responses.retrieve(response.id).output_text == "ok"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", ""),
        ("GET", "/resp-1"),
        ("DELETE", "/resp-1"),
        ("POST", "/resp-1/cancel"),
        ("GET", "/resp-1/input_items"),
        ("POST", "/input_tokens"),
    ],
)
def test_without_a_key_nobody_is_let_in(locked: Served, method: str, path: str) -> None:
    answer = locked.http.request(method, f"/v1/responses{path}", json={})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
