"""`think`, through Ollama's own Python client, of a model whose template lets it think or not."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ollama
import pytest

from server.conftest import Served, serving
from server.fakes import TEMPLATE

SWITCH = "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
ASK = [{"role": "user", "content": "Is it cold?"}]
OFF = len("<think>\n\n</think>\n\n")
"""Tokens by which a prompt is longer that has the model not think."""


@pytest.fixture(scope="module")
def thinker() -> Iterator[Served]:
    with serving(template=TEMPLATE + SWITCH) as served:
        yield served


@pytest.fixture
def client(thinker: Served) -> Iterator[ollama.Client]:
    thinker.script(b"<think>\nNorth wind.\n</think>\n\nYes.")
    with ollama.Client(host=thinker.url, timeout=30) as client:
        yield client


@pytest.mark.parametrize("think", [None, True, "high"])
def test_thoughts_are_told_beside_the_answer(client: ollama.Client, think: Any) -> None:
    whole = client.chat("toy", messages=ASK, think=think)
    assert (whole.message.thinking, whole.message.content) == ("North wind.", "Yes.")
    lines = list(client.chat("toy", messages=ASK, think=think, stream=True))
    assert "".join(line.message.thinking or "" for line in lines) == "North wind."
    assert "".join(line.message.content or "" for line in lines) == "Yes."
    assert not any(line.message.thinking and line.message.content for line in lines)
    generated = client.generate("toy", "cold?", think=think)
    assert (generated.thinking, generated.response) == ("North wind.", "Yes.")


def test_a_model_that_is_not_to_think_is_told_so(thinker: Served, client: ollama.Client) -> None:
    thinking = client.chat("toy", messages=ASK, think=True).prompt_eval_count
    thinker.script(b"Yes.")
    answer = client.chat("toy", messages=ASK, think=False)
    assert (answer.message.thinking, answer.message.content) == (None, "Yes.")
    assert (answer.prompt_eval_count or 0) - (thinking or 0) == OFF


def test_an_answer_that_must_have_a_form_does_not_think(thinker: Served, client: ollama.Client) -> None:
    thinking = client.chat("toy", messages=ASK).prompt_eval_count
    thinker.script(None)
    schema = {"enum": ["warm", "cold"]}
    answer = client.chat("toy", messages=ASK, format=schema, think=True)
    assert answer.message.content in ('"warm"', '"cold"')
    assert answer.message.thinking is None
    assert (answer.prompt_eval_count or 0) - (thinking or 0) == OFF


def test_the_model_is_shown_to_think(client: ollama.Client) -> None:
    assert client.show("toy").capabilities == ["completion", "tools", "thinking"]
