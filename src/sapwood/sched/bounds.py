"""How long a sequence may become, and who is told at the door that it is too long: what is let in can be placed."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.errors import ContextLengthError


@dataclass(frozen=True, slots=True)
class Bounds:
    """On one sequence, in tokens."""

    context: int
    """Longest sequence that the model may read."""
    pool: int
    """Tokens that the pool holds."""

    @property
    def longest(self) -> int:
        """Most tokens of prompt and answer together; the last one of an answer needs no place in the pool."""
        return min(self.context, self.pool + 1)

    def max_len(self, prompt: int, answer: int | None) -> int:
        """Tokens that a sequence may come to which asks for so many (None: as many as fit, at least one).

        Raises ContextLengthError if that is more than there can be.
        """
        if answer is None:
            self._check_total(prompt, 1)
            return self.longest
        self._check_total(prompt, answer)
        return prompt + answer

    def _check_total(self, prompt: int, answer: int) -> None:
        total = prompt + answer
        asked = f"the prompt has {prompt} tokens and up to {answer} are to be generated, {total} in all"
        hint = "shorten the prompt or lower max_tokens"
        if total > self.context:
            raise ContextLengthError(
                f"{asked}; the context is limited to {self.context} tokens", param="prompt", hint=hint
            )
        if total > self.pool + min(answer, 1):
            raise ContextLengthError(
                f"{asked}; the KV pool holds {self.pool} tokens",
                param="prompt",
                hint=f"{hint}, or start the server with more --kv-memory",
            )
