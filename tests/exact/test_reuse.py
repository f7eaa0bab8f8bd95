"""A hit gives the bits of a cold run: warm, at every length, on generated tokens, after eviction, after preemption."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from exact.lab import BOTH_INDEXES, FAMILIES, Ask, GetTruth, Setting, Truth, prompt_of

if TYPE_CHECKING:
    from sapwood.config import WeightFormat

PROMPT = prompt_of(200)
WITH_PAGES = (*BOTH_INDEXES, Setting(page_size=16))


@pytest.mark.parametrize("setting", WITH_PAGES, ids=str)
def test_warm(truth: Truth, setting: Setting) -> None:
    lab = truth.lab(setting)
    ask = Ask(PROMPT).wanting(8)
    assert lab.say(ask) == [0]
    assert lab.say(ask) == [setting.whole(199)]
    assert lab.runner.recalled == (1 if setting.page_size == 1 else 0)


def test_the_last_token_of_a_repeat_is_not_computed_where_its_page_can_be_read(truth: Truth) -> None:
    """Nor for the other samples of a prompt; but for each namespace anew, and after a flush."""
    lab = truth.lab()
    ask = Ask(PROMPT)
    kept = []
    for asked in (ask, ask, replace(ask, salt="s"), replace(ask, salt="s")):
        lab.say(asked)
        kept.append(lab.runner.recalled)
    assert kept == [0, 1, 1, 2]
    lab.engine.flush()
    assert lab.say(ask) == [0]
    assert lab.runner.recalled == 2
    lab.say(Ask(prompt_of(90, salt=3), replace(ask.params, n=3, temperature=1.0, seed=5)))
    assert lab.runner.recalled == 4


def test_behind_a_public_prefix_nobody_is_answered_from_what_another_asked(truth: Truth) -> None:
    lab = truth.lab()
    public = prompt_of(30)
    lab.say(Ask(public))
    lab.engine.publish([public])
    ask = Ask((*public, 7))
    kept = []
    for salt in ("a", "b", "a", "b"):
        lab.say(replace(ask, salt=salt))
        kept.append(lab.runner.recalled)
    assert kept == [0, 0, 1, 2]
    lab.engine.flush()
    assert lab.say(replace(ask, salt="a")) == [30]
    assert lab.runner.recalled == 2


@pytest.mark.parametrize("setting", WITH_PAGES, ids=str)
def test_a_hit_on_generated_tokens(truth: Truth, setting: Setting) -> None:
    lab = truth.lab(setting)
    (said,) = lab.run(Ask(PROMPT[:70]).wanting(40))
    follow_up = PROMPT[:70] + said.tokens[0] + PROMPT[70:90]
    assert lab.say(Ask(follow_up)) == [setting.whole(109)]


def test_after_eviction_and_recompute(truth: Truth, setting: Setting) -> None:
    lab = truth.lab(replace(setting, pool=260))
    lab.say(Ask(PROMPT))
    lab.say(Ask(prompt_of(150, salt=1)))
    (trimmed,) = lab.say(Ask(PROMPT))
    assert 0 < trimmed < 199
    lab.say(Ask(prompt_of(240, salt=2)))
    (gone,) = lab.say(Ask(PROMPT))
    assert gone < trimmed
    assert lab.engine.stats().evicted_tokens > 200


def test_with_preemption(truth: Truth, setting: Setting) -> None:
    lab = truth.lab(replace(setting, pool=300, chunk=64))
    lab.say(*(Ask(prompt_of(90, salt)).wanting(60) for salt in range(3)))
    assert lab.engine.stats().preemptions > 0


def test_without_an_index(truth: Truth) -> None:
    lab = truth.lab(Setting(index="none"))
    assert lab.say(Ask(PROMPT), Ask(PROMPT)) == [0, 0]
    assert lab.say(Ask(PROMPT)) == [0]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("weights", "setting"), [("q4", Setting()), *(("f32", setting) for setting in WITH_PAGES)], ids=str
)
def test_a_partial_hit_at_every_length(
    family: str, weights: WeightFormat, setting: Setting, tiny_truth: GetTruth
) -> None:
    truth = tiny_truth(family, weights)
    lab = truth.lab(setting)
    ask = Ask(PROMPT).wanting(1)
    for length in range(200):
        lab.engine.flush()
        lab.prime(PROMPT[:length])
        assert lab.say(ask) == [setting.whole(length)]
