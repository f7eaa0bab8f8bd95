"""From conversations to tokens: above all, messages that are left open."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from model import tiny
from sapwood.chat import ChatTemplate, Conversation, Message, Tokenizer, encode_conversation, encode_prompt
from sapwood.errors import RequestError

USER = Message("user", ("Go",))
HEAD = "<|im_start|>user\nGo<|im_end|>\n<|im_start|>assistant\n"
TRIMMING = tiny.CHATML.replace("message['content']", "(message['content'] | trim)")
DROPPING = (
    "{% for message in messages %}{% if message['content'] %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endif %}{% endfor %}"
)
NO_EMPTY_TURNS = DROPPING.replace("{% if message['content'] %}", "{% if message['content'] | trim %}")


def left_open(tokenizer: Tokenizer, prefill: str, source: str = tiny.CHATML, **options: Any) -> list[int]:
    template = ChatTemplate.for_tokenizer(source, tokenizer)
    conversation = Conversation(
        (USER, Message("assistant", (prefill,))),
        add_generation_prompt=False,
        continue_final_message=True,
        **options,
    )
    return list(encode_conversation(tokenizer, template, conversation))


PREFILLS = [
    "end",
    "i",
    "<",
    "|",
    "im_end",
    "\n",
    ">\n",
    "assistant",
    "Go",
    "It goes on",
    "It is ",
    "  x",
    "é",
    "",
]


@pytest.mark.parametrize("prefill", PREFILLS)
def test_the_prompt_ends_with_the_prefill_and_nothing_else(small: Tokenizer, prefill: str) -> None:
    expected = encode_prompt(small, HEAD + prefill, start=False)
    assert left_open(small, prefill) == list(expected)


@settings(max_examples=200)
@given(prefill=st.lists(st.sampled_from([*"<|>imend_ \n", "\U00100000", *tiny.SPECIALS])).map("".join))
def test_any_prefill_comes_last_and_stays_text(small: Tokenizer, prefill: str) -> None:
    ids = left_open(small, prefill)
    assert small.decode(ids, skip_special=False) == HEAD + prefill
    assert [i for i in ids if i in small.special_ids] == [1, 2, 1]


@pytest.mark.parametrize(
    ("prefill", "kept"),
    [
        ("It is ", "It is"),
        ("  x \n\n", "x"),
        ("end\n", "end"),
        (" ", ""),
        ("\n", ""),
        ("", ""),
        ("a b", "a b"),
    ],
)
def test_what_the_template_trims_is_trimmed(small: Tokenizer, prefill: str, kept: str) -> None:
    assert small.decode(left_open(small, prefill, TRIMMING), skip_special=False) == HEAD + kept


@pytest.mark.parametrize("source", [DROPPING, NO_EMPTY_TURNS])
def test_an_empty_prefill_opens_the_turn_even_where_empty_turns_are_left_out(
    small: Tokenizer, source: str
) -> None:
    assert small.decode(left_open(small, "", source), skip_special=False) == HEAD


def test_a_last_message_that_the_template_does_not_write_cannot_be_continued(small: Tokenizer) -> None:
    with pytest.raises(RequestError, match="cannot be continued") as caught:
        left_open(small, "x", "{{ messages[0].content }}")
    assert caught.value.param == "continue_final_message"


def test_the_mark_is_in_no_variable_either(small: Tokenizer) -> None:
    source = "{{ messages[-1].content }}{{ tail }}"
    ids = left_open(small, "x", source, template_kwargs={"tail": "\U00100000y"})
    assert small.decode(ids, skip_special=False) == "x"


def test_a_call_s_own_variables_reach_the_template(small: Tokenizer) -> None:
    template = ChatTemplate.for_tokenizer("{{ messages[0].content }}{% if fast %}!{% endif %}", small)
    texts = [
        small.decode(encode_conversation(small, template, Conversation((USER,), template_kwargs=kwargs)))
        for kwargs in ({}, {"fast": False}, {"fast": True})
    ]
    assert texts == ["Go", "Go", "Go!"]
    assert template.unread(["fast", "slow", "messages"]) == ["slow"]


def test_the_size_counts_everything_that_a_template_may_write() -> None:
    message = Message("tool", ("é", "b"), name="nn", tool_call_id="iii")
    bare = Conversation((message,))
    assert bare.size == len("é\nb".encode()) + len("tool") + len("nn") + len("iii")
    kwargs = {"k": ["é" * 100]}
    assert Conversation((message, message), template_kwargs=kwargs).size == 2 * bare.size + len(
        json.dumps(kwargs, ensure_ascii=False).encode()
    )
