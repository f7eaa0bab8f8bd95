"""Questions about long documents, several users at a time; each document is asked about often."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ..asking import Ask, Server
from ..needs import Needs
from ..prompts import Prompts
from ..rows import Goal, Measure
from ..sizes import Size, sized
from .base import ask_all, joined


@dataclass(frozen=True, slots=True)
class Documents:
    """The first questions to all documents come first, then the second ones, and so on."""

    documents: int
    document_tokens: int
    questions: int
    question_tokens: int
    max_tokens: int
    pairs: int
    name = "documents"
    like = "documents"
    at_once = 4
    short = False
    measures = (
        Measure("throughput", "requests/s", "higher", Goal("ratio", "at least", 1.5)),
        Measure("ttft_p50", "ms", "lower"),
        Measure("ttft_p95", "ms", "lower"),
    )

    @property
    def needs(self) -> Needs:
        return Needs(2 * self.at_once)  # as in other cases: one start for all

    @property
    def regime(self) -> Mapping[str, Any]:
        return {
            "documents": self.documents,
            "document_tokens": self.document_tokens,
            "questions": self.questions,
            "question_tokens": self.question_tokens,
            "max_tokens": self.max_tokens,
            "at_once": self.at_once,
        }

    async def run(self, server: Server, prompts: Prompts, trial: int) -> Mapping[str, float]:
        texts = [
            prompts.piece(self.document_tokens, self.name, trial, number) for number in range(self.documents)
        ]
        asks = [
            Ask(
                joined(text, prompts.piece(self.question_tokens, self.name, trial, number, question)),
                self.max_tokens,
            )
            for question in range(self.questions)
            for number, text in enumerate(texts)
        ]
        return (await ask_all(server, asks, self.at_once)).under_load()


def case(size: Size) -> Documents:
    return Documents(
        documents=sized(size, quick=2, normal=4),
        document_tokens=sized(size, quick=64, normal=3000, scout=750),
        questions=sized(size, quick=2, normal=10, scout=4),
        question_tokens=sized(size, quick=8, normal=24, scout=8),
        max_tokens=sized(size, quick=4, normal=16, scout=4),
        pairs=sized(size, quick=1, normal=3),
    )
