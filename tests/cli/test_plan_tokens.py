"""Tokenizers by what people call them."""

from __future__ import annotations

import errno
from pathlib import Path

import numpy as np
import pytest

from model.tiny import write_tokenizer
from sapwood.cli.plan_tokens import tokenizer_named
from sapwood.errors import ModelError, UsageError
from sapwood.sim import text_bytes


def named(name: str | None) -> object:
    return tokenizer_named(name, lambda _: None)


def test_none_is_none_and_bytes_are_bytes() -> None:
    assert named(None) is None
    assert named("bytes") is text_bytes


@pytest.mark.parametrize("place", ["", "tokenizer.json"])
def test_a_file_or_its_folder_needs_no_weights(place: str, tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    tokenize = tokenizer_named(str(tmp_path / place), lambda _: None)
    assert tokenize is not None
    assert 1 <= len(np.asarray(tokenize("Hi there"))) <= 8


def test_of_a_repository_of_the_hub_one_file_is_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_tokenizer(tmp_path)
    asked = []

    def resolve(name: str, progress: object) -> Path:
        del progress
        asked.append(name)
        return tmp_path / "tokenizer.json"

    monkeypatch.setattr("sapwood.model.resolve", resolve)
    assert named("hf:org/name") is not None
    assert named("hf:org/name:other.json") is not None
    assert asked == ["hf:org/name:tokenizer.json", "hf:org/name:other.json"]


def test_a_name_as_the_hub_spells_it_is_told_what_to_write() -> None:
    with pytest.raises(UsageError) as caught:
        named("meta-llama/Llama-3.1-8B")
    assert "there is no tokenizer 'meta-llama/Llama-3.1-8B'" in str(caught.value)
    assert (caught.value.hint or "").startswith("hf:meta-llama/Llama-3.1-8B fetches its tokenizer.json")


@pytest.mark.parametrize("name", ["cl100k", "./none/tokenizer.json", "/no/such", "hf:nothing", ""])
def test_what_is_none_is_told_what_is_one(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        named(name)
    assert (caught.value.hint or "").startswith("give `bytes`, a tokenizer.json or its folder")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (PermissionError(errno.EACCES, "Permission denied"), "Permission denied"),
        (OSError(errno.ENAMETOOLONG, "File name too long"), "File name too long"),
    ],
)
def test_what_may_not_be_looked_for_is_told(
    wrong: OSError, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def is_file(_: Path) -> bool:
        raise wrong

    monkeypatch.setattr(Path, "is_file", is_file)
    with pytest.raises(UsageError, match=f"there is no tokenizer './mine.json': {why}"):
        named("./mine.json")


def test_a_home_of_nobody_is_told() -> None:
    with pytest.raises(UsageError, match=r"there is no tokenizer '~nosuchuser/tok': .*home") as caught:
        named("~nosuchuser/tok")
    assert (caught.value.hint or "").startswith("give `bytes`")


def test_a_file_that_holds_none_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("[]", encoding="utf-8")
    with pytest.raises(ModelError, match="holds no tokenizer"):
        named(str(tmp_path))
