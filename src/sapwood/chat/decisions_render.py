"""Engine events → the JSON of `/v1/decisions`: how likely each answer is, of those that a question allows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sapwood.chat.decision_prompts import DecisionPrompts
from sapwood.chat.decisions import Question
from sapwood.chat.openai_render import LOGPROB_FLOOR, Json
from sapwood.types import Event, PromptScored, Usage


@dataclass(frozen=True, slots=True)
class Weighed:
    """Which answer a prompt of the call is for, and how many tokens it has before that."""

    question: int
    candidate: int
    start: int


def weighed(prompts: DecisionPrompts) -> tuple[Weighed, ...]:
    """Of the call's prompts, in order: all answers of the first question, then those of the second."""
    return tuple(
        Weighed(q, c, len(prompts.shared) + len(each.question))
        for q, each in enumerate(prompts.asked)
        for c in range(len(each.answers))
    )


class DecisionsAnswer:
    """Folds the scores of all prompts into one answer."""

    def __init__(self, model: str, questions: Sequence[Question], prompts: DecisionPrompts) -> None:
        self._model, self._questions = model, questions
        self._weighed, self._shared = weighed(prompts), len(prompts.shared)
        self._input_tokens = prompts.input_tokens
        self._scores = [[LOGPROB_FLOOR] * len(question.candidates) for question in questions]

    def feed(self, prompt: int, event: Event) -> list[Json]:
        if isinstance(event, PromptScored):
            at = self._weighed[prompt]
            scored = (entry for entry in event.logprobs[at.start :] if entry is not None)
            score = math.fsum(max(entry.logprob, LOGPROB_FLOOR) for entry in scored)
            self._scores[at.question][at.candidate] = score
        return []

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        # Whoever read the input first found the least of it; the others also find what that one computed.
        cached = min(self._shared, *(usage.reused for usage in usages))
        return [
            {
                "answers": list(self._answers()),
                "model": self._model,
                "usage": {
                    "input_tokens": self._input_tokens,
                    "input_tokens_details": {"cached_tokens": cached, "cache_write_tokens": 0},
                    "output_tokens": 0,
                    "output_tokens_details": {"reasoning_tokens": 0},
                    "total_tokens": self._input_tokens,
                },
            }
        ]

    def _answers(self) -> Iterator[Json]:
        for question, scores in zip(self._questions, self._scores, strict=True):
            yield answer_json(question, probabilities(scores))


def probabilities(scores: Sequence[float]) -> list[float]:
    """Softmax of natural-log scores."""
    highest = max(scores)
    weights = [math.exp(score - highest) for score in scores]
    total = math.fsum(weights)
    return [weight / total for weight in weights]


def answer_json(question: Question, chances: Sequence[float]) -> Json:
    """One of `answers`. Of equally likely answers the first is chosen; the value of a level is its index."""
    if question.kind == "predicate":
        return {"type": "predicate", "name": question.name, "probability": chances[0]}
    values = [candidate.value for candidate in question.candidates]
    answer: Json = {"type": question.kind, "name": question.name, "confidence": max(chances)}
    if question.kind == "choice":
        listed = [{"value": value, "probability": p} for value, p in zip(values, chances, strict=True)]
        return {**answer, "choice": values[chances.index(max(chances))], "probabilities": listed}
    return {
        **answer,
        "score": math.fsum(level * p for level, p in enumerate(chances)),
        "probabilities": [
            {"value": level, "label": label, "probability": p}
            for level, (label, p) in enumerate(zip(values, chances, strict=True))
        ],
    }
