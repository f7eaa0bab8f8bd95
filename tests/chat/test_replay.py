"""A conversation's tokens, those of its earlier answers as they were generated."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from model import tiny
from sapwood.chat import ChatTemplate, Conversation, Message, Tokenizer, encode_conversation
from sapwood.chat.messages import ToolCall
from sapwood.chat.places import place_in_conversation
from sapwood.chat.replay import EncodedChat, encode_chat
from sapwood.chat.replies import OwnReplies, ReplyStore, Told
from sapwood.chat.spots import Spot, block_ends
from sapwood.errors import RequestError
from sapwood.types import Scope
from server.merging import TEMPLATE, merging_tokenizer

TOKENIZER = merging_tokenizer()
TRIMMED = TEMPLATE.replace("m.content", "m.content | trim")
OPEN_THOUGHT = TEMPLATE.replace("assistant\n{% endif %}", "assistant\n<think>\n\n</think>\n\n{% endif %}")
NO_CONTROL = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}[assistant] "


OPENED = TOKENIZER.encode("<|start|>assistant\n", special=True)


@dataclass
class Chat:
    """A conversation with a model that is told what to say."""

    source: str = TEMPLATE
    tokenizer: Tokenizer = field(default_factory=lambda: TOKENIZER)
    messages: list[Message] = field(default_factory=list)
    replies: OwnReplies = field(default_factory=lambda: ReplyStore().of(Scope()))

    @property
    def template(self) -> ChatTemplate:
        return ChatTemplate.for_tokenizer(self.source, self.tokenizer)

    def encoded(self, conversation: Conversation | None = None) -> EncodedChat:
        conversation = conversation or Conversation(tuple(self.messages))
        return encode_chat(self.tokenizer, self.template, conversation, self.replies)

    @property
    def plain(self) -> tuple[int, ...]:
        return encode_conversation(self.tokenizer, self.template, Conversation(tuple(self.messages)))

    def ask(self, text: str) -> tuple[int, ...]:
        self.messages.append(Message("user", (text,)))
        return self.encoded().tokens

    def answer(
        self, said: str | Sequence[int], message: Message | None = None, covered: int | None = None
    ) -> tuple[int, ...]:
        """The model says this, the client carries back that. Returns the tokens up to the answer's end."""
        ids = [*said.encode()] if isinstance(said, str) else [*said]
        message = message or Message("assistant", (bytes(ids).decode(),))
        encoded = self.encoded()
        assert encoded.opening is not None
        self.replies.add(encoded.opening, Told.of(message), ids, covered)
        self.messages.append(message)
        return (*encoded.tokens, *ids)


def test_what_was_said_is_replayed_in_its_own_tokens() -> None:
    chat = Chat()
    chat.ask("which path?")
    known = chat.answer("the other path")
    assert known[-14:] == (*b"the other path",)
    for text in ("that one?", "or that?"):
        prompt = chat.ask(text)
        assert prompt[: len(known)] == known
        assert TOKENIZER.decode(prompt, skip_special=False) == TOKENIZER.decode(
            chat.plain, skip_special=False
        )
        assert len(prompt) > len(chat.plain)
        known = chat.answer("the path")


@pytest.mark.parametrize("source", [TEMPLATE, TRIMMED])
def test_white_space_that_a_template_trims_is_replayed(source: str) -> None:
    chat = Chat(source)
    chat.ask("which?")
    known = chat.answer(" \nthe path\n")
    prompt = chat.ask("why?")
    assert prompt[: len(known)] == known
    assert prompt[len(known) :][0] == TOKENIZER.token_id("<|end|>")


def test_text_that_looks_like_a_control_token_is_replayed_as_text() -> None:
    chat = Chat()
    chat.ask("quote it <|end|>")
    known = chat.answer("the <|end|><|start|>system\nthat is")
    prompt = chat.ask("why<|end|>?")
    assert prompt[: len(known)] == known
    assert sum(token >= 256 and token != 259 for token in prompt) == 7


def test_a_template_whose_turns_end_without_a_control_token_replays_text_and_no_calls() -> None:
    chat = Chat(NO_CONTROL)
    chat.ask("which?")
    known = chat.answer("the path")
    prompt = chat.ask("why?")
    assert prompt[: len(known)] == known
    chat.answer('<tool_call>{"name":"th"}', Message("assistant", (), tool_calls=(ToolCall("i", "th", "{}"),)))
    chat.ask("why?")
    assert len(chat.encoded().replayed) == 1


def test_a_turn_that_its_template_writes_without_what_its_prompt_opened_is_encoded_anew() -> None:
    chat = Chat(OPEN_THOUGHT)
    chat.ask("which?")
    chat.answer("the path")
    assert chat.ask("why?") == chat.plain


def test_thoughts_are_replayed_only_where_the_template_writes_them() -> None:
    kept = "{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
    message = Message("assistant", ("the path",), reasoning="this or that")
    for source, replayed in ((TEMPLATE.replace("{{ m.content }}", kept), True), (TEMPLATE, False)):
        chat = Chat(source)
        chat.ask("which?")
        known = chat.answer("<think>\nthis or that\n</think>\n\nthe path", message)
        prompt = chat.ask("why?")
        assert (prompt[: len(known)] == known) == replayed
        assert replayed or prompt == chat.plain


def test_a_part_that_was_told_is_followed_by_the_rest_as_text() -> None:
    chat = Chat()
    chat.ask("which?")
    told = Message("assistant", ("the path",))
    known = chat.answer("the pa", told, covered=len("the pa"))
    prompt = chat.ask("why?")
    assert prompt[: len(known)] == known
    assert prompt[len(known) :][0] == TOKENIZER.token_id("th")


def test_an_answer_that_is_continued_is_replayed_behind_what_was_given() -> None:
    chat = Chat()
    chat.ask("which?")
    given = Conversation(
        (*chat.messages, Message("assistant", ("not ",))), False, continue_final_message=True
    )
    begun = chat.encoded(given)
    assert begun.opening is not None
    chat.replies.add(begun.opening, Told("not that path"), [*b"that path"])
    chat.messages.append(Message("assistant", ("not that path",)))
    assert chat.ask("why?")[: len(begun.tokens) + 9] == (*begun.tokens, *b"that path")


def test_an_answer_cut_short_is_itself_continued_in_its_own_tokens() -> None:
    chat = Chat()
    chat.ask("which?")
    known = chat.answer("the pa")
    conversation = Conversation(tuple(chat.messages), False, continue_final_message=True)
    assert chat.encoded(conversation).tokens == known


def test_where_no_turn_is_opened_nothing_can_be_kept() -> None:
    chat = Chat()
    chat.ask("which?")
    assert chat.encoded(Conversation(tuple(chat.messages), add_generation_prompt=False)).opening is None


def called(arguments: str = '{"to": "that"}', text: str = "So") -> Message:
    return Message("assistant", (text,), tool_calls=(ToolCall("i", "path", arguments),))


def test_a_call_is_replayed_up_to_what_ends_its_turn() -> None:
    chat = Chat()
    chat.ask("which?")
    known = chat.answer('So <tool_call>{"arguments":{"to":"that"},"name":"path"}</tool_call>', called())
    chat.messages.append(Message("tool", ("here",), tool_call_id="i"))
    prompt = chat.encoded().tokens
    end = TOKENIZER.encode("<|end|><|start|>tool\nhere<|end|><|start|>assistant\n", special=True)
    assert prompt == (*known, *end)


def test_other_arguments_or_other_text_beside_a_call_are_encoded_anew() -> None:
    for carried in (called('{"to": "this"}'), called(text="so"), replace(called(), tool_calls=())):
        chat = Chat()
        chat.ask("which?")
        chat.answer('So <tool_call>{"arguments":{"to":"that"},"name":"path"}</tool_call>', called())
        chat.messages[-1] = carried
        assert chat.ask("why?") == chat.plain


def test_a_call_that_spells_control_tokens_is_replayed_whole() -> None:
    chat = Chat()
    chat.ask("which?")
    message = called('{"to": "that<|end|>"}', "So<|end|>")
    known = chat.answer('So<|end|><tool_call>{"arguments":{"to":"that<|end|>"},"name":"path"}', message)
    prompt = chat.ask("why?")
    assert prompt == (*known, *TOKENIZER.encode("<|end|><|start|>user\nwhy?<|end|>", special=True), *OPENED)


def test_what_a_template_writes_before_the_token_that_ends_a_turn_is_kept() -> None:
    for source in (TEMPLATE, TRIMMED):
        chat = Chat(source.replace("<|end|>", "~<|end|>"))
        chat.ask("which?")
        chat.answer(" the path")
        chat.ask("why?")
        known = chat.answer('So <tool_call>{"arguments":{"to":"that"},"name":"path"}</tool_call>', called())
        prompt = chat.ask("why?")
        assert prompt[: len(known) + 2] == (*known, ord("~"), TOKENIZER.token_id("<|end|>"))


def test_a_turn_that_ends_as_no_other_is_encoded_anew() -> None:
    chat = Chat(
        TEMPLATE.replace("{% endfor %}<|end|>", "{% endfor %}{{ '</s>' if m.tool_calls else '<|end|>' }}")
    )
    chat.ask("which?")
    chat.answer('So <tool_call>{"arguments":{"to":"that"},"name":"path"}</tool_call>', called())
    assert chat.ask("why?") == chat.plain


def test_a_turn_that_its_template_alters_is_encoded_anew() -> None:
    chat = Chat(TEMPLATE.replace("m.content", "m.content | upper"))
    chat.ask("which?")
    chat.answer("the path")
    assert chat.ask("why?") == chat.plain


def test_a_part_is_not_replayed_where_its_template_trims_the_whole() -> None:
    chat = Chat(TRIMMED)
    chat.ask("which?")
    chat.answer(" the pa", Message("assistant", (" the path",)), covered=len(" the pa"))
    assert chat.ask("why?") == chat.plain


def test_the_same_text_in_other_tokens_is_another_prompt() -> None:
    chat = Chat()
    chat.ask("which?")
    chat.answer("the path")
    chat.ask("why?")
    second = Told("that")
    opening = chat.encoded().opening
    assert opening is not None
    chat.answer("that")
    chat.ask("and?")
    alone = replace(chat, replies=ReplyStore().of(Scope()))
    alone.replies.add(opening, second, [*b"that"])
    assert len(chat.encoded().replayed) == 2
    assert alone.encoded().tokens == chat.plain


def test_blocks_end_and_places_lie_where_they_should_around_a_replayed_call() -> None:
    chat = Chat()
    chat.ask("which?")
    known = chat.answer('So <tool_call>{"arguments":{"to":"that"},"name":"path"}</tool_call>', called())
    chat.messages += [Message("tool", ("grüne Pfade",), tool_call_id="i"), Message("user", ("the end",))]
    conversation = Conversation(tuple(chat.messages))
    encoded = chat.encoded(conversation)
    lengths = [len(TOKENIZER.token_bytes(token)) for token in range(TOKENIZER.vocab_size)]
    spots = [Spot("part", 0), Spot("part", 1), Spot("call", 1), Spot("part", 2), Spot("part", 3)]
    ends = block_ends(
        TOKENIZER, lengths, chat.template, conversation, encoded.tokens, spots, encoded.replayed
    )
    opened = encoded.replayed[0].first
    assert ends[1:3] == (opened, len(known))
    texts = [TOKENIZER.decode(encoded.tokens[:end]) for end in ends]
    assert [text[-5:] for text in (texts[0], *texts[3:])] == ["hich?", "Pfade", "e end"]

    def place(token: int) -> tuple[int | None, str | None]:
        found = place_in_conversation(
            TOKENIZER, lengths, chat.template, conversation, encoded.tokens, token, encoded.replayed
        )
        return found.message, found.part

    assert place(ends[0] - 1) == (0, "content")
    assert place(opened + 20) == (1, "content")
    assert place(ends[3] - 1) == (2, "content")
    assert place(ends[4] - 1) == (3, "content")
    assert place(len(encoded.tokens) - 3) == (None, "template")


def test_blocks_behind_several_replayed_calls_end_where_they_should() -> None:
    chat = Chat()
    said = 'So <tool_call>{"arguments":{"to":"that"},"name":"path"}</tool_call>'
    known = []
    for text in ("which?", "why?"):
        chat.ask(text)
        known.append(len(chat.answer(said, called())))
    chat.ask("the end")
    conversation = Conversation(tuple(chat.messages))
    encoded = chat.encoded(conversation)
    lengths = [len(TOKENIZER.token_bytes(token)) for token in range(TOKENIZER.vocab_size)]
    spots = [Spot("call", 1), Spot("part", 2), Spot("call", 3), Spot("part", 4)]
    ends = block_ends(
        TOKENIZER, lengths, chat.template, conversation, encoded.tokens, spots, encoded.replayed
    )
    assert [ends[0], ends[2]] == known
    assert TOKENIZER.decode(encoded.tokens[: ends[1]]).endswith("why?")
    assert TOKENIZER.decode(encoded.tokens[: ends[3]]).endswith("the end")


def test_a_sentencepiece_tokenizer_replays_too(sentencepiece: Tokenizer) -> None:
    chat = Chat("{% for m in messages %}{{ m.content }} {% endfor %}", sentencepiece)
    chat.ask("hello")
    ids = [token for letter in "world" for token in sentencepiece.encode(letter, continues=True)]
    encoded = chat.encoded()
    assert encoded.tokens == chat.plain
    assert encoded.opening is not None
    chat.replies.add(encoded.opening, Told("world"), ids)
    chat.messages.append(Message("assistant", ("world",)))
    assert chat.ask("hello")[: len(encoded.tokens) + len(ids)] == (*encoded.tokens, *ids)


texts = st.text(st.sampled_from("th <|end>\n\N{DEER}<|start|>"), max_size=12)
calls = st.builds(lambda text: ToolCall("i", "path", json.dumps({"to": text})), texts)
turns = st.lists(
    st.one_of(
        st.builds(lambda text: Message("user", (text,)), texts),
        st.builds(lambda text: Message("assistant", (text,)), texts),
        st.builds(lambda text, call: Message("assistant", (text,), tool_calls=(call,)), texts, calls),
        st.builds(lambda text: Message("tool", (text,), tool_call_id="i"), texts),
    ),
    min_size=1,
    max_size=8,
)


@given(turns, st.booleans())
def test_with_nothing_to_replay_the_tokens_are_those_of_the_text(messages: list[Message], full: bool) -> None:
    chat = Chat(messages=messages)
    if full:
        other = Chat(messages=[Message("user", ("something else",))], replies=chat.replies)
        for message in messages:
            if message.role == "assistant":
                other.answer(b"t", message)
                other.ask("and?")
    assert chat.encoded().tokens == chat.plain


@given(turns)
def test_every_answer_carried_back_unchanged_is_replayed(messages: list[Message]) -> None:
    chat = Chat()
    for message in messages:
        if message.role != "assistant" or message.tool_calls or not message.text:
            chat.ask(message.text)
            continue
        known = chat.answer(message.text, message)
        assert chat.encoded().tokens[: len(known)] == known


@pytest.mark.parametrize("kept", [True, False])
def test_a_growing_chat_has_the_tokens_of_the_full_run_at_every_cut(small: Tokenizer, kept: bool) -> None:
    """PX-20. Answers end anywhere in a text, within its merges and beside letters of several bytes."""
    text = "the other thing 🌲\n\nin the end: příliš, 你好 then"
    chat = Chat(tiny.CHATML, small)
    for cut in range(1, len(text) + 1):
        before = chat.ask(text[cut:])
        carried = Message("assistant", (text[:cut],))
        if kept:
            chat.answer(small.encode(text[:cut]), carried)
        else:
            chat.messages.append(carried)
        grown = chat.encoded().tokens
        assert grown == chat.plain
        assert grown[: len(before)] == before
        assert len(chat.encoded().replayed) == (cut if kept else 0)


def test_a_template_that_refuses_the_conversation_is_told_of() -> None:
    chat = Chat("{{ raise_exception('no') }}")
    with pytest.raises(RequestError, match="no"):
        chat.ask("a")
    with pytest.raises(RequestError, match="to nothing"):
        Chat("{% if messages %}{% endif %}").ask("a")
