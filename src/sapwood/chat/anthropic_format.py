"""`output_config` of an Anthropic-shaped body: the form of the answer, and how much effort goes into it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sapwood.chat.body import at, clean_text, object_at, shown
from sapwood.chat.openai_format import only_one, parse_schema
from sapwood.errors import RequestError
from sapwood.types import Constraint

MAX_EFFORT = 64
"""Characters of its name. There are new ones now and then, and none changes an answer here."""


@dataclass(frozen=True, slots=True)
class Output:
    """Attributes:
    form: what the answer must be.
    effort: as it was written; what is left out is the same as the default.
    """

    form: Constraint | None = None
    effort: str | None = None

    @property
    def system_key(self) -> str:
        """The form as part of a cached prefix's key. The vendor tells it to the model before the system text."""
        return "" if self.form is None else self.form.text


def parse_output(extra: Mapping[str, Any]) -> Output:
    """`output_config`, or its older `output_format`. Raises RequestError that names the offending field."""
    given = extra.get("output_config")
    config = {} if given is None else object_at(given, "output_config")
    forms = {"output_config.format": config.get("format"), "output_format": extra.get("output_format")}
    form = only_one(_form(value, path) for path, value in forms.items() if value is not None)
    return Output(form, _effort(config.get("effort")))


def _form(value: object, path: str) -> Constraint:
    if not isinstance(value, dict) or value.get("type") != "json_schema":
        kind = value.get("type") if isinstance(value, dict) else value
        raise RequestError(f"'{path}.type' is {shown(kind)}; it must be 'json_schema'", param=f"{path}.type")
    schema = f"{path}.schema"
    return parse_schema(object_at(value.get("schema"), schema), schema)


def _effort(value: object) -> str | None:
    path = "output_config.effort"
    if value is None:
        return None
    if not isinstance(value, str) or len(value) > MAX_EFFORT:
        raise RequestError(
            f"{path!r} is {shown(value)}; it must be low, medium, high, xhigh or max", param=path
        )
    return None if value == "high" else at(path, clean_text, value)
