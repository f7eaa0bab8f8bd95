from __future__ import annotations

import json
import re
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
from sapwood.chat.openai import ChatBody, CompletionBody
from sapwood.chat.token_details import TokenDetails
from sapwood.chat.unsupported import CHAT_REFUSED, COMPLETION_REFUSED, HARMLESS
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


def test_the_prompts_logprobs_are_told_of_whole_answers_alone() -> None:
    chat = parse_chat({"messages": HI, "prompt_logprobs": 3, "return_token_ids": True}, vocab_size=VOCAB)
    assert (chat.options.params.prompt_logprobs, chat.options.details) == (3, TokenDetails(True, 3))
    both = {"prompt": "a", "echo": True, "logprobs": 4, "prompt_logprobs": 2}
    completion = parse_completion(both, vocab_size=VOCAB)
    assert (completion.options.params.prompt_logprobs, completion.options.details.prompt_logprobs) == (4, 2)
    assert not parse_completion({"prompt": "a", "prompt_logprobs": False}, vocab_size=VOCAB).options.details
    for body in ({"prompt_logprobs": 0, "stream": True}, {"prompt_logprobs": 21}, {"prompt_logprobs": -1}):
        with pytest.raises(RequestError) as caught:
            parse_completion({"prompt": "a", **body}, vocab_size=VOCAB)
        assert caught.value.param == "prompt_logprobs"


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


ASKS_FOR_MORE: dict[str, Any] = {
    "allowed_token_ids": [1, 2],
    "bad_words": ["no"],
    "chat_template": "{{ 1 }}",
    "custom_logit_processor": "x",
    "do_sample": False,
    "documents": [{"text": "x"}],
    "dry_multiplier": 0.8,
    "early_stopping": True,
    "grammar": "root ::= x",
    "include_stop_str_in_output": True,
    "json_schema": {},
    "length_penalty": 1.5,
    "logits_processors": ["x"],
    "max_new_tokens": 3,
    "mirostat": 2,
    "num_beams": 4,
    "prompt_embeds": "AAAA",
    "regex": "a+",
    "repeat_penalty": 1.1,
    "return_tokens_as_token_ids": True,
    "skip_special_tokens": False,
    "spaces_between_special_tokens": False,
    "stop_regex": "a+",
    "suffix": "end",
    "truncate_prompt_tokens": 10,
    "typical_p": 0.9,
    "use_beam_search": True,
}
CHAT_ONLY: dict[str, Any] = {"add_special_tokens": True, "best_of": 2, "echo": True, "prompt": "x"}
COMPLETION_ONLY: dict[str, Any] = {
    "chat_template_kwargs": {"a": 1},
    "continue_final_message": True,
    "max_completion_tokens": 3,
    "messages": HI,
    "top_logprobs": 2,
}


@pytest.mark.parametrize(("name", "value"), [*ASKS_FOR_MORE.items(), *CHAT_ONLY.items()])
def test_a_chat_refuses_what_would_change_the_answer(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        parse_chat({"messages": HI, name: value}, vocab_size=VOCAB)
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")
    assert name in caught.value.message
    assert "supported yet" in caught.value.message


@pytest.mark.parametrize(("name", "value"), [*ASKS_FOR_MORE.items(), *COMPLETION_ONLY.items()])
def test_a_completion_refuses_what_would_change_the_answer(name: str, value: Any) -> None:
    with pytest.raises(RequestError) as caught:
        parse_completion({"prompt": "a", name: value}, vocab_size=VOCAB)
    assert (caught.value.param, caught.value.code) == (name, "unsupported_parameter")


def test_every_refused_field_passes_with_its_neutral_values_and_null() -> None:
    for name, neutral in CHAT_REFUSED.items():
        for value in (None, *neutral):
            body = _with_field({"messages": HI}, name, value)
            assert parse_chat(body, vocab_size=VOCAB).options.ignored == ()
    for name, neutral in COMPLETION_REFUSED.items():
        for value in (None, *neutral):
            body = _with_field({"prompt": "a"}, name, value)
            assert parse_completion(body, vocab_size=VOCAB).options.ignored == ()


def _with_field(body: dict[str, Any], name: str, value: Any) -> dict[str, Any]:
    outer, _, inner = name.partition(".")
    return {**body, "stream": True, outer: {inner: value}} if inner else {**body, name: value}


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("max_token", "max_tokens"),
        ("maxTokens", "max_tokens"),
        ("MAX_TOKENS", "max_tokens"),
        ("temprature", "temperature"),
        ("logprob", "logprobs"),
        ("stop_tokens_ids", "stop_token_ids"),
        ("guided_jsn", "guided_json"),
        ("reasoning_efort", "reasoning_effort"),
        ("cache_slat", "cache_salt"),
    ],
)
def test_a_slip_of_the_pen_is_refused_with_what_was_meant(name: str, meant: str) -> None:
    with pytest.raises(RequestError, match=f"'{name}' is not known; did you mean '{meant}'") as caught:
        parse_chat({"messages": HI, name: 2}, vocab_size=VOCAB)
    assert (caught.value.param, caught.value.code) == (name, "unknown_parameter")


def test_a_slip_in_the_stream_options_is_refused() -> None:
    body = {"prompt": "a", "stream": True, "stream_options": {"include_usge": True}}
    with pytest.raises(RequestError, match=r"did you mean 'stream_options\.include_usage'"):
        parse_completion(body, vocab_size=VOCAB)


def test_unlike_names_are_listed_however_many() -> None:
    names = [f"{i}zip" for i in range(150)]
    options = parse_chat({"messages": HI, **dict.fromkeys(names, 1)}, vocab_size=VOCAB).options
    assert options.ignored == tuple(sorted(names))
    for name in ("top_n", "reasoning", "thinking", "request_id", "repeat_last_n", "min_keep", "id"):
        assert parse_chat({"messages": HI, name: 1}, vocab_size=VOCAB).options.ignored == (name,)


def test_faults_are_said_in_our_words() -> None:
    for fault, message in (
        ({"messages": []}, "'messages' is []; it must be a list of 1 or more"),
        ({"n": "2"}, "'n' is \"2\"; it must be a whole number"),
        ({"temperature": 3}, "'temperature' is 3; it must be at most 2"),
        ({"stream": 1}, "'stream' is 1; it must be true or false"),
        ({"stop": ["a"] * 5}, "'stop' has 5 entries; at most 4 are taken"),
        ({"logit_bias": [1]}, "'logit_bias' is a list of 1 items; it must be an object"),
        ({"messages": ["hi"]}, "'messages[0]' is \"hi\"; it must be an object"),
    ):
        with pytest.raises(RequestError) as caught:
            parse_chat({"messages": HI, **fault}, vocab_size=VOCAB)
        assert caught.value.message == message


def test_one_is_not_true_and_true_is_not_one() -> None:
    for name, value in (("skip_special_tokens", 1), ("length_penalty", True), ("use_beam_search", 0)):
        with pytest.raises(RequestError, match=name):
            parse_chat({"messages": HI, name: value}, vocab_size=VOCAB)


def test_the_refusal_says_which_value_is_served() -> None:
    with pytest.raises(RequestError, match="'skip_special_tokens' is false; only true is supported yet"):
        parse_chat({"messages": HI, "skip_special_tokens": False}, vocab_size=VOCAB)


def test_no_field_that_is_parsed_is_in_the_tables() -> None:
    """It would be refused although it is served, or never be looked at."""
    assert not HARMLESS & (CHAT_REFUSED.keys() | COMPLETION_REFUSED.keys())
    for body, refused in ((ChatBody, CHAT_REFUSED), (CompletionBody, COMPLETION_REFUSED)):
        assert not refused.keys() & body.model_fields.keys()


@pytest.mark.parametrize("name", ["prefix", "partial", "audio", "function_call", "tool_calls"])
def test_a_message_that_asks_for_more_is_refused(name: str) -> None:
    message: dict[str, Any] = {"role": "assistant", "content": "x", name: True}
    with pytest.raises(RequestError) as caught:
        parse_chat({"messages": [*HI, message]}, vocab_size=VOCAB)
    assert caught.value.param == f"messages[1].{name}"


def test_messages_pass_as_sdks_give_them_back() -> None:
    message: dict[str, Any] = {
        "role": "assistant",
        "content": "x",
        "refusal": None,
        "annotations": [],
        "audio": None,
        "function_call": None,
        "tool_calls": [],
    }
    assert len(parse_chat({"messages": [*HI, message]}, vocab_size=VOCAB).conversation.messages) == 2


def test_unknown_stream_options_are_listed() -> None:
    body = {"messages": HI, "stream": True, "stream_options": {"include_usage": True, "zip": 1}}
    assert parse_chat(body, vocab_size=VOCAB).options.ignored == ("stream_options.zip",)


def test_template_kwargs_are_taken() -> None:
    kwargs = {"enable_thinking": False, "levels": [1, {"a": None}]}
    call = parse_chat({"messages": HI, "chat_template_kwargs": kwargs}, vocab_size=VOCAB)
    assert call.conversation.template_kwargs == kwargs
    assert call.options.ignored == ()
    nothings: tuple[Any, ...] = ({}, None)
    for nothing in nothings:
        call = parse_chat({"messages": HI, "chat_template_kwargs": nothing}, vocab_size=VOCAB)
        assert call.conversation.template_kwargs == {}


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    "kwargs",
    [
        "enable_thinking",
        ["a"],
        {"messages": []},
        {"add_generation_prompt": False},
        {"tools": []},
        {"bos_token": "x"},
        {"raise_exception": 1},
        {"range": 1},
        {"": 1},
        {"a b": 1},
        {"_x": 1},
        {"é": 1},
        {"a": "\0"},
        {"a": [{"b": "\ud800"}]},
        {"a": {"\udfff": 1}},
        {"a": nested(32)},
        {"a": nested(5000)},
    ],
    ids=[str(i) for i in range(17)],
)
def test_template_kwargs_are_checked(kwargs: Any) -> None:
    with pytest.raises(RequestError) as caught:
        parse_chat({"messages": HI, "chat_template_kwargs": kwargs}, vocab_size=VOCAB)
    assert (caught.value.param or "").startswith("chat_template_kwargs")


def test_prompts_times_samples_are_limited() -> None:
    for prompts, n in ((256, 1), (2, 128), (128, 2)):
        call = parse_completion({"prompt": ["a"] * prompts, "n": n}, vocab_size=VOCAB)
        assert len(call.prompts) == prompts
    for prompts, n in ((257, 1), (129, 2), (3, 128), (4096, 128)):
        with pytest.raises(
            RequestError, match=f"{prompts * n} samples; one call may ask for at most 256"
        ) as caught:
            parse_completion({"prompt": ["a"] * prompts, "n": n}, vocab_size=VOCAB)
        assert caught.value.param == "prompt"


def test_a_great_many_messages_are_refused() -> None:
    with pytest.raises(RequestError) as caught:
        parse_chat({"messages": HI * 20_000}, vocab_size=VOCAB)
    assert caught.value.param == "messages"
    assert "16384" in caught.value.message


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
        "messages[1].tool_calls[0].function",
    ),
    ({"tools": [{"type": "function"}]}, "tools[0].function"),
    ({"functions": [{}]}, "functions"),
    ({"tool_choice": "required"}, "tool_choice"),
    ({"response_format": {"type": "xml"}}, "response_format.type"),
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
    ({"stop": ["a", ""]}, "stop[1]"),
    ({"stop": ["a", 2]}, "stop[1]"),
    ({"stop": "\udfff"}, "stop[0]"),
    ({"logit_bias": {"x": 1}}, "logit_bias"),
    ({"logit_bias": {"-1": 1}}, "logit_bias"),
    ({"logit_bias": {"017": -100, "17": 100}}, "logit_bias"),
    ({"logit_bias": {"1" * 5000: 1}}, "logit_bias"),
    ({"stop": ""}, "stop[0]"),
    ({"stop_token_ids": ["x"] * 4096}, "stop_token_ids[0]"),
    ({"stop_token_ids": [1] * 4097}, "stop_token_ids"),
    ({"logit_bias": {str(i): 1 for i in range(4097)}}, "logit_bias"),
    (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": ""}] * 4097}]},
        "messages[0].content",
    ),
    ({"messages": [1] * 20_000}, "messages"),
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
    assert not re.search("Input|validation|instance|dictionary|another kind", caught.value.message)


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
        ({"prompt": "a", "best_of": 1, "n": 2}, "best_of"),
        ({"prompt": "a", "best_of": 129}, "best_of"),
        ({"prompt": "a", "best_of": 3, "n": 2, "stream": True}, "best_of"),
        ({"prompt": ["a"] * 30, "best_of": 10}, "prompt"),
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
    assert "sys." not in caught.value.message


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"[" + b"[]," * 100_001 + b"1]", "100000 lists and objects"),
        (b'{"a": "[' + b'", "b": [' + b"{}," * 100_001 + b"1]}", "100000 lists and objects"),
        (b"[" + b'"",' * 500_001 + b"1]", "500000 strings"),
        (b"[" + b'"\\\\",' * 500_001 + b"1]", "500000 strings"),
        (b'{"p": [' + b"1," * 1_000_001 + b"1]}", "1000000 values"),
    ],
    ids=["lists", "objects", "strings", "backslashes", "numbers"],
)
def test_a_body_of_too_many_values_is_not_parsed(
    data: bytes, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json, "loads", lambda *_, **__: pytest.fail("was parsed"))
    with pytest.raises(RequestError, match=f"more than {what}") as caught:
        read_json(data)
    assert caught.value.code == "body_too_complex"


def test_brackets_commas_and_quotes_in_a_text_are_text() -> None:
    text = '"[{,\\' * 1_000_000
    assert read_json(json.dumps({"a": text, "b": [text[:10]]}).encode()) == {"a": text, "b": [text[:10]]}


def test_fields_are_limited_and_named_in_unicode() -> None:
    with pytest.raises(RequestError, match="201 fields; at most 200"):
        parse_chat({"messages": HI, **{f"x{i}": 1 for i in range(200)}}, vocab_size=VOCAB)
    for name in ("\ud800", "a\0"):
        with pytest.raises(RequestError, match="is no text") as caught:
            parse_chat({"messages": HI, name: 1}, vocab_size=VOCAB)
        assert caught.value.param is None
        caught.value.message.encode()


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


@pytest.mark.parametrize(
    ("body", "n", "drawn"),
    [
        ({}, 1, 1),
        ({"best_of": 3}, 1, 3),
        ({"best_of": 4, "n": 2}, 2, 4),
        ({"best_of": 2, "n": 2, "stream": True}, 2, 2),
    ],
)
def test_best_of_draws_more_samples_than_are_given(body: dict[str, Any], n: int, drawn: int) -> None:
    params = parse_completion({"prompt": "a", **body}, vocab_size=VOCAB).options.params
    assert (params.n, params.drawn) == (n, drawn)


def test_why_best_of_cannot_be_streamed_is_said() -> None:
    with pytest.raises(RequestError, match="known only when all are done") as error:
        parse_completion({"prompt": "a", "best_of": 3, "stream": True}, vocab_size=VOCAB)
    assert error.value.hint == "set best_of to n (1), or stream to false"
