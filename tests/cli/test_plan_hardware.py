"""What a replica runs on, from the values of flags."""

from __future__ import annotations

import pytest

from sapwood.cli.plan_hardware import replica_of
from sapwood.errors import UsageError
from sapwood.sim import hardware_named


def test_what_nobody_said_is_that_of_the_known_device() -> None:
    assert replica_of("h100", 1, {"mfu": None, "price_per_hour": None}) == hardware_named("h100")


def test_what_is_said_is_of_each_device() -> None:
    two = replica_of("l4", 2, {"memory_bytes": 10e9, "price_per_hour": 0.7, "memory_utilization": 0.5})
    assert (two.name, two.devices) == ("2 × l4 with 10 GB", 2)
    assert (two.memory_bytes, two.usable_bytes, two.price_per_hour) == (20e9, 10e9, 1.4)
    assert two.peak_flops == 2 * hardware_named("l4").peak_flops


def test_a_device_is_told_by_what_is_other_than_of_the_known_one() -> None:
    said = {"memory_bytes": 24e9, "peak_flops": 165.2e12, "bandwidth": 1.008e12}
    assert replica_of("h100", 1, said).name == "h100 with 165.2 TFLOP/s, 1.01 TB/s, 24 GB"


@pytest.mark.parametrize(
    "said", [{"mfu": 0.4}, {"mbu": 0.6}, {"memory_utilization": 1.0}, {"price_per_hour": 2.0}]
)
def test_a_price_or_a_share_makes_no_other_device_of_it(said: dict[str, float]) -> None:
    assert replica_of("h100", 1, said).name == "h100"


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(UsageError, match="memory utilization"):
        replica_of("h100", 1, {"memory_utilization": 2.0})
