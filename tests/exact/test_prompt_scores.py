"""Scores of prompts from real models: warm, followed and preempted ones are the cold ones, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import pytest

from exact.lab import FAMILIES, Ask, GetTruth, Setting, Truth, prompt_of
from sapwood.types import SamplingParams

SETTINGS = [Setting(page, index=index) for index in ("radix", "blocks") for page in (1, 16)]
each_setting = pytest.mark.parametrize("setting", SETTINGS, ids=str)


def scored(start: int = 0, top: int = 1) -> SamplingParams:
    return SamplingParams(
        temperature=0.0, max_tokens=1, logprobs=1, prompt_logprobs=top, prompt_logprobs_start=start
    )


@pytest.fixture(scope="module", params=FAMILIES)
def truth(request: pytest.FixtureRequest, tiny_truth: GetTruth) -> Truth:
    return tiny_truth(request.param, "q8")


@each_setting
@pytest.mark.parametrize("chunk", [7, 64, 512])
def test_multiple_choices_are_scored_alike_cold_warm_and_at_once(
    truth: Truth, setting: Setting, chunk: int
) -> None:
    """`say` compares scores, draws and rows with the same prompt's alone on a cold engine."""
    context = prompt_of(70, salt=3)
    asks = [Ask(context + prompt_of(9, salt=10 + i), scored()) for i in range(4)]
    lab = truth.lab(replace(setting, chunk=chunk))
    first = lab.say(*asks)
    assert [reused > 0 for reused in first] == [False, True, True, True]
    for _ in range(2):
        assert lab.say(*asks) == [setting.whole(78)] * 4
    sibling = Ask(context + prompt_of(9, salt=99), scored())
    assert lab.say(sibling) == [setting.whole(69)]


@each_setting
def test_scores_from_a_start_and_of_fewer_top_entries_are_the_same(truth: Truth, setting: Setting) -> None:
    lab = truth.lab(setting)
    prompt = prompt_of(90, salt=4)
    lab.say(Ask(prompt))
    assert lab.say(Ask(prompt, scored(50))) == [setting.whole(49)]
    lab.say(Ask(prompt, scored(top=5)))
    for start, top in ((0, 5), (0, 1), (33, 0), (90, 2)):
        assert lab.say(Ask(prompt, scored(start, top))) == [setting.whole(89)]


def test_preempted_and_evicted_ones_are_scored_alike(truth: Truth) -> None:
    for setting in SETTINGS:
        lab = truth.lab(replace(setting, pool=192, chunk=16, running=4))
        asks = [Ask(prompt_of(60, salt=salt)[:50] + prompt_of(10, salt=7), scored()) for salt in range(5)]
        long = Ask(prompt_of(20, salt=8), replace(scored(), max_tokens=60))
        for _ in range(2):
            lab.say(long, *asks)
