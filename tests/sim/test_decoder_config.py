from __future__ import annotations

import json
from pathlib import Path

import pytest

from sapwood.errors import UsageError
from sapwood.sim.decoder_config import DecoderConfig, read_config


@pytest.mark.parametrize(
    ("path", "name"),
    [("mine/config.json", "mine"), ("mine/qwen3-32b.json", "qwen3-32b"), ("mine/a.config.json", "a.config")],
)
def test_a_file_is_named_by_its_name_or_else_by_its_folder(tmp_path: Path, path: str, name: str) -> None:
    file = tmp_path / path
    file.parent.mkdir()
    file.write_text("{}")
    assert read_config(file).name == name


def test_a_file_in_the_working_folder_has_the_name_of_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    assert read_config(Path("config.json")).name == tmp_path.name


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "is not JSON"), ("[]", "holds no object"), ("[" * 100_000, "is not JSON: it is nested too deep")],
)
def test_a_file_that_is_no_config(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(UsageError, match=said):
        read_config(tmp_path / "config.json")


def test_the_part_of_the_text_goes_before_the_whole() -> None:
    whole = {"text_config": {"hidden_size": 8, "model_type": "gemma3_text"}, "hidden_size": 4, "dtype": "x"}
    config = DecoderConfig("x", json.loads(json.dumps(whole)))
    assert (config.number("hidden_size"), config.kind, config.says("torch_dtype", "dtype")) == (
        *(8, "gemma3_text", "x"),
    )
    assert config.says("quantization_config") is None
    assert config.number("head_dim", 5) == 5
    assert config.tied


def test_a_file_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=rf"cannot read {tmp_path}: Is a directory"):
        read_config(tmp_path)


def test_none_is_a_number_where_it_may_be() -> None:
    config = DecoderConfig("x", {"shared": 0, "fewer": -1})
    assert (config.number("shared", 5, least=0), config.number("other", 0, least=0)) == (0, 0)
    with pytest.raises(UsageError, match="fewer = -1; a whole number was expected"):
        config.number("fewer", 0, least=0)


@pytest.mark.parametrize("value", [0, -1, 1.5, "8", None])
def test_numbers_are_whole_and_positive(value: object) -> None:
    with pytest.raises(UsageError, match="a whole number was expected"):
        DecoderConfig("x", {"hidden_size": value}).number("hidden_size")


@pytest.mark.parametrize("value", [True, 8.0, "8", [8], 0, -3])
def test_a_number_is_whole_and_above_0(value: object) -> None:
    with pytest.raises(
        UsageError, match=r"the config of x has num_hidden_layers = .*; a whole number was expected"
    ):
        DecoderConfig("x", {"num_hidden_layers": value}).number("num_hidden_layers")


def test_no_model_has_so_many_layers() -> None:
    with pytest.raises(UsageError, match=r"num_hidden_layers = 10{30}; at most 10,000 were expected"):
        DecoderConfig("x", {"num_hidden_layers": 10**30}).number("num_hidden_layers")


@pytest.mark.parametrize("part", [5, None, [1]])
def test_a_part_of_the_text_that_is_none_is_not_looked_at(part: object) -> None:
    assert DecoderConfig("x", {"text_config": part, "hidden_size": 4}).number("hidden_size") == 4
