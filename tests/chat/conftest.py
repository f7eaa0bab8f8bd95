"""Tokenizers that the chat tests share: the default model's, and tiny ones."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import tokenizers

from model import tiny
from sapwood.chat.tokenizer import Tokenizer
from sapwood.model.gguf_file import read_gguf


@pytest.fixture(scope="session")
def default_facts() -> Mapping[str, object]:
    return read_gguf(tiny.default_model()).facts


@pytest.fixture(scope="session")
def smollm(default_facts: Mapping[str, object]) -> Tokenizer:
    return Tokenizer.from_gguf(default_facts)


@pytest.fixture(scope="session")
def judge() -> Any:
    """transformers' tokenizer of the default model's file, its one known fault mended.

    transformers cuts this GGUF's text by GPT-2's pattern alone. The model's own tokenizer.json says
    Sequence[Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)].
    """
    from transformers import AutoTokenizer

    path = tiny.default_model()
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    digits = tokenizers.pre_tokenizers.Digits(individual_digits=True)
    byte_level = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.backend_tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Sequence([digits, byte_level])
    return tokenizer


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizer")
    tiny.write_tokenizer(folder)
    return folder


@pytest.fixture(scope="session")
def small(tiny_folder: Path) -> Tokenizer:
    """Every byte is a token of its own."""
    config = json.loads((tiny_folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    return Tokenizer.from_json(tiny_folder / "tokenizer.json", config)


@pytest.fixture(scope="session")
def sentencepiece() -> Tokenizer:
    return Tokenizer.from_gguf(sentencepiece_facts())


def sentencepiece_facts() -> dict[str, object]:
    """A GGUF vocabulary of the `llama` kind, with bytes, a few words, and merges that would reach `<s>`."""
    control = ["<unk>", "<s>", "</s>"]
    raw = [f"<0x{byte:02X}>" for byte in range(256)]
    words = [
        "▁",
        "s",
        ">",
        "<",
        "h",
        "e",
        "l",
        "o",
        "w",
        "r",
        "d",
        "s>",
        "he",
        "ll",
        "hell",
        "hello",
        "▁hello",
        "wo",
    ]
    words += ["wor", "ld", "world", "▁world", "▁▁", "é", "世"]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": control + raw + words,
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * len(words),
        "tokenizer.ggml.scores": [0.0] * 3 + [0.0] * 256 + [-float(i) for i in range(len(words))],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
    }
