"""What vLLM tells of tokens besides, where it is asked to: `return_token_ids` and `prompt_logprobs`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sapwood.chat.openai_render import LOGPROB_FLOOR, Json, Render, TokenNames
from sapwood.types import Delta, Event, PromptScored, SamplingParams, TokenLogprob, Usage


@dataclass(frozen=True, slots=True)
class TokenDetails:
    """What is to be told.

    Attributes:
        ids: the ids of prompt and answer.
        prompt_logprobs: scores of the prompt with so many top entries, None for none.
    """

    ids: bool = False
    prompt_logprobs: int | None = None

    def told(
        self, render: Render, names: TokenNames, prompts: Sequence[tuple[int, ...]], params: SamplingParams
    ) -> Render:
        """The render of a completion, which tells this too: all of it in the choices."""
        return _Detailed(render, names, self, prompts, params) if self else render

    def told_of_chat(
        self, render: Render, names: TokenNames, prompt: tuple[int, ...], params: SamplingParams
    ) -> Render:
        """The render of a chat: what is of the prompt stands beside the choices."""
        return _Detailed(render, names, self, [prompt], params, beside=True) if self else render

    def __bool__(self) -> bool:
        return self.ids or self.prompt_logprobs is not None


class _Detailed:
    """Any render of OpenAI's objects, whole or in chunks, with details of the tokens added to them."""

    def __init__(
        self,
        render: Render,
        names: TokenNames,
        wanted: TokenDetails,
        prompts: Sequence[tuple[int, ...]],
        params: SamplingParams,
        *,
        beside: bool = False,
    ) -> None:
        self._render, self._names, self._wanted = render, names, wanted
        self._prompts, self._n, self._beside = prompts, params.n, beside
        self._echoed = params.logprobs
        self._ids: dict[int, list[int]] = {}
        """By choice: those drawn and not told yet."""
        self._scores: dict[int, tuple[TokenLogprob | None, ...]] = {}
        self._begun: set[int] = set()
        """Whose prompt's ids were told: choices, or the one chat."""

    def feed(self, prompt: int, event: Event) -> list[Json]:
        if isinstance(event, Delta):
            self._ids.setdefault(prompt * self._n + event.sample, []).extend(event.token_ids)
        elif isinstance(event, PromptScored):
            self._scores[prompt] = event.logprobs
            # An echo tells as many top entries as the answer does, whatever is told here.
            event = replace(event, logprobs=_cut(event.logprobs, self._echoed or 0))
        return [self._detailed(chunk) for chunk in self._render.feed(prompt, event)]

    def end(self, usages: Sequence[Usage]) -> list[Json]:
        return [self._detailed(chunk) for chunk in self._render.end(usages)]

    def _detailed(self, chunk: Json) -> Json:
        choices = [self._choice(choice) for choice in chunk["choices"]]
        beside = self._of_prompt(0, 0) if self._beside and choices else {}
        return {**chunk, "choices": choices, **beside}

    def _choice(self, choice: Json) -> Json:
        index = choice["index"]
        own = {"token_ids": self._ids.pop(index, [])} if self._wanted.ids else {}
        return {**choice, **own, **({} if self._beside else self._of_prompt(index // self._n, index))}

    def _of_prompt(self, prompt: int, place: int) -> Json:
        """Its ids in the first object alone."""
        told: Json = {}
        if self._wanted.ids and place not in self._begun:
            told["prompt_token_ids"] = list(self._prompts[prompt])
        self._begun.add(place)
        if self._wanted.prompt_logprobs is not None:
            told["prompt_logprobs"] = [
                None if entry is None else self._ranked(entry, self._wanted.prompt_logprobs)
                for entry in self._scores.get(prompt, ())
            ]
        return told

    def _ranked(self, entry: TokenLogprob, top: int) -> Json:
        """By token id: the likeliest, and the prompt's own, whose rank is told if it is one of these."""
        ranked = {
            str(token): self._entry(token, logprob, rank)
            for rank, (token, logprob) in enumerate(entry.top[:top], 1)
        }
        ranked.setdefault(str(entry.token), self._entry(entry.token, entry.logprob, None))
        return ranked

    def _entry(self, token: int, logprob: float, rank: int | None) -> dict[str, Any]:
        return {
            "logprob": max(logprob, LOGPROB_FLOOR),
            "rank": rank,
            "decoded_token": self._names.token_text(token),
        }


def _cut(scores: Sequence[TokenLogprob | None], top: int) -> tuple[TokenLogprob | None, ...]:
    return tuple(None if entry is None else replace(entry, top=entry.top[:top]) for entry in scores)
