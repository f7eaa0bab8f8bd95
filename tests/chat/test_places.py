"""Where in a rendered conversation a token lies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from sapwood.chat import ChatTemplate, Conversation, Message, Place, Tokenizer, place_in_conversation
from sapwood.chat.encode import encode_conversation
from sapwood.chat.places import place_in_prompt
from server.fakes import TEMPLATE, byte_tokenizer

PLAIN = "{% for m in messages %}[{{ m.role }}] {{ CONTENT }}\n{% endfor %}"


@dataclass(frozen=True)
class Case:
    """A tokenizer, a template and a conversation, and what a person would say of each token."""

    tokenizer: Tokenizer
    template: ChatTemplate
    conversation: Conversation

    @classmethod
    def of(cls, tokenizer: Tokenizer, source: str, *contents: str, **options: Any) -> Case:
        messages = tuple(Message("user" if i % 2 == 0 else "assistant", (c,)) for i, c in enumerate(contents))
        template = ChatTemplate.for_tokenizer(source, tokenizer)
        return cls(tokenizer, template, Conversation(messages, **options))

    @property
    def tokens(self) -> tuple[int, ...]:
        return encode_conversation(self.tokenizer, self.template, self.conversation)

    def place(self, at: int) -> Place:
        lengths = [len(self.tokenizer.token_bytes(token)) for token in range(self.tokenizer.vocab_size)]
        return place_in_conversation(
            self.tokenizer, lengths, self.template, self.conversation, self.tokens, at
        )

    def at(self, text: str) -> Place:
        """The place of the token in which `text` begins. A token's bytes are counted one by one."""
        start = 0
        rendered = self.tokenizer.decode(self.tokens, skip_special=False)
        wanted = len(rendered[: rendered.index(text)].encode())
        for i, token in enumerate(self.tokens):
            start += len(self.tokenizer.token_bytes(token))
            if start > wanted:
                return self.place(i)
        raise AssertionError(text)


def told(place: Place) -> tuple[int | None, str | None]:
    return place.message, place.part


def test_each_token_of_a_conversation_has_its_message_and_part() -> None:
    case = Case.of(byte_tokenizer(), TEMPLATE, "Grüße", "", "a")
    expected: list[tuple[int | None, str]] = []
    for i, content in enumerate(("Grüße".encode(), b"", b"a")):
        role = "user" if i % 2 == 0 else "assistant"
        # The control tokens are one token each; the one behind a content tells that it ended there.
        expected += [(i, "template")] * (1 + len(role) + 1)
        expected += [(i, "content")] * (len(content) + 1)
    expected += [(None, "template")] * (1 + len("assistant\n"))
    assert [told(case.place(i)) for i in range(len(case.tokens))] == expected


def test_the_text_around_is_that_of_eight_tokens_on_either_side() -> None:
    case = Case.of(byte_tokenizer(), TEMPLATE, "The year is 2026, they say.")
    place = case.at("2026")
    assert (place.before, place.after) == ("year is ", "2026, th")
    assert case.place(0).before == ""
    assert case.place(len(case.tokens) - 1).after == "\n"


def test_the_default_models_tokens_are_found(smollm: Tokenizer) -> None:
    source = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    case = Case.of(smollm, source, "Was kostet das 🌲?", "Nothing at all.", "Thanks <|im_end|> a lot")
    assert told(case.at("kostet")) == (0, "content")
    assert told(case.at("Nothing")) == (1, "content")
    assert told(case.at("lot")) == (2, "content")
    assert told(case.at("assistant")) == (1, "template")


@pytest.mark.parametrize(
    ("content", "found"),
    [
        ("m.content | trim", True),
        ("m.content | upper", True),
        ("m.content | replace('o', 'oo')", True),
        ("m.content | tojson", True),
        ("m.content.split('one')[-1]", False),
        ("m.content[:3]", False),
    ],
)
def test_a_template_that_alters_contents_is_followed_or_the_message_is_unknown(
    content: str, found: bool
) -> None:
    case = Case.of(byte_tokenizer(), PLAIN.replace("CONTENT", content), " one and more \n", "two")
    place = case.place(len(case.tokens) - 2)
    assert told(place) == ((1, "content") if found else (None, None))
    assert place.before.endswith(("tw", "TW", "two", '"two', "twoo", "oneo"))


def test_messages_may_be_written_in_any_order() -> None:
    source = "{% for m in messages | reverse %}({{ m.content }}){% endfor %}"
    case = Case.of(byte_tokenizer(), source, "first", "second")
    assert [told(case.at(text)) for text in ("second", "first")] == [(1, "content"), (0, "content")]


def test_a_message_left_open_ends_with_its_content() -> None:
    case = Case.of(
        byte_tokenizer(), TEMPLATE, "hi", "Once ", add_generation_prompt=False, continue_final_message=True
    )
    assert told(case.place(len(case.tokens) - 1)) == (1, "content")


def test_a_first_space_that_the_tokenizer_adds_moves_nothing(sentencepiece: Tokenizer) -> None:
    case = Case.of(sentencepiece, "{% for m in messages %}{{ m.content }}</s>{% endfor %}", "hello", "world")
    assert [told(case.place(i)) for i in range(len(case.tokens))] == [
        (0, "content"),
        (0, "content"),
        (1, "content"),
        (1, "content"),
    ]


def test_a_raw_prompt_is_one_part_and_long_tokens_are_cut() -> None:
    tokenizer = byte_tokenizer()
    assert place_in_prompt(tokenizer, tuple(b"some prompt"), 5) == Place(5, None, "prompt", "some ", "prompt")
    shown = place_in_prompt(tokenizer, (257,) * 40, 20)
    assert shown.before == shown.after == ("<|start|>" * 8)
