"""Engine events → llama.cpp's `/completion` objects, whole or in frames, with its `timings`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sapwood.chat.native_answer import Clock, Growing, Watch, ending_of
from sapwood.chat.openai_render import LOGPROB_FLOOR, Json, TokenNames
from sapwood.types import Delta, Event, SamplingParams, Started, TokenLogprob, Usage

NO_SLOT = -1
"""There are no slots: any request finds any prefix. Sent back in a request, this asks for none."""

_ABSENT = object()


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """What is told of the answers. `prompts` is how many there are; for the rest see `LlamaCall`."""

    model: str
    prompts: int
    params: SamplingParams
    tokens: bool
    timed: bool
    progress: bool = False
    only: tuple[str, ...] = ()


class LlamaAnswer:
    """`/completion` in one piece: an object, or a list of them where there is more than one prompt."""

    def __init__(self, names: TokenNames, shape: LlamaShape, clock: Clock) -> None:
        self._names, self._shape = names, shape
        self._answers = [Growing() for _ in range(shape.prompts)]
        self._watches = [Watch(clock) for _ in range(shape.prompts)]

    def feed(self, prompt: int, event: Event) -> list[Json]:
        self._watches[prompt].note(event)
        if isinstance(event, Delta):
            self._answers[prompt].add(event)
        return []

    def end(self, usages: Sequence[Usage]) -> list[Any]:
        answers = [
            only(
                self._shape.only,
                {
                    **self._final(prompt, usage),
                    "content": self._answers[prompt].text,
                    "tokens": list(self._answers[prompt].tokens) if self._shape.tokens else [],
                    **self._probabilities(self._answers[prompt].logprobs),
                },
            )
            for prompt, usage in enumerate(usages)
        ]
        return [answers] if self._shape.prompts > 1 else answers

    def _final(self, prompt: int, usage: Usage) -> Json:
        answer, params = self._answers[prompt], self._shape.params
        ending = ending_of(answer, params.stop, params.stop_token_ids, self._names)
        kind = "limit" if answer.finish != "stop" else "eos" if ending.stop is None else "word"
        return {
            "index": prompt,
            "content": "",
            "tokens": [],
            "id_slot": NO_SLOT,
            "stop": True,
            "model": self._shape.model,
            "tokens_predicted": len(answer.tokens),
            "tokens_evaluated": usage.prompt_tokens,
            "tokens_cached": usage.prompt_tokens + len(answer.tokens),
            "generation_settings": settings_json(params),
            "has_new_line": "\n" in answer.text,
            "truncated": False,
            "stop_type": kind,
            "stopping_word": ending.stop or "",
            "timings": self._watches[prompt].timings(),
        }

    def _probabilities(self, entries: Sequence[TokenLogprob]) -> Json:
        if self._shape.params.logprobs is None:
            return {}
        listed = [
            {
                **self._entry(entry.token, entry.logprob),
                "top_logprobs": [self._entry(*pair) for pair in entry.top],
            }
            for entry in entries
        ]
        return {"completion_probabilities": listed}

    def _entry(self, token: int, logprob: float) -> Json:
        return {
            "id": token,
            "token": self._names.token_text(token),
            "bytes": list(self._names.token_bytes(token)),
            "logprob": max(logprob, LOGPROB_FLOOR),
        }


class LlamaStream(LlamaAnswer):
    """`/completion` in frames: a piece of text each, and one without text at the end of each prompt's answer."""

    def feed(self, prompt: int, event: Event) -> list[Json]:
        first = not self._watches[prompt].predicted
        super().feed(prompt, event)
        frames = []
        if self._shape.progress and (isinstance(event, Started) or (first and isinstance(event, Delta))):
            frames.append(self._progress(prompt, done=isinstance(event, Delta)))
        if not isinstance(event, Delta):
            return frames
        if event.text or event.token_ids:
            frames.append(self._frame(prompt, event))
        if event.finish is not None:
            watch = self._watches[prompt]
            usage = Usage(watch.prompt_tokens, watch.reused, {})
            frames.append(only(self._shape.only, self._final(prompt, usage)))
        return frames

    def end(self, usages: Sequence[Usage]) -> list[Any]:  # noqa: ARG002 (each answer has ended)
        return []

    def _progress(self, prompt: int, *, done: bool) -> Json:
        """How much of the prompt is there: what was reused at first, in the end all of it."""
        watch = self._watches[prompt]
        progress = {
            "total": watch.prompt_tokens,
            "cache": watch.reused,
            "processed": watch.prompt_tokens if done else watch.reused,
            "time_ms": round(watch.prompt_seconds * 1000),
        }
        return {**self._frame(prompt, Delta("", 0, "", ())), "prompt_progress": progress}

    def _frame(self, prompt: int, delta: Delta) -> Json:
        watch = self._watches[prompt]
        frame = {
            "index": prompt,
            "content": delta.text,
            "tokens": list(delta.token_ids),
            "stop": False,
            "id_slot": NO_SLOT,
            "tokens_predicted": watch.predicted,
            "tokens_evaluated": watch.prompt_tokens,
            **self._probabilities(delta.logprobs),
        }
        return {**frame, "timings": watch.timings()} if self._shape.timed else frame


def only(paths: Sequence[str], answer: Json) -> Json:
    """The parts of `answer` at `paths`, each under the last of its names; all of it where no path is given."""
    if not paths:
        return answer
    found = {}
    for path in paths:
        value: Any = answer
        names = path.split("/")
        for name in names:
            value = value.get(name, _ABSENT) if isinstance(value, dict) else _ABSENT
        if value is not _ABSENT:
            found[names[-1]] = value
    return found


def settings_json(params: SamplingParams) -> Json:
    """`generation_settings`, as far as they have a meaning here."""
    return {
        "n_predict": -1 if params.max_tokens is None else params.max_tokens,
        "temperature": params.temperature,
        "top_k": params.top_k,
        "top_p": params.top_p,
        "min_p": params.min_p,
        "repeat_penalty": params.repetition_penalty,
        "presence_penalty": params.presence_penalty,
        "frequency_penalty": params.frequency_penalty,
        "seed": -1 if params.seed is None else params.seed,
        "stop": list(params.stop),
        "ignore_eos": params.ignore_eos,
        "n_probs": params.logprobs or 0,
    }
