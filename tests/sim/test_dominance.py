from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from sapwood.sim.dominance import sums_of_larger_before


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=30))
def test_as_counted_one_by_one(entries: list[tuple[int, int]]) -> None:
    keys, weights = (np.array([entry[n] for entry in entries], np.int64) for n in (0, 1))
    expected = [
        sum(weight for other, weight in entries[:at] if other > key) for at, (key, _) in enumerate(entries)
    ]
    assert sums_of_larger_before(keys, weights).tolist() == expected


def test_many_entries_of_large_keys() -> None:
    rng = np.random.default_rng(3)
    keys, weights = rng.integers(0, 2**20, 1000), rng.integers(0, 100, 1000)
    expected = [int(weights[:at][keys[:at] > keys[at]].sum()) for at in range(1000)]
    assert sums_of_larger_before(keys, weights).tolist() == expected
