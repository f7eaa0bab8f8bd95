"""A request of a trace with its contents: what comes to a replica's door."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.cache import Namespace, Tokens


@dataclass(frozen=True, slots=True, eq=False)
class Visit:
    """`tokens` are those of the prompt and of the answer that will be given."""

    index: int
    """Of the request in its trace."""
    namespace: Namespace
    tokens: Tokens
    prompt_tokens: int
    asked_tokens: int | None = None
    """Most tokens that its answer might have had, where they were more than it has; what is guessed depends on it."""

    @property
    def prompt(self) -> Tokens:
        return self.tokens[: self.prompt_tokens]

    @property
    def output_tokens(self) -> int:
        return len(self.tokens) - self.prompt_tokens
