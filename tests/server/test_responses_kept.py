"""What is kept of a response: it is had again, gone on from, its items listed, and deleted."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from server.conftest import Served
from server.response_calls import CALLS, WEATHER, ask, final, prompt_of, refusal, tools_of


def test_a_response_can_be_had_again_until_it_is_deleted(served: Served) -> None:
    served.script(b"Blue.")
    response = ask(served)
    assert served.openai.responses.retrieve(response.id) == response
    streamed = final(served)
    assert served.openai.responses.retrieve(streamed.id).output_text == "Blue."
    served.openai.responses.delete(response.id)
    for again in (served.openai.responses.retrieve, served.openai.responses.delete):
        with pytest.raises(openai.NotFoundError, match="there is no response"):
            again(response.id)


def test_a_response_that_is_not_to_be_stored_is_not(served: Served) -> None:
    served.script(b"ok")
    response = ask(served, store=False)
    with pytest.raises(openai.NotFoundError):
        served.openai.responses.retrieve(response.id)
    error = refusal(served, input="and?", previous_response_id=response.id)
    assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")


def test_a_conversation_goes_on_without_the_instructions_before(served: Served) -> None:
    served.script(b"Blue.")
    first = ask(served, instructions="Be brief.")
    second = ask(served, "And grass?", previous_response_id=first.id)
    third = ask(served, "And snow?", previous_response_id=second.id, instructions="Be long.")
    turns = [
        {"role": "user", "content": "Colour of the sky?"},
        {"role": "assistant", "content": "Blue."},
        {"role": "user", "content": "And grass?"},
    ]
    assert second.usage.input_tokens == prompt_of(served, turns)
    more = [{"role": "assistant", "content": "Blue."}, {"role": "user", "content": "And snow?"}]
    opening = [{"role": "system", "content": "Be long."}]
    assert third.usage.input_tokens == prompt_of(served, [*opening, *turns, *more])
    assert third.previous_response_id == second.id


def test_a_turn_that_goes_on_reuses_the_prompt_and_the_reply_before_it(served: Served) -> None:
    served.script(b"Blue.")
    first = ask(served)
    usage = ask(served, "And grass?", previous_response_id=first.id).usage
    assert usage.input_tokens_details.cached_tokens >= first.usage.input_tokens + len("Blue.")


def test_results_of_calls_may_follow_a_stored_response(served: Served) -> None:
    served.script(CALLS.encode())
    first = ask(served, tools=[WEATHER])
    served.script(b"Cold.")
    results: list[Any] = [
        {"type": "function_call_output", "call_id": item.call_id, "output": "-3"}
        for item in first.output
        if item.type == "function_call"
    ]
    second = ask(served, results, tools=[WEATHER], previous_response_id=first.id)
    assert second.output_text == "Cold."
    kinds = [item.type for item in served.openai.responses.input_items.list(second.id, order="asc")]
    assert kinds == ["message", "message", *["function_call"] * 2, *["function_call_output"] * 2]


def test_input_items_are_paged_by_the_sdk(served: Served) -> None:
    served.script(b"ok")
    response = ask(served, [{"role": "user", "content": f"{i}"} for i in range(7)])
    items: Any = served.openai.responses.input_items
    newest = [item.content[0].text for item in items.list(response.id, limit=3)]
    assert newest == [f"{i}" for i in reversed(range(7))]
    oldest = items.list(response.id, limit=3, order="asc")
    assert ([item.content[0].text for item in oldest.data], oldest.has_more) == (["0", "1", "2"], True)
    rest = items.list(response.id, order="asc", after=oldest.data[-1].id)
    assert ([item.content[0].text for item in rest.data], rest.has_more) == (["3", "4", "5", "6"], False)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "order=up", "after=nothing"])
def test_a_wrong_page_is_refused(served: Served, query: str) -> None:
    served.script(b"ok")
    response = ask(served)
    answer = served.http.get(f"/v1/responses/{response.id}/input_items?{query}")
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, query.partition("=")[0])


def test_ids_of_items_are_never_the_same_twice(served: Served) -> None:
    served.script(b"ok")
    response = ask(served, [{"id": "msg_x", "role": "user", "content": f"{i}"} for i in range(3)])
    ids = [item.id for item in served.openai.responses.input_items.list(response.id, limit=1)]
    assert len(set(ids)) == 3
    assert "msg_x" in ids


def test_nothing_can_be_cancelled(served: Served) -> None:
    served.script(b"ok")
    response = ask(served)
    with pytest.raises(openai.BadRequestError, match="background"):
        served.openai.responses.cancel(response.id)
    with pytest.raises(openai.NotFoundError):
        served.openai.responses.cancel("resp-nothing")


def test_tokens_are_counted_as_they_are_used(served: Served) -> None:
    served.script(b"Blue.")
    response = ask(served, instructions="Be brief.", tools=[WEATHER])
    count = served.openai.responses.input_tokens.count
    counted = count(
        model="toy",
        input="Colour of the sky?",
        instructions="Be brief.",
        tools=tools_of(WEATHER),
    )
    assert (counted.object, counted.input_tokens) == ("response.input_tokens", response.usage.input_tokens)
    next = ask(served, "And?", previous_response_id=response.id)
    again = count(model="toy", input="And?", previous_response_id=response.id)
    assert again.input_tokens == next.usage.input_tokens


def test_a_conversation_that_became_too_long_loses_its_oldest_turns_if_it_may(served: Served) -> None:
    served.script(b"ok")
    turns = [{"role": role, "content": f"{i:04}" * 200} for i in range(8) for role in ("user", "assistant")]
    assert refusal(served, input=turns)["code"] == "context_length_exceeded"
    response = ask(served, turns, truncation="auto", instructions="Be brief.")
    opening = [{"role": "system", "content": "Be brief."}]
    fitting = [opening + turns[i:] for i in range(0, 16, 2) if prompt_of(served, opening + turns[i:]) < 4096]
    assert response.usage.input_tokens == prompt_of(served, fitting[0])
    assert len(list(served.openai.responses.input_items.list(response.id))) == len(turns)
    short = ask(served, turns[:2], truncation="auto")
    assert short.usage.input_tokens == prompt_of(served, turns[:2])
    with pytest.raises(openai.BadRequestError, match="input"):
        ask(served, "x" * 5000, truncation="auto")
