from __future__ import annotations

import json
from pathlib import Path

import pytest

from sapwood.errors import ModelError
from sapwood.model.recommended import recommended_sampling
from sapwood.types import SamplingDefaults


def written(folder: Path, values: object) -> SamplingDefaults:
    (folder / "generation_config.json").write_text(json.dumps(values))
    return recommended_sampling("some/model", folder)


def test_a_known_name_has_the_values_of_its_card(tmp_path: Path) -> None:
    assert recommended_sampling("smollm2-135m", tmp_path) == SamplingDefaults(temperature=0.2, top_p=0.9)


def test_without_a_file_nothing_is_recommended(tmp_path: Path) -> None:
    assert recommended_sampling("x", tmp_path) == SamplingDefaults()
    assert recommended_sampling("x", tmp_path / "model.gguf") == SamplingDefaults()


def test_the_file_is_read_field_by_field(tmp_path: Path) -> None:
    found = written(tmp_path, {"temperature": 0.6, "top_k": 20, "max_length": 20, "eos_token_id": [1, 2]})
    assert found == SamplingDefaults(temperature=0.6, top_k=20)
    assert written(tmp_path, {"do_sample": False, "temperature": 0.6}) == SamplingDefaults(temperature=0.0)


@pytest.mark.parametrize("values", [[], {"top_p": "high"}, {"top_p": 3}, {"temperature": -1}, {"top_k": 0.5}])
def test_a_file_that_is_wrong_is_named(tmp_path: Path, values: object) -> None:
    with pytest.raises(ModelError, match="generation_config"):
        written(tmp_path, values)
