"""Engine events → SGLang's `/generate` objects: whole, or in frames that repeat all that was said before."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from sapwood.chat.native_answer import Clock, Growing, Watch, ending_of, logprob_of
from sapwood.chat.openai_render import LOGPROB_FLOOR, Json, TokenNames
from sapwood.types import Delta, Event, Finished, PromptScored, SamplingParams, Started, TokenLogprob, Usage


@dataclass(frozen=True, slots=True)
class GenerateShape:
    """What is told of one prompt's answers. `scored_from`: first prompt token to list, None lists none."""

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams
    scored_from: int | None


class GenerateAnswer:
    """`/generate` in one piece: an object, or a list where there is a batch or more than one sample."""

    def __init__(
        self,
        names: TokenNames,
        shapes: Sequence[GenerateShape],
        clock: Clock,
        *,
        batch: bool,
        with_text: bool,
    ) -> None:
        self._names, self._shapes, self._with_text = names, shapes, with_text
        self._listed = batch or any(shape.params.n > 1 for shape in shapes)
        self._firsts = [0, *accumulate(shape.params.n for shape in shapes)]
        """Index of the first answer to each prompt."""
        self._watch = Watch(clock)
        self._usages: dict[int, Usage] = {}
        self._scores: dict[int, tuple[TokenLogprob | None, ...]] = {}
        self._answers = [[Growing() for _ in range(shape.params.n)] for shape in shapes]

    def feed(self, prompt: int, event: Event) -> list[Json]:
        if isinstance(event, Started | Finished):
            self._usages[prompt] = event.usage
        elif isinstance(event, PromptScored):
            self._scores[prompt] = event.logprobs
        else:
            self._answers[prompt][event.sample].add(event)
        return []

    def end(self, usages: Sequence[Usage]) -> list[Any]:  # noqa: ARG002 (each was fed)
        answers = [
            self._object(prompt, sample)
            for prompt, samples in enumerate(self._answers)
            for sample in range(len(samples))
        ]
        return [answers] if self._listed else answers

    def _object(self, prompt: int, sample: int) -> Json:
        answer = self._answers[prompt][sample]
        return {
            "text": answer.text,
            "output_ids": list(answer.tokens),
            "meta_info": self._meta(prompt, answer),
        }

    def _meta(self, prompt: int, answer: Growing) -> Json:
        shape, usage = self._shapes[prompt], self._usages.get(prompt)
        reused = 0 if usage is None else usage.reused
        meta: Json = {
            "id": shape.id,
            "finish_reason": self._finish(shape, answer),
            "prompt_tokens": len(shape.prompt),
            "completion_tokens": len(answer.tokens),
            "cached_tokens": reused,
            "cached_tokens_details": {"device": reused, "host": 0},
            "weight_version": "default",
            "e2e_latency": self._watch.total_seconds,
        }
        if shape.params.logprobs is not None:
            meta |= self._logprobs(prompt, answer)
        return meta

    def _finish(self, shape: GenerateShape, answer: Growing) -> Json | None:
        if answer.finish == "stop":
            ending = ending_of(answer, shape.params.stop, shape.params.stop_token_ids, self._names)
            return {"type": "stop", "matched": ending.token if ending.stop is None else ending.stop}
        if answer.finish == "length":
            return {"type": "length", "length": len(answer.tokens)}
        return None if answer.finish is None else {"type": "abort", "message": answer.finish}

    def _logprobs(self, prompt: int, answer: Growing) -> Json:
        shape = self._shapes[prompt]
        scores: Sequence[TokenLogprob | None] = ()
        tokens: Sequence[int] = ()
        if shape.scored_from is not None:
            # As in SGLang the first entry has no value, wherever the list begins.
            scores = (None, *self._scores.get(prompt, ())[shape.scored_from + 1 :])
            tokens = shape.prompt[shape.scored_from :]
        drawn = [entry.token for entry in answer.logprobs]
        told = {
            "input_token_logprobs": self._chosen(tokens, scores),
            "output_token_logprobs": self._chosen(drawn, answer.logprobs),
        }
        if shape.params.logprobs:
            told["input_top_logprobs"] = self._top(scores)
            told["output_top_logprobs"] = self._top(answer.logprobs)
        return told

    def _chosen(self, tokens: Sequence[int], scores: Sequence[TokenLogprob | None]) -> list[Any]:
        pairs = zip(tokens, scores, strict=False)
        return [[logprob_of(entry), token, self._text(token)] for token, entry in pairs]

    def _top(self, scores: Sequence[TokenLogprob | None]) -> list[Any]:
        return [
            None
            if entry is None
            else [[max(logprob, LOGPROB_FLOOR), token, self._text(token)] for token, logprob in entry.top]
            for entry in scores
        ]

    def _text(self, token: int) -> str | None:
        return self._names.token_text(token) if self._with_text else None


class GenerateStream(GenerateAnswer):
    """`/generate` in frames: each holds all of its answer so far; with several answers, its `index`."""

    def feed(self, prompt: int, event: Event) -> list[Json]:
        super().feed(prompt, event)
        if not isinstance(event, Delta):
            return []
        frame = self._object(prompt, event.sample)
        if self._listed:
            frame["index"] = self._firsts[prompt] + event.sample
        return [frame]

    def end(self, usages: Sequence[Usage]) -> list[Any]:  # noqa: ARG002
        return []
