"""Times by name."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.rig import greedy, prompt_of
from sapwood.errors import UsageError
from sapwood.sim.cost import StepShape
from sapwood.sim.cost_source import cost_from, fit_capture
from sapwood.sim.flops import FlopCost
from sapwood.sim.hardware import hardware_named
from sapwood.sim.known_models import shape_named
from sapwood.sim.profile import LayerProfile, ProfileCost
from sapwood.sim.roofline import RooflineCost
from sapwood.types import Request
from sim.files import jsonl
from sim.test_reading_fuzz import JUNK
from sim.test_recorded import captured, crowd

MODEL, HARDWARE = shape_named("llama-3-8b"), hardware_named("h100")
PROFILE = Path(__file__).parent / "data" / "llmservingsim-vllm" / "RTX4090_Llama-3.1-8B_tp1"


def test_the_formula_is_of_the_model_on_the_hardware_and_so_is_the_texts() -> None:
    assert cost_from("formula", MODEL, HARDWARE) == RooflineCost(MODEL, HARDWARE)
    assert cost_from("text", MODEL, HARDWARE) == FlopCost(MODEL, HARDWARE)


def test_a_profile_is_named_by_what_its_files_share() -> None:
    shape = StepShape(np.array([100, 5]), np.array([1, 30]), 2)
    expected = ProfileCost(LayerProfile.read(PROFILE), MODEL.layers).step_seconds(shape)
    assert cost_from(str(PROFILE), MODEL, HARDWARE).step_seconds(shape) == expected > 0


def test_a_folder_is_told_from_what_is_not_there_and_its_profiles_are_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="it is a folder") as raised:
        cost_from(str(tmp_path), MODEL, HARDWARE)
    assert raised.value.hint is not None
    assert "h100_llama of h100_llama_dense.csv" in raised.value.hint
    for source in (PROFILE.parent, PROFILE.parent / "RTX4090"):
        with pytest.raises(UsageError) as raised:
            cost_from(str(source), MODEL, HARDWARE)
        assert raised.value.hint is not None
        assert raised.value.hint.endswith(f"{PROFILE}, {PROFILE.parent / 'RTXPRO6000_Llama-3.1-8B_tp1'}")


def test_a_capture_gives_the_pace_of_its_steps(tmp_path: Path) -> None:
    captured(tmp_path / "run.jsonl", crowd(), "off")
    cost = cost_from(str(tmp_path / "run.jsonl"), MODEL, HARDWARE)
    assert cost.name.startswith("fitted to run.jsonl: ")
    assert 0 < cost.step_seconds(StepShape(np.array([10]), np.array([1]), 1)) < 10
    assert cost.prefill_seconds(480, 0) >= cost.prefill_seconds(48, 0)


def test_what_says_nothing_of_times_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no such file") as raised:
        cost_from(str(tmp_path / "none"), MODEL, HARDWARE)
    assert raised.value.hint is not None
    assert "formula" in raised.value.hint
    for name, text in (("empty.jsonl", ""), ("other.json", "[]"), ("trace.jsonl", '{"hash_ids": []}\n' * 2)):
        (tmp_path / name).write_text(text)
        with pytest.raises(UsageError, match=rf"{name} is neither a capture nor a result of `sapwood bench"):
            cost_from(str(tmp_path / name), MODEL, HARDWARE)


@pytest.mark.parametrize(
    ("text", "said"),
    [("{}", "it has no 'rows'"), ("[" * 100_000, "it is nested too deep"), ('{"rows": 5}', "not iterable")],
)
def test_what_is_wrong_with_results_is_told_in_words(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "x.json").write_text(text)
    with pytest.raises(UsageError, match=rf"x\.json is neither a capture nor .*: .*{said}"):
        cost_from(str(tmp_path / "x.json"), MODEL, HARDWARE)


def test_a_capture_is_known_by_what_is_in_it(tmp_path: Path) -> None:
    captured(tmp_path / "run.json", crowd())
    assert cost_from(str(tmp_path / "run.json"), MODEL, HARDWARE).name.startswith("fitted to run.json: ")


def test_runs_that_cannot_be_simulated_are_left_out_and_told(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    scored = [Request(f"r{i}", prompt_of(30, i), greedy(4, prompt_logprobs=1)) for i in range(3)]
    captured(path, scored)
    with pytest.raises(
        UsageError, match=r"no times can be taken from .*: 3 of 3 requests wanted scores"
    ) as raised:
        cost_from(str(path), MODEL, HARDWARE)
    assert raised.value.hint is not None
    captured(path, crowd())
    assert cost_from(str(path), MODEL, HARDWARE).name.startswith("fitted to run.jsonl, 1 of 2 runs: ")


def test_runs_of_several_models_are_told(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    for model in ("one", "two"):
        captured(tmp_path / "part", crowd())
        part = (
            (tmp_path / "part")
            .read_text()
            .replace("{", f'{{"model": "{model}", "fingerprint": "{model}", ', 1)
        )
        with path.open("a", encoding="utf-8") as file:
            file.write(part)
        (tmp_path / "part").unlink()
    with pytest.raises(UsageError, match="runs of several models: one, two"):
        cost_from(str(path), MODEL, HARDWARE)


def lines_of_a_capture(folder: Path) -> list[dict[str, Any]]:
    """The header comes first, then requests and steps."""
    captured(folder / "whole.jsonl", crowd()[:8])
    return [json.loads(line) for line in (folder / "whole.jsonl").read_text().splitlines()]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"max_tokens": "x"}, "'max_tokens' is \"x\"; a whole number of at least 0"),
        ({"priority": "high"}, "'priority' is \"high\"; a whole number"),
        ({"reuse": 1}, "'reuse' is 1; true or false"),
        ({"constrained": "no"}, "'constrained' is \"no\"; true or false"),
        ({"retain": [{"foo": 1}]}, "'retain' is .*; a list of wishes"),
        ({"retain": [{"priority": 0}]}, "'retain' is .*; a list of wishes"),
        ({"retain": [5]}, "'retain' is .*; a list of wishes"),
        ({"retain": 5}, "'retain' is 5; a list"),
        ({"stop_token_ids": None}, "'stop_token_ids' is null; token ids"),
        ({"outputs": [], "drawn": 0}, "has no answer; one for each sample"),
    ],
)
def test_what_a_captured_request_cannot_have_asked_for_is_told(
    wrong: dict[str, Any], said: str, tmp_path: Path
) -> None:
    lines = lines_of_a_capture(tmp_path)
    at = next(number for number, line in enumerate(lines) if "request" in line)
    lines[at] |= wrong
    with pytest.raises(UsageError, match=rf"line {at + 1}.* {said}"):
        cost_from(str(jsonl(tmp_path / "run.jsonl", lines)), MODEL, HARDWARE)


@pytest.mark.parametrize(
    ("part", "wrong", "said"),
    [
        ("cache", {"eviction_policy": "zz"}, "ran with eviction_policy = 'zz', which no CacheConfig has"),
        ("cache", {"eviction_policy": []}, r"ran with eviction_policy = \[\]"),
        ("cache", {"page_size": "x"}, "ran with page_size = 'x'"),
        ("cache", {"page_size": True}, "ran with page_size = True"),
        ("cache", {"page_size": 0}, "page size is 0"),
        ("cache", {"pin_share": "x"}, "ran with pin_share = 'x'"),
        ("cache", {"attention_tokens": 0}, "attention tokens are 0"),
        ("scheduler", {"chunk_tokens": "x"}, "ran with chunk_tokens = 'x', which no SchedulerConfig has"),
        ("scheduler", {"max_context": 1.5}, "ran with max_context = 1.5"),
    ],
)
def test_a_config_that_no_server_had_is_told(
    part: str, wrong: dict[str, Any], said: str, tmp_path: Path
) -> None:
    lines = lines_of_a_capture(tmp_path)
    lines[0][part] |= wrong
    with pytest.raises(UsageError, match=said):
        cost_from(str(jsonl(tmp_path / "run.jsonl", lines)), MODEL, HARDWARE)


def test_whole_numbers_will_do_where_a_config_has_fractions(tmp_path: Path) -> None:
    lines = lines_of_a_capture(tmp_path)
    lines[0]["cache"] |= {"pin_share": 0, "attention_tokens": 5000, "of a later release": 1}
    assert fit_capture(jsonl(tmp_path / "run.jsonl", lines)).measurements > 0


def spoiled(value: Any, dice: random.Random) -> Any:
    """One value of it is another."""
    if value and isinstance(value, dict | list) and dice.random() < 0.9:
        at = dice.choice([*value] if isinstance(value, dict) else range(len(value)))
        inner = spoiled(value[at], dice)
        return {**value, at: inner} if isinstance(value, dict) else [*value[:at], inner, *value[at + 1 :]]
    return dice.choice(JUNK)


def test_damage_to_a_capture_is_told_or_does_no_harm(tmp_path: Path) -> None:
    lines, fitted = lines_of_a_capture(tmp_path), 0
    for seed in range(200):
        dice = random.Random(seed)
        at = dice.randrange(len(lines))
        rows = [*lines[:at], spoiled(lines[at], dice), *lines[at + 1 :]]
        try:
            fit_capture(jsonl(tmp_path / "run.jsonl", rows))
        except UsageError:
            continue
        fitted += 1
    assert 0 < fitted < 200
