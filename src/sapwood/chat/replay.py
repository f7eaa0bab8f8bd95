"""Encodes a conversation with the tokens of those of its turns that were generated here.

An answer is replayed where the rendered prompt up to it is, token by token, the prompt that it answered, and the
client carries back what it was told. A template may write the turn differently from how the model did (calls,
thoughts, white space at its ends); then the model's own tokens stand in for what the template writes, up to the
control token that ends the turn. The prompt is rendered once; time is linear in its length.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import accumulate

import numpy as np

from sapwood.chat.encode import render_conversation
from sapwood.chat.lookalikes import Segment, unused_characters
from sapwood.chat.messages import Conversation, Message
from sapwood.chat.replies import Opening, OwnReplies, Reply, Told
from sapwood.chat.template import ChatTemplate
from sapwood.chat.thinking import TAGS
from sapwood.chat.tokenizer import Tokenizer
from sapwood.chat.tools import MARKERS
from sapwood.errors import RequestError

_INSIDE = (*MARKERS, *TAGS)
"""Control tokens, in some vocabularies, that a turn may hold."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """Tokens `first` .. `stop`-1 of a prompt, which stand for the characters `start` .. `end`-1 of its text."""

    start: int
    end: int
    first: int
    stop: int


@dataclass(frozen=True, slots=True)
class EncodedChat:
    """A conversation's tokens. `opening` is where its answer begins; None where that is no turn of its own."""

    tokens: tuple[int, ...]
    replayed: tuple[Replayed, ...]
    opening: Opening | None


def encode_chat(
    tokenizer: Tokenizer, template: ChatTemplate, conversation: Conversation, replies: OwnReplies
) -> EncodedChat:
    """As `encode_conversation`, with replies. Raises RequestError where the template refuses the conversation."""
    prompt = _Prompt(tokenizer, render_conversation(template, conversation))
    found = _found(conversation, replies, prompt.text) if replies.any() else {}
    closing = cache(lambda: _closing(template, conversation, prompt.specials))
    for turn, each in found.items():
        _replay(prompt, closing, conversation.messages[turn], each)
    prompt.encode_until(len(prompt.text))
    if not prompt.ids:
        raise RequestError("the chat template renders these messages to nothing", param="messages")
    opening = _opening(conversation, prompt)
    return EncodedChat(tuple(prompt.ids), tuple(prompt.replayed), opening)


def _found(conversation: Conversation, replies: OwnReplies, text: str) -> Mapping[int, Sequence[Reply]]:
    """By turn, the replies to prompts whose text this one begins with."""
    found = {
        turn: replies.find(turn, Told.of(message))
        for turn, message in enumerate(conversation.messages)
        if message.role == "assistant"
    }
    starts = {reply.opening.start for each in found.values() for reply in each}
    digests = _prefix_digests(text, starts)
    matching = {
        turn: [reply for reply in each if digests.get(reply.opening.start) == reply.opening.text]
        for turn, each in found.items()
    }
    return {turn: each for turn, each in matching.items() if each}


def _replay(
    prompt: _Prompt, closing: Callable[[], _Closing | None], message: Message, replies: Sequence[Reply]
) -> None:
    """Take the one that answered these very tokens, if there is one."""
    for reply in replies:
        if (
            prompt.at <= reply.opening.start
            and prompt.ids_digest_at(reply.opening.start) == reply.opening.ids
        ):
            end = _end(prompt, closing, message, reply)
            if end is not None:
                prompt.replay(reply, end)
                return


def _end(
    prompt: _Prompt, closing: Callable[[], _Closing | None], message: Message, reply: Reply
) -> int | None:
    """Up to which character of the prompt the reply stands for it; None where that is not sure."""
    start = reply.opening.start
    told = Told.of(message)
    said = told.text[reply.opening.before :]
    plain = not told.calls and not told.reasoning
    if plain and prompt.text.startswith(said, start):
        return start + (len(said) if reply.covered is None else reply.covered)
    if reply.covered is not None:
        return None
    end = prompt.turn_end(start, closing())
    if end is None:
        return None
    body = prompt.text[start:end]
    if plain:
        return end if body.strip() == said.strip() else None
    kept = [told.reasoning.strip(), said.strip(), *(call.name for call in told.calls)]
    return end if all(each in body for each in kept) else None


def _opening(conversation: Conversation, prompt: _Prompt) -> Opening | None:
    turn, before = len(conversation.messages), 0
    if conversation.continue_final_message:
        last = conversation.messages[-1]
        if last.tool_calls or last.reasoning:
            return None
        turn, before = turn - 1, len(last.text)
    elif not conversation.add_generation_prompt:
        return None
    length = len(prompt.text)
    text = _prefix_digests(prompt.text, [length])[length]
    return Opening(turn, length, text, prompt.ids_digest_at(length), before)


class _Prompt:
    """A rendered prompt while it is being encoded; `at` characters of it are."""

    def __init__(self, tokenizer: Tokenizer, segments: Sequence[Segment]) -> None:
        self._tokenizer, self._segments = tokenizer, segments
        self.text = "".join(segment.text for segment in segments)
        self._offsets = [0, *accumulate(len(segment.text) for segment in segments)]
        self.specials = _any_of(special.text for special in tokenizer.special_tokens)
        self.ids: list[int] = []
        self.replayed: list[Replayed] = []
        self.at = 0
        self._ahead: dict[int, list[int]] = {}
        self._hasher = hashlib.blake2b(digest_size=16)

    def ids_digest_at(self, place: int) -> bytes:
        """The digest of the tokens before character `place`, which may be further than `at`."""
        hasher = self._hasher.copy()
        hasher.update(_bytes(self._encoded(place)))
        return hasher.digest()

    def encode_until(self, place: int) -> None:
        self._add(self._encoded(place), place)

    def replay(self, reply: Reply, end: int) -> None:
        self.encode_until(reply.opening.start)
        first = len(self.ids)
        self._add(reply.ids, end)
        self.replayed.append(Replayed(reply.opening.start, end, first, len(self.ids)))

    def turn_end(self, start: int, closing: _Closing | None) -> int | None:
        """Where the turn whose body starts at `start` is closed; None where something else comes first."""
        if closing is None or self.specials is None:
            return None
        for n in range(bisect_right(self._offsets, start) - 1, len(self._segments)):
            offset, segment = self._offsets[n], self._segments[n]
            if not segment.trusted:
                continue
            for found in self.specials.finditer(segment.text, max(0, start - offset)):
                if found[0] in _INSIDE:
                    continue
                end = offset + found.start()
                if found[0] != closing.token:
                    return None
                return end - len(closing.before) if self.text.endswith(closing.before, start, end) else end
        return None

    def _encoded(self, place: int) -> list[int]:
        """The tokens of the characters from `at` to `place`."""
        if place in self._ahead:
            return self._ahead[place]
        ids: list[int] = []
        for n in range(bisect_right(self._offsets, self.at) - 1, len(self._segments)):
            offset, segment = self._offsets[n], self._segments[n]
            if offset >= place:
                break
            text = segment.text[max(0, self.at - offset) : place - offset]
            if text:
                continues = max(self.at, offset) > 0
                ids += self._tokenizer.encode(text, special=segment.trusted, continues=continues)
        self._ahead[place] = ids
        return ids

    def _add(self, ids: Sequence[int], at: int) -> None:
        self.ids += ids
        self.at = at
        self._ahead.clear()
        self._hasher.update(_bytes(ids))


@dataclass(frozen=True, slots=True)
class _Closing:
    """What a template writes after an assistant's words: a control token, and maybe text before it."""

    before: str
    token: str


def _closing(
    template: ChatTemplate, conversation: Conversation, specials: re.Pattern[str] | None
) -> _Closing | None:
    """Found by rendering a small conversation; None where no control token closes a turn."""
    (mark,) = unused_characters([conversation.template_kwargs], 1)
    small = replace(
        conversation,
        messages=(Message("user", ("a",)), Message("assistant", (mark,))),
        tools=(),
        add_generation_prompt=False,
        continue_final_message=False,
    )
    try:
        text = "".join(segment.text for segment in render_conversation(template, small))
    except RequestError:
        return None
    _, marked, tail = text.rpartition(mark)
    found = specials.search(tail) if marked and specials is not None else None
    return None if found is None else _Closing(tail[: found.start()], found[0])


def _any_of(texts: Iterable[str]) -> re.Pattern[str] | None:
    longest_first = sorted(texts, key=lambda text: -len(text))
    return re.compile("|".join(map(re.escape, longest_first))) if longest_first else None


def _prefix_digests(text: str, lengths: Iterable[int]) -> Mapping[int, bytes]:
    """The digest of the text's first characters, for each length that it has."""
    hasher, at, digests = hashlib.blake2b(digest_size=16), 0, {}
    for length in sorted(lengths):
        if length > len(text):
            break
        hasher.update(text[at:length].encode("utf-8", "surrogatepass"))
        at = length
        digests[length] = hasher.digest()
    return digests


def _bytes(ids: Sequence[int]) -> bytes:
    return np.asarray(ids, np.int32).tobytes()
