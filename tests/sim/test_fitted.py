"""A cost model in four terms, and what it is fitted to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sapwood.errors import UsageError
from sapwood.sim import StepShape
from sapwood.sim.bench_fit import fit_bench, observations
from sapwood.sim.fitted import FittedCost, Observation, fit, pairs_of

BENCH = Path(__file__).parents[2] / "bench" / "results" / "serve.json"


def shapes(seed: int, count: int) -> list[StepShape]:
    dice = np.random.default_rng(seed)
    return [
        StepShape(dice.integers(0, 3000, n), dice.integers(1, 200, n), int(dice.integers(0, n + 1)))
        for n in dice.integers(1, 20, count)
    ]


def test_its_name_has_times_in_the_units_that_they_have() -> None:
    name = FittedCost("laptop.jsonl", 0.0312, 6.58e-3, 1.01e-6, 0.0, 0.165, 60).name
    assert name == (
        "laptop.jsonl: 31.2 ms a step, 6.58 ms a token, 1.01 µs a pair of tokens, 0 ns a draw; "
        "60 measurements, mean error 16.5%"
    )


seconds = st.one_of(st.just(0.0), st.floats(1e-6, 1e-3))


@settings(max_examples=30)
@given(seconds, seconds, seconds, st.floats(1e-3, 1e-2))
def test_the_terms_of_what_was_measured_are_found(
    token: float, pair: float, draw: float, fixed: float
) -> None:
    true = FittedCost("true", fixed, token, pair / 1000, draw, 0.0, 0)
    found = fit("found", [Observation.of_step(each, true.step_seconds(each)) for each in shapes(1, 40)])
    assert found.error < 1e-6
    for each in shapes(2, 10):
        assert found.step_seconds(each) == pytest.approx(true.step_seconds(each), rel=1e-6)


def test_no_term_is_negative_and_noise_is_told() -> None:
    dice = np.random.default_rng(3)
    noisy = [Observation.of_step(each, 0.01 * float(dice.uniform(0.5, 1.5))) for each in shapes(4, 60)]
    found = fit("noise", noisy)
    assert min(found.fixed, found.token, found.pair, found.draw) >= 0
    assert 0.1 < found.error < 0.5
    assert "60 measurements, mean error" in found.name


def test_nobody_non_negative_explains_them_better() -> None:
    dice = np.random.default_rng(5)
    noisy = [Observation.of_step(each, float(dice.uniform(0.005, 0.05))) for each in shapes(6, 30)]
    rows = np.array([each.row / each.seconds for each in noisy])
    found = fit("noise", noisy)
    best = np.array([found.fixed, found.token, found.pair, found.draw])

    def wrong(terms: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        return float(((rows @ terms - 1) ** 2).sum())

    for _ in range(300):
        other = np.maximum(0, best + dice.normal(0, 1, 4) * np.array([1e-3, 1e-5, 1e-8, 1e-4]))
        assert wrong(other) >= wrong(best) - 1e-9


def test_pairs_are_counted_one_by_one() -> None:
    assert pairs_of(StepShape(np.array([0, 7]), np.array([3, 1]), 0)) == 1 + 2 + 3 + 8


def test_a_prompt_and_a_decoding_are_their_steps() -> None:
    """The sums of what they are made of, step by step."""
    prompt = Observation.of_prompt("", 0.0, 70, 6, 32)
    steps = [Observation.of_step(StepShape(np.array([6 + 32 * i]), np.array([32]), i), 0.0) for i in range(2)]
    assert prompt.row.tolist() == (steps[0] + steps[1]).row.tolist()
    decoding = Observation.of_decoding("", 0.0, 50, 3, 4)
    each = [
        Observation.of_step(StepShape(np.full(4, 50 + i), np.ones(4, np.int64), 4), 0.0) for i in range(3)
    ]
    assert decoding.row.tolist() == (each[0] + each[1] + each[2]).row.tolist()


def test_our_own_bench_gives_a_cost_model() -> None:
    """What it was fitted to comes out again, and a cached prompt costs next to nothing beside a cold one."""
    cost = fit_bench(BENCH)
    seen = list(observations(json.loads(BENCH.read_text(encoding="utf-8"))["rows"], 256))
    assert {each.what for each in seen} >= {"cold prompt", "cached prompt", "decode_1"}
    for each in seen:
        assert cost.predicted(each) == pytest.approx(each.seconds, rel=0.25)
    assert cost.prefill_seconds(2000, 1999) < 0.01 * cost.prefill_seconds(2000, 0)
    assert "smollm2-135m" in cost.name


def test_decoding_that_guessed_is_left_out() -> None:
    rows = json.loads(BENCH.read_text(encoding="utf-8"))["rows"]
    for row in rows:
        if row["measure"] == "repetition":
            row["ours"] = 0.9
    assert not [each for each in observations(rows, 256) if each.what.startswith("decode")]


def test_too_few_measurements_and_files_of_something_else_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has 1 measurements; at least 4"):
        fit("few", [Observation.of_prompt("", 1.0, 10, 0, 8)])
    (tmp_path / "other.json").write_text("[]")
    with pytest.raises(UsageError, match="nor a result of `sapwood bench serve`"):
        fit_bench(tmp_path / "other.json")
