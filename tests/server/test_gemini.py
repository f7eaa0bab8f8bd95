"""The Gemini dialect end to end: the official SDK, unmodified, against a served fake model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from google import genai
from google.genai import errors, types

from server.conftest import Served, serving

LONG = "The pump is blue. " * 80


@contextmanager
def talking(served: Served, key: str = "none") -> Iterator[genai.Client]:
    with genai.Client(api_key=key, http_options=types.HttpOptions(base_url=served.url)) as client:
        yield client


@pytest.fixture
def client(served: Served) -> Iterator[genai.Client]:
    with talking(served) as client:
        yield client


def ask(client: genai.Client, contents: Any, **config: Any) -> types.GenerateContentResponse:
    return client.models.generate_content(model="toy", contents=contents, config=config)  # type: ignore[arg-type]


def post(served: Served, verb: str, body: Any, version: str = "v1beta") -> Any:
    answer = served.http.post(f"/{version}/models/toy:{verb}", content=json.dumps(body))
    return answer.json() if answer.status_code == 200 else (answer.status_code, answer.json()["error"])


def said(text: str, **more: Any) -> dict[str, Any]:
    return {"contents": [{"role": "user", "parts": [{"text": text}]}], **more}


def usage_of(answer: types.GenerateContentResponse) -> types.GenerateContentResponseUsageMetadata:
    assert answer.usage_metadata is not None
    return answer.usage_metadata


# ---- generating --------------------------------------------------------------------------------------------


def test_an_answer_has_text_a_reason_and_usage(served: Served, client: genai.Client) -> None:
    served.script("Blå pump.".encode())
    answer = ask(client, "What colour?", system_instruction="Be brief.")
    prompt = len("\0system\nBe brief.\0\0user\nWhat colour?\0\0assistant\n")
    assert answer.text == "Blå pump."
    assert answer.model_version == "toy"
    assert answer.candidates is not None
    assert answer.candidates[0].finish_reason is types.FinishReason.STOP
    usage = usage_of(answer)
    assert usage.prompt_token_count == prompt
    assert usage.candidates_token_count == len("Blå pump.".encode()) + 1
    assert usage.total_token_count == prompt + len("Blå pump.".encode()) + 1
    assert usage.cached_content_token_count is None, "left out, not 0"
    assert "cachedContentTokenCount" not in post(served, "generateContent", said("hi"))["usageMetadata"]


def test_an_answer_is_cut_at_its_longest(served: Served, client: genai.Client) -> None:
    served.script(b"Blue pump.")
    answer = ask(client, "What?", max_output_tokens=4)
    assert answer.text == "Blue"
    assert answer.candidates is not None
    assert answer.candidates[0].finish_reason is types.FinishReason.MAX_TOKENS


def test_more_than_fits_may_be_asked_for(served: Served, client: genai.Client) -> None:
    served.script(b"ok")
    assert ask(client, "What?", max_output_tokens=65536).text == "ok"


def test_a_stop_sequence_ends_it(served: Served, client: genai.Client) -> None:
    served.script(b"one two three")
    answer = ask(client, "Count.", stop_sequences=["two", "three"])
    assert answer.text == "one "


def test_both_versions_of_the_path_and_both_spellings_are_one(served: Served) -> None:
    served.script(b"Blue.")
    camel = said(
        "What?",
        systemInstruction={"parts": [{"text": "Brief."}]},
        generationConfig={"maxOutputTokens": 3, "topK": 1.0},
    )
    snake = said(
        "What?",
        system_instruction={"parts": {"text": "Brief."}},
        generation_config={"max_output_tokens": 3, "top_k": 1},
    )
    answers = [
        post(served, "generateContent", body, version)
        for body in (camel, snake)
        for version in ("v1", "v1beta")
    ]
    assert len({json.dumps(answer["candidates"]) for answer in answers}) == 1
    assert {answer["usageMetadata"]["candidatesTokenCount"] for answer in answers} == {3}


def test_candidates_are_answers_of_their_own_to_one_prompt(client: genai.Client) -> None:
    answer = ask(client, "What?", candidate_count=3, max_output_tokens=5, seed=7)
    assert answer.candidates is not None
    assert [candidate.index or 0 for candidate in answer.candidates] == [0, 1, 2]
    assert usage_of(answer).candidates_token_count == 15
    assert usage_of(answer).prompt_token_count == len("\0user\nWhat?\0\0assistant\n")
    assert (
        ask(client, "What?", candidate_count=3, max_output_tokens=5, seed=7).candidates == answer.candidates
    )


def test_a_models_last_turn_is_gone_on_with(served: Served, client: genai.Client) -> None:
    served.script(b" pump")
    contents = [
        types.Content(role="user", parts=[types.Part(text="What?")]),
        types.Content(role="model", parts=[types.Part(text="A blue")]),
    ]
    answer = ask(client, contents)
    assert answer.text == " pump"
    assert usage_of(answer).prompt_token_count == len("\0user\nWhat?\0\0assistant\nA blue")


def test_logprobs_are_told_of_each_token(served: Served, client: genai.Client) -> None:
    served.script(b"abc")
    answer = ask(client, "What?", response_logprobs=True, logprobs=2, max_output_tokens=3)
    assert answer.candidates is not None
    candidate = answer.candidates[0]
    result = candidate.logprobs_result
    assert result is not None
    assert result.chosen_candidates is not None
    assert result.top_candidates is not None
    assert [each.token for each in result.chosen_candidates] == ["a", "b", "c"]
    assert [each.token_id for each in result.chosen_candidates] == list(b"abc")
    assert [len(each.candidates or []) for each in result.top_candidates] == [2, 2, 2]
    values = [each.log_probability or 0.0 for each in result.chosen_candidates]
    assert candidate.avg_logprobs == pytest.approx(math.fsum(values) / 3)
    assert "logprobsResult" not in post(served, "generateContent", said("What?"))["candidates"][0]


def test_json_is_json_and_a_schema_is_obeyed(client: genai.Client) -> None:
    schema: Any = {
        "type": "OBJECT",
        "properties": {"b": {"type": "INTEGER"}, "a": {"type": "BOOLEAN", "nullable": True}},
        "required": ["a", "b"],
        "propertyOrdering": ["a", "b"],
    }
    for seed in range(3):
        answer = ask(
            client,
            "What?",
            response_mime_type="application/json",
            response_schema=schema,
            seed=seed,
            max_output_tokens=200,
        )
        assert answer.candidates is not None
        if answer.candidates[0].finish_reason is types.FinishReason.STOP:
            found = json.loads(answer.text or "")
            assert list(found) == ["a", "b"]
            assert found["a"] in (True, False, None)
            assert isinstance(found["b"], int)
        else:
            assert (answer.text or "").startswith("{")


def test_an_enum_is_answered_without_quotes(client: genai.Client) -> None:
    answer = ask(
        client,
        "Which?",
        response_mime_type="text/x.enum",
        response_schema={"type": "STRING", "enum": ["red", "blue"]},
    )
    assert answer.text in ("red", "blue")


# ---- streams -----------------------------------------------------------------------------------------------


def test_a_stream_has_what_is_new_and_ends_with_reason_and_usage(
    served: Served, client: genai.Client
) -> None:
    served.script("Blå pump.".encode())
    whole = ask(client, "What?")
    parts = list(client.models.generate_content_stream(model="toy", contents="What?"))
    assert "".join(part.text or "" for part in parts) == "Blå pump."
    assert len(parts) > 5, "it came in pieces"
    reasons = [part.candidates[0].finish_reason for part in parts if part.candidates]
    assert reasons == [None] * (len(parts) - 1) + [types.FinishReason.STOP]
    assert [part.usage_metadata for part in parts[:-1]] == [None] * (len(parts) - 1)
    assert usage_of(parts[-1]) == usage_of(whole)
    assert len({part.response_id for part in parts}) == 1


def test_a_streams_frames_are_data_lines_alone(served: Served) -> None:
    served.script(b"ok")
    with served.http.stream(
        "POST", "/v1/models/toy:streamGenerateContent?alt=sse", json=said("hi")
    ) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    frames = text.split("\n\n")
    assert frames.pop() == ""
    assert all(frame.startswith('data: {"candidates"') for frame in frames)
    assert "[DONE]" not in text
    assert "CONTINUATION" not in text


def test_candidates_of_a_stream_are_told_apart(client: genai.Client) -> None:
    config: Any = {"candidate_count": 2, "max_output_tokens": 6, "seed": 3}
    whole = client.models.generate_content(model="toy", contents="What?", config=config)
    texts = {0: "", 1: ""}
    for part in client.models.generate_content_stream(model="toy", contents="What?", config=config):
        for candidate in part.candidates or []:
            for piece in (candidate.content and candidate.content.parts) or []:
                texts[candidate.index or 0] += piece.text or ""
    assert whole.candidates is not None
    for candidate in whole.candidates:
        assert candidate.content is not None
        assert candidate.content.parts is not None
        assert texts[candidate.index or 0] == candidate.content.parts[0].text


def test_a_refused_stream_is_an_error_of_its_own_status(client: genai.Client) -> None:
    with pytest.raises(errors.ClientError) as caught:
        list(client.models.generate_content_stream(model="toy", contents="x" * 5000))
    assert (caught.value.code, caught.value.status) == (400, "INVALID_ARGUMENT")


def test_a_chat_of_the_sdk_sends_back_its_pieces_as_one_turn(served: Served, client: genai.Client) -> None:
    served.script(b"Blue pump.")
    chat = client.chats.create(model="toy")
    for _ in chat.send_message_stream("What?"):
        pass
    answer = chat.send_message("Sure?")
    before = "\0user\nWhat?\0\0assistant\nBlue pump.\0\0user\nSure?\0\0assistant\n"
    assert usage_of(answer).prompt_token_count == len(before)


# ---- implicit caching --------------------------------------------------------------------------------------


def test_what_was_there_is_told_from_the_least_on(served: Served, client: genai.Client) -> None:
    served.script(b"ok")
    ask(client, LONG)
    prompt = usage_of(ask(client, LONG))
    assert prompt.prompt_token_count is not None
    assert prompt.cached_content_token_count == prompt.prompt_token_count - 1
    ask(client, "short")
    assert usage_of(ask(client, "short")).cached_content_token_count is None


@pytest.mark.parametrize(("ledger", "told"), [("auto", None), ("contract", None), ("physical", 22)])
def test_the_ledger_that_is_asked_for_is_shown(ledger: str, told: int | None) -> None:
    body = said("short", generationConfig={"maxOutputTokens": 1})
    with serving(ledger=ledger) as served:
        counts = [
            post(served, "generateContent", body)["usageMetadata"].get("cachedContentTokenCount")
            for _ in range(2)
        ]
        assert counts == [None, told]
