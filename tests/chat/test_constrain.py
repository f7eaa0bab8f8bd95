from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
from collections.abc import Sequence

import numpy as np
import pytest

from sapwood.chat import Guides
from sapwood.chat.openai_format import parse_format
from sapwood.errors import DeadEndError, RequestError
from sapwood.types import Constraint
from server.fakes import EOS, VOCAB, byte_tokenizer
from server.merging import MERGED, merging_tokenizer

TOKENIZER = byte_tokenizer()
GUIDES = Guides(TOKENIZER, VOCAB, (EOS,))
MERGING = merging_tokenizer()
MERGING_GUIDES = Guides(MERGING, VOCAB + 1, (EOS,))
DEAD_END = Constraint("grammar", 'start: "ab" T "e"\nT: /c+/ & /d+/')
"""Nothing is both."""
PET = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 5}, "legs": {"enum": [2, 4]}},
    "required": ["name", "legs"],
    "additionalProperties": False,
}


def schema(value: object) -> Constraint:
    return Constraint("json_schema", json.dumps(value), "response_format.json_schema.schema")


def walk(constraint: Constraint, seed: int, most: int = 400) -> list[int]:
    """Tokens drawn at random from those allowed, up to the end token."""
    guide, chance, drawn = GUIDES.begin(constraint), random.Random(seed), list[int]()
    while not drawn or (drawn[-1] != EOS and len(drawn) < most):
        allowed = np.flatnonzero(guide.mask(np.array(drawn, np.int32)))
        drawn.append(chance.choice(allowed.tolist()))
    return drawn


def masks(constraint: Constraint, tokens: Sequence[int]) -> list[bytes]:
    guide, history = GUIDES.begin(constraint), np.array(tokens, np.int32)
    return [guide.mask(history[:n]).tobytes() for n in range(len(tokens))]


@pytest.mark.parametrize("seed", range(20))
def test_any_walk_through_what_is_allowed_ends_in_an_answer_of_the_schema(seed: int) -> None:
    drawn = walk(schema(PET), seed)
    assert drawn[-1] == EOS
    pet = json.loads(TOKENIZER.decode(drawn))
    assert pet.keys() == {"name", "legs"}
    assert isinstance(pet["name"], str)
    assert len(pet["name"]) <= 5
    assert pet["legs"] in (2, 4)


def test_the_end_is_allowed_only_where_the_answer_is_complete() -> None:
    drawn = walk(schema(PET), 3)
    guide = GUIDES.begin(schema(PET))
    ends = [bool(guide.mask(np.array(drawn[:n], np.int32))[EOS]) for n in range(len(drawn))]
    assert ends == [False] * (len(drawn) - 1) + [True]


def test_control_tokens_are_never_part_of_a_text() -> None:
    guide = GUIDES.begin(Constraint("regex", "(.|\n){5}"))
    mask = guide.mask(np.array([], np.int32))
    assert mask[ord("<")]
    assert not mask[EOS:].any()


def test_a_guide_that_starts_anew_says_the_same_for_the_same_tokens() -> None:
    """What a preempted sample needs: it is shown all its tokens at once, or fewer than before."""
    drawn = walk(schema(PET), 5)
    step_by_step = masks(schema(PET), drawn)
    for n in (0, 7, len(drawn) - 1):
        fresh = GUIDES.begin(schema(PET)).mask(np.array(drawn[:n], np.int32))
        assert fresh.tobytes() == step_by_step[n]
    guide = GUIDES.begin(schema(PET))
    guide.mask(np.array(drawn[:9], np.int32))
    assert guide.mask(np.array(drawn[:2], np.int32)).tobytes() == step_by_step[2]


def test_two_guides_of_one_grammar_do_not_touch_each_other() -> None:
    constraint = Constraint("regex", "ab|ac|b")
    one, other = GUIDES.begin(constraint), GUIDES.begin(constraint)
    one.mask(np.array([ord("b")], np.int32))
    assert np.flatnonzero(other.mask(np.array([ord("a")], np.int32))).tolist() == [ord("b"), ord("c")]


def test_white_space_between_the_parts_has_an_end() -> None:
    guide = GUIDES.begin(schema({"type": "object"}))
    history = np.frombuffer(b"{" + b"\n" * 32, np.uint8).astype(np.int32)
    assert guide.mask(history[:-1])[ord("\n")]
    assert not guide.mask(history)[ord("\n")]


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        (schema({"type": "objekt"}), "objekt"),
        (schema({"type": "string", "not": {}}), "not"),
        (schema({"properties": {"a": False}, "required": ["a"], "type": "object"}), "Unsatisfiable"),
        (Constraint("regex", "[ab", "guided_regex"), "regex"),
        (Constraint("grammar", "start: nowhere", "guided_grammar"), "nowhere"),
        (schema({"$ref": "#"}), "NoExtension"),
        (Constraint("grammar", "\0", "guided_grammar"), "guided_grammar"),
    ],
)
def test_what_is_no_grammar_is_refused_by_its_path(constraint: Constraint, said: str) -> None:
    with pytest.raises(RequestError, match=said) as caught:
        GUIDES.check(constraint)
    assert caught.value.param == constraint.param


def test_what_the_grammar_never_allowed_is_an_error_not_an_empty_choice() -> None:
    guide = GUIDES.begin(Constraint("regex", "a"))
    with pytest.raises(DeadEndError, match="cannot go on"):
        guide.mask(np.array([ord("b")], np.int32))


def test_a_model_without_an_end_token_is_refused() -> None:
    with pytest.raises(RequestError, match="no end token"):
        Guides(TOKENIZER, VOCAB, ()).check(Constraint("regex", "a"))


def test_choices_are_of_any_text() -> None:
    for text in ("é日本", 'a"b\\c', "line\nbreak", "x/y"):
        constraint = parse_format({"guided_choice": [text, "other"]})
        assert constraint is not None
        tokens = [*text.encode(), EOS]
        guide = GUIDES.begin(constraint)
        assert all(guide.mask(np.array(tokens[:n], np.int32))[token] for n, token in enumerate(tokens))


def test_a_grammar_that_grows_too_large_after_its_first_token_is_refused_before_it() -> None:
    with pytest.raises(RequestError, match="'guided_regex' cannot be used"):
        GUIDES.check(Constraint("regex", "a{1000000}", "guided_regex"))


def test_a_grammar_is_not_changed_by_being_tried() -> None:
    constraint = Constraint("regex", "ab?")
    GUIDES.check(constraint)
    guide = GUIDES.begin(constraint)
    assert np.flatnonzero(guide.mask(np.array([], np.int32))).tolist() == [ord("a")]
    assert np.flatnonzero(guide.mask(np.array([ord("a")], np.int32))).tolist() == [ord("b"), EOS]


CHAINS = {
    "objects": (
        "json_schema",
        '{"$ref": "#/$defs/a0", "$defs": {%s, "a%d": {}}}',
        '"a%d": {"properties": {"a": {"$ref": "#/$defs/a%d"}}}',
        ", ",
    ),
    "references": (
        "json_schema",
        '{"$ref": "#/$defs/a0", "$defs": {%s, "a%d": {}}}',
        '"a%d": {"$ref": "#/$defs/a%d"}',
        ", ",
    ),
    "rules": ("grammar", 'start: a0\n%s\na%d: "b"', 'a%d: "a" a%d', "\n"),
    "terminals": ("grammar", 'start: A0\n%s\nA%d: "b"', 'A%d: "a" A%d', "\n"),
}
"""Grammars whose rules each refer to the next: what they are, around all, each, and between two of them."""


@pytest.mark.parametrize("chain", CHAINS)
def test_no_chain_of_rules_exhausts_the_stack(chain: str) -> None:
    """In a process of its own: what goes wrong here ends it, whatever Python would catch."""
    kind, around, each, between = CHAINS[chain]
    count = 3000
    text = around % (between.join(each % (i, i + 1) for i in range(count)), count)
    program = (
        "import sys; from chat.test_constrain import GUIDES, Constraint, np;"
        f" GUIDES.begin(Constraint({kind!r}, sys.stdin.read(), 'x')).mask(np.array([], np.int32)); print('survived')"
    )
    run = subprocess.run(
        [sys.executable, "-c", program],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert run.stdout == "survived\n", (run.returncode, run.stderr[-2000:])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[" * 10_001, "10001 brackets"),
        ("\n" * 10_000, "10001 lines"),
        ("x" * (2**20 + 1), "1048577 characters"),
    ],
)
def test_a_grammar_too_large_to_be_compiled_soon_is_refused(text: str, said: str) -> None:
    with pytest.raises(RequestError, match=said):
        GUIDES.check(Constraint("grammar", text, "guided_grammar"))


def test_a_grammar_whose_dead_end_comes_late_is_found_when_it_comes() -> None:
    """It is taken: its first tokens are fine."""
    guide = GUIDES.begin(DEAD_END)
    assert np.flatnonzero(guide.mask(np.array([ord("a")], np.int32))).tolist() == [ord("b")]
    with pytest.raises(DeadEndError, match="cannot go on"):
        guide.mask(np.array([ord("a"), ord("b")], np.int32))


@pytest.mark.parametrize("form", ["pat[a-z]*", "(pat|path)s"])
def test_a_token_that_goes_past_a_fixed_part_is_left_to_the_model(form: str) -> None:
    """GR-03. Where `t` must follow, `th` may too if the answer can go on with it."""
    guide = MERGING_GUIDES.begin(Constraint("regex", form))
    allowed = np.flatnonzero(guide.mask(np.array([*b"pa"], np.int32))).tolist()
    assert allowed == [ord("t"), MERGED]
    for cut in ([ord("t"), ord("h")], [MERGED]):
        guide.mask(np.array([*b"pa", *cut], np.int32))


def test_a_fixed_part_is_cut_as_the_tokenizer_cuts_its_text() -> None:
    """GR-02. So the next turn's prompt, read as text, has the same tokens."""
    fixed = '{"the other path": "with'
    guide, drawn = MERGING_GUIDES.begin(Constraint("regex", re.escape(fixed) + "[0-9]")), list[int]()
    for _ in MERGING.encode(fixed):
        (only,) = np.flatnonzero(guide.mask(np.array(drawn, np.int32))).tolist()
        drawn.append(only)
    assert drawn == MERGING.encode(fixed)
    assert drawn.count(MERGED) == 4
