"""How a step was put together leaves no trace: chunks, neighbours, threads, pages, the order of the queue."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from exact.lab import Ask, GetTruth, Setting, Truth, prompt_of
from sapwood.types import SamplingParams

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exact.lab import Case, GetDecoder
    from sapwood.config import IndexName, OrderName

PROMPT = prompt_of(200)


def sampled(seed: int, **others: float) -> SamplingParams:
    return SamplingParams(temperature=0.9, seed=seed, max_tokens=5, logprobs=1, **others)  # type: ignore[arg-type]


NEIGHBOURS = (
    Ask(PROMPT),
    Ask(prompt_of(1, salt=1)).wanting(12),
    Ask(PROMPT[:130] + prompt_of(9, salt=2)),
    Ask(prompt_of(63, salt=3)).wanting(9),
    Ask(prompt_of(64, salt=4), sampled(1)),
    Ask(prompt_of(65, salt=5), sampled(2, top_p=0.8)),
    Ask(PROMPT[:64]).wanting(7),
    Ask(PROMPT[:65]).wanting(1),
    Ask(prompt_of(17, salt=6), SamplingParams(temperature=1.0, seed=3, max_tokens=6, n=3, logprobs=0)),
    Ask(prompt_of(128, salt=7), SamplingParams(temperature=0.0, max_tokens=3, logprobs=3, prompt_logprobs=1)),
    Ask(prompt_of(30, salt=8), sampled(4, min_p=0.05)),
    Ask(PROMPT, sampled(5, top_k=20)),
    Ask(prompt_of(2, salt=9), sampled(6, repetition_penalty=1.3)),
    Ask(prompt_of(193, salt=10)).wanting(2),
    Ask(prompt_of(5, salt=11)).wanting(20),
    Ask((*PROMPT[:199], 7)),
)


@pytest.mark.parametrize("chunk", [1, 7, 16, 64, 512])
def test_chunk_size(truth: Truth, setting: Setting, chunk: int) -> None:
    lab = truth.lab(replace(setting, chunk=chunk, speculate="off"))  # A guess would save a step.
    lab.say(Ask(PROMPT))
    assert len(lab.runner.widths) == -(-200 // chunk) + 3


@pytest.mark.parametrize(("page_size", "index"), [(1, "radix"), (3, "radix"), (16, "radix"), (16, "blocks")])
def test_page_size(truth: Truth, page_size: int, index: IndexName) -> None:
    truth.lab(Setting(page_size=page_size, index=index)).say(Ask(PROMPT), Ask(PROMPT[:100]))


def strangers(asks: Iterable[Ask]) -> list[Ask]:
    """The same, each under a salt of its own: none waits for what another is about to compute."""
    return [replace(ask, salt=str(i)) for i, ask in enumerate(asks)]


def test_all_neighbours_at_once(truth: Truth, setting: Setting) -> None:
    lab = truth.lab(replace(setting, pool=4096, chunk=2048))
    lab.say(*strangers(NEIGHBOURS))
    assert lab.runner.widths[0] == 16
    truth.lab(replace(setting, pool=4096, chunk=2048)).say(*NEIGHBOURS)


@pytest.mark.parametrize("count", range(1, 17))
@pytest.mark.parametrize("family", ["llama", "mistral"])
def test_any_number_of_neighbours(count: int, family: str, setting: Setting, tiny_truth: GetTruth) -> None:
    """All in one step, and in steps of 48 tokens; from either end of the list."""
    truth = tiny_truth(family)
    lab = truth.lab(replace(setting, pool=4096, chunk=2048))
    lab.say(*strangers(NEIGHBOURS[:count]))
    assert lab.runner.widths[0] == count
    truth.lab(replace(setting, pool=4096, chunk=2048)).say(*NEIGHBOURS[:count])
    truth.lab(replace(setting, pool=4096, chunk=48)).say(*NEIGHBOURS[-count:])


def test_threads(case: Case, truth: Truth, setting: Setting, tiny_decoder: GetDecoder) -> None:
    one = tiny_decoder(case.family, case.weights, threads=1)
    assert (one.ops.threads, truth.decoder.ops.threads) == (1, 2)  # type: ignore[attr-defined]
    for decoder in (one, truth.decoder):
        truth.lab(replace(setting, chunk=100), decoder).say(*NEIGHBOURS[:6])


@pytest.mark.parametrize("policy", ["fcfs", "lpm", "default"])
def test_the_order_of_the_queue(policy: OrderName, setting: Setting, tiny_truth: GetTruth) -> None:
    truth = tiny_truth("qwen3", "q8")
    lab = truth.lab(replace(setting, policy=policy, running=3, chunk=64))
    lab.say(*NEIGHBOURS)
    lab.say(*reversed(NEIGHBOURS))


def test_a_prompts_scores_do_not_depend_on_its_chunks(truth: Truth, setting: Setting) -> None:
    """`say` compares the scores of all positions as well."""
    ask = NEIGHBOURS[9]
    assert len(truth.of(ask).scores) == 128
    for chunk in (1, 50):
        truth.lab(replace(setting, chunk=chunk)).say(ask)
