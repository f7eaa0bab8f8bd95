from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.chat import ChatTemplate, Conversation, Message, Tokenizer, encode_conversation
from sapwood.chat.thinking import (
    Thought,
    ThoughtReader,
    closed,
    left_open,
    with_thinking,
    without_thinking,
)

QWEN = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.reasoning_content %}"
    "<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
"""As Qwen3's: thinks unless it is told not to."""
R1 = (
    "{% for m in messages %}{{ m.role }}: {{ m.content.split('</think>')[-1] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: <think>\n{% endif %}"
)
"""As DeepSeek-R1's: always thinks, and opens the tag itself."""
PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
ASK = Conversation((Message("user", ("a <think>",)),))


def read(*deltas: str, opened: bool = False) -> tuple[str, str]:
    """The thought and the text, which must come in this order."""
    reader = ThoughtReader(opened=opened)
    pieces = [piece for delta in deltas for piece in reader.feed(delta)] + reader.end()
    kinds = [isinstance(piece, Thought) for piece in pieces]
    assert kinds == sorted(kinds, reverse=True)
    assert all(piece.text if isinstance(piece, Thought) else piece for piece in pieces)
    thought = "".join(piece.text for piece in pieces if isinstance(piece, Thought))
    return thought, "".join(piece for piece in pieces if isinstance(piece, str))


@pytest.mark.parametrize(
    ("text", "thought", "rest"),
    [
        ("<think>\nLet me\n\nsee.\n</think>\n\nYes.\n", "Let me\n\nsee.", "Yes.\n"),
        ("\n<think>a</think>b</think>", "a", "b</think>"),
        ("<think>\n\n</think>\n\nYes.", "", "Yes."),
        ("<think>never closed </thi", "never closed </thi", ""),
        ("<think>", "", ""),
        ("  plain <think>a</think>", "", "  plain <think>a</think>"),
        ("<thin", "", "<thin"),
        (" \n", "", " \n"),
        ("a</think>b", "", "a</think>b"),
    ],
)
def test_a_thought_stands_at_the_start_between_its_tags(text: str, thought: str, rest: str) -> None:
    assert read(text) == (thought, rest)


@pytest.mark.parametrize(
    ("text", "thought", "rest"),
    [
        ("\nHm.\n</think>\n\nYes.", "Hm.", "Yes."),
        ("<think>\nHm.</think>Yes.", "Hm.", "Yes."),
        ("</think>Yes.", "", "Yes."),
        ("cut short ", "cut short", ""),
        ("<thi", "<thi", ""),
    ],
)
def test_a_prompt_may_open_the_thought(text: str, thought: str, rest: str) -> None:
    assert read(text, opened=True) == (thought, rest)


PARTS = st.sampled_from(["<think>", "</think>", "<thi", "nk>", "</", "think>", "<", " ", "\n", "a", "é"])


@settings(max_examples=400, derandomize=True)
@given(
    parts=st.lists(PARTS, max_size=10), cuts=st.lists(st.integers(0, 60), max_size=8), opened=st.booleans()
)
def test_where_the_text_is_cut_makes_no_difference(parts: list[str], cuts: list[int], opened: bool) -> None:
    text = "".join(parts)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    whole = read(text, opened=opened)
    assert read(*(text[a:b] for a, b in pairwise(places)), opened=opened) == whole
    assert read(*text, opened=opened) == whole


def test_thoughts_and_text_are_told_as_soon_as_they_can_be() -> None:
    reader = ThoughtReader(opened=False)
    assert reader.feed("<think>\n") == []
    assert reader.feed("one ") == [Thought("one")]
    assert reader.feed("two</") == [Thought(" two")]
    assert reader.feed("a></think") == [Thought("</a>")]
    assert reader.feed(">\n") == []
    assert reader.feed(" b ") == ["b "]
    assert reader.feed(" c") == [" c"]


def test_templates_tell_whether_their_model_thinks_and_by_which_switch() -> None:
    found = {source: ChatTemplate(source) for source in (QWEN, R1, PLAIN)}
    assert [template.thinks for template in found.values()] == [True, True, False]
    assert [template.thinking_switch for template in found.values()] == ["enable_thinking", None, None]


def test_the_switch_is_set_where_there_is_one_and_the_call_does_not_set_it() -> None:
    qwen = ChatTemplate(QWEN)
    assert with_thinking(qwen, ASK, wanted=False).template_kwargs == {"enable_thinking": False}
    own = Conversation(ASK.messages, template_kwargs={"enable_thinking": True})
    assert with_thinking(qwen, own, wanted=False) is own
    assert without_thinking(qwen, own).template_kwargs == {"enable_thinking": False}
    for source in (R1, PLAIN):
        assert with_thinking(ChatTemplate(source), ASK, wanted=True) is ASK
        assert without_thinking(ChatTemplate(source), own) is own


def test_a_thought_that_the_prompt_opened_can_be_closed(small: Tokenizer) -> None:
    r1 = ChatTemplate.for_tokenizer(R1, small)
    prompt = encode_conversation(small, r1, ASK)
    assert left_open(small, ASK, prompt)
    shut = closed(small, ASK, prompt)
    assert small.decode(shut).endswith("assistant: <think>\n\n</think>\n\n")
    assert closed(small, ASK, shut) == shut


def test_only_the_prompts_own_end_opens_a_thought(small: Tokenizer) -> None:
    qwen = ChatTemplate.for_tokenizer(QWEN, small)
    assert not left_open(small, ASK, encode_conversation(small, qwen, ASK))
    begun = Conversation(
        (*ASK.messages, Message("assistant", ("<think>\nWell",))),
        add_generation_prompt=False,
        continue_final_message=True,
    )
    assert left_open(small, begun, encode_conversation(small, qwen, begun))
