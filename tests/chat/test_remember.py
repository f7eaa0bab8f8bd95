"""Which of an answer's tokens are kept, and as what they were told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from sapwood.chat.openai_render import Json
from sapwood.chat.remember import Keeping, Remembering
from sapwood.chat.replies import Opening, OwnReplies, Reply, ReplyStore, Told
from sapwood.types import Delta, Event, FinishReason, Scope, Usage
from server.fakes import END, EOS
from server.merging import merging_tokenizer

TOKENIZER = merging_tokenizer()
UNREADABLE = "\N{REPLACEMENT CHARACTER}"
OPENING = Opening(1, 10, b"text", b"ids")


class Echoing:
    """A render that gives every event back."""

    def feed(self, prompt: int, event: Event) -> list[Json]:
        return [{"prompt": prompt, "event": event}]

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        return [{"usages": usages}]


def keeping(replies: OwnReplies, *, stops: bool = False, continued: str = "") -> Keeping:
    return Keeping(replies, OPENING, TOKENIZER, (), stops, None, {}, continued)


def kept(
    ids: Sequence[int],
    text: str,
    told: str,
    finish: FinishReason,
    *,
    stops: bool = False,
    continued: str = "",
) -> tuple[Reply, ...]:
    """What is kept of an answer of these tokens, and told as that text in two pieces."""
    replies = ReplyStore().of(Scope())
    render = Remembering(Echoing(), keeping(replies, stops=stops, continued=continued))
    render.feed(0, Delta("a", 0, text[:2], tuple(ids[:2])))
    render.feed(0, Delta("a", 0, text[2:], tuple(ids[2:]), finish=finish))
    return replies.find(1, Told(told))


def test_the_token_that_ended_an_answer_is_no_part_of_it() -> None:
    (stopped,) = kept((*b"that", EOS), "that", "that", "stop")
    (cut,) = kept((*b"that",), "that", "that", "length")
    (at_a_word,) = kept((*b"that.",), "that", "that", "stop")
    assert stopped.ids == cut.ids == at_a_word.ids == [*b"that"]
    assert stopped.covered is cut.covered is at_a_word.covered is None


@pytest.mark.parametrize("finish", ["abort", "error"])
def test_an_answer_that_was_broken_off_is_not_kept(finish: FinishReason) -> None:
    assert kept((*b"that",), "that", "that", finish) == ()


def test_of_an_answer_cut_by_a_stop_string_the_tokens_before_it_are_kept() -> None:
    (reply,) = kept((*b"that is",), "that", "that", "stop", stops=True)
    assert (reply.ids, reply.covered) == ([*b"that"], None)


def test_a_token_of_which_a_part_was_told_is_not_kept() -> None:
    (reply,) = kept((*b"pat", 259, *b"h."), "path", "path", "stop", stops=True)
    assert (reply.ids, reply.covered) == ([*b"pa", ord("t")], 3)


def test_half_a_character_is_not_kept_without_the_other() -> None:
    (reply,) = kept((*"aé".encode(), *b"x"), "aé", "aé", "stop", stops=True)
    assert (reply.ids, reply.covered) == ([*"aé".encode()], None)
    text = "a" + UNREADABLE
    (reply,) = kept((*"aé".encode()[:2], *b"xy"), text, text, "stop", stops=True)
    assert (reply.ids, reply.covered) == ([*b"a"], 1)


def test_bytes_that_are_no_text_are_kept_where_nothing_was_cut() -> None:
    ids, text = (*b"a", 0xFF, 0xC3), "a" + 2 * UNREADABLE
    (reply,) = kept(ids, text, text, "length")
    assert (reply.ids, reply.covered) == ([*ids], None)


def test_a_control_token_within_an_answer_was_not_told_and_ends_what_is_kept() -> None:
    (reply,) = kept((*b"the", END, *b"path", EOS), "thepath", "thepath", "stop")
    assert (reply.ids, reply.covered) == ([*b"the"], 3)


@pytest.mark.parametrize("ids", [(EOS,), (END, *b"the", EOS)])
def test_an_answer_of_nothing_is_not_kept(ids: tuple[int, ...]) -> None:
    text = "" if len(ids) == 1 else "the"
    assert kept(ids, text, text, "stop") == ()


def test_a_continued_answer_is_told_with_what_it_continues() -> None:
    (reply,) = kept((*b"that", EOS), "that", "not that", "stop", continued="not ")
    assert reply.ids == [*b"that"]


def test_samples_are_kept_one_by_one_and_the_render_is_not_touched() -> None:
    replies = ReplyStore().of(Scope())
    render = Remembering(Echoing(), keeping(replies))
    for sample, text in enumerate(("that", "this")):
        event = Delta("a", sample, text, (*text.encode(), EOS), finish="stop")
        assert render.feed(0, event) == [{"prompt": 0, "event": event}]
    assert [replies.find(1, Told(text))[0].ids for text in ("that", "this")] == [[*b"that"], [*b"this"]]
    assert render.end([]) == [{"usages": []}]
