from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.chat.tool_calls import FoundCall, Piece, ToolCallParser
from sapwood.chat.tools import ToolStyle

NAMES = frozenset({"f", "get_weather"})
CALL = '{"name": "f", "arguments": {"b": 1, "a": "é}]<"}}'
FOUND = FoundCall("f", '{"b": 1, "a": "é}]<"}')


def read(style: ToolStyle, *deltas: str) -> list[Piece]:
    """The pieces, neighbouring texts joined."""
    parser = ToolCallParser(style, NAMES)
    pieces: list[Piece] = []
    for piece in [piece for delta in deltas for piece in parser.feed(delta)] + parser.end():
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    return pieces


CALLED: list[tuple[ToolStyle, str, list[Piece]]] = [
    ("hermes", f"<tool_call>\n{CALL}\n</tool_call>", [FOUND]),
    ("hermes", f"<tool_call>{CALL}", [FOUND]),
    ("hermes", f"Let me see.\n\n<tool_call>{CALL}</tool_call>\n", ["Let me see.", FOUND]),
    (
        "hermes",
        f"<tool_call>{CALL}</tool_call>\n<tool_call>{CALL}</tool_call> Done.",
        [FOUND, FOUND, " Done."],
    ),
    ("hermes", f"<tool_call>{CALL}\n<tool_call>{CALL}", [FOUND, FOUND]),
    ("hermes", f"<tool_call>{CALL}</tool_c", [FOUND]),
    ("hermes", '<tool_call>{"name": "f"}</tool_call>', [FoundCall("f", "{}")]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>',
        [FoundCall("f", '{"a": 1}')],
    ),
    ("hermes", '<tool_call>{"function": {"name": "f", "arguments": {}}}</tool_call>', [FoundCall("f", "{}")]),
    ("hermes", '{"name": "f", "arguments": {"x": [1]}}', [FoundCall("f", '{"x": [1]}')]),
    ("llama3", '{"name": "f", "parameters": {"x": "\\""}}', [FoundCall("f", '{"x": "\\""}')]),
    ("llama3", f"<|python_tag|>{CALL}; {CALL}", [FOUND, FOUND]),
    ("llama3", f" {CALL};{CALL}", [FOUND, FOUND]),
    ("mistral", f"[TOOL_CALLS] [{CALL}, {CALL}]", [FOUND, FOUND]),
    ("mistral", 'One.[TOOL_CALLS]get_weather[ARGS]{"a": 1}', ["One.", FoundCall("get_weather", '{"a": 1}')]),
    ("mistral", '[TOOL_CALLS]f{"a": 1}[TOOL_CALLS]f{}', [FoundCall("f", '{"a": 1}'), FoundCall("f", "{}")]),
    ("json", f"[{CALL}]", [FOUND]),
    ("json", f"<tool_call>{CALL}</tool_call>", [FOUND]),
]

TEXTS: list[tuple[ToolStyle, str]] = [
    ("hermes", "plain text\n"),
    ("hermes", "a < b <tool"),
    ("hermes", "<tool_call>"),
    ("hermes", '<tool_call>{"name": "f", "argum'),
    ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call> x'),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": 1e999}}</tool_call>'),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>'),
    ("hermes", "<tool_call>" + '{"a":' * 5000 + "}" * 5000),
    ("hermes", '{"answer": 42} and more'),
    ("hermes", f"Call it so: {CALL}"),
    ("llama3", '<|python_tag|>brave_search.call(query="x")'),
    ("mistral", f"{CALL}"),
    ("mistral", "[TOOL_CALLS] none of them"),
    ("mistral", f"[TOOL_CALLS][{CALL}, 3]"),
    ("json", "[1, 2, 3]"),
    ("json", "{'name': 'f'}"),
]


@pytest.mark.parametrize(("style", "text", "pieces"), CALLED)
def test_calls_are_found_in_each_format(style: ToolStyle, text: str, pieces: list[Piece]) -> None:
    assert read(style, text) == pieces


@pytest.mark.parametrize(("style", "text"), TEXTS)
def test_what_is_no_call_stays_text_to_the_letter(style: ToolStyle, text: str) -> None:
    assert read(style, text) == [text]


def test_a_valid_call_behind_a_malformed_one_is_found() -> None:
    bad = '<tool_call>{"name": <tool_call>'
    assert read("hermes", bad + CALL) == ['<tool_call>{"name":', FOUND]


PARTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", CALL, "f", "{", "}"),
        *("[", "]", " ", "\n", ";", ",", '"', "\\", "é", "name", "<", '{"name": "f"}', '{"a": 1}', "{}"),
    ]
)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(
    style=st.sampled_from(["hermes", "llama3", "mistral", "json"]),
    parts=st.lists(PARTS, max_size=10),
    cuts=st.lists(st.integers(0, 300), max_size=12),
)
def test_where_the_text_is_cut_makes_no_difference(
    style: ToolStyle, parts: list[str], cuts: list[int]
) -> None:
    text = "".join(parts)
    places = sorted({0, len(text), *(cut for cut in cuts if cut < len(text))})
    deltas = [text[a:b] for a, b in pairwise(places)]
    whole = read(style, text)
    assert read(style, *deltas) == whole
    assert read(style, *text) == whole
    assert all(
        isinstance(json.loads(piece.arguments), dict) for piece in whole if isinstance(piece, FoundCall)
    )


def test_text_is_shown_as_soon_as_it_cannot_begin_a_call() -> None:
    parser = ToolCallParser("hermes", NAMES)
    assert parser.feed("Hello") == ["Hello"]
    assert parser.feed(" <too") == []
    assert parser.feed("th>") == [" <tooth>"]


def test_a_call_is_given_when_it_is_closed() -> None:
    parser = ToolCallParser("hermes", NAMES)
    assert parser.feed(f"<tool_call>{CALL}") == []
    assert parser.feed("</tool_call>") == [FOUND]
    assert parser.end() == []


def test_a_long_run_of_white_space_is_read_in_little_time() -> None:
    """Each step looks at what is held once: were it squared, this would take minutes."""
    assert read("mistral", "[TOOL_CALLS]", *["\n" * 50] * 100) == ["[TOOL_CALLS]" + "\n" * 5000]
    assert read("hermes", *["\n" * 50] * 100) == ["\n" * 5000]
