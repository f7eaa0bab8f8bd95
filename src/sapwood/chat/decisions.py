"""Bodies of `POST /v1/decisions` → questions, each with the answers that the model is to weigh.

A question is put to the model as text, and every answer that it may give is one text too: Yes or No, the value of a
choice, the label of a level.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from sapwood.chat.body import Body, Integer, Text, at, clean_text, read_body, shown
from sapwood.chat.decision_input import DecisionInput, parse_input, question_parts
from sapwood.chat.unsupported import HARMLESS, refuse_misspelt, unknown
from sapwood.errors import RequestError

MAX_QUESTIONS = 400
MAX_CHOICES = 255
MAX_LEVELS = 10
MAX_ANSWERS = 4096
"""Answers to weigh in one call, over all its questions: each is a prompt of the engine."""

Value = str | bool


@dataclass(frozen=True, slots=True)
class Candidate:
    """An answer: its value as the client wrote it, and what the model would say. No two texts of a question are
    equal."""

    value: Value
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """Attributes:
    name: the client's for it.
    text: what the model is asked.
    candidates: in the client's order; of a predicate, the yes first.
    """

    kind: Literal["predicate", "choice", "score"]
    name: str | None
    text: str
    candidates: tuple[Candidate, ...]


@dataclass(frozen=True, slots=True)
class DecisionCall:
    model: str | None
    input: DecisionInput
    questions: tuple[Question, ...]
    salt: str
    priority: int
    ignored: tuple[str, ...]
    """Names of unknown fields in the body."""


class _Choice(Body):
    value: Any
    description: Text | None = None


class _Level(Body):
    label: Annotated[Text, Field(min_length=1)]
    description: Text | None = None


class _Question(Body):
    type: Literal["predicate", "choice", "score"]
    instructions: Any
    name: Text | None = None
    choices: Annotated[list[_Choice], Field(min_length=2, max_length=MAX_CHOICES, fail_fast=True)] | None = (
        None
    )
    levels: Annotated[list[_Level], Field(min_length=2, max_length=MAX_LEVELS, fail_fast=True)] | None = None


class _Decisions(Body):
    model: Text | None = None
    input: Any
    questions: Annotated[list[_Question], Field(min_length=1, fail_fast=True)]
    stream: bool | None = None
    cache_salt: Annotated[Text, Field(min_length=1, max_length=256)] | None = None
    priority: Integer | None = None


def parse_decisions(fields: Mapping[str, Any]) -> DecisionCall:
    """The body. Its prompt-cache fields are read by `prompt_cache`. Raises RequestError that names what is wrong."""
    body = read_body(_Decisions, fields, {"questions": MAX_QUESTIONS})
    if body.stream:
        raise RequestError("'stream' is true; decisions come in one piece", param="stream")
    ignored = unknown(body.model_extra or {}, {})
    refuse_misspelt(ignored, [*_Decisions.model_fields, *HARMLESS])
    questions = tuple(_question(each, f"questions[{i}]") for i, each in enumerate(body.questions))
    answers = sum(len(question.candidates) for question in questions)
    if answers > MAX_ANSWERS:
        raise RequestError(
            f"'questions' have {answers} answers to weigh; one call may have {MAX_ANSWERS}",
            param="questions",
            hint="split the call",
        )
    return DecisionCall(
        body.model,
        parse_input(body.input),
        questions,
        body.cache_salt or "",
        body.priority or 0,
        tuple(ignored),
    )


def _question(body: _Question, path: str) -> Question:
    for name, given, kind in (("choices", body.choices, "choice"), ("levels", body.levels, "score")):
        if given is None and body.type == kind:
            raise RequestError(
                f"'{path}.{name}' is required", param=f"{path}.{name}", code="missing_required_parameter"
            )
        if given is not None and body.type != kind:
            raise RequestError(f"'{path}.{name}' does not go with a {body.type}", param=f"{path}.{name}")
    asked = "\n".join(question_parts(body.instructions, f"{path}.instructions")).strip()
    if not asked:
        raise RequestError(f"'{path}.instructions' is empty", param=f"{path}.instructions")
    candidates = _candidates(body, path)
    described = [each.description for each in body.choices or body.levels or ()]
    return Question(body.type, body.name, _text(body.type, asked, candidates, described), candidates)


def _candidates(body: _Question, path: str) -> tuple[Candidate, ...]:
    if body.choices is not None:
        return _choices([choice.value for choice in body.choices], f"{path}.choices")
    if body.levels is not None:
        labels = [level.label for level in body.levels]
        _check_distinct(labels, f"{path}.levels", "label")
        return tuple(Candidate(label, label) for label in labels)
    return (Candidate(True, "Yes"), Candidate(False, "No"))


def _choices(values: Sequence[Any], path: str) -> tuple[Candidate, ...]:
    """Beside truth values, texts are quoted: `true` and "true" are two choices."""
    for i, value in enumerate(values):
        if not isinstance(value, bool) and not (isinstance(value, str) and value):
            raise RequestError(
                f"'{path}[{i}].value' is {shown(value)}; it must be a text, or true or false",
                param=f"{path}[{i}].value",
            )
        if isinstance(value, str):
            at(f"{path}[{i}].value", clean_text, value)
    _check_distinct(values, path, "value")
    quoted = any(isinstance(value, bool) for value in values)
    return tuple(Candidate(each, json.dumps(each, ensure_ascii=False) if quoted else each) for each in values)


def _check_distinct(values: Iterable[Value], path: str, name: str) -> None:
    seen: set[Value] = set()
    for i, value in enumerate(values):
        if value in seen:
            raise RequestError(
                f"'{path}[{i}].{name}' is {shown(value)} once more; each must be another",
                param=f"{path}[{i}].{name}",
            )
        seen.add(value)


def _text(kind: str, asked: str, candidates: Sequence[Candidate], described: Sequence[str | None]) -> str:
    """What is asked of the model. Small ones answer better where the form of the answer stands in brackets."""
    if kind == "predicate":
        return f"{asked} (Yes or No; nothing else)"
    lines = [
        f"- {each.text}: {more}" if more else f"- {each.text}"
        for each, more in zip(candidates, described, strict=True)
    ]
    order = "" if kind == "choice" else ", the lowest first"
    return "\n".join([asked, *lines, f"(One of these{order}; nothing else)"])
