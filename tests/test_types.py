from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from sapwood.errors import RequestError
from sapwood.types import Retain, SamplingParams

FLOATS = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", FLOATS)
def test_numbers_that_are_not_finite_are_refused(name: str, value: float) -> None:
    with pytest.raises(RequestError) as error:
        replace(SamplingParams(), **{name: value})  # type: ignore[arg-type]
    assert error.value.param == name


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e10, -1e300])
def test_a_bias_must_be_finite_and_fit_a_logit(value: float) -> None:
    with pytest.raises(RequestError, match=r"'logit_bias' is .* finite") as error:
        SamplingParams(logit_bias={3: 1.0, 4: value})
    assert error.value.param == "logit_bias"


def test_a_bias_that_bans_is_fine() -> None:
    assert SamplingParams(logit_bias={3: -1e9}).logit_bias == {3: -1e9}


COUNTS = (
    "max_tokens",
    "top_k",
    "seed",
    "n",
    "best_of",
    "min_tokens",
    "logprobs",
    "prompt_logprobs",
    "prompt_logprobs_start",
)


@pytest.mark.parametrize("value", [5.0, 2.5, math.nan, "5", True])
@pytest.mark.parametrize("name", COUNTS)
def test_a_count_must_be_a_whole_number(name: str, value: object) -> None:
    with pytest.raises(RequestError, match=rf"'{name}' is .* must be a whole number") as error:
        replace(SamplingParams(), **{name: value})  # type: ignore[arg-type]
    assert error.value.param == name


def test_counts_that_numpy_made_are_whole_numbers() -> None:
    assert SamplingParams(top_k=np.int64(40)).top_k == 40  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["top_k", "n", "min_tokens", "prompt_logprobs_start"])
def test_a_count_that_is_always_needed_cannot_be_none(name: str) -> None:
    with pytest.raises(RequestError, match=f"'{name}' is None"):
        replace(SamplingParams(), **{name: None})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [
        ((0,), "priority"),
        ((1.5,), "priority"),
        ((True,), "priority"),
        ((5, 10**400), "seconds"),
        ((5, True), "seconds"),
        ((5, "5m"), "seconds"),
        ((5, math.nan), "seconds"),
        ((5, None, 0.5), "start"),
        ((5, None, 3, 3), "end"),
        ((5, None, 0, 2.5), "end"),
    ],
)
def test_a_wish_to_retain_names_what_is_wrong(wrong: tuple[Any, ...], name: str) -> None:
    with pytest.raises(RequestError) as error:
        Retain(*wrong)
    assert error.value.param == name
