"""A whole engine from a model's folder: what it says of itself, that it answers, and how it refuses to be built."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model import tiny
from sapwood.config import CacheConfig, ModelConfig, SchedulerConfig
from sapwood.engine.build import Built, build_engine
from sapwood.errors import ContextLengthError, ModelError, UnavailableError, UsageError
from sapwood.types import Constraint, Delta, Finished, Request, SamplingParams, Scope

Build = Callable[..., Built]
GREEDY = SamplingParams(temperature=0.0, max_tokens=6, logprobs=1, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny.tiny_llama(tmp_path_factory.mktemp("build") / "little-llama")


@pytest.fixture
def build(folder: Path) -> Iterator[Build]:
    """Builds engines that end with the test."""
    built: list[Built] = []

    def make(
        cache: CacheConfig | None = None,
        scheduler: SchedulerConfig | None = None,
        model: Path = folder,
        **settings: Any,
    ) -> Built:
        config = ModelConfig(str(model), **{"kv_memory": 2**18, "threads": 1, **settings})
        built.append(build_engine(config, cache, scheduler, paranoid=True))
        return built[-1]

    yield make
    for one in built:
        one.loop.shutdown()


def ask(
    built: Built, text: str, params: SamplingParams = GREEDY, **others: Any
) -> tuple[list[Delta], Finished]:
    prompt = tuple(built.tokenizer.encode(text))
    events = list(built.loop.generate_blocking(Request(f"r-{text}-{len(others)}", prompt, params, **others)))
    last = events[-1]
    assert isinstance(last, Finished)
    assert last.error is None
    return [event for event in events if isinstance(event, Delta)], last


def test_what_was_built(build: Build) -> None:
    facts = build(CacheConfig(page_size=4)).facts
    assert facts.model == "little-llama"
    assert len(facts.fingerprint) == 64
    assert (facts.exact, facts.ops, facts.compute) == (True, "native", "auto")
    assert facts.vocab_size == tiny.VOCAB_SIZE
    assert (facts.max_context, facts.page_size) == (512, 4)
    assert facts.kv_bytes_per_token == 256
    assert (facts.capacity_pages, facts.kv_memory) == (256, 2**18)
    assert facts.kv_memory_reason == "as given"
    assert facts.notices == ()


def test_it_answers_and_the_second_time_from_the_cache(build: Build) -> None:
    built = build()
    first, cold = ask(built, "The and then the rest of it")
    again, warm = ask(built, "The and then the rest of it")
    assert (cold.usage.reused, warm.usage.reused) == (0, cold.usage.prompt_tokens - 1)
    tokens = [token for delta in first for token in delta.token_ids]
    assert len(tokens) == 6
    assert "".join(delta.text for delta in first) == built.tokenizer.decode(tokens)
    assert [delta.logprobs for delta in again] == [delta.logprobs for delta in first]
    assert [delta.text for delta in again] == [delta.text for delta in first]


def test_tenants_do_not_share(build: Build) -> None:
    built = build()
    ask(built, "the same words")
    _, other = ask(built, "the same words", scope=Scope(tenant="b"))
    assert other.usage.reused == 0


def test_without_an_index_nothing_is_reused_and_the_reason_is_said(build: Build) -> None:
    built = build(CacheConfig(prefix_index="none"))
    ask(built, "twice")
    _, again = ask(built, "twice")
    assert again.usage.reused == 0
    assert again.usage.missed == {"reuse_off": again.usage.prompt_tokens}


def test_other_weights_and_pages_have_other_fingerprints(build: Build) -> None:
    settings: tuple[dict[str, str], ...] = (
        {},
        {"kv_dtype": "f32"},
        {"weights": "q8"},
        {"weights": "q8", "compute": "f32"},
    )
    assert len({build(**setting).facts.fingerprint for setting in settings}) == 4


def test_a_small_pool_is_noticed_and_longer_requests_are_refused(build: Build) -> None:
    built = build(kv_memory=100 * 256)
    assert built.facts.notices == (
        "the pool holds 100 tokens, less than one request of the full context of 512; longer requests are refused",
    )
    long = Request("long", tuple(range(3, 203)), GREEDY)
    with pytest.raises(ContextLengthError, match="the KV pool holds 100 tokens"):
        built.loop.check(long)


def test_max_context_is_the_schedulers_or_the_models(build: Build) -> None:
    assert build(scheduler=SchedulerConfig(max_context=64)).facts.max_context == 64
    assert build(scheduler=SchedulerConfig(max_context=100_000)).facts.max_context == 512


@pytest.mark.parametrize("end", [2, 5, 7])
def test_the_end_tokens_of_model_and_tokenizer_end_an_answer(end: int, build: Build, tmp_path: Path) -> None:
    """The tokenizer names 2 and the model 5 and 7; a bias makes one of them the likeliest."""
    built = build(model=tiny.tiny_llama(tmp_path / "ends", eos_token_id=[5, 7]))
    ending = SamplingParams(temperature=0.0, max_tokens=6, logit_bias={end: 100.0})
    deltas, finished = ask(built, "over", ending)
    assert [delta.finish for delta in deltas] == ["stop"]
    assert finished.usage.completion_tokens == 1
    assert "".join(delta.text for delta in deltas) == ""


def test_an_end_token_without_a_logit_is_left_out_and_said(build: Build, tmp_path: Path) -> None:
    built = build(model=tiny.tiny_llama(tmp_path / "ends", eos_token_id=[5, 100_000]))
    assert built.facts.notices == (
        f"the end token 100000 is not in the vocabulary of {tiny.VOCAB_SIZE}; it is ignored",
    )
    deltas, _ = ask(built, "over", SamplingParams(temperature=0.0, max_tokens=6, min_tokens=6))
    assert len(deltas) == 6


def test_the_chat_template_is_the_models(build: Build) -> None:
    built = build()
    rendered = built.template.render([{"role": "user", "content": "hi"}], add_generation_prompt=True)
    text = "".join(segment.text for segment in rendered)
    assert text == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"


def test_progress_is_told(folder: Path) -> None:
    told: list[str] = []
    built = build_engine(ModelConfig(str(folder), kv_memory=2**18), progress=told.append)
    built.loop.shutdown()
    assert any("layer 2 of 2" in line for line in told)


def test_after_shutdown_nothing_is_served(build: Build) -> None:
    built = build()
    built.loop.shutdown()
    assert not built.loop.alive
    with pytest.raises(UnavailableError):
        ask(built, "too late")


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [("smollm", UsageError, "no model is called"), ("./no/such/folder", ModelError, "there is no model")],
)
def test_a_model_that_is_not_there_starts_no_thread(name: str, error: type[Exception], says: str) -> None:
    before = threading.active_count()
    with pytest.raises(error, match=says):
        build_engine(ModelConfig(name))
    assert threading.active_count() == before


def test_a_model_without_a_tokenizer_is_refused(tmp_path: Path) -> None:
    folder = tiny.tiny_llama(tmp_path / "mute")
    (folder / "tokenizer.json").unlink()
    before = threading.active_count()
    with pytest.raises(ModelError, match="mute has no tokenizer") as raised:
        build_engine(ModelConfig(str(folder), kv_memory=2**18, threads=1))
    assert raised.value.hint == "put its tokenizer.json into the model's folder"
    assert threading.active_count() == before


def test_a_models_answer_whose_grammar_has_a_dead_end_fails_alone_and_is_blamed_on_the_grammar(
    build: Build,
) -> None:
    built = build()
    dead_end = Constraint("grammar", 'start: "ab" T "e"\nT: /c+/ & /d+/')
    request = Request("cornered", (5, 6, 7), replace(GREEDY, max_tokens=20, constraint=dead_end))
    before = ask(built, "and then")
    events = list(built.loop.generate_blocking(request))
    deltas, last = [event for event in events if isinstance(event, Delta)], events[-1]
    said = [token for delta in deltas for token in delta.token_ids]
    assert b"".join(built.tokenizer.token_bytes(token) for token in said) == b"ab"
    assert isinstance(last, Finished)
    assert (last.dead_end, last.refused) == (True, False)
    assert last.error is not None
    assert last.error.startswith("the grammar cannot go on")
    assert ask(built, "and then")[0] == before[0]
