"""Key-value facts of a model file, read with their types checked; failures name the key and the file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from sapwood.errors import ModelError

_LARGEST = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Facts:
    """`values` as found in `source` (a file's name, for messages). Getters raise ModelError."""

    source: str
    values: Mapping[str, object]

    def has(self, key: str) -> bool:
        """Whether the key is there and not null."""
        return self.values.get(key) is not None

    def integer(self, key: str, default: int | None = None) -> int:
        """A whole number in 0 .. 2³¹ − 1."""
        value = self._get(key, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= _LARGEST:
            raise self._wrong(key, value, f"a whole number from 0 to {_LARGEST}")
        return value

    def number(self, key: str, default: float | None = None) -> float:
        """A finite number."""
        value = self._get(key, default)
        if not isinstance(value, (int, float)) or isinstance(value, bool) or not abs(value) <= 1e300:
            raise self._wrong(key, value, "a finite number")
        return float(value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._get(key, default)
        if not isinstance(value, bool):
            raise self._wrong(key, value, "true or false")
        return value

    def text(self, key: str, default: str | None = None) -> str:
        value = self._get(key, default)
        if not isinstance(value, str):
            raise self._wrong(key, value, "a text")
        return value

    def numbers(self, key: str) -> tuple[float, ...]:
        """A list of finite numbers."""
        value = self._get(key, None)
        if not isinstance(value, list):
            raise self._wrong(key, value, "a list of numbers")
        named = {f"{key}[{i}]": number for i, number in enumerate(value)}
        return tuple(Facts(self.source, named).number(name) for name in named)

    def texts(self, key: str) -> tuple[str, ...]:
        """A list of texts."""
        value = self._get(key, None)
        if not isinstance(value, list):
            raise self._wrong(key, value, "a list of texts")
        named = {f"{key}[{i}]": text for i, text in enumerate(value)}
        return tuple(Facts(self.source, named).text(name) for name in named)

    def table(self, key: str) -> Facts:
        """A nested object; empty where the key is missing or null."""
        value = self.values.get(key)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self._wrong(key, value, "an object")
        return Facts(f"{self.source}, {key}", value)

    def _get(self, key: str, default: object) -> object:
        value = self.values.get(key)
        if value is not None:
            return value
        if default is None:
            raise ModelError(f"{self.source} lacks the key {key!r}")
        return default

    def _wrong(self, key: str, value: object, expected: str) -> ModelError:
        shown = repr(value) if not isinstance(value, float) or math.isfinite(value) else str(value)
        return ModelError(f"{self.source}: {key!r} is {shown[:80]}; it must be {expected}")
