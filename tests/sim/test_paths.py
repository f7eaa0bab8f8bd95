from __future__ import annotations

import numpy as np
from hypothesis import given

from sapwood.sim import Trace
from sapwood.sim.paths import path_ids
from sim.small import paths, trace_of, traces


@given(traces())
def test_equal_ids_are_equal_paths(trace: Trace) -> None:
    prefixes = [prefix for row in paths(trace) for prefix in row]
    ids = path_ids(trace).tolist()
    assert len(ids) == len(prefixes)
    assert len(set(ids)) == len(set(prefixes)) == len(set(zip(ids, prefixes, strict=True)))
    assert all(number >= 0 for number in ids)


def test_names_that_stand_for_their_paths_are_taken_as_they_are() -> None:
    trace = trace_of([0, 1], [2], [0, 1, 3], [2, 4])
    assert path_ids(trace) is trace.names


def test_one_name_under_two_scopes_or_after_two_others_is_two_paths() -> None:
    first, second = path_ids(trace_of([0], [0], scopes=(0, 1))).tolist()
    assert first != second
    ids = path_ids(trace_of([0, 2], [1, 2], [0, 2]))
    assert ids[1] == ids[5] != ids[3]


def test_names_far_apart_or_below_zero_will_do() -> None:
    ids = path_ids(trace_of([2**31 - 1, -(2**31)], [2**31 - 1]))
    assert ids[0] == ids[2] != ids[1]
    assert ids.dtype == np.int32
    assert ids.max() < 3


def test_no_request_and_no_name() -> None:
    assert len(path_ids(trace_of())) == len(path_ids(trace_of([], []))) == 0
