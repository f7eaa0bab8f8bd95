from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from sapwood.sim.readers.values import ids_of, parsed


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
