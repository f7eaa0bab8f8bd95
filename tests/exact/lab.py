"""Real engines over real kernels, and the truth they are held against: the same request alone on a cold engine."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from exact.recorder import RecordingRunner, Witness
from sapwood.cache import PrefixCache
from sapwood.config import (
    CacheConfig,
    Compute,
    IndexName,
    KvDtype,
    ModelConfig,
    OrderName,
    SchedulerConfig,
    SpeculateName,
    WeightFormat,
)
from sapwood.engine import Engine, ModelFacts
from sapwood.model import kv, load_model
from sapwood.model.ops import StepSpans
from sapwood.types import Delta, Finished, PromptScored, Request, SamplingParams, Scope, TokenLogprob

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from sapwood.engine import Detokenizer
    from sapwood.model.decoder import Decoder
    from sapwood.types import Event

Prompt = tuple[int, ...]
GetDecoder = Callable[..., "Decoder"]
"""What the fixtures give: a decoder by family, weights and threads, or by threads and compute."""
GetTruth = Callable[..., "Truth"]
"""What a fixture gives: a truth of its own by family, weights and type of KV, which asks nothing twice."""

FAMILIES = ("llama", "mistral", "qwen2", "qwen3")
"""Each in every format."""

OTHER_FAMILIES = ("gemma3", "phi3", "qwen3_moe")
"""Windows with a rope of their own, fused projections, experts: each once, and in random traffic."""


GREEDY = SamplingParams(temperature=0.0, max_tokens=4, logprobs=2)


@dataclass(frozen=True)
class Ask:
    prompt: Prompt
    params: SamplingParams = GREEDY
    salt: str = ""

    def wanting(self, max_tokens: int) -> Ask:
        return replace(self, params=replace(self.params, max_tokens=max_tokens))


@dataclass(frozen=True)
class Said:
    """All that an answer says which must not depend on how it was computed."""

    tokens: dict[int, Prompt]
    text: dict[int, str]
    logprobs: dict[int, tuple[TokenLogprob, ...]]
    scores: tuple[TokenLogprob | None, ...]


@dataclass(frozen=True)
class Setting:
    """How an engine goes about it: everything that the logits must not depend on."""

    page_size: int = 1
    chunk: int = 512
    running: int = 16
    pool: int = 1024
    index: IndexName = "radix"
    policy: OrderName = "fcfs"
    speculate: SpeculateName = "auto"

    def __str__(self) -> str:
        return f"{self.index}-{self.page_size}"

    def whole(self, tokens: int) -> int:
        """As many tokens as the full pages of so many hold."""
        return tokens // self.page_size * self.page_size


BOTH_INDEXES = (Setting(), Setting(page_size=16, index="blocks"))


@dataclass(frozen=True)
class Case:
    """A tiny model and how its KV is stored."""

    family: str
    weights: WeightFormat
    dtype: KvDtype


class SpelledOut:
    """A Detok that needs no tokenizer."""

    def __init__(self, _context: Prompt) -> None: ...

    def add(self, token: int) -> str:
        return f"<{token}>"

    def flush(self) -> str:
        return ""


@dataclass(frozen=True)
class Solo:
    """What was said cold and alone, and every row on the way."""

    said: Said
    rows: Witness


class Truth:
    """What a model says when asked cold and alone; `lab()` makes engines that must say the same, bit for bit.

    `solos` keeps what it was asked for others of the same decoder, type and detokenizer.
    """

    def __init__(
        self,
        decoder: Decoder,
        dtype: KvDtype = "f16",
        detokenizer: Detokenizer = SpelledOut,
        solos: dict[str, Solo] | None = None,
    ) -> None:
        self._solos = {} if solos is None else solos
        self.decoder = decoder
        self.dtype = dtype
        self.detokenizer = detokenizer
        self.witness = Witness()
        self._said: dict[str, Said] = {}

    def of(self, ask: Ask) -> Said:
        ask = replace(ask, salt="")  # It decides what is found, and so must not decide what is said.
        key = repr(ask)
        if key not in self._said:
            if key not in self._solos:
                rows = Witness()
                said = Lab(self, Setting(speculate="off"), witness=rows).run(ask)[0]
                self._solos[key] = Solo(said, rows)
            self.witness.see_again(self._solos[key].rows)
            self._said[key] = self._solos[key].said
        return self._said[key]

    def lab(self, setting: Setting | None = None, decoder: Decoder | None = None) -> Lab:
        return Lab(self, setting or Setting(), decoder)


class Lab:
    """An engine with a pool of its own, every page of which starts as NaN: what is read must have been written."""

    def __init__(
        self,
        truth: Truth,
        setting: Setting,
        decoder: Decoder | None = None,
        witness: Witness | None = None,
    ) -> None:
        self.truth = truth
        decoder = decoder or truth.decoder
        pages = setting.pool // setting.page_size
        page_bytes = kv.bytes_per_token(decoder.spec, truth.dtype) * setting.page_size
        pool = kv.allocate(decoder.spec, pages * page_bytes, setting.page_size, truth.dtype)
        for array in (pool.k, pool.v):
            array.fill({"bf16": 0x7FC0, "q8": 0xFF}.get(truth.dtype, np.nan))
        self.runner = RecordingRunner(decoder, pool, witness or truth.witness)
        self.engine = Engine(
            self.runner,
            PrefixCache(pages, CacheConfig(setting.page_size, setting.index)),
            SchedulerConfig(
                setting.chunk,
                setting.running,
                schedule_policy=setting.policy,
                speculate=setting.speculate,
            ),
            ModelFacts("lab", decoder.spec.max_context, decoder.spec.vocab_size),
            truth.detokenizer,
            reuse=setting.index != "none",
            paranoid=True,
            pick_seed=lambda: 7,
        )
        self._asked = 0

    def say(self, *asks: Ask) -> list[int]:
        """Ask all at once and hold each answer, and each row on the way, against the truth; tokens reused by each."""
        expected = [self.truth.of(ask) for ask in asks]
        witness = self.truth.witness
        new, compared = witness.new, witness.compared
        for ask, truth, said in zip(asks, expected, self.run(*asks), strict=True):
            assert said == truth, f"a prompt of {len(ask.prompt)} tokens was answered differently"
        assert witness.new == new, "a row was computed that the truth never had"
        assert witness.compared - compared >= sum(len(t) for said in expected for t in said.tokens.values())
        return self.reused

    def prime(self, prompt: Prompt) -> None:
        """Read a prompt and draw nothing."""
        if prompt:
            self.run(Ask(prompt).wanting(0))

    def run(self, *asks: Ask) -> list[Said]:
        requests = [self._request(ask) for ask in asks]
        for request in requests:
            self.engine.add(request, 0.0)
        events: dict[str, list[Event]] = {request.id: [] for request in requests}
        while self.engine.busy:
            for event in self.engine.step(0.0):
                events[event.request_id].append(event)
        self.reused = [_finished(said).usage.reused for said in events.values()]
        return [_said(heard) for heard in events.values()]

    def _request(self, ask: Ask) -> Request:
        self._asked += 1
        return Request(str(self._asked), ask.prompt, ask.params, Scope(salt=ask.salt))


def _finished(events: Sequence[Event]) -> Finished:
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.error is None, last.error
    return last


def _said(events: Sequence[Event]) -> Said:
    said = Said({}, {}, {}, next((e.logprobs for e in events if isinstance(e, PromptScored)), ()))
    for delta in (event for event in events if isinstance(event, Delta)):
        said.tokens[delta.sample] = said.tokens.get(delta.sample, ()) + delta.token_ids
        said.text[delta.sample] = said.text.get(delta.sample, "") + delta.text
        said.logprobs[delta.sample] = said.logprobs.get(delta.sample, ()) + delta.logprobs
    return said


def decoder_of(
    model: Path | str, weights: WeightFormat = "auto", threads: int = 2, compute: Compute = "auto"
) -> Decoder:
    config = ModelConfig(str(model), weights, kv_memory=2**22, threads=threads, compute=compute)
    return load_model(config, 1).runner.decoder


def prompt_of(length: int, salt: int = 0, vocab: int = 320) -> Prompt:
    """Some tokens; another salt gives others from the first on."""
    tokens = np.random.default_rng(salt).integers(3, vocab, length)
    return tuple(tokens.tolist())


def all_logits(decoder: Decoder, prompt: Sequence[int], dtype: KvDtype = "f32") -> NDArray[np.float32]:
    """[tokens, vocab_size]: the logits at every position of a prompt, computed in one step."""
    count = len(prompt)
    pool = kv.allocate(decoder.spec, count * kv.bytes_per_token(decoder.spec, dtype), 1, dtype)
    table = np.arange(count, dtype=np.int32)
    spans = StepSpans(np.array([count], np.int32), np.array([0], np.int32), table)
    return decoder.logits(decoder.forward(np.array(prompt, np.int32), spans, pool))
