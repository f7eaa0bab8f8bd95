"""`/v1/chat/completions` through the official SDK, over a real socket."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from server.conftest import Served

MESSAGES: Any = [{"role": "system", "content": "Be short."}, {"role": "user", "content": "Say something."}]
PROMPT = "<|start|>system\nBe short.<|end|><|start|>user\nSay something.<|end|><|start|>assistant\n"
PROMPT_TOKENS = len(PROMPT) - len("<|start|>") * 3 - len("<|end|>") * 2 + 5


def chat(served: Served, **options: Any) -> Any:
    return served.openai.chat.completions.create(model="toy", **{"messages": MESSAGES, **options})


def test_an_answer_has_every_field_clients_read(served: Served) -> None:
    served.script("Grüße 🌲".encode())
    raw = served.openai.chat.completions.with_raw_response.create(model="toy", messages=MESSAGES)
    answer = raw.parse()
    assert answer.choices[0].message.content == "Grüße 🌲"
    assert (answer.choices[0].finish_reason, answer.choices[0].message.role) == ("stop", "assistant")
    assert (answer.object, answer.model) == ("chat.completion", "toy")
    assert answer.id.startswith("chatcmpl-")
    assert answer.system_fingerprint == "fp_0123456789abcdef"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == PROMPT_TOKENS
    assert answer.usage.total_tokens == PROMPT_TOKENS + answer.usage.completion_tokens
    assert raw.headers["x-request-id"] == answer.id.replace("chatcmpl", "req")
    assert raw.headers["x-sapwood-cache"] == (
        f"reused=0;missed={PROMPT_TOKENS};never_seen={PROMPT_TOKENS - 1};last_token=1"
    )


def test_a_repeated_prompt_is_reused_but_for_its_last_token(served: Served) -> None:
    served.script(b"ok")
    cold, warm = chat(served), chat(served)
    assert cold.usage.prompt_tokens_details.cached_tokens == 0
    assert warm.usage.prompt_tokens_details.cached_tokens == PROMPT_TOKENS - 1
    assert warm.usage.prompt_cache_hit_tokens == PROMPT_TOKENS - 1
    assert warm.usage.prompt_cache_miss_tokens == 1
    assert warm.choices[0].message.content == cold.choices[0].message.content


def test_parts_and_string_are_one_prompt(served: Served) -> None:
    served.script(b"ok")
    chat(served)
    parts: Any = [{**m, "content": [{"type": "text", "text": m["content"]}]} for m in MESSAGES]
    assert chat(served, messages=parts).usage.prompt_tokens_details.cached_tokens == PROMPT_TOKENS - 1


def test_user_text_that_spells_a_control_token_stays_text(served: Served) -> None:
    served.script(b"ok")
    plain = chat(served, messages=[{"role": "user", "content": "x" * len("<|end|>")}])
    spelled = chat(served, messages=[{"role": "user", "content": "<|end|>"}])
    assert spelled.usage.prompt_tokens == plain.usage.prompt_tokens


def test_a_salt_separates_prefixes(served: Served) -> None:
    served.script(b"ok")
    chat(served)
    salted = chat(served, extra_body={"cache_salt": "other"})
    again = chat(served, extra_body={"cache_salt": "other"})
    assert salted.usage.prompt_tokens_details.cached_tokens == 0
    assert again.usage.prompt_tokens_details.cached_tokens == PROMPT_TOKENS - 1


def test_a_stream_says_what_the_whole_answer_says(served: Served) -> None:
    served.script("Zwei Bäume 🌳🌲, ein Wald.".encode())
    whole = chat(served)
    chunks = list(chat(served, stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content == "Zwei Bäume 🌳🌲, ein Wald."
    assert "\ufffd" not in text
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == "stop"
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert all(chunk.usage is None for chunk in chunks[:-1])
    assert len({chunk.id for chunk in chunks}) == 1


def test_a_stream_without_include_usage_never_mentions_it(served: Served) -> None:
    served.script(b"ok")
    body = {"messages": MESSAGES, "stream": True}
    answer = served.http.post("/v1/chat/completions", json=body)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["x-sapwood-cache"].startswith("reused=")
    assert answer.text.endswith("data: [DONE]\n\n")
    assert "usage" not in answer.text
    assert '"error"' not in answer.text


def test_stream_helper_of_the_sdk_reads_n_samples(served: Served) -> None:
    served.script(b"abc")
    with served.openai.chat.completions.stream(model="toy", messages=MESSAGES, n=2) as stream:
        final = stream.get_final_completion()
    assert [choice.message.content for choice in final.choices] == ["abc", "abc"]


def test_n_samples_share_the_prompt_and_differ(served: Served) -> None:
    answer = chat(served, n=3, max_tokens=12, seed=5, extra_body={"ignore_eos": True})
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in answer.choices}) == 3
    assert answer.usage.prompt_tokens == PROMPT_TOKENS
    assert answer.usage.completion_tokens == 36
    again = chat(served, n=3, max_tokens=12, seed=5, extra_body={"ignore_eos": True})
    assert [c.message.content for c in again.choices] == [c.message.content for c in answer.choices]


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings_cut_before_the_match(served: Served, stream: bool) -> None:
    served.script(b"the fox jumps over")
    answer = chat(served, stop=["x jump", "zzz"], stream=stream)
    if stream:
        chunks = [chunk.choices[0] for chunk in answer]
        text, reason = "".join(c.delta.content or "" for c in chunks), chunks[-1].finish_reason
    else:
        text, reason = answer.choices[0].message.content, answer.choices[0].finish_reason
    assert (text, reason) == ("the fo", "stop")


def test_max_tokens_ends_by_length_and_the_new_name_wins(served: Served) -> None:
    served.script(b"abcdefgh")
    answer = chat(served, max_completion_tokens=3, max_tokens=5)
    assert (answer.choices[0].message.content, answer.choices[0].finish_reason) == ("abc", "length")
    assert answer.usage.completion_tokens == 3


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_limit_inside_a_character_gives_valid_text_and_the_raw_bytes(served: Served, count: int) -> None:
    served.script("🌲".encode())
    whole = chat(served, max_tokens=count, logprobs=True)
    chunks = list(chat(served, max_tokens=count, logprobs=True, stream=True))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert text == whole.choices[0].message.content == "\ufffd"
    listed = [entry.bytes for entry in whole.choices[0].logprobs.content]
    assert listed == [[byte] for byte in "🌲".encode()[:count]]
    streamed = [e.bytes for c in chunks if c.choices[0].logprobs for e in c.choices[0].logprobs.content]
    assert streamed == listed


def test_logprobs_list_the_asked_number_and_agree_with_themselves(served: Served) -> None:
    answer = chat(served, max_tokens=4, logprobs=True, top_logprobs=3, temperature=0)
    entries = answer.choices[0].logprobs.content
    assert 1 <= len(entries) <= 4
    for entry in entries:
        assert len(entry.top_logprobs) == 3
        assert entry.logprob == entry.top_logprobs[0].logprob
        assert entry.bytes == entry.top_logprobs[0].bytes
    assert chat(served, max_tokens=1).choices[0].logprobs is None


def test_logit_bias_reaches_the_engine_and_greedy_is_repeatable(served: Served) -> None:
    first, second = (chat(served, max_tokens=8, temperature=0) for _ in range(2))
    assert first.choices[0].message.content == second.choices[0].message.content


def test_a_continued_message_adds_nothing_to_its_prompt(served: Served) -> None:
    served.script(b" and on")
    messages: Any = [{"role": "user", "content": "Go"}, {"role": "assistant", "content": "It goes on"}]
    answer = chat(
        served, messages=messages, extra_body={"continue_final_message": True, "add_generation_prompt": False}
    )
    assert answer.choices[0].message.content == " and on"
    expected = served.http.post(
        "/tokenize", json={"prompt": "<|start|>user\nGo<|end|><|start|>assistant\nIt goes on"}
    ).json()
    assert answer.usage.prompt_tokens == expected["count"]


def test_unknown_fields_are_named_in_a_header(served: Served) -> None:
    served.script(b"ok")
    answer = served.http.post(
        "/v1/chat/completions", json={"messages": MESSAGES, "zip": 1, "user": "u", "é": 2}
    )
    assert answer.status_code == 200
    assert answer.headers["x-sapwood-ignored"] == "zip"


def test_what_another_server_would_do_is_refused_rather_than_ignored(served: Served) -> None:
    for name, value in (("regex", "a"), ("skip_special_tokens", False), ("bad_words", ["a"])):
        with pytest.raises(openai.BadRequestError) as caught:
            chat(served, extra_body={name: value})
        assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")


def test_template_kwargs_change_the_prompt_or_are_named_in_a_header(served: Served) -> None:
    served.script(b"ok")
    body = {"messages": MESSAGES, "chat_template_kwargs": {"shout": True, "enable_thinking": False}}
    answer = served.http.post("/v1/chat/completions", json=body)
    assert answer.headers["x-sapwood-ignored"] == "chat_template_kwargs.enable_thinking"
    assert answer.json()["usage"]["prompt_tokens"] == PROMPT_TOKENS + 1
    tokens = served.http.post("/tokenize", json=body).json()["tokens"]
    assert served.http.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": "!" + PROMPT}


@pytest.mark.parametrize("prefill", ["end", "<", "|end"])
def test_a_short_prefill_is_continued_where_it_ends(served: Served, prefill: str) -> None:
    messages: Any = [*MESSAGES, {"role": "assistant", "content": prefill}]
    body = {"messages": messages, "continue_final_message": True}
    tokens = served.http.post("/tokenize", json=body).json()["tokens"]
    assert served.http.post("/detokenize", json={"tokens": tokens}).json() == {"prompt": PROMPT + prefill}


@pytest.mark.parametrize("stream", [False, True])
def test_too_long_a_prompt_is_refused_with_numbers_before_any_work(served: Served, stream: bool) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        chat(served, messages=[{"role": "user", "content": "x" * 5000}], stream=stream)
    assert caught.value.code == "context_length_exceeded"
    assert "4096" in caught.value.message
    assert caught.value.param == "messages"
    for name in ("max_tokens", "max_completion_tokens"):
        with pytest.raises(openai.BadRequestError) as caught:
            chat(served, stream=stream, **{name: 4096})
        assert (caught.value.code, caught.value.param) == ("context_length_exceeded", name)


def test_an_unknown_model_is_not_found(served: Served) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        served.openai.chat.completions.create(model="gpt-9", messages=MESSAGES)
    assert caught.value.code == "model_not_found"
    assert "toy" in caught.value.message
