"""Scenarios of public bug reports on a real model: all answers have the bits of the same request alone and cold."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from exact.lab import BOTH_INDEXES, Ask, Lab, Setting, Truth, prompt_of
from exact.recorder import Witness
from sapwood.types import Event, Finished, SamplingParams

if TYPE_CHECKING:
    from exact.lab import GetDecoder, Prompt
    from sapwood.model.decoder import Decoder

SETTINGS = (*BOTH_INDEXES, Setting(page_size=16))
each_index = pytest.mark.parametrize("setting", SETTINGS, ids=str)
SCORED = SamplingParams(temperature=0.0, max_tokens=2, logprobs=1, prompt_logprobs=1)


@pytest.fixture
def truth(tiny_decoder: GetDecoder) -> Truth:
    return Truth(tiny_decoder("llama"))


def expect_no_leaks(lab: Lab) -> None:
    """Idle: no page is leased or private, the others are free or in the tree, and a flush frees all."""
    assert not lab.engine.busy
    cache = lab.engine.cache
    cache.check()
    books = cache.books()
    assert (books.leased, books.private, books.free + books.tree) == (0, 0, books.capacity)
    lab.engine.flush()
    cache.check()
    assert cache.books().free == cache.capacity_pages


# ---- wrong output on a cache hit ---------------------------------------------------------------------------


@each_index
def test_two_cold_runs_a_hit_and_a_run_after_eviction_have_the_same_bits(
    truth: Truth, setting: Setting
) -> None:
    """WO-01."""
    lab = truth.lab(replace(setting, pool=320))
    ask = Ask(prompt_of(150)).wanting(6)
    assert lab.say(ask) == [0]
    lab.engine.flush()
    assert lab.say(ask) == [0]
    assert lab.say(ask) == [setting.whole(149)]
    lab.say(Ask(prompt_of(310, salt=1)))
    assert lab.say(ask)[0] < setting.whole(149)
    expect_no_leaks(lab)


@each_index
def test_requests_one_at_a_time_over_shared_prefixes_answer_as_without_a_cache(
    truth: Truth, setting: Setting
) -> None:
    """WO-02. Over ten prefixes, in a pool that holds about half of them."""
    lab = truth.lab(replace(setting, pool=640))
    reused = 0
    for number in range(40):
        which = number * number % 10
        reused += lab.say(Ask((*prompt_of(50 + 15 * which, salt=which), 3 + number % 7, 5)))[0]
    assert reused > 0
    assert lab.engine.stats().evicted_tokens > 0
    expect_no_leaks(lab)


@each_index
@pytest.mark.parametrize("stop", [(), ("<",)])
def test_a_tie_is_decided_alike_cold_and_after_a_warm_up(
    truth: Truth, setting: Setting, stop: tuple[str, ...]
) -> None:
    """WO-03. A bias brings the two likeliest tokens to within a rounding error; the warm-up ends by length or stop."""
    prompt = prompt_of(70)
    (first, second), *_ = (entry.top for entry in truth.of(Ask(prompt)).logprobs[0])
    tied = SamplingParams(
        temperature=0.0, max_tokens=3, logprobs=2, logit_bias={second[0]: first[1] - second[1]}
    )
    lab = truth.lab(setting)
    lab.say(Ask(prompt, tied))
    lab.engine.flush()
    lab.say(Ask(prompt[:60], SamplingParams(temperature=0.0, max_tokens=5, stop=stop, logprobs=0)))
    assert lab.say(Ask(prompt, tied)) == [setting.whole(60)]
    assert lab.say(Ask(prompt, tied)) == [setting.whole(69)]
    expect_no_leaks(lab)


@each_index
def test_an_exact_repeat_of_every_length(truth: Truth, setting: Setting) -> None:
    """WO-05."""
    lab = truth.lab(setting)
    for length in range(1, 41):
        lab.engine.flush()
        ask = Ask(prompt_of(length, salt=length)).wanting(2)
        assert lab.say(ask) == [0]
        assert lab.say(ask) == [setting.whole(length - 1)]
    expect_no_leaks(lab)


@each_index
def test_a_prompt_that_is_cached_to_its_end_still_answers(truth: Truth, setting: Setting) -> None:
    """WO-07. Exactly three pages, and strict prefixes of what is cached."""
    lab = truth.lab(setting)
    for length in (48, 48, 47, 33, 32, 17, 16, 1):
        (reused,) = lab.say(Ask(prompt_of(48)[:length]))
        assert reused <= length - 1
    expect_no_leaks(lab)


@each_index
@pytest.mark.parametrize("tail", [1, 10, 31, 32, 33])
def test_the_tail_after_a_hit_fills_the_first_chunk_or_not(truth: Truth, setting: Setting, tail: int) -> None:
    """WO-08. The runner refuses empty work."""
    lab = truth.lab(replace(setting, chunk=32))
    lab.say(Ask(prompt_of(60)).wanting(1))
    lab.say(Ask(prompt_of(60) + prompt_of(tail, salt=1)))
    expect_no_leaks(lab)


@each_index
def test_five_questions_in_turn_about_one_context(truth: Truth, setting: Setting) -> None:
    """WO-09."""
    lab = truth.lab(setting)
    asks = [Ask(prompt_of(200) + prompt_of(5 + question, salt=question + 1)) for question in range(5)]
    reused = [lab.say(ask)[0] for ask in asks]
    assert reused == [0] + [setting.whole(200)] * 4
    expect_no_leaks(lab)


@each_index
def test_hits_and_misses_under_load_draw_tokens_of_the_vocabulary(truth: Truth, setting: Setting) -> None:
    """WO-11. Twelve at a time, half of them hits, sampled; the sampler refuses a logit that is not finite."""
    lab = truth.lab(replace(setting, pool=700, chunk=64))
    vocab = truth.decoder.spec.vocab_size
    for wave in range(4):
        asks = [
            Ask(
                prompt_of(40, salt=number % 2 * (wave * 12 + number + 1)) + prompt_of(9, salt=number),
                SamplingParams(temperature=1.0, seed=number, max_tokens=6, logprobs=0),
            )
            for number in range(12)
        ]
        for said in lab.run(*asks):
            assert all(0 <= token < vocab for token in said.tokens[0])
            assert all(np.isfinite(entry.logprob) for entry in said.logprobs[0])
        lab.say(*asks)
    expect_no_leaks(lab)


class Sick:
    """A decoder that answers with NaN wherever the marked token is read, while it is sick."""

    def __init__(self, decoder: Decoder, token: int) -> None:
        self._decoder, self._token = decoder, token
        self.spec, self.logits, self.ops = decoder.spec, decoder.logits, decoder.ops
        self.sick = True

    def forward(self, tokens: Any, spans: Any, kv: Any) -> Any:
        hidden = self._decoder.forward(tokens, spans, kv)
        if self.sick:
            hidden[tokens == self._token] = np.nan
        return hidden


@each_index
def test_a_logit_that_is_not_finite_fails_its_request_alone_and_leaves_no_prefix(
    truth: Truth, setting: Setting
) -> None:
    """WO-11, its second half."""
    sick = Sick(truth.decoder, token=1)
    lab = truth.lab(setting, cast("Decoder", sick))
    bad, good = Ask((*prompt_of(50), 1)), Ask(prompt_of(50, salt=1))
    lab.runner._witness = Witness()  # What is said now is not held against anyone later.
    ended = outcome(lab, bad, good)
    assert "not finite" in str(ended[0].error)
    assert ended[1].error is None
    lab.runner._witness = truth.witness
    sick.sick = False
    assert lab.say(bad) == [0]
    assert lab.say(good) == [setting.whole(49)]
    expect_no_leaks(lab)


def outcome(lab: Lab, *asks: Ask) -> list[Finished]:
    requests = [lab._request(ask) for ask in asks]
    for request in requests:
        lab.engine.add(request, 0.0)
    events: list[Event] = []
    while lab.engine.busy:
        events += lab.engine.step(0.0)
    ends = {event.request_id: event for event in events if isinstance(event, Finished)}
    return [ends[request.id] for request in requests]


@each_index
def test_four_pages_twice_then_a_page_more_twice(truth: Truth, setting: Setting) -> None:
    """WO-12."""
    lab = truth.lab(setting)
    four, five = Ask(prompt_of(64)).wanting(1), Ask(prompt_of(80)).wanting(1)
    reused = [lab.say(ask)[0] for ask in (four, four, five, five)]
    assert reused == [0, setting.whole(63), 64, setting.whole(79)]
    expect_no_leaks(lab)


@each_index
def test_uncached_lengths_around_the_chunk_all_at_once(truth: Truth, setting: Setting) -> None:
    """WO-13."""
    lab = truth.lab(replace(setting, pool=4096, chunk=64))
    shared = prompt_of(40)
    lab.say(Ask(shared).wanting(1))
    asks = [Ask(shared + prompt_of(length, salt=length)).wanting(2) for length in range(30, 91, 4)]
    assert all(reused >= setting.whole(40) for reused in lab.say(*asks))
    expect_no_leaks(lab)


@each_index
def test_writers_of_a_half_filled_page_do_not_meet(truth: Truth, setting: Setting) -> None:
    """WO-14. Four sampled answers at once to a prompt that ends inside a page, then other tails from there."""
    lab = truth.lab(setting)
    prompt = prompt_of(20)
    lab.say(
        *(
            Ask(prompt, SamplingParams(temperature=1.0, seed=seed, max_tokens=20, logprobs=0))
            for seed in range(4)
        )
    )
    lab.say(Ask(prompt, SamplingParams(temperature=1.0, seed=9, n=4, max_tokens=20, logprobs=0)))
    lab.say(*(Ask(prompt + prompt_of(15, salt=salt)) for salt in range(1, 5)))
    expect_no_leaks(lab)


# ---- who owns a page ---------------------------------------------------------------------------------------


@each_index
def test_a_prompt_dropped_after_two_chunks_is_right_when_it_comes_back(
    truth: Truth, setting: Setting
) -> None:
    """ME-06."""
    lab = truth.lab(replace(setting, pool=512, chunk=32))
    ask = Ask(prompt_of(256))
    dropped = lab._request(ask)
    lab.engine.add(dropped, 0.0)
    lab.engine.step(0.0)
    lab.engine.step(0.0)
    lab.engine.abort(dropped.id)
    lab.engine.cache.check()
    lab.say(*(Ask(prompt_of(12, salt=salt)).wanting(1) for salt in range(1, 31)))
    assert lab.say(ask) == [64]
    expect_no_leaks(lab)


@each_index
def test_a_prefix_that_a_long_answer_pushed_out_is_a_miss_and_right(truth: Truth, setting: Setting) -> None:
    """ME-14."""
    lab = truth.lab(replace(setting, pool=160))
    old = Ask(prompt_of(64))
    lab.say(old)
    lab.say(Ask(prompt_of(64, salt=1)).wanting(97))
    assert lab.say(old) == [0]
    expect_no_leaks(lab)


@each_index
def test_another_salt_reads_nothing_and_answers_the_same(truth: Truth, setting: Setting) -> None:
    """ID-03, with what can be told apart today."""
    lab = truth.lab(setting)
    ask = Ask(prompt_of(80))
    for salt in ("a", "b", ""):
        assert lab.say(replace(ask, salt=salt)) == [0]
    for salt in ("a", "b", ""):
        assert lab.say(replace(ask, salt=salt)) == [setting.whole(79)]
    expect_no_leaks(lab)


# ---- logprobs with reuse -----------------------------------------------------------------------------------


def overlapping() -> list[Prompt]:
    """Twenty prompts that share beginnings of many lengths."""
    return [prompt_of(90)[: 4 * number + 3] + prompt_of(number % 5, salt=number + 1) for number in range(20)]


@each_index
@pytest.mark.parametrize("at_once", [False, True])
def test_scores_of_prompts_do_not_depend_on_their_order(
    truth: Truth, setting: Setting, at_once: bool
) -> None:
    """LP-01. `say` compares the scores of all positions, bit for bit."""
    asks = [Ask(prompt, SCORED) for prompt in overlapping()]
    for order in (asks, asks[::-1]):
        lab = truth.lab(replace(setting, pool=2048))
        for wave in [order] if at_once else [[ask] for ask in order]:
            lab.say(*wave)
        expect_no_leaks(lab)


@each_index
@pytest.mark.parametrize("length", [1, 15, 16, 17, 31, 32, 33, 64])
def test_a_prompt_is_scored_alike_cold_repeated_and_over_what_others_cached(
    truth: Truth, setting: Setting, length: int
) -> None:
    """LP-02."""
    lab = truth.lab(setting)
    prompt = prompt_of(64)[:length]
    for _ in range(2):
        lab.say(Ask(prompt, SCORED))
    assert len(truth.of(Ask(prompt, SCORED)).scores) == length
    lab.engine.flush()
    lab.say(Ask(prompt_of(64)))
    lab.say(Ask(prompt, SCORED), Ask(prompt))
    expect_no_leaks(lab)


@each_index
def test_each_output_token_has_its_logprob_on_a_warm_prompt_that_is_not_scored(
    truth: Truth, setting: Setting
) -> None:
    """LP-04."""
    lab = truth.lab(setting)
    ask = Ask(prompt_of(40), SamplingParams(temperature=0.0, max_tokens=6, logprobs=0))
    lab.say(ask)
    assert lab.say(ask) == [setting.whole(39)]
    assert len(lab.run(ask)[0].logprobs[0]) == 6
    expect_no_leaks(lab)
