from __future__ import annotations

import math
from dataclasses import replace

import pytest

from sapwood.errors import RequestError
from sapwood.types import SamplingParams

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
