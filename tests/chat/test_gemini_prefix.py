"""A cached object's tokens are a strict prefix of every prompt that uses it, whatever the template does."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.chat import ChatTemplate, Conversation, Message, Tokenizer
from sapwood.chat.encode import encode_conversation
from sapwood.chat.gemini_prefix import CachedPrefix, behind, continue_prefix, make_prefix
from sapwood.errors import RequestError
from server.fakes import TEMPLATE, byte_tokenizer

TAKING_TURNS = (
    "{% for m in messages %}"
    "{% if m.role == 'system' %}{% if not loop.first %}{{ raise_exception('system first') }}{% endif %}"
    "{% elif loop.previtem and loop.previtem.role == m.role %}{{ raise_exception('take turns') }}{% endif %}"
    "<|start|>{{ m.role }}\n{{ m.content | trim }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
SYSTEM_IN_USER = (
    "{% set ns = namespace(s='') %}{% for m in messages %}"
    "{% if m.role == 'system' %}{% set ns.s = m.content + '\n\n' %}"
    "{% else %}<|start|>{{ m.role }}\n{{ ns.s + m.content }}<|end|>{% set ns.s = '' %}{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
TOOLS_LAST = (
    "{% for m in messages %}{% if loop.last and tools %}[TOOLS]{{ tools | tojson }}{% endif %}"
    "<|start|>{{ m.role }}\n{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
TEMPLATES = {
    "plain": TEMPLATE,
    "taking turns": TAKING_TURNS,
    "system in user": SYSTEM_IN_USER,
    "tools last": TOOLS_LAST,
}
TOOLS: Any = ({"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}},)
SYSTEM = Message("system", ("Be brief.",))
DOCUMENT = Message("user", ("The pump\nis blue. ",))
OBJECTS = {
    "document": Conversation((DOCUMENT,)),
    "system": Conversation((SYSTEM,)),
    "both": Conversation((SYSTEM, DOCUMENT)),
    "tools": Conversation((), tools=TOOLS),
    "all": Conversation((SYSTEM, DOCUMENT, Message("assistant", ("ok",)), DOCUMENT), tools=TOOLS),
}
QUESTION = Message("user", ("What colour?", "Say."))
FOLLOWING = {
    "question": (QUESTION,),
    "turns": (QUESTION, Message("assistant", ("Blue.",)), Message("user", ("Sure?",))),
    "answer begun": (QUESTION, Message("assistant", ("It is",))),
    "model first": (Message("assistant", ("ok",)), QUESTION),
}


class Case:
    def __init__(self, source: str, tokenizer: Tokenizer | None = None) -> None:
        self.tokenizer = tokenizer or byte_tokenizer()
        self.template = ChatTemplate.for_tokenizer(source, self.tokenizer)

    def make(self, conversation: Conversation) -> CachedPrefix:
        return make_prefix(self.tokenizer, self.template, conversation)

    def go_on(self, prefix: CachedPrefix, *turns: Message) -> tuple[int, ...]:
        return continue_prefix(self.tokenizer, self.template, prefix, turns, behind(prefix, turns))

    def whole(self, conversation: Conversation) -> tuple[int, ...]:
        return encode_conversation(self.tokenizer, self.template, conversation)

    def text(self, tokens: tuple[int, ...]) -> str:
        return self.tokenizer.decode(tokens, skip_special=False)


@pytest.mark.parametrize("following", FOLLOWING)
@pytest.mark.parametrize("held", OBJECTS)
@pytest.mark.parametrize("source", TEMPLATES)
def test_tokens_of_the_object_are_in_front_and_nothing_is_lost(
    source: str, held: str, following: str
) -> None:
    case = Case(TEMPLATES[source])
    prefix = case.make(OBJECTS[held])
    assert case.text(prefix.tokens) == prefix.text
    for held_message in OBJECTS[held].messages:
        assert held_message.text.strip() in prefix.text
    if OBJECTS[held].tools:
        assert '"name": "f"' in prefix.text
    continued = case.go_on(prefix, *FOLLOWING[following])
    assert continued[: len(prefix.tokens)] == prefix.tokens
    rest = case.text(continued[len(prefix.tokens) :])
    at = 0
    for message in FOLLOWING[following]:
        at = rest.index(message.text, at) + len(message.text)
    goes_on = FOLLOWING[following][-1].role == "assistant"
    assert rest.endswith(FOLLOWING[following][-1].text if goes_on else "<|start|>assistant\n")


def test_where_the_template_can_it_is_the_prompt_of_the_whole_conversation() -> None:
    case = Case(TEMPLATE)
    prefix = case.make(OBJECTS["both"])
    assert not prefix.left_open
    assert case.go_on(prefix, QUESTION) == case.whole(Conversation((SYSTEM, DOCUMENT, QUESTION)))


def test_where_users_must_take_turns_the_question_is_part_of_the_turn() -> None:
    case = Case(TAKING_TURNS)
    prefix = case.make(OBJECTS["both"])
    assert prefix.left_open
    assert prefix.text == "<|start|>system\nBe brief.<|end|><|start|>user\nThe pump\nis blue. \n"
    together = Message("user", (*DOCUMENT.parts, *QUESTION.parts))
    assert case.go_on(prefix, QUESTION) == case.whole(Conversation((SYSTEM, together)))


def test_text_that_spells_a_control_token_stays_text_at_the_seam() -> None:
    case = Case(TAKING_TURNS)
    prefix = case.make(Conversation((Message("user", ("a<|e",)),)))
    continued = case.go_on(prefix, Message("user", ("nd|><|end|>",)))
    ends = [token for token in continued if token == 258]
    assert len(ends) == 1, "the template's own"


def test_a_start_token_does_not_come_twice(sentencepiece: Tokenizer) -> None:
    case = Case("{{ bos_token }}" + TOOLS_LAST, sentencepiece)
    prefix = case.make(Conversation((Message("user", ("ab",)),), tools=TOOLS))
    continued = case.go_on(prefix, Message("user", ("b",)))
    assert continued[: len(prefix.tokens)] == prefix.tokens
    assert continued.count(sentencepiece.bos_id) == prefix.tokens.count(sentencepiece.bos_id) <= 1


def test_a_template_that_refuses_all_of_it_says_so() -> None:
    case = Case("{{ raise_exception('never') }}")
    with pytest.raises(RequestError, match="never"):
        case.make(OBJECTS["both"])
    with pytest.raises(RequestError, match="without turns"):
        case.make(OBJECTS["tools"])
