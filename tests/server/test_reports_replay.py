"""Scenarios behind public bug reports about answers that come back as text and are cut into other tokens."""

from __future__ import annotations

import json
from typing import Any

from server.conftest import Served
from server.merging import serving_merging
from server.test_replay import SAID, ask, reused, size, user, went_on

COMPLETIONS = "/v1/completions"


def test_newlines_at_the_end_of_a_reply_stay_the_tokens_that_they_were() -> None:
    """PX-10. Two newlines in a row are one token where a text is read."""
    with serving_merging(pair=b"\n\n") as served:
        served.script(b"that is so.\n\n")
        assert served.built.tokenizer.encode("\n\n") != [*b"\n\n"]
        messages = [user("Is that so?")]
        first = ask(served, messages)
        assert first["choices"][0]["message"]["content"] == "that is so.\n\n"
        second = ask(served, went_on(messages, first, "more"))
        assert reused(served, second["id"]) == size(first)


def test_text_that_a_tool_appends_to_a_raw_prompt_hits_as_far_as_it_is_cut_alike_and_says_where_it_is_not() -> (
    None
):
    """PX-11. `th` was said as two tokens, and is one where the text is read again."""
    with serving_merging() as served:
        for said, alike in (
            (b"so it is", len(b"so it is")),
            (SAID, 0),
            (b"is it not the one?", len(b"is it not ")),
        ):
            served.http.post("/flush_cache")
            served.script(said)
            first = complete(served, "Is it so?\n")
            assert first["choices"][0]["text"] == said.decode()
            second = complete(served, f"Is it so?\n{said.decode()}\nReally?")
            told = served.http.get(f"/v1/requests/{second['id']}/cache").json()
            known = len("Is it so?\n") + alike
            assert told["reused"]["hot"] == second["usage"]["prompt_tokens_details"]["cached_tokens"] == known
            if alike == len(said):
                continue
            lost = second["usage"]["prompt_tokens"] - 1 - known
            assert (told["missed"]["diverged"], told["diverged_at"]["token"]) == (lost, known)
            assert "[HERE]th" in told["diverged_at"]["text"]


def complete(served: Served, prompt: str) -> dict[str, Any]:
    body = {"prompt": prompt, "max_tokens": 100}
    answer: dict[str, Any] = served.http.post(COMPLETIONS, json=body).json()
    return answer


def test_an_answer_of_a_schema_with_long_fixed_keys_is_valid_and_is_reused_by_the_next_turn() -> None:
    """GR-02. Nothing is skipped over: the fixed part is drawn too, and comes back in those tokens."""
    names = ("the other path", "that thing there")
    form: Any = {
        "type": "json_schema",
        "json_schema": {
            "name": "s",
            "schema": {
                "type": "object",
                "properties": {name: {"type": "integer"} for name in names},
                "required": [*names],
                "additionalProperties": False,
            },
        },
    }
    with serving_merging() as served:
        messages = [user("Which one?")]
        first = ask(served, messages, response_format=form, seed=3)
        text = first["choices"][0]["message"]["content"]
        assert [*json.loads(text)] == [*names]
        assert first["usage"]["completion_tokens"] > len(served.built.tokenizer.encode(text)) + 1
        second = ask(served, went_on(messages, first, "more"), response_format=form, seed=3)
        assert reused(served, second["id"]) == size(first)
