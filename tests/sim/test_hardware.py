from __future__ import annotations

import pytest

from sapwood.errors import UsageError
from sapwood.sim.hardware import Hardware, hardware_named, spanning


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


@pytest.mark.parametrize("mbu", [0.0, 1.5])
def test_a_share_of_the_bandwidth_is_a_share(mbu: float) -> None:
    with pytest.raises(UsageError, match="MBU"):
        Hardware("x", 1.0, 1.0, 1.0, mbu=mbu)


def test_four_fifths_of_the_bandwidth_are_reached() -> None:
    assert hardware_named("h100").bytes_per_second == pytest.approx(2.68e12)


def test_a_price_is_no_gift() -> None:
    with pytest.raises(UsageError, match="costs"):
        Hardware("x", 1.0, 1.0, 1.0, price_per_hour=-1.0)


def test_a_tenth_of_the_memory_is_kept_back() -> None:
    assert hardware_named("h100").usable_bytes == pytest.approx(72e9)
    assert Hardware("x", 1.0, 1.0, 100.0, memory_utilization=1.0).usable_bytes == 100


@pytest.mark.parametrize("share", [0.0, 1.1, -0.5])
def test_what_is_used_of_the_memory_is_a_share(share: float) -> None:
    with pytest.raises(UsageError, match="memory utilization"):
        Hardware("x", 1.0, 1.0, 1.0, memory_utilization=share)


def test_devices_add_up_and_their_shares_stay() -> None:
    device = Hardware("x", 3.0, 5.0, 7.0, mfu=0.4, price_per_hour=2.0, memory_utilization=0.8)
    assert spanning(device, 1) is device
    assert spanning(device, 4) == Hardware("4 × x", 12.0, 20.0, 28.0, 0.4, 8.0, 0.8, devices=4)
    assert spanning(hardware_named("l4"), 2).price_per_hour is None
    with pytest.raises(UsageError, match="0 devices"):
        Hardware("x", 1.0, 1.0, 1.0, devices=0)
