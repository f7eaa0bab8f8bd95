"""A chat that carries an answer back gets the tokens that were generated, so all of them are reused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import httpx
import ollama
import openai
import pytest
from google import genai

from sapwood.types import SamplingParams
from server.conftest import Served
from server.merging import TEMPLATE, serving_merging
from server.test_served import serving_default_model
from server.test_tenants import FILE

CHAT = "/v1/chat/completions"
SAID = b"that is the truth"
"""Seventeen tokens as the model says it; as its text is encoded, fourteen."""
TOOL: Any = {
    "type": "function",
    "function": {"name": "path", "parameters": {"type": "object", "properties": {"to": {"type": "string"}}}},
}
CALLED = 'So: <tool_call>{"arguments":{"to":"the sea","by": 1},  "name":"path"}</tool_call>'
"""Its template writes the call with other white space, and the keys the other way round."""


@pytest.fixture(scope="module")
def shared_merging() -> Iterator[Served]:
    with serving_merging() as served:
        yield served


@pytest.fixture
def merging(shared_merging: Served) -> Served:
    return ready(shared_merging)


def ready(served: Served) -> Served:
    served.http.post("/flush_cache")
    served.script(SAID)
    return served


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def ask(
    served: Served, messages: list[Any], headers: dict[str, str] | None = None, **fields: Any
) -> dict[str, Any]:
    body = {"messages": messages, "max_tokens": 400, **fields}
    answer = served.http.post(CHAT, json=body, headers=headers)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def reused(served: Served, id: str) -> int:
    return reused_of(served.http, id)


def reused_of(http: httpx.Client, id: str) -> int:
    hot: int = http.get(f"/v1/requests/{id}/cache").json()["reused"]["hot"]
    return hot


def size(answer: dict[str, Any]) -> int:
    """Tokens of a call's prompt and of what it said, less the end token."""
    tokens: int = answer["usage"]["total_tokens"] - 1
    return tokens


def went_on(messages: list[Any], answer: dict[str, Any], text: str, choice: int = 0) -> list[Any]:
    return [*messages, answer["choices"][choice]["message"], user(text)]


def test_each_turn_reuses_the_prompt_and_the_reply_before_it(merging: Served) -> None:
    """PX-09."""
    messages, known = [user("Is that so?")], 0
    for turn in range(6):
        answer = ask(merging, messages)
        assert reused(merging, answer["id"]) == known, f"turn {turn}"
        known = size(answer)
        messages = went_on(messages, answer, f"And the {turn}th?")


def test_without_the_store_the_reply_is_computed_again(merging: Served) -> None:
    """What the other tests would see if nothing were replayed: the fixture's answers do encode otherwise."""
    tokens = merging.http.post("/tokenize", json={"prompt": SAID.decode()}).json()["tokens"]
    assert len(tokens) == 14
    assert len(SAID) == 17


def test_a_streamed_answer_is_replayed_too(merging: Served) -> None:
    messages: list[Any] = [user("The streamed one?")]
    with merging.openai.chat.completions.stream(model="toy", messages=messages, max_tokens=400) as stream:
        first = stream.get_final_completion()
    assert first.choices[0].message.content == SAID.decode()
    replied = first.choices[0].message.model_dump(exclude_none=True, include={"role", "content"})
    second = ask(merging, [*messages, replied, user("more")])
    prompt = len(encoded(merging, f"<|start|>user\n{messages[0]['content']}<|end|><|start|>assistant\n"))
    assert reused(merging, second["id"]) == prompt + len(SAID)


def encoded(served: Served, text: str) -> list[int]:
    return served.built.tokenizer.encode(text, special=True)


@pytest.mark.parametrize(
    "edited", ["that is the truth.", "That is the truth", "that is  the truth", "that is the truth "]
)
def test_an_edited_answer_is_not_replayed(merging: Served, edited: str) -> None:
    messages = [user(f"Edited to {edited!r}?")]
    first = ask(merging, messages)
    second = ask(merging, [*messages, {"role": "assistant", "content": edited}, user("more")])
    assert reused(merging, second["id"]) < first["usage"]["prompt_tokens"] + 2
    start = second["usage"]["prompt_tokens"] - len(encoded(merging, f"{edited}<|end|><|start|>user\nmore"))
    assert start - len(encoded(merging, "<|end|><|start|>assistant\n")) == first["usage"]["prompt_tokens"]


def test_the_same_words_after_another_prompt_are_not_replayed(merging: Served) -> None:
    first = ask(merging, [user("One way?")])
    other = ask(merging, went_on([user("Another way")], first, "more"))
    text = f"{SAID.decode()}<|end|>"
    assert other["usage"]["prompt_tokens"] == len(
        encoded(
            merging,
            "<|start|>user\nAnother way<|end|><|start|>assistant\n"
            + f"{text}<|start|>user\nmore<|end|><|start|>assistant\n",
        )
    )


def test_either_of_two_samples_can_be_carried_back(merging: Served) -> None:
    merging.script(None)
    messages = [user("Say one of the two.")]
    first = ask(merging, messages, n=2, max_tokens=12, temperature=1, seed=5)
    said = [choice["message"]["content"] for choice in first["choices"]]
    assert said[0] != said[1]
    # They hold bytes that are no text: it cannot tell what they were.
    assert all("\N{REPLACEMENT CHARACTER}" in text for text in said)
    assert first["usage"]["completion_tokens"] == 24
    for choice in (0, 1):
        second = ask(merging, went_on(messages, first, "more", choice), max_tokens=1)
        # The last token of an answer cut by its length was drawn, but never read.
        assert reused(merging, second["id"]) == first["usage"]["prompt_tokens"] + 11


def test_a_stop_string_cuts_what_is_replayed(merging: Served) -> None:
    messages = [user("Stop before it?")]
    first = ask(merging, messages, stop=["e truth"])
    assert first["choices"][0]["message"]["content"] == "that is th"
    second = ask(merging, went_on(messages, first, "more"))
    assert reused(merging, second["id"]) == first["usage"]["prompt_tokens"] + len("that is th")


def test_a_call_is_replayed_as_the_model_wrote_it(merging: Served) -> None:
    merging.script(CALLED.encode())
    messages = [user("Where to?")]
    first = ask(merging, messages, tools=[TOOL])
    message = first["choices"][0]["message"]
    (call,) = message["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"to": "the sea", "by": 1}
    # Clients parse arguments and write them anew.
    call["function"]["arguments"] = json.dumps({"by": 1, "to": "the sea"}, indent=1)
    result = {"role": "tool", "tool_call_id": call["id"], "content": "three hours"}
    second = ask(merging, [*messages, message, result], tools=[TOOL])
    assert reused(merging, second["id"]) == size(first)
    third = ask(
        merging,
        [*messages, message, result, second["choices"][0]["message"], user("more")],
        tools=[TOOL],
    )
    assert reused(merging, third["id"]) == size(second)


def test_an_answer_with_a_call_that_was_not_told_is_not_replayed(merging: Served) -> None:
    merging.script(f"{CALLED}\n{CALLED.partition('So: ')[2]}".encode())
    messages = [user("Where to, and then?")]
    first = ask(merging, messages, tools=[TOOL], parallel_tool_calls=False)
    message = first["choices"][0]["message"]
    (call,) = message["tool_calls"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "no"}
    body = {"messages": [*messages, message, result], "tools": [TOOL]}
    tokens = merging.http.post("/tokenize", json=body).json()["tokens"]
    prompt = merging.built.tokenizer.decode(tokens, skip_special=False)
    assert prompt.count('"the sea"') == 1


@pytest.mark.parametrize(
    "edited", [{"to": "the sea", "by": 2}, {"to": "the sea"}, {"to": "the sea", "by": "1"}]
)
def test_a_call_with_other_arguments_is_not_replayed(merging: Served, edited: dict[str, Any]) -> None:
    merging.script(CALLED.encode())
    messages = [user(f"Where to if not {edited}?")]
    first = ask(merging, messages, tools=[TOOL])
    message = first["choices"][0]["message"]
    message["tool_calls"][0]["function"]["arguments"] = json.dumps(edited)
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "no"}
    second = ask(merging, [*messages, message, result], tools=[TOOL])
    # As text, `So: ` and what opens a call are alike; the rest is not.
    assert reused(merging, second["id"]) <= first["usage"]["prompt_tokens"] + len("So:")


def test_after_a_flush_the_tokens_are_the_same_and_so_is_the_answer(merging: Served) -> None:
    messages = [user("And then?")]
    first = ask(merging, messages)
    before = encoded(merging, "<|start|>user\nAnd then?<|end|><|start|>assistant\n")
    after = encoded(merging, "<|end|><|start|>user\nmore<|end|><|start|>assistant\n")
    prompt = (*before, *SAID, *after)
    assert merging.http.post("/flush_cache").json()["kept_tokens"] == 0
    merging.script(None)
    asked: Any = {"max_tokens": 8, "temperature": 0, "logprobs": True, "ignore_eos": True}
    cold = ask(merging, went_on(messages, first, "more"), **asked)
    assert reused(merging, cold["id"]) == 0
    params = SamplingParams(temperature=0, logprobs=0)
    expected = merging.built.runner.solo(prompt, params, 8)
    assert [e["logprob"] for e in cold["choices"][0]["logprobs"]["content"]] == [e.logprob for e in expected]
    warm = ask(merging, went_on(messages, first, "more"), **asked)
    assert reused(merging, warm["id"]) == len(prompt) - 1
    assert warm["choices"] == cold["choices"]


def test_where_a_conversation_diverges_is_told_behind_a_replayed_call(merging: Served) -> None:
    merging.script(CALLED.encode())
    messages = [user("Where is the place?")]
    message = ask(merging, messages, tools=[TOOL])["choices"][0]["message"]
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "here, right now"}
    ask(merging, [*messages, message, result], tools=[TOOL])
    other = ask(merging, [*messages, message, {**result, "content": "here, left now"}], tools=[TOOL])
    place = merging.http.get(f"/v1/requests/{other['id']}/cache").json()["diverged_at"]
    assert (place["message"], place["part"]) == (2, "content")
    assert place["text"].endswith("e, [HERE]left now")


def test_anthropics_turns_are_replayed_with_their_calls_and_counted_so(merging: Served) -> None:
    merging.script(CALLED.encode())
    tools: Any = [{"name": "path", "input_schema": TOOL["function"]["parameters"]}]
    turns: list[Any] = [user("Where, and how?")]
    with anthropic.Anthropic(base_url=merging.url, api_key="none", max_retries=0) as client:
        asked: Any = {"model": "toy", "max_tokens": 400, "tools": tools}
        with client.messages.stream(messages=turns, **asked) as stream:
            first = stream.get_final_message()
        assert [block.type for block in first.content] == ["text", "tool_use"]
        used: Any = first.content[1]
        result = {"type": "tool_result", "tool_use_id": used.id, "content": "on foot"}
        turns += [
            {"role": "assistant", "content": first.content},
            {"role": "user", "content": [{**result, "cache_control": {"type": "ephemeral"}}]},
        ]
        counted = client.messages.count_tokens(model="toy", messages=turns, tools=tools).input_tokens
        merging.script(SAID)
        second = client.messages.create(messages=turns, **asked)
        known = merging.http.get(f"/v1/requests/{first.id}/cache").json()["prompt_tokens"] + len(CALLED)
        told = merging.http.get(f"/v1/requests/{second.id}/cache").json()
        assert told["reused"]["hot"] == known
        assert told["prompt_tokens"] == counted
        turns += [{"role": "assistant", "content": second.content}, user("more")]
        third = client.messages.create(messages=turns, **asked)
        assert reused(merging, third.id) == counted + len(SAID)


def test_a_marker_on_a_replayed_call_ends_with_its_tokens() -> None:
    question = "w" * 1200
    with serving_merging(anthropic_minimum=64) as served:
        served.script(CALLED.encode())
        tools: Any = [{"name": "path", "input_schema": TOOL["function"]["parameters"]}]
        with anthropic.Anthropic(base_url=served.url, api_key="none", max_retries=0) as client:
            asked: Any = {"model": "toy", "max_tokens": 400, "tools": tools}
            turns: list[Any] = [user(question)]
            first = client.messages.create(messages=turns, **asked)
            used: Any = first.content[1]
            called = {**used.model_dump(exclude_none=True), "cache_control": {"type": "ephemeral"}}
            result = {"type": "tool_result", "tool_use_id": used.id, "content": "on foot"}
            turns += [
                {"role": "assistant", "content": [first.content[0], called]},
                {"role": "user", "content": [result]},
            ]
            known = served.http.get(f"/v1/requests/{first.id}/cache").json()["prompt_tokens"] + len(CALLED)
            second = client.messages.create(messages=turns, **asked)
            assert second.usage.cache_creation_input_tokens == known
            again = client.messages.create(messages=turns, **asked)
            assert again.usage.cache_read_input_tokens == known


def test_ollamas_chat_is_replayed(merging: Served) -> None:
    messages: list[Any] = [user("By Ollama?")]
    with ollama.Client(merging.url) as client:
        first = client.chat("toy", messages, options={"num_predict": 400})
    assert first.message.content == SAID.decode()
    assert first.prompt_eval_count is not None
    known = first.prompt_eval_count + len(SAID)
    second = merging.http.post(
        "/api/chat",
        json={
            "model": "toy",
            "stream": False,
            "messages": [*messages, first.message.model_dump(), user("more")],
        },
    )
    assert second.headers["x-sapwood-cache"].startswith(f"reused={known};")


def test_a_response_is_replayed_by_its_id_and_as_items(merging: Served) -> None:
    responses, asked = merging.openai.responses, {"model": "toy", "max_output_tokens": 400}
    first = responses.create(input="By its id?", **asked)  # type: ignore[call-overload]
    assert first.output_text == SAID.decode()
    known = first.usage.total_tokens - 1
    second = responses.create(input="more", previous_response_id=first.id, **asked)  # type: ignore[call-overload]
    assert reused(merging, second.id) == known
    items = [user("By its id?"), *(item.model_dump() for item in first.output), user("other")]
    counted = responses.input_tokens.count(model="toy", input=items)
    third = responses.create(input=items, **asked)  # type: ignore[call-overload]
    assert third.usage.input_tokens == counted.input_tokens
    assert reused(merging, third.id) >= known


def test_geminis_turns_are_replayed_with_their_calls(merging: Served) -> None:
    merging.script(CALLED.encode())
    options = genai.types.HttpOptions(base_url=merging.url)
    schema = TOOL["function"]["parameters"]
    tool: Any = {"function_declarations": [{"name": "path", "parameters_json_schema": schema}]}
    with genai.Client(api_key="none", http_options=options) as client:
        config: Any = {
            "tools": [tool],
            "max_output_tokens": 400,
            "automatic_function_calling": {"disable": True},
        }
        turns: list[Any] = [{"role": "user", "parts": [{"text": "By Gemini?"}]}]
        first = client.models.generate_content(model="toy", contents=turns, config=config)
        assert first.candidates
        (candidate,) = first.candidates
        result = {"function_response": {"name": "path", "response": {"by": "foot"}}}
        turns += [candidate.content, {"role": "user", "parts": [result]}]
        merging.script(SAID)
        second = client.models.generate_content(model="toy", contents=turns, config=config)
        assert first.usage_metadata is not None
        assert first.usage_metadata.prompt_token_count is not None
        known = first.usage_metadata.prompt_token_count + len(CALLED)
        assert reused(merging, second.response_id or "") == known


def test_nobody_gets_what_another_tenant_or_salt_generated(tmp_path: Path) -> None:
    keys = tmp_path / "tenants.toml"
    keys.write_text(FILE)
    one, other = ({"authorization": f"Bearer sk-{name}"} for name in "ab")
    with serving_merging(api_keys=keys) as served:
        served.script(SAID)
        messages = [user("Whose is it?")]
        first = ask(served, messages, one)
        carried = went_on(messages, first, "more")
        replayed = ask(served, carried, one)["usage"]["prompt_tokens"]
        plain = replayed - len(SAID) + len(encoded(served, SAID.decode()))
        assert ask(served, carried, other)["usage"]["prompt_tokens"] == plain
        assert ask(served, carried, one, cache_salt="s")["usage"]["prompt_tokens"] == plain
        assert ask(served, messages, one, cache_salt="s")["choices"] == first["choices"]
        assert ask(served, carried, one, cache_salt="s")["usage"]["prompt_tokens"] == replayed


def test_what_a_model_thought_is_replayed_where_its_template_keeps_it() -> None:
    kept = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>\n{% endif %}{{ m.content }}"
    with serving_merging(TEMPLATE.replace("{{ m.content }}", kept)) as served:
        thought = b"<think>\n that, or the other? \n</think>\n\nthe other"
        served.script(thought)
        messages = [user("Which one?")]
        first = ask(served, messages)
        message = first["choices"][0]["message"]
        assert message["content"] == "the other"
        assert message["reasoning_content"] == "that, or the other?"
        second = ask(served, went_on(messages, first, "more"))
        assert reused(served, second["id"]) == size(first)
        forgetful = {
            key: value for key, value in message.items() if key not in ("reasoning_content", "reasoning")
        }
        third = ask(served, [*messages, forgetful, user("more")])
        assert reused(served, third["id"]) <= first["usage"]["prompt_tokens"]


def test_a_served_models_chat_reuses_every_token_that_was_read() -> None:
    with (
        serving_default_model("--kv-memory", "64MiB") as (_, url),
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, timeout=120) as client,
        httpx.Client(base_url=url, timeout=60) as http,
    ):

        def encoded_alone(text: str) -> list[int]:
            tokens: list[int] = http.post("/tokenize", json={"prompt": text}).json()["tokens"]
            return tokens

        model = client.models.list().data[0].id
        letters = {str(token): 100 for letter in "the" for token in encoded_alone(letter)}
        messages: list[Any] = [user("Name a tree.")]
        known = 0
        for turn in range(4):
            answer = client.chat.completions.create(
                model=model, messages=messages, max_tokens=12, temperature=1, seed=turn, logit_bias=letters
            )
            assert reused_of(http, answer.id) == known
            text = answer.choices[0].message.content
            assert text is not None
            assert len(encoded_alone(text)) < 12
            assert answer.usage is not None
            known = answer.usage.total_tokens - 1
            messages += [{"role": "assistant", "content": text}, user("Another.")]
