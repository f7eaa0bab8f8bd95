from __future__ import annotations

from typing import Any

import pytest

from sapwood.chat import (
    ChatAnswer,
    ChatStream,
    CompletionAnswer,
    CompletionShape,
    CompletionStream,
    Echo,
    Head,
    parse_chat,
    parse_completion,
    read_json,
    usage_json,
)
from sapwood.errors import RequestError
from sapwood.types import Delta, Event, PromptScored, Started, TokenLogprob, Usage

VOCAB = 300
HI = [{"role": "user", "content": "hi"}]
HEAD = Head("x-1", 7, "toy", "fp_0")
USAGE = Usage(10, 8, {"never_seen": 1, "last_token": 1}, 3)


class Names:
    """Token 65 is "A" and so on; 200 and 201 are the halves of "é"; 300 and 65 share a text."""

    special_ids = frozenset({299})

    def token_bytes(self, token: int, /) -> bytes:
        return {200: b"\xc3", 201: b"\xa9", 300: b"A"}.get(token) or bytes([token])

    def token_text(self, token: int, /) -> str:
        return self.token_bytes(token).decode(errors="replace")


# ---- bodies ---------------------------------------------------------------------------


def test_defaults_are_the_dialects() -> None:
    completion = parse_completion({"prompt": "a"}, vocab_size=VOCAB)
    assert completion.options.params.max_tokens == 16
    assert completion.prompts == ("a",)
    chat = parse_chat({"messages": HI}, vocab_size=VOCAB)
    assert chat.options.params.max_tokens is None
    assert (chat.options.params.temperature, chat.options.params.top_p) == (1.0, 1.0)
    assert chat.conversation.add_generation_prompt


@pytest.mark.parametrize(
    ("prompt", "expected"),
    [
        ("a", ("a",)),
        (["a", "b"], ("a", "b")),
        ([1, 2], ((1, 2),)),
        ([[1, 2], [3]], ((1, 2), (3,))),
    ],
)
def test_prompts_take_four_shapes(prompt: object, expected: object) -> None:
    assert parse_completion({"prompt": prompt}, vocab_size=VOCAB).prompts == expected


def test_every_setting_reaches_the_sampler() -> None:
    body = {
        "messages": HI,
        "max_completion_tokens": 5,
        "max_tokens": 9,
        "n": 2,
        "stop": "END",
        "seed": -1,
        "temperature": 0,
        "top_p": 0.5,
        "top_k": 7,
        "min_p": 0.1,
        "presence_penalty": 1,
        "frequency_penalty": -1.5,
        "repetition_penalty": 1.2,
        "logit_bias": {"12": -100},
        "logprobs": True,
        "top_logprobs": 3,
        "min_tokens": 2,
        "ignore_eos": True,
        "stop_token_ids": [4],
        "cache_salt": "s",
        "priority": 3,
        "stream": True,
        "stream_options": {"include_usage": True, "include_obfuscation": False},
    }
    options = parse_chat(body, vocab_size=VOCAB).options
    params = options.params
    assert (params.max_tokens, params.n, params.stop, params.temperature) == (5, 2, ("END",), 0)
    assert (params.top_p, params.top_k, params.min_p) == (0.5, 7, 0.1)
    assert (params.presence_penalty, params.frequency_penalty, params.repetition_penalty) == (1, -1.5, 1.2)
    assert params.logit_bias == {12: -100}
    assert (params.logprobs, params.min_tokens, params.ignore_eos, params.stop_token_ids) == (
        3,
        2,
        True,
        (4,),
    )
    assert params.seed == 2**64 - 1
    assert (options.scope.salt, options.priority, options.stream, options.include_usage) == (
        "s",
        3,
        True,
        True,
    )
    assert options.ignored == ()


def test_echo_with_logprobs_scores_the_prompt() -> None:
    scored = parse_completion({"prompt": "a", "echo": True, "logprobs": 1, "max_tokens": 0}, vocab_size=VOCAB)
    assert scored.options.params.prompt_logprobs == 1
    plain = parse_completion({"prompt": "a", "logprobs": 1}, vocab_size=VOCAB)
    assert plain.options.params.prompt_logprobs is None


def test_harmless_fields_pass_and_unknown_ones_are_listed() -> None:
    body = {
        "messages": HI,
        "user": "u",
        "metadata": {"a": "b"},
        "prompt_cache_key": "k",
        "store": True,
        "zip": 1,
    }
    assert parse_chat(body, vocab_size=VOCAB).options.ignored == ("zip",)


def test_null_means_not_given() -> None:
    body = dict.fromkeys(
        ("n", "stop", "temperature", "tools", "response_format", "stream", "logprobs", "seed")
    )
    params = parse_chat({"messages": HI, **body}, vocab_size=VOCAB).options.params
    assert (params.n, params.stop, params.temperature) == (1, (), 1.0)


CHAT_FAULTS = [
    ({"messages": []}, "messages"),
    ({}, "messages"),
    ({"messages": "hi"}, "messages"),
    ({"messages": [{"role": "user"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": []}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    ({"messages": [{"role": "owner", "content": "x"}]}, "messages[0].role"),
    ({"messages": [{"role": "user", "content": "a\0b"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": "\ud800"}]}, "messages[0].content"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages[0].content[0].type"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]},
        "messages[0].content[0].text",
    ),
    (
        {"messages": [*HI, {"role": "assistant", "content": None, "tool_calls": [{}]}]},
        "messages[1].tool_calls",
    ),
    ({"tools": [{"type": "function"}]}, "tools"),
    ({"functions": [{}]}, "functions"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"response_format": {"type": "json_object"}}, "response_format"),
    ({"modalities": ["text", "audio"]}, "modalities"),
    ({"top_logprobs": 2}, "top_logprobs"),
    ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ({"logprobs": 1}, "logprobs"),
    ({"n": 0}, "n"),
    ({"n": True}, "n"),
    ({"n": 1.5}, "n"),
    ({"n": "2"}, "n"),
    ({"max_tokens": -1}, "max_tokens"),
    ({"max_tokens": 10**30}, "max_tokens"),
    ({"temperature": -0.1}, "temperature"),
    ({"temperature": 2.1}, "temperature"),
    ({"temperature": "hot"}, "temperature"),
    ({"temperature": False}, "temperature"),
    ({"temperature": 10**400}, "temperature"),
    ({"top_p": 0}, "top_p"),
    ({"top_p": float("inf")}, "top_p"),
    ({"top_k": -2}, "top_k"),
    ({"seed": 10**30}, "seed"),
    ({"seed": 1.0}, "seed"),
    ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
    ({"stop": ["a", ""]}, "stop"),
    ({"stop": ["a", 2]}, "stop[1]"),
    ({"stop": "\udfff"}, "stop[0]"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"300": 1}}, "logit_bias"),
    ({"logit_bias": {"1": 101}}, "logit_bias.1"),
    ({"logit_bias": [1]}, "logit_bias"),
    ({"stop_token_ids": [1, 300]}, "stop_token_ids[1]"),
    ({"stop_token_ids": [True]}, "stop_token_ids[0]"),
    ({"min_tokens": 5, "max_tokens": 4}, "min_tokens"),
    ({"stream": "yes"}, "stream"),
    ({"stream_options": {"include_usage": True}}, "stream_options"),
    ({"cache_salt": ""}, "cache_salt"),
    ({"cache_salt": "a\0"}, "cache_salt"),
    ({"model": 3}, "model"),
    ({"continue_final_message": True}, "continue_final_message"),
    ({"presence_penalty": 3}, "presence_penalty"),
]


@pytest.mark.parametrize(("fault", "param"), CHAT_FAULTS, ids=[str(i) for i in range(len(CHAT_FAULTS))])
def test_a_faulty_chat_body_is_refused_by_name(fault: dict[str, Any], param: str) -> None:
    body = fault if param.startswith("messages") else {"messages": HI, **fault}
    with pytest.raises(RequestError) as caught:
        parse_chat(body, vocab_size=VOCAB)
    assert caught.value.param == param
    assert param.split(".")[0].split("[")[0] in caught.value.message


@pytest.mark.parametrize(
    ("fault", "param"),
    [
        ({}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": [[1], "a", 3]}, "prompt[2]"),
        ({"prompt": [1, -1]}, "prompt[1]"),
        ({"prompt": [1, True]}, "prompt[1]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": [1.0]}, "prompt[0]"),
        ({"prompt": [[1, 300]]}, "prompt[0][1]"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": "a\0"}, "prompt"),
        ({"prompt": ["a", "\ud83d"]}, "prompt[1]"),
        ({"prompt": "a", "logprobs": 6}, "logprobs"),
        ({"prompt": "a", "logprobs": -1}, "logprobs"),
        ({"prompt": "a", "logprobs": True}, "logprobs"),
        ({"prompt": "a", "suffix": "z"}, "suffix"),
        ({"prompt": "a", "best_of": 3, "n": 2}, "best_of"),
        ({"prompt": "a", "echo": 1}, "echo"),
    ],
)
def test_a_faulty_completion_body_is_refused_by_name(fault: dict[str, Any], param: str) -> None:
    with pytest.raises(RequestError) as caught:
        parse_completion(fault, vocab_size=VOCAB)
    assert caught.value.param == param


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{",
        b"[1]",
        b"\xff{}",
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b"[" * 100_000,
        b'{"a": ' + b"1" * 9000 + b"}",
    ],
)
def test_what_is_not_a_json_object_is_refused(data: bytes) -> None:
    with pytest.raises(RequestError) as caught:
        read_json(data)
    assert caught.value.code == "invalid_json"


# ---- answers --------------------------------------------------------------------------


def lp(token: int, value: float, *top: tuple[int, float]) -> TokenLogprob:
    return TokenLogprob(token, value, top)


def delta(text: str, token: int, sample: int = 0, finish: Any = None, *logprobs: TokenLogprob) -> Delta:
    return Delta("x-1", sample, text, (token,), logprobs, finish)


TWO_SAMPLES: list[Event] = [
    Started("x-1", USAGE),
    delta("A", 65),
    delta("X", 88, 1),
    delta("B", 66, 0, "stop"),
    delta("Y", 89, 1, "length"),
]


def test_chat_answer_and_chat_stream_say_the_same() -> None:
    answer = ChatAnswer(HEAD, Names(), n=2, logprobs=False)
    stream = ChatStream(HEAD, Names(), n=2, logprobs=False, include_usage=True)
    for event in TWO_SAMPLES:
        assert answer.feed(0, event) == []
    chunks = [chunk for event in TWO_SAMPLES for chunk in stream.feed(0, event)] + stream.end([USAGE])
    (whole,) = answer.end([USAGE])
    assert [choice["message"]["content"] for choice in whole["choices"]] == ["AB", "XY"]
    assert [choice["finish_reason"] for choice in whole["choices"]] == ["stop", "length"]
    for index, choice in enumerate(whole["choices"]):
        mine = [c["choices"][0] for c in chunks if c["choices"] and c["choices"][0]["index"] == index]
        assert mine[0]["delta"] == {"role": "assistant", "content": ""}
        assert "".join(part["delta"].get("content", "") for part in mine) == choice["message"]["content"]
        reasons = [part["finish_reason"] for part in mine]
        assert reasons == [None] * (len(mine) - 1) + [choice["finish_reason"]]
    assert chunks[-1]["choices"] == []
    assert chunks[-1]["usage"] == whole["usage"] == usage_json([USAGE])
    assert all(chunk["usage"] is None for chunk in chunks[:-1])


def test_without_include_usage_no_chunk_has_the_key() -> None:
    stream = ChatStream(HEAD, Names(), n=1, logprobs=False, include_usage=False)
    chunks = [chunk for event in TWO_SAMPLES[:2] for chunk in stream.feed(0, event)] + stream.end([USAGE])
    assert chunks
    assert all("usage" not in chunk for chunk in chunks)


def test_usage_is_physical_and_sums() -> None:
    usage = usage_json([USAGE, Usage(5, 0, {"never_seen": 5}, 2)])
    assert usage == {
        "prompt_tokens": 15,
        "completion_tokens": 5,
        "total_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 8},
        "prompt_cache_hit_tokens": 8,
        "prompt_cache_miss_tokens": 7,
    }


def test_chat_logprobs_have_raw_bytes_and_a_floor() -> None:
    answer = ChatAnswer(HEAD, Names(), n=1, logprobs=True)
    answer.feed(0, delta("", 200, 0, None, lp(200, -0.5, (200, -0.5), (65, float("-inf")))))
    (whole,) = answer.end([USAGE])
    (entry,) = whole["choices"][0]["logprobs"]["content"]
    assert (entry["bytes"], entry["logprob"]) == ([0xC3], -0.5)
    assert [top["logprob"] for top in entry["top_logprobs"]] == [-0.5, -9999.0]


def test_a_stream_sends_logprobs_even_when_the_text_lags() -> None:
    stream = ChatStream(HEAD, Names(), n=1, logprobs=True, include_usage=False)
    (chunk,) = stream.feed(0, delta("", 200, 0, None, lp(200, -0.5)))
    assert chunk["choices"][0]["delta"] == {"content": ""}
    assert len(chunk["choices"][0]["logprobs"]["content"]) == 1
    assert ChatStream(HEAD, Names(), n=1, logprobs=False, include_usage=False).feed(0, delta("", 200)) == []


def shape(**changes: Any) -> CompletionShape:
    given: dict[str, Any] = {"prompts": (Echo("éA", (200, 201, 65)),), "n": 1, "echo": True, "logprobs": True}
    return CompletionShape(**{**given, **changes})


SCORED: list[Event] = [
    Started("x-1", USAGE),
    PromptScored("x-1", (None, lp(201, -1.0, (201, -1.0)), lp(65, -2.0, (66, -0.1)))),
    delta("B", 66, 0, "length", lp(66, -0.3, (66, -0.3), (65, -1.5))),
]


def test_echoed_prompt_logprobs_start_with_null() -> None:
    answer = CompletionAnswer(HEAD, Names(), shape())
    for event in SCORED:
        answer.feed(0, event)
    (choice,) = answer.end([USAGE])[0]["choices"]
    assert choice["text"] == "éAB"
    assert choice["logprobs"]["token_logprobs"] == [None, -1.0, -2.0, -0.3]
    assert choice["logprobs"]["top_logprobs"] == [
        None,
        {"\ufffd": -1.0},
        {"B": -0.1, "A": -2.0},
        {"B": -0.3, "A": -1.5},
    ]
    assert choice["logprobs"]["text_offset"] == [0, 1, 1, 2]
    assert {len(listed) for listed in choice["logprobs"].values()} == {4}


def test_streamed_completion_joins_to_the_same_choice() -> None:
    answer, stream = CompletionAnswer(HEAD, Names(), shape()), CompletionStream(HEAD, Names(), shape())
    chunks = []
    for event in SCORED:
        answer.feed(0, event)
        chunks += stream.feed(0, event)
    (choice,) = answer.end([USAGE])[0]["choices"]
    parts = [chunk["choices"][0] for chunk in chunks]
    assert "".join(part["text"] for part in parts) == choice["text"]
    assert parts[-1]["finish_reason"] == choice["finish_reason"] == "length"
    for name, listed in choice["logprobs"].items():
        assert [item for part in parts for item in part["logprobs"][name]] == listed


def test_offsets_without_echo_count_from_the_prompts_end() -> None:
    answer = CompletionAnswer(HEAD, Names(), shape(echo=False))
    answer.feed(0, SCORED[2])
    (choice,) = answer.end([USAGE])[0]["choices"]
    assert choice["text"] == "B"
    assert choice["logprobs"]["text_offset"] == [2]


def test_the_drawn_token_wins_when_two_tokens_have_one_text() -> None:
    answer = CompletionAnswer(HEAD, Names(), shape(echo=False))
    answer.feed(0, delta("A", 300, 0, "length", lp(300, -3.5, (65, -0.25), (66, -2.0))))
    (choice,) = answer.end([USAGE])[0]["choices"]
    assert choice["logprobs"]["token_logprobs"] == [-3.5]
    assert choice["logprobs"]["top_logprobs"] == [{"A": -3.5, "B": -2.0}]


def test_choices_of_many_prompts_are_numbered_flat() -> None:
    wide = shape(prompts=(Echo("a", (97,)), Echo("b", (98,))), n=2, logprobs=False)
    answer, stream = CompletionAnswer(HEAD, Names(), wide), CompletionStream(HEAD, Names(), wide)
    sent = []
    for prompt in (1, 0):
        for sample in (0, 1):
            event = delta(f"{prompt}{sample}", 65, sample, "stop")
            answer.feed(prompt, event)
            sent += stream.feed(prompt, event)
    choices = answer.end([USAGE, USAGE])[0]["choices"]
    assert [(c["index"], c["text"]) for c in choices] == [(0, "a00"), (1, "a01"), (2, "b10"), (3, "b11")]
    assert [(c["choices"][0]["index"], c["choices"][0]["text"]) for c in sent] == [
        (2, "10"),
        (3, "11"),
        (0, "00"),
        (1, "01"),
    ]
