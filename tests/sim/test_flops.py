"""The worked example of the source text, to the digits that it prints; and the two bounds of a step."""

from __future__ import annotations

import numpy as np
import pytest

from sapwood.sim.cost import StepShape
from sapwood.sim.flops import FlopCost
from sapwood.sim.hardware import hardware_named
from sapwood.sim.known_models import shape_named
from sapwood.sim.model_shape import ModelShape

COST = FlopCost(shape_named("llama-3-8b"), hardware_named("h100"))


def step(*works: tuple[int, int]) -> StepShape:
    starts, counts = zip(*works, strict=True)
    return StepShape(np.array(starts, np.int64), np.array(counts, np.int64), len(works))


def test_the_worked_example_without_a_cache() -> None:
    assert f"{COST.flops(1600, 0) / 1e12:.2f}" == "26.37"
    assert f"{COST.prefill_seconds(1600, 0) * 1e3:.1f}" == "53.3"


def test_the_worked_example_with_1488_tokens_cached() -> None:
    assert 1500 // 16 * 16 == 1488
    assert f"{COST.flops(1600, 1488) / 1e12:.2f}" == "1.89"
    assert f"{COST.prefill_seconds(1600, 1488) * 1e3:.1f}" == "3.8"
    assert f"{COST.flops(1600, 0) / COST.flops(1600, 1488):.0f}" == "14"
    assert f"{(COST.flops(1600, 0) - COST.flops(1600, 1488)) / 1e12:.1f}" == "24.5"


def test_the_worked_examples_memory_and_load() -> None:
    assert COST.model.kv_bytes_per_token == 131_072
    assert f"{1488 * COST.model.kv_bytes_per_token / 1e6:.0f}" == "195"
    assert f"{20 * COST.prefill_seconds(1600, 0):.2f}" == "1.07"
    assert f"{20 * COST.prefill_seconds(1600, 1488):.2f}" == "0.08"


def test_the_rounded_parameters_of_the_text_give_the_same_digits() -> None:
    attention = 2 * 131_072
    assert f"{(2 * 8.03e9 * 1600 + attention * 1600**2) / 1e12:.2f}" == "26.37"
    assert f"{(2 * 8.03e9 * 112 + attention * (1600**2 - 1488**2)) / 1e12:.2f}" == "1.89"


def test_many_prompts_at_once_cost_what_each_costs() -> None:
    tokens, cached = np.array([1, 7, 1600, 100_000], np.int64), np.array([0, 6, 1488, 99_999], np.int64)
    each = [COST.prefill_seconds(n, m) for n, m in zip(tokens.tolist(), cached.tolist(), strict=True)]
    assert COST.prefill_seconds_each(tokens, cached).tolist() == pytest.approx(each, rel=1e-12)


def test_a_prompt_cut_in_two_costs_the_same() -> None:
    assert COST.flops(5000, 3000) + COST.flops(3000, 0) == pytest.approx(COST.flops(5000, 0), rel=1e-12)


def test_one_decoding_step_is_bound_by_reading_the_weights_and_the_kv() -> None:
    bytes_read = 2 * COST.model.parameters + 1001 * 131_072
    assert COST.step_seconds(step((1000, 1))) == pytest.approx(bytes_read / 3.35e12, rel=1e-12)


def test_a_step_reads_the_weights_once_for_all_its_sequences() -> None:
    alone, together = COST.step_seconds(step((1000, 1))), COST.step_seconds(step(*[(1000, 1)] * 8))
    assert together - alone == pytest.approx(7 * 1001 * 131_072 / 3.35e12, rel=1e-9)


def test_a_long_prompt_is_bound_by_arithmetic() -> None:
    assert COST.step_seconds(step((0, 1600))) == pytest.approx(COST.prefill_seconds(1600, 0), rel=1e-12)


def test_experts_that_are_not_chosen_cost_memory_only() -> None:
    sparse = FlopCost(ModelShape("x", 1000, 1, 1, 1, 1, active_parameters=10), COST.hardware)
    assert sparse.flops(2, 0) == 2 * 10 * 2 + 2 * 4
    assert sparse.model.bytes_of_weights == 2000


def test_its_name_says_what_was_modelled() -> None:
    assert COST.name == "F(n, m) of llama-3-8b on h100 at 50% MFU"
