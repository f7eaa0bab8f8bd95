from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sapwood.sim.readers.values import are_ids, ids_of, parsed


def test_json_is_read() -> None:
    assert parsed('{"a": [1, null]}') == {"a": [1, None]}


@pytest.mark.parametrize("text", ["[,,]", "[1 2]", "[01]", "", "[" * 100_000, "[1" + "9" * 5000 + "]"])
def test_what_is_no_json_is_a_value_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(text)


def test_ids_are_read() -> None:
    ids = ids_of([0, 7, 2**31 - 1])
    assert ids.dtype == np.int32
    assert ids.tolist() == [0, 7, 2**31 - 1]
    assert ids_of([]).tolist() == []


@pytest.mark.parametrize(
    "value", [[1, 2**31], [2**70], [-1], [1.5, 2], [True, False], ["1"], [[1, 2], [3, 4]], [None], "12", None]
)
def test_what_no_model_has_is_no_id(value: Any) -> None:
    with pytest.raises(ValueError, match="token ids"):
        ids_of(value)


@pytest.mark.parametrize(("opening", "closing"), [("[", "]"), ('{"a":', "}")])
def test_what_is_nested_deeper_than_can_be_walked_is_a_value_error(opening: str, closing: str) -> None:
    assert parsed(opening * 100 + "1" + closing * 100)
    with pytest.raises(ValueError, match="nested too deep"):
        parsed(opening * 101 + "1" + closing * 101)


def test_many_values_beside_each_other_are_not_deep() -> None:
    assert parsed("[" + ",".join(['{"a": [1]}'] * 500) + "]") == [{"a": [1]}] * 500
    assert parsed('"' + "[" * 1000 + '"') == "[" * 1000


def test_ids_are_whole_numbers_and_not_none() -> None:
    assert are_ids([0, -1, 2**70])
    assert not any(map(are_ids, ([], [1.0], [True], ["1"], [[1]], "12", None, 3)))
