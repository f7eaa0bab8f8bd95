from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sapwood.model.angles import LARGEST, cos_sin


@given(st.floats(0, LARGEST))
def test_it_is_as_good_as_the_system_library(angle: float) -> None:
    found = cos_sin(np.array([angle], np.float64))
    assert abs(found.cos[0] - math.cos(angle)) < 4e-16
    assert abs(found.sin[0] - math.sin(angle)) < 4e-16


def test_the_quadrants() -> None:
    found = cos_sin(np.arange(8, dtype=np.float64) * (math.pi / 4))
    half = math.sqrt(0.5)
    assert np.allclose(found.cos, [1, half, 0, -half, -1, -half, 0, half], atol=1e-15)
    assert np.allclose(found.sin, [0, half, 1, half, 0, -half, -1, -half], atol=1e-15)


def test_the_bits_are_pinned() -> None:
    """Another CPU or another numpy must give these very bits: rope tables are made of them."""
    found = cos_sin(np.linspace(0, 9000, 20011))
    digest = hashlib.sha256(found.cos.tobytes() + found.sin.tobytes()).hexdigest()
    assert digest == "ccfac7ded07f98bd5060629f9b285d1bd3bbdeae81e463207cd5c7267819515a"


def test_angles_out_of_range_are_refused() -> None:
    with pytest.raises(ValueError, match="angles"):
        cos_sin(np.array([-1.0]))
    with pytest.raises(ValueError, match="angles"):
        cos_sin(np.array([LARGEST * 1.01]))
