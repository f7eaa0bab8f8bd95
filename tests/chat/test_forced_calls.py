from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from chat.calls import read_calls
from sapwood.chat import Guides, ToolUse, constrained, forced_calls
from sapwood.chat.found_calls import FoundCall
from sapwood.chat.tools import ToolStyle
from sapwood.types import Constraint
from server.fakes import EOS, START, VOCAB, byte_tokenizer

TOKENIZER = byte_tokenizer()
GUIDES = Guides(TOKENIZER, VOCAB, (EOS,))
TOOLS: list[dict[str, Any]] = [
    {
        "type": "function",
        "function": {
            "name": "move",
            "parameters": {
                "type": "object",
                "properties": {"to": {"$ref": "#/$defs/place"}},
                "required": ["to"],
                "additionalProperties": False,
                "$defs": {"place": {"enum": ["a", "b"]}},
            },
        },
    },
    {
        "type": "function",
        "function": {"name": "stop", "parameters": {"type": "object", "additionalProperties": False}},
    },
]
BOTH = frozenset({"move", "stop"})
STYLES: tuple[ToolStyle, ...] = ("hermes", "llama3", "mistral", "json")


def walk(constraint: Constraint, seed: int) -> str:
    """A random answer in the grammar."""
    guide, chance, drawn = GUIDES.begin(constraint), random.Random(seed), list[int]()
    while not drawn or drawn[-1] != EOS:
        allowed = np.flatnonzero(guide.mask(np.array(drawn, np.int32))).tolist()
        drawn.append(EOS if EOS in allowed and chance.random() < 0.5 else chance.choice(allowed))
    return TOKENIZER.decode(drawn[:-1], skip_special=False)


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", range(4))
def test_whatever_the_model_says_is_calls_that_the_parser_finds(style: ToolStyle, seed: int) -> None:
    answer = walk(forced_calls(style, TOOLS, ToolUse(BOTH, forced=True), {}), seed)
    pieces = read_calls(style, BOTH, answer)
    assert pieces
    for piece in pieces:
        assert isinstance(piece, FoundCall), answer
        arguments = json.loads(piece.arguments)
        assert arguments == {} if piece.name == "stop" else arguments["to"] in ("a", "b")


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("seed", range(4))
def test_one_call_only_where_several_are_not_wanted(style: ToolStyle, seed: int) -> None:
    use = ToolUse(frozenset({"stop"}), forced=True, parallel=False)
    answer = walk(forced_calls(style, TOOLS, use, {}), seed)
    (call,) = read_calls(style, BOTH, answer)
    assert isinstance(call, FoundCall)
    assert (call.name, json.loads(call.arguments)) == ("stop", {})


def test_a_marker_that_is_a_control_token_is_drawn_as_one() -> None:
    constraint = forced_calls("mistral", TOOLS, ToolUse(BOTH, forced=True), {START: "[TOOL_CALLS]"})
    mask = GUIDES.begin(constraint).mask(np.array([], np.int32))
    assert np.flatnonzero(mask).tolist() == [START]


def test_an_answer_of_a_form_may_be_calls_instead() -> None:
    wanted = Constraint("json_schema", json.dumps({"enum": ["x"]}), "response_format")
    both = constrained(wanted, TOOLS, ToolUse(BOTH), "hermes", {})
    assert both is not None
    mask = GUIDES.begin(both).mask(np.array([], np.int32))
    assert np.flatnonzero(mask).tolist() == [ord('"'), ord("<")]


def test_what_is_not_forced_and_has_no_form_is_free() -> None:
    assert constrained(None, TOOLS, ToolUse(BOTH), "hermes", {}) is None
    assert constrained(None, TOOLS, None, "hermes", {}) is None
    regex = Constraint("regex", "a")
    assert constrained(regex, TOOLS, ToolUse(BOTH), "hermes", {}) == regex
