from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic_core import from_json

from chat.calls import read_calls
from sapwood.chat.found_calls import FoundCall
from sapwood.chat.tool_calls import ArgumentsText, CallHead, CallTail, ToolCallParser
from sapwood.chat.tools import ToolStyle

NAMES = frozenset({"f", "get_weather"})
CALL = '{"name": "f", "arguments": {"b": 1, "a": "é}]<"}}'
FOUND = FoundCall("f", '{"b": 1, "a": "é}]<"}')


def read(style: ToolStyle, *deltas: str) -> list[str | FoundCall]:
    return read_calls(style, NAMES, *deltas)


CALLED: list[tuple[ToolStyle, str, list[str | FoundCall]]] = [
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
    ("json", f'[{CALL}, {{"arguments": {{}}, "name": "f"}}, {CALL}]', [FOUND, FoundCall("f", "{}"), FOUND]),
    (
        "hermes",
        f'<tool_call>{{"type": "function", {CALL[1:-1]}, "id": {{"a": "}}"}}}}</tool_call>.',
        [FOUND, "."],
    ),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"a": "1\n2\x01", "b" : \n[-1.5e3, true, "\\ud83d\\ude00"]}}',
        [FoundCall("f", '{"a": "1\\n2\\u0001", "b" : \n[-1.5e3, true, "\\ud83d\\ude00"]}')],
    ),
]

BROKEN: list[tuple[ToolStyle, str, list[str | FoundCall]]] = [
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": 1e999}}</tool_call>', [FoundCall("f", '{"x": ')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": NaN}} Hm.', [FoundCall("f", '{"x": '), " Hm."]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"x": "\\d""}}</tool_call>',
        [FoundCall("f", '{"x": "')],
    ),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": [1}}}</tool_call>', [FoundCall("f", '{"x": [1')]),
    (
        "hermes",
        '<tool_call>{"name": "f", "arguments": {"x": 1}</tool_call> b',
        [FoundCall("f", '{"x": 1}'), " b"],
    ),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": 12', [FoundCall("f", '{"x": ')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": "ab\\u00', [FoundCall("f", '{"x": "ab')]),
    ("hermes", '<tool_call>{"name": "f", "arguments": {"x": "\\ud800"}}', [FoundCall("f", '{"x": "')]),
    ("mistral", f"[TOOL_CALLS][{CALL}, 3]", [FOUND, ", 3]"]),
    ("mistral", f'[TOOL_CALLS][{CALL}, {{"name": "g"}}]', [FOUND, ', {"name": "g"}]']),
    ("mistral", '[TOOL_CALLS]f{"x": tru}[TOOL_CALLS]f{}', [FoundCall("f", '{"x": '), FoundCall("f", "{}")]),
]

TEXTS: list[tuple[ToolStyle, str]] = [
    ("hermes", "plain text\n"),
    ("hermes", "a < b <tool"),
    ("hermes", "<tool_call>"),
    ("hermes", '<tool_call>{"name": "f", "argum'),
    ("hermes", '<tool_call>{"name": "unknown", "arguments": {}}</tool_call> x'),
    ("hermes", '<tool_call>{"name": "f", "arguments": [1]}</tool_call>'),
    ("hermes", "<tool_call>" + '{"a":' * 5000 + "}" * 5000),
    ("hermes", '{"answer": 42} and more'),
    ("hermes", f"Call it so: {CALL}"),
    ("llama3", '<|python_tag|>brave_search.call(query="x")'),
    ("mistral", f"{CALL}"),
    ("mistral", "[TOOL_CALLS] none of them"),
    ("json", '{"arguments": {"a": "\\ud800"}, "name": "f"}'),
    ("json", "[1, 2, 3]"),
    ("json", "{'name': 'f'}"),
]


@pytest.mark.parametrize(("style", "text", "pieces"), CALLED)
def test_calls_are_found_in_each_format(style: ToolStyle, text: str, pieces: list[str | FoundCall]) -> None:
    assert read(style, text) == pieces


@pytest.mark.parametrize(("style", "text"), TEXTS)
def test_what_is_no_call_stays_text_to_the_letter(style: ToolStyle, text: str) -> None:
    assert read(style, text) == [text]


@pytest.mark.parametrize(("style", "text", "pieces"), BROKEN)
def test_a_call_whose_head_was_told_stays_one_with_the_arguments_that_there_were(
    style: ToolStyle, text: str, pieces: list[str | FoundCall]
) -> None:
    assert read(style, text) == pieces
    assert read(style, *text) == pieces


def test_a_valid_call_behind_a_malformed_one_is_found() -> None:
    bad = '<tool_call>{"name": <tool_call>'
    assert read("hermes", bad + CALL) == ['<tool_call>{"name":', FOUND]


PARTS = st.sampled_from(
    [
        *("<tool_call>", "</tool_call>", "[TOOL_CALLS]", "[ARGS]", "<|python_tag|>", CALL, "f", "{", "}"),
        *('{"name": "f", "arguments": ', '"a": ', "tru", "-1", "\\u", "00e9", '", ', "</th"),
        *("[", "]", " ", "\n", ";", ",", '"', "\\", "é", "name", "<", '{"name": "f"}', '{"a": 1}', "{}"),
    ]
)


@settings(max_examples=400, derandomize=True)
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
    for call in (piece for piece in whole if isinstance(piece, FoundCall)):
        # JSON, or the beginning of some.
        assert isinstance(from_json(call.arguments or "{", allow_partial=True), dict)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=300, derandomize=True)
@given(
    arguments=st.dictionaries(st.text(), VALUES, max_size=3),
    indent=st.sampled_from([None, 1]),
    plain=st.booleans(),
    step=st.integers(1, 9),
)
def test_the_parts_of_arguments_are_what_the_model_wrote(
    arguments: dict[str, object], indent: int | None, plain: bool, step: int
) -> None:
    written = json.dumps(arguments, indent=indent, ensure_ascii=plain)
    text = f'<tool_call>{{"name": "f", "arguments": {written}}}</tool_call>'
    deltas = [text[at : at + step] for at in range(0, len(text), step)]
    assert read("hermes", *deltas) == [FoundCall("f", written)]


def test_text_is_shown_as_soon_as_it_cannot_begin_a_call() -> None:
    parser = ToolCallParser("hermes", NAMES)
    assert parser.feed("Hello") == ["Hello"]
    assert parser.feed(" <too") == []
    assert parser.feed("th>") == [" <tooth>"]


def test_a_call_is_told_as_it_is_written() -> None:
    parser = ToolCallParser("hermes", NAMES)
    assert parser.feed('<tool_call>{"name": "f", "arguments": ') == []
    assert parser.feed("{") == [CallHead("f"), ArgumentsText("{")]
    assert parser.feed('"a": "x\\') == [ArgumentsText('"a": "x')]
    assert parser.feed('n", "b": 1') == [ArgumentsText('\\n", "b": ')]
    assert parser.feed("2}") == [ArgumentsText("12}"), CallTail()]
    assert parser.feed("}</tool_call>") == parser.end() == []


def test_a_call_whose_arguments_come_first_is_told_when_it_is_complete() -> None:
    parser = ToolCallParser("hermes", NAMES)
    assert parser.feed('<tool_call>{"arguments": {"a": 1}, "name": "f"') == []
    assert parser.feed("}") == [CallHead("f"), ArgumentsText('{"a": 1}'), CallTail()]


def test_a_long_run_of_white_space_is_read_in_little_time() -> None:
    """Each step looks at what is held once: were it squared, this would take minutes."""
    assert read("mistral", "[TOOL_CALLS]", *["\n" * 50] * 100) == ["[TOOL_CALLS]" + "\n" * 5000]
    assert read("hermes", *["\n" * 50] * 100) == ["\n" * 5000]
