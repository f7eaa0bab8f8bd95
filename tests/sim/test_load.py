"""How many keep up."""

from __future__ import annotations

import pytest

from sapwood.sim.load import keeping_up


@pytest.mark.parametrize(
    ("load", "replicas", "enough"), [(2.01, 1, 3), (1.87, 4, 8), (0.5, 4, 3), (0.2, 1, 1), (2.0, 1, 3)]
)
def test_the_work_of_all_is_less_than_so_many_can_do(load: float, replicas: int, enough: int) -> None:
    assert keeping_up(load, replicas) == enough
    assert load * replicas / enough < 1
