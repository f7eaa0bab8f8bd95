"""Between text and ids in a shim, from a Hugging Face folder; needs `tokenizers` and `jinja2`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jinja2.sandbox
import tokenizers
from tokenizers.decoders import DecodeStream


class FolderTexts:
    def __init__(self, folder: Path) -> None:
        self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        config: Mapping[str, Any] = json.loads((folder / "tokenizer_config.json").read_text())
        environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        self._template = environment.from_string(config["chat_template"])

    def encode(self, text: str) -> Sequence[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)

    def chat(self, messages: Sequence[Mapping[str, str]]) -> Sequence[int]:
        return self.encode(self._template.render(messages=messages, add_generation_prompt=True))

    def decoder(self) -> Callable[[Sequence[int]], str]:
        stream = DecodeStream(skip_special_tokens=True)
        return lambda ids: "".join(stream.step(self._tokenizer, token) or "" for token in ids)
