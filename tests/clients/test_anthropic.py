"""Anthropic's SDK, this release and an older one, unmodified: its caching rules, streams, tools, errors."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest

from clients.conftest import Environment, Theatre, Told

VERSIONS: dict[Environment, str] = {"new": "2.14.0", "old": "0.75.0"}
START = len("\0user\n")
"""Tokens before the text of a first user."""


@pytest.fixture(scope="module", params=list(VERSIONS))
def told(theatre: Theatre, request: pytest.FixtureRequest) -> Told:
    played = theatre.play("anthropic_calls", request.param)
    assert played.version == VERSIONS[request.param]
    return played


def counts(usage: Any) -> tuple[int, int]:
    """Tokens read and written, once it is seen that the lifetimes written sum up."""
    read, written, parts = (
        usage["cache_read_input_tokens"],
        usage["cache_creation_input_tokens"],
        usage["cache_creation"],
    )
    assert written == parts["ephemeral_5m_input_tokens"] + parts["ephemeral_1h_input_tokens"]
    assert min(read, written, usage["input_tokens"]) >= 0
    return read, written


def test_each_turn_reads_what_the_turn_before_wrote(told: Told) -> None:
    scene = told["turns_of_an_agent"]
    (none, written), second = counts(scene["first"]), counts(scene["second"])
    assert none == 0
    assert written > 2200
    assert second == (written, len("\0\0assistant\nok\0\0user\n") + 30)
    total = sum(second) + scene["second"]["input_tokens"]
    # After the system's text stands how tools are called; then another user's text.
    shared, none = counts(scene["tools and system"])
    assert none == 0
    assert 2200 < shared < written - START - 40
    assert counts(scene["other choice"]) == (shared, sum(second) - shared)
    assert counts(scene["other tool"]) == counts(scene["other tenant"]) == (0, sum(second))
    for name in ("other choice", "other tool", "other tenant"):
        assert sum(counts(scene[name])) + scene[name]["input_tokens"] == total


def test_past_twenty_blocks_nothing_is_found_without_a_marker_between(told: Told) -> None:
    scene = told["far_back"]
    first, second = map(counts, scene["unmarked"])
    assert first == (0, START + 1500)
    assert second == (0, START + 1500 + len("".join(f"b{i}" for i in range(25)) + "last") + 26 * SEPARATOR)
    first, second = map(counts, scene["marked"])
    assert first == (0, START + 1500)
    assert second[0] == START + 1500
    assert second[1] > 0


SEPARATOR = 1
"""Tokens between two texts of one message."""


def test_what_the_rules_forbid_is_refused_and_too_little_is_not(told: Told) -> None:
    scene = told["what_is_refused"]
    assert counts(scene.pop("below the minimum")) == (0, 0)
    kinds = {
        "unknown model": ["NotFoundError", "not_found_error"],
        "unknown key": ["AuthenticationError", "authentication_error"],
    }
    for name, (error, kind, message, has_request_id) in scene.items():
        assert [error, kind] == kinds.get(name, ["BadRequestError", "invalid_request_error"])
        assert message
        assert has_request_id
    assert "found 5" in scene["five markers"][2]
    assert "longer" in scene["5m before 1h"][2]
    assert len(scene) == 7


def test_a_prewarmed_prompt_says_nothing_and_is_read_by_the_next(told: Told) -> None:
    scene = told["prewarmed"]
    assert (scene["warm"]["content"], scene["warm"]["stop_reason"]) == ([], "max_tokens")
    assert scene["warm"]["usage"]["output_tokens"] == 0
    written = counts(scene["warm"]["usage"])
    assert written == (0, len("\0system\n") + 1100)
    assert counts(scene["next"]) == (written[1], 0)
    assert scene["streamed"][:2] == ["BadRequestError", "invalid_request_error"]


@pytest.mark.parametrize(("life", "other"), [("5m", "1h"), ("1h", "5m")])
def test_a_life_is_as_long_as_asked_from_its_last_use(told: Told, life: str, other: str) -> None:
    usages = told["by_the_clock"][life == "1h"]
    written = counts(usages[0])[1]
    assert written > 1500
    assert [counts(usage) for usage in usages] == [(0, written), (written, 0), (written, 0), (0, written)]
    assert usages[0]["cache_creation"][f"ephemeral_{life}_input_tokens"] == written
    assert usages[0]["cache_creation"][f"ephemeral_{other}_input_tokens"] == 0


def test_two_lives_of_one_prompt_are_told_apart(told: Told) -> None:
    first, second = told["two_lives"]
    assert first["cache_creation"] == {
        "ephemeral_1h_input_tokens": START + 1500,
        "ephemeral_5m_input_tokens": SEPARATOR + 300,
    }
    assert counts(second) == (START + 1500 + SEPARATOR + 300, 0)


def test_a_stream_is_collected_to_what_a_whole_answer_is(told: Told) -> None:
    scene = told["streamed"]
    first, whole, streamed = scene["usages"]
    assert counts(first) == (0, len("\0system\n") + 1100)
    assert streamed == whole
    assert counts(streamed) == (len("\0system\n") + 1100, 0)
    assert scene["said"] == "ok"


def test_streamed_calls_come_in_fragments_and_their_results_go_back(told: Told) -> None:
    scene = told["streamed"]
    wire = [kind for kind in scene["kinds"] if kind not in ("text", "input_json")]
    block = ["content_block_start", "content_block_delta", "content_block_stop"]
    assert [kind for kind, _ in groupby(wire)] == [
        "message_start",
        *block * 3,
        "message_delta",
        "message_stop",
    ]
    assert scene["kinds"].count("input_json") > 4
    assert scene["calls"] == [["weather", {"city": "Oslo"}], ["weather", {"city": "Malmö"}]]
    assert (scene["text"], scene["why"]) == ("Let me look.", "tool_use")
    assert scene["after"] == ["Yes."]


def test_the_automatic_marker_and_the_diagnosis_are_told(told: Told) -> None:
    scene = told["newer_fields"]
    first, second = map(counts, scene["automatic"])
    assert first == (0, START + 1500)
    assert second == (START + 1500, len("\0\0assistant\nok\0\0user\nMore"))
    missed = {"type": "system_changed", "cache_missed_input_tokens": len("\0system\n") + 1100}
    assert scene["missed"] == {"cache_miss_reason": missed}


def test_a_form_is_obeyed_and_parsed(told: Told) -> None:
    assert told["formed"] == {"name": "Oslo", "people": 700_000}


def test_tools_are_run_by_the_sdk_itself(told: Told) -> None:
    scene = told["run_by_the_sdk"]
    assert scene["cities"] == ["Oslo", "Malmö"] * 2
    assert scene["texts"] == [["Let me look.", "Cold."]] * 2


def test_models_counts_and_the_beta_path(told: Told) -> None:
    scene = told["others"]
    assert (scene["models"], scene["beta"]) == (["toy"], "ok")
    assert scene["counted"] == scene["usage"]["input_tokens"] == len("\0user\nHi\0\0assistant\n")
