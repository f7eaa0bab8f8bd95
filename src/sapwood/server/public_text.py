"""A text that the operator shares with all tenants, from `[[public_prefix]]` in the file of `--api-keys`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args

from sapwood.chat import ChatTemplate, Conversation, Message, Tokenizer, encode_prompt
from sapwood.chat.encode import encode_segments, render_conversation
from sapwood.errors import RequestError, UsageError

Role = Literal["system", "raw"]

_FIELDS = ("name", "file", "role")
_NAME = re.compile(r"[\w.:-]{1,64}", re.ASCII)

MOST_TEXTS = 16
"""Each lookup compares a prompt with all of them."""


@dataclass(frozen=True, slots=True)
class PublicText:
    """Attributes:
    role: `system` begins the system message of a chat, `raw` a prompt that is taken as it is.
    """

    name: str
    text: str
    role: Role = "system"

    def tokens(self, tokenizer: Tokenizer, template: ChatTemplate) -> tuple[int, ...]:
        """What all prompts begin with that begin with this text. Raises UsageError where there is no such thing."""
        try:
            if self.role == "raw":
                return encode_prompt(tokenizer, self.text)
            return self._of_chats(tokenizer, template)
        except RequestError as error:
            raise UsageError(f"public prefix {self.name!r}: {error.message}", hint=error.hint) from error

    def _of_chats(self, tokenizer: Tokenizer, template: ChatTemplate) -> tuple[int, ...]:
        """Of two chats with this system message, whose users have nothing in common, what both begin with."""
        chats = [
            render_conversation(
                template, Conversation((Message("system", (self.text,)), Message("user", (said,))))
            )
            for said in ("a", "b")
        ]
        one, other = ("".join(segment.text for segment in chat) for chat in chats)
        if self.text not in one[: _agreed(one, other)]:
            raise UsageError(
                f"public prefix {self.name!r}: the model's chat template does not begin with the system message",
                hint='take role = "raw" and write the beginning of the prompt as the template does',
            )
        tokens, others = (encode_segments(tokenizer, chat) for chat in chats)
        return tuple(tokens[: _agreed(tokens, others)])


def _agreed(one: Sequence[object], other: Sequence[object]) -> int:
    """How many leading items both have."""
    differs = (n for n, (a, b) in enumerate(zip(one, other, strict=False)) if a != b)
    return next(differs, min(len(one), len(other)))


def read_public_text(table: Mapping[str, Any], folder: Path) -> PublicText:
    """From one table; a relative `file` lies in `folder`. Raises UsageError."""
    for field in table:
        if field not in _FIELDS:
            raise UsageError(f"there is no field {field[:100]!r}; the fields are {', '.join(_FIELDS)}")
    name, file, role = table.get("name"), table.get("file"), table.get("role", "system")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise UsageError(
            f"name is {str(name)[:100]!r}; it must have 1 to 64 letters, digits or any of . _ : -"
        )
    if role not in get_args(Role):
        raise UsageError(f"role is {str(role)[:100]!r}; it must be 'system' or 'raw'")
    if not isinstance(file, str) or not file:
        raise UsageError(f"{name}: file must be the path of a text", hint=f"a relative one lies in {folder}")
    return PublicText(name, _read(folder / file), role)


def _read(path: Path) -> str:
    try:
        text = path.read_bytes().decode()
    except (OSError, ValueError) as error:
        said = (error.strerror if isinstance(error, OSError) else None) or error
        raise UsageError(
            f"cannot read the public prefix {path}: {said}", hint="file must name a text in UTF-8"
        ) from None
    # Editors end a file with a line break; nobody means it.
    text = text.removesuffix("\n").removesuffix("\r")
    if not text.strip():
        raise UsageError(f"the public prefix {path} is empty", hint="write what tenants share into it")
    return text
