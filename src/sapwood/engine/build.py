"""Puts a model, a cache, a scheduler and the text side together into an engine that runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from sapwood.cache import HitRateCurve, PrefixCache
from sapwood.chat.constrain import Guides
from sapwood.chat.detok import Detokenizer
from sapwood.chat.template import ChatTemplate
from sapwood.chat.tokenizer import Tokenizer
from sapwood.config import CacheConfig, ModelConfig, SchedulerConfig
from sapwood.engine.capture import Capture, Lines
from sapwood.engine.engine import Engine
from sapwood.engine.limits import ModelFacts
from sapwood.engine.loop import EngineLoop
from sapwood.errors import ModelError
from sapwood.model import Model, VocabSource, load_model
from sapwood.types import SamplingDefaults


@dataclass(frozen=True, slots=True)
class BuiltFacts:
    """What was built; does not change while it lives. Sizes in tokens, pages and bytes."""

    model: str
    fingerprint: str
    exact: bool
    ops: str
    compute: str
    vocab_size: int
    max_context: int
    page_size: int
    capacity_pages: int
    max_running: int
    kv_bytes_per_token: int
    kv_memory: int
    kv_memory_reason: str
    sampling: SamplingDefaults
    notices: tuple[str, ...]
    policies: Mapping[str, str]
    """Of eviction, of the schedule, and the kind of prefix index, by name."""


@dataclass(frozen=True, slots=True, eq=False)
class Built:
    """A running engine and its text side. Whoever built it calls `loop.shutdown()`."""

    loop: EngineLoop
    tokenizer: Tokenizer
    template: ChatTemplate
    facts: BuiltFacts


def build_engine(
    model: ModelConfig,
    cache: CacheConfig | None = None,
    scheduler: SchedulerConfig | None = None,
    *,
    progress: Callable[[str], None] | None = None,
    paranoid: bool = False,
    capture: Lines | None = None,
) -> Built:
    """Loads and starts everything; takes seconds. Raises UsageError or ModelError.

    `paranoid` proves the cache's books after every step; `capture` takes what is asked and answered, line by line.
    """
    cache, scheduler = cache or CacheConfig(), scheduler or SchedulerConfig()
    loaded = load_model(model, cache.page_size, progress)
    if cache.attention_tokens is None:
        cache = replace(cache, attention_tokens=loaded.spec.attention_tokens)
    tokenizer = load_tokenizer(loaded.name, loaded.vocab)
    template = ChatTemplate.for_tokenizer(loaded.chat_template, tokenizer)
    own_facts = model_facts(loaded, tokenizer)
    engine = Engine(
        loaded.runner,
        PrefixCache(loaded.pages, cache),
        scheduler,
        own_facts,
        lambda context: Detokenizer(tokenizer, context),
        reuse=cache.prefix_index != "none",
        curve=HitRateCurve(loaded.pages * cache.page_size, cache),
        pin_tokens=int(loaded.pages * cache.page_size * cache.pin_share),
        score_memory=cache.score_memory,
        paranoid=paranoid,
        guides=Guides(tokenizer, own_facts.vocab_size, own_facts.eos),
    )
    policies = {
        "eviction": "lru" if cache.prefix_index == "blocks" else cache.eviction_policy,
        "schedule": scheduler.schedule_policy,
        "prefix_index": cache.prefix_index,
    }
    facts = _facts(loaded, engine, cache.page_size, scheduler.max_running, tokenizer, template, policies)
    witness = None if capture is None else Capture(capture, _about(loaded, engine, cache, scheduler))
    return Built(EngineLoop(engine, capture=witness).start(), tokenizer, template, facts)


def load_tokenizer(name: str, vocab: VocabSource | None) -> Tokenizer:
    """Raises ModelError where a model brings no tokenizer, or one that cannot be read."""
    if vocab is None:
        raise ModelError(f"{name} has no tokenizer", hint="put its tokenizer.json into the model's folder")
    if vocab.gguf is not None:
        return Tokenizer.from_gguf(vocab.gguf)
    assert vocab.tokenizer_json is not None
    return Tokenizer.from_json(vocab.tokenizer_json, vocab.config)


def model_facts(model: Model, tokenizer: Tokenizer) -> ModelFacts:
    """End tokens that the model gives no logit are left out: it can never draw them."""
    vocab_size = model.spec.vocab_size
    ends = tuple(id for id in _ends(model, tokenizer) if 0 <= id < vocab_size)
    return ModelFacts(model.fingerprint, model.spec.max_context, vocab_size, ends)


def _ends(model: Model, tokenizer: Tokenizer) -> tuple[int, ...]:
    own = () if tokenizer.eos_id is None else (tokenizer.eos_id,)
    return tuple(dict.fromkeys((*model.spec.eos_token_ids, *own)))


def _about(model: Model, engine: Engine, cache: CacheConfig, scheduler: SchedulerConfig) -> Mapping[str, Any]:
    """What a simulator must build to do what this engine does."""
    return {
        "model": model.name,
        "fingerprint": model.fingerprint,
        "vocab_size": model.spec.vocab_size,
        "context": engine.limits.context,
        "eos": engine.model.eos,
        "capacity_pages": model.pages,
        "cache": asdict(cache),
        "scheduler": asdict(scheduler),
    }


def _facts(
    model: Model,
    engine: Engine,
    page_size: int,
    max_running: int,
    tokenizer: Tokenizer,
    template: ChatTemplate,
    policies: Mapping[str, str],
) -> BuiltFacts:
    notices = list(model.notices)
    notices += [
        f"the end token {id} is not in the vocabulary of {model.spec.vocab_size}; it is ignored"
        for id in _ends(model, tokenizer)
        if id not in engine.model.eos
    ]
    if template.notice:
        notices.append(template.notice)
    if engine.limits.pool < engine.limits.context:
        notices.append(
            f"the pool holds {engine.limits.pool} tokens, less than one request of the full context of "
            f"{engine.limits.context}; longer requests are refused"
        )
    return BuiltFacts(
        model=model.name,
        fingerprint=model.fingerprint,
        exact=model.ops.exact,
        ops=model.ops.name,
        compute=model.ops.compute,
        vocab_size=model.spec.vocab_size,
        max_context=engine.limits.context,
        page_size=page_size,
        capacity_pages=model.pages,
        max_running=max_running,
        kv_bytes_per_token=model.kv_bytes_per_token,
        kv_memory=model.kv_memory.nbytes,
        kv_memory_reason=model.kv_memory.reason,
        sampling=model.sampling,
        notices=tuple(notices),
        policies=policies,
    )
