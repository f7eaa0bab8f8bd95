"""How many tokens of a rendered conversation there are up to the end of each of its blocks."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from sapwood.chat import ChatTemplate, Conversation, Message, Tokenizer
from sapwood.chat.encode import encode_conversation
from sapwood.chat.messages import ToolCall
from sapwood.chat.spots import Spot, block_ends
from server.fakes import TEMPLATE, byte_tokenizer

PLAIN = "{% for m in messages %}[{{ m.role }}] {{ CONTENT }}\n{% endfor %}"
WITH_TOOLS = (
    "{% if tools %}<tools>{% for t in tools %}{{ t | tojson }};{% endfor %}</tools>{% endif %}"
    "{% for m in messages %}[{{ m.role }}] {{ m.content }}{% for c in m.tool_calls or [] %}"
    "<tool_call>{{ c.function | tojson }}</tool_call>{% endfor %}\n{% endfor %}"
)


@dataclass(frozen=True)
class Case:
    tokenizer: Tokenizer
    template: ChatTemplate
    conversation: Conversation

    @classmethod
    def of(cls, source: str, conversation: Conversation, tokenizer: Tokenizer | None = None) -> Case:
        tokenizer = tokenizer or byte_tokenizer()
        return cls(tokenizer, ChatTemplate.for_tokenizer(source, tokenizer), conversation)

    def ends(self, *spots: Spot) -> tuple[int, ...]:
        lengths = [len(self.tokenizer.token_bytes(token)) for token in range(self.tokenizer.vocab_size)]
        return block_ends(self.tokenizer, lengths, self.template, self.conversation, self.tokens, spots)

    @property
    def tokens(self) -> tuple[int, ...]:
        return encode_conversation(self.tokenizer, self.template, self.conversation)

    def before(self, *spots: Spot) -> list[str]:
        """The prompt's text up to each spot's end."""
        return [self.tokenizer.decode(self.tokens[:end], skip_special=False) for end in self.ends(*spots)]


def turns(*contents: str | Sequence[str], **options: Any) -> Conversation:
    parts = [(each,) if isinstance(each, str) else tuple(each) for each in contents]
    messages = tuple(Message("user" if i % 2 == 0 else "assistant", each) for i, each in enumerate(parts))
    return Conversation(messages, **options)


def test_each_part_ends_where_its_text_does() -> None:
    case = Case.of(TEMPLATE, turns(["Grüße", "a b"], "", ["c"]))
    spots = [Spot("part", 0, 0), Spot("part", 0, 1), Spot("part", 1, 0), Spot("part", 2, 0)]
    assert case.before(*spots) == [
        "<|start|>user\nGrüße",
        "<|start|>user\nGrüße\na b",
        "<|start|>user\nGrüße\na b<|end|><|start|>assistant\n",
        "<|start|>user\nGrüße\na b<|end|><|start|>assistant\n<|end|><|start|>user\nc",
    ]


def test_a_block_ends_at_the_same_tokens_however_the_conversation_goes_on(smollm: Tokenizer) -> None:
    source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    spot = Spot("part", 0, 0)
    short = Case.of(source, turns("Was kostet das 🌲?"), smollm)
    long = Case.of(source, turns(["Was kostet das 🌲?", "More."], "Nothing.", "Thanks"), smollm)
    (end,), (again,) = short.ends(spot), long.ends(spot)
    assert short.tokens[:end] == long.tokens[:again]
    assert short.before(spot) == ["<|im_start|>user\nWas kostet das 🌲?"]


def test_text_that_looks_like_a_control_token_does_not_move_an_end() -> None:
    case = Case.of(TEMPLATE, turns("a<|end|>", "<|start|>", "b<"))
    assert case.before(Spot("part", 0), Spot("part", 1), Spot("part", 2))[2].endswith("user\nb<")


def test_a_tool_ends_with_its_last_brace() -> None:
    function = {"name": "f", "parameters": {"type": "object", "required": ["a"], "max": 5, "none": []}}
    tools = tuple({"type": "function", "function": {**function, "name": name}} for name in ("f", "g"))
    case = Case.of(WITH_TOOLS, replace(turns("hi"), tools=tools))
    first, second = case.before(Spot("tool", 0), Spot("tool", 1))
    assert first == "<tools>" + json.dumps(tools[0])
    assert second == "<tools>" + ";".join(map(json.dumps, tools))


@pytest.mark.parametrize(
    ("arguments", "end"),
    [('{"a": "x", "b": [1, 2]}', "}"), ('{"a": {"b": 1}}', "}"), ('{"a": [{}]}', "}"), ("{}", '"f')],
)
def test_a_call_ends_with_its_arguments(arguments: str, end: str) -> None:
    call = ToolCall("i", "f", arguments)
    messages = (Message("user", ("go",)), Message("assistant", ("so",), tool_calls=(call, call)))
    case = Case.of(WITH_TOOLS, Conversation(messages))
    before = case.before(Spot("part", 1), Spot("call", 1, 0), Spot("call", 1, 1))
    assert before[0].endswith("[assistant] so")
    for text, count in zip(before[1:], (1, 2), strict=True):
        assert text.count("<tool_call>") == count
        assert text.endswith((arguments if arguments != "{}" else "") or end)


def test_blocks_are_found_where_a_template_without_tools_is_told_of_them_in_words() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    messages = (
        Message("system", ("Be brief.",)),
        Message("user", ("go",)),
        Message("assistant", (), tool_calls=(ToolCall("i", "f", '{"a": "x"}'),)),
        Message("tool", ("one",), tool_call_id="i"),
        Message("tool", ("two",), tool_call_id="i"),
    )
    case = Case.of(TEMPLATE, Conversation(messages, tools=(tool,)))
    spots = [
        Spot("tool", 0),
        Spot("part", 0),
        Spot("part", 1),
        Spot("call", 2),
        Spot("part", 3),
        Spot("part", 4),
    ]
    before = case.before(*spots)
    endings = [json.dumps(tool), json.dumps(tool), "user\ngo", '{"a": "x"}', "one", "two"]
    assert [text.endswith(end) for text, end in zip(before, endings, strict=True)] == [True] * 6


@pytest.mark.parametrize(
    "content",
    ["m.content | trim", "m.content | upper", "m.content | replace('e', 'ee')", "m.content | tojson"],
)
def test_a_template_that_alters_texts_is_followed(content: str) -> None:
    case = Case.of(PLAIN.replace("CONTENT", content), turns(" one two ", "thee", "end"))
    ends = case.ends(Spot("part", 0), Spot("part", 1), Spot("part", 2))
    text = case.tokenizer.decode(case.tokens)
    assert [text[:end].strip(' "').lower()[-2:] for end in ends] == ["wo", "ee", "nd"]


def test_where_marks_change_what_is_written_a_message_ends_with_its_turn() -> None:
    case = Case.of(PLAIN.replace("CONTENT", "m.content[:3]"), turns("abcdef", "ghi", "jkl"))
    assert case.before(Spot("part", 0), Spot("part", 1), Spot("part", 2)) == [
        "[user] abc\n",
        "[user] abc\n[assistant] ghi\n",
        "[user] abc\n[assistant] ghi\n[user] jkl\n",
    ]


def test_where_a_template_refuses_to_end_there_a_block_ends_with_the_one_before() -> None:
    refuses = "{% if messages[-1].role != 'user' %}{{ raise_exception('no') }}{% endif %}"
    case = Case.of(refuses + PLAIN.replace("CONTENT", "m.content[:3]"), turns("abcdef", "ghi", "jkl"))
    first, second, third = case.ends(Spot("part", 0), Spot("part", 1), Spot("part", 2))
    assert first == second == len("[user] abc\n")
    assert third == len(case.tokens)


def test_a_tokenizer_that_drops_bytes_has_no_ends() -> None:
    case = Case.of(TEMPLATE, turns("abc"))
    lengths = [1] * case.tokenizer.vocab_size
    spots = [Spot("part", 0)]
    ends = block_ends(case.tokenizer, lengths, case.template, case.conversation, case.tokens[1:], spots)
    assert ends == (0,)


def test_a_sentencepiece_tokenizers_first_space_is_not_counted(sentencepiece: Tokenizer) -> None:
    case = Case.of(
        "{% for m in messages %}{{ m.content }} {% endfor %}", turns("hello world", "hello"), sentencepiece
    )
    assert case.before(Spot("part", 0), Spot("part", 1)) == ["hello world", "hello world hello"]


def test_where_marks_do_not_hold_only_the_last_messages_of_many_are_found() -> None:
    case = Case.of(PLAIN.replace("CONTENT", "m.content[:3]"), turns(*["abcdef"] * 40))
    ends = case.ends(*(Spot("part", i) for i in range(40)))
    assert ends[:8] == (0,) * 8
    assert ends[-1] == len(case.tokens)
    assert len(set(ends[8:])) == 32
