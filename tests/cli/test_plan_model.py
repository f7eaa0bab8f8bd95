"""`--weights` and `--kv-dtype`."""

from __future__ import annotations

from typing import get_args

import pytest

from sapwood.cli.plan_model import KV_DTYPES, WEIGHTS, StoredWeights, model_of, weights_of
from sapwood.errors import UsageError
from sapwood.sim.config_shape import KvName
from sapwood.sim.packing import WeightsName

PARAMETERS = "the size of all is in bytes, 35GB say; parameters are counted from --model-shape"


def test_the_formats_are_those_of_the_simulator() -> None:
    assert set(WEIGHTS) == set(get_args(WeightsName))
    assert set(KV_DTYPES) == set(get_args(KvName))


def test_weights_are_a_format_or_what_they_take() -> None:
    assert weights_of("--weights")("fp8") == StoredWeights("fp8")
    assert weights_of("--weights")("35GB") == StoredWeights(bytes=35 * 10**9)


@pytest.mark.parametrize(("value", "hint"), [("fp-8", "did you mean fp8?"), ("heavy", None)])
def test_what_is_neither_is_told(value: str, hint: str | None) -> None:
    with pytest.raises(UsageError, match=f"--weights is '{value}'; it must be one of f32, f16") as caught:
        weights_of("--weights")(value)
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("value", "said", "hint"),
    [
        ("8", "of what", "if you mean bits of each, write int8 or int4; if the size of all, 8GB"),
        ("0", "of what", "if you mean bits of each, write int8 or int4; if the size of all, 0GB"),
        ("35G", "of what", "if you mean bytes, write 35GB"),
        ("16G", "of what", "if you mean bytes, write 16GB"),
        ("2.5", "of what", "if you mean bits of each, write int8 or int4; if the size of all, 2.5GB"),
        ("0GB", "all weights take more than 0 bytes", PARAMETERS),
        ("70B", "all weights take more than 70 bytes", PARAMETERS),
    ],
)
def test_a_size_says_that_it_is_bytes(value: str, said: str, hint: str | None) -> None:
    with pytest.raises(UsageError, match=f"--weights is '{value}'.*{said}") as caught:
        weights_of("--weights")(value)
    assert caught.value.hint == hint


def test_a_model_as_it_is_stored() -> None:
    shape = model_of("llama-3-8b", StoredWeights("fp8"), "fp8")
    assert shape.kv_bytes_per_token == 65_536
    assert shape.bytes_of_weights == pytest.approx(8_030_261_248 + 2 * 128256 * 4096, rel=1e-3)
    assert model_of("llama-3-8b", StoredWeights(bytes=5 * 10**9), None).bytes_of_weights == 5e9
    assert model_of("llama-3-8b", None, None).bytes_of_weights == 2 * 8_030_261_248
