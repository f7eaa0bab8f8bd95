"""Tiny models, made once per session."""

from __future__ import annotations

from pathlib import Path

import pytest

from model import tiny


@pytest.fixture(scope="session")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_llama(tmp_path_factory.mktemp("llama"))


@pytest.fixture(scope="session")
def llama_gguf(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.gguf_of(llama, tmp_path_factory.mktemp("gguf") / "tiny.gguf")
