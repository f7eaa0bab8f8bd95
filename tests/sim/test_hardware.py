from __future__ import annotations

import pytest

from sapwood.errors import UsageError
from sapwood.sim.hardware import Hardware, hardware_named


def test_half_of_an_h100() -> None:
    assert hardware_named("H100").flops == 494.5e12


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(UsageError, match="no hardware is known as 'abacus'") as caught:
        hardware_named("abacus")
    assert "h100" in str(caught.value)


@pytest.mark.parametrize("mfu", [0.0, 1.5, -1.0])
def test_a_share_of_the_peak_is_a_share(mfu: float) -> None:
    with pytest.raises(UsageError, match="MFU"):
        Hardware("x", 1.0, 1.0, 1.0, mfu)


def test_a_price_is_no_gift() -> None:
    with pytest.raises(UsageError, match="costs"):
        Hardware("x", 1.0, 1.0, 1.0, price_per_hour=-1.0)
