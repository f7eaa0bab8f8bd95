from __future__ import annotations

from typing import Any

import pytest

from sapwood.errors import UsageError
from sapwood.sim.model_shape import ModelShape, Stored, Window
from sim.configs import GPT_OSS_120B, LLAMA_3_8B, SMOLLM2_135M, shape_of

SMALL: dict[str, Any] = {"parameters": 10, "layers": 1, "heads": 1, "kv_heads": 1, "head_dim": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"layers": 0},
        {"context": 0},
        {"kv_element_bytes": 0.0},
        {"stored": Stored("x", 0.0)},
        {"active_parameters": 11},
        {"output_parameters": 10},
        {"chosen_experts": 0.0},
        {"kv_numbers": 0},
        {"window": Window(1, 0)},
        {"window": Window(1, -1)},
        {"window": Window(0, 8)},
        {"window": Window(2, 8)},
    ],
)
def test_a_shape_that_cannot_be(wrong: dict[str, Any]) -> None:
    ModelShape("x", **SMALL)
    with pytest.raises(UsageError, match="no model has the shape"):
        ModelShape("x", **(SMALL | wrong))


def test_two_bytes_a_parameter_where_nothing_is_said() -> None:
    shape = ModelShape("x", **SMALL, output_parameters=3, tied=False)
    assert (shape.bytes_of_weights, shape.weights_read(1), shape.body) == (20.0, 14.0, 4)


def test_a_step_looks_the_embedding_up_and_reads_all_else() -> None:
    assert shape_of(LLAMA_3_8B).weights_read(1) == 2 * (8_030_261_248 - 128256 * 4096)
    assert shape_of(SMOLLM2_135M).weights_read(1) == 2 * 134_515_008


def test_a_step_reads_the_experts_that_its_tokens_choose() -> None:
    """One token reads 4 of 128, two read 4 + 4 · 124 / 128; many read all."""
    shape = shape_of(GPT_OSS_120B)
    experts = 36 * 128 * (3 * 2880 * 2880 * 17 / 32 + 2 * 3 * 2880)
    others = shape.bytes_of_weights - experts - 2 * 201088 * 2880
    assert shape.weights_read(1) == pytest.approx(others + experts * 4 / 128)
    assert shape.weights_read(2) == pytest.approx(others + experts * (4 + 4 * 124 / 128) / 128)
    assert shape.weights_read(2048) == pytest.approx(others + experts)
