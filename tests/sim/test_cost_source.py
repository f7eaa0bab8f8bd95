"""Times by name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from engine.rig import greedy, prompt_of
from sapwood.errors import UsageError
from sapwood.sim.cost import StepShape
from sapwood.sim.cost_source import cost_from
from sapwood.sim.flops import FlopCost
from sapwood.sim.hardware import hardware_named
from sapwood.sim.known_models import shape_named
from sapwood.sim.profile import LayerProfile, ProfileCost
from sapwood.sim.roofline import RooflineCost
from sapwood.types import Request
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
