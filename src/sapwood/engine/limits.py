"""What the engine can serve, and the checks at the door: a request that passes will fit."""

from __future__ import annotations

from dataclasses import dataclass

from sapwood.errors import ContextLengthError, RequestError
from sapwood.types import Request


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """What the engine must know of a model."""

    fingerprint: str
    """Names weights, dtypes, rope and KV type; part of every cache namespace."""
    context: int
    """Longest sequence in tokens that the model was made for."""
    vocab_size: int
    eos: tuple[int, ...] = ()
    """Tokens with which the model ends its answer."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds on one sequence, in tokens. Immutable, so any thread may check against it."""

    context: int
    pool: int
    vocab_size: int

    @property
    def longest(self) -> int:
        """Most tokens of prompt and answer together; the last one of an answer needs no place in the pool."""
        return min(self.context, self.pool + 1)

    def check(self, request: Request) -> int:
        """The most tokens (prompt and answer) that this request may reach.

        Raises ContextLengthError when it is too long for the model or the pool, else RequestError.
        """
        self._check_tokens(request)
        self._check_params(request)
        return self._check_length(request)

    def _check_tokens(self, request: Request) -> None:
        if not request.prompt:
            raise RequestError("the prompt is empty; it must hold at least one token", param="prompt")
        outside = next((t for t in request.prompt if not 0 <= t < self.vocab_size), None)
        if outside is not None:
            raise RequestError(
                f"the prompt holds token id {outside}; ids must be between 0 and {self.vocab_size - 1}",
                param="prompt",
            )

    def _check_params(self, request: Request) -> None:
        params = request.params
        for name, ids in (("stop_token_ids", params.stop_token_ids), ("logit_bias", params.logit_bias)):
            outside = next((t for t in ids if not 0 <= t < self.vocab_size), None)
            if outside is not None:
                raise RequestError(
                    f"{name!r} holds token id {outside}; ids must be between 0 and {self.vocab_size - 1}",
                    param=name,
                )
        for name, count in (("logprobs", params.logprobs), ("prompt_logprobs", params.prompt_logprobs)):
            if count is not None and not 0 <= count <= self.vocab_size:
                raise RequestError(
                    f"{name!r} is {count}; it must be between 0 and {self.vocab_size}", param=name
                )
        if params.max_tokens is not None and params.min_tokens > params.max_tokens:
            raise RequestError(
                f"'min_tokens' is {params.min_tokens}; it must be at most max_tokens ({params.max_tokens})",
                param="min_tokens",
            )

    def _check_length(self, request: Request) -> int:
        prompt, answer = len(request.prompt), request.params.max_tokens
        if answer is None:
            # As many as fit, but room for at least one.
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
