"""Draws against a naive twin, and what a draw may and may not depend on."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from sapwood.errors import DeadEndError
from sapwood.model import sampler
from sapwood.model.ops_native import NativeOps
from sapwood.model.ops_reference import ReferenceOps
from sapwood.model.sampler import Sampler
from sapwood.plan import SampleOrder
from sapwood.types import SamplingParams, TokenLogprob

Floats = NDArray[np.float32]
GRID = 500
"""Numbers of a sweep: a token's share of them is its probability, within 1 / GRID."""


OPS = NativeOps(1)
SAMPLER = Sampler(OPS)


def draw(row: Floats, asked: SampleOrder) -> TokenLogprob:
    (drawn,) = SAMPLER.draw([row], [asked])
    if isinstance(drawn, Exception):
        raise drawn
    return drawn


def score(row: Floats, token: int, top: int) -> TokenLogprob:
    return SAMPLER.score([row], [token], top)[0]


def uniform(asked: SampleOrder) -> float:
    """The number that is drawn with."""
    with mock.patch.object(OPS, "uniform", wraps=OPS.uniform) as watched:
        draw(np.zeros(10, np.float32), asked)
    return OPS.uniform(*watched.call_args.args)


def order(history: tuple[int, ...] = (0, 1, 2), prompt_len: int = 3, **params: Any) -> SampleOrder:
    keys = {name: params.pop(name) for name in ("seed", "sample", "banned") if name in params}
    own = SamplingParams(**params)
    tokens = np.array(history, np.int32)
    return SampleOrder(
        own, keys.get("seed", 0), keys.get("sample", 0), prompt_len, tokens, keys.get("banned", ())
    )


def logits(*values: float) -> Floats:
    return np.array(values, np.float32)


def shares(row: Floats, asked: SampleOrder) -> dict[int, float]:
    """Each token's part of [0, 1): all draws, by a sweep of the random number."""
    numbers = [(step + 0.5) / GRID for step in range(GRID)]
    with mock.patch.object(OPS, "uniform", side_effect=numbers):
        drawn = SAMPLER.draw([row] * GRID, [asked] * GRID)
    counts = Counter(each.token for each in drawn if isinstance(each, TokenLogprob))
    return {token: count / GRID for token, count in counts.items()}


def naive(row: list[float], params: SamplingParams) -> dict[int, float]:
    """The definition: temperature, then the k likeliest, then the smallest set that reaches top_p, then min_p."""
    weights = {token: math.exp((value - max(row)) / params.temperature) for token, value in enumerate(row)}
    ranked = sorted(weights, key=lambda token: (-weights[token], token))
    ranked = ranked[: params.top_k] if params.top_k else ranked
    total = math.fsum(weights[token] for token in ranked)
    kept: list[int] = []
    for token in ranked:
        if math.fsum(weights[t] for t in kept) < params.top_p * total or params.top_p == 1:
            kept.append(token)
    kept = [token for token in kept if weights[token] >= params.min_p * weights[ranked[0]]]
    total = math.fsum(weights[token] for token in kept)
    return {token: weights[token] / total for token in kept}


# ---- greedy ------------------------------------------------------------------------------------------------------


def test_greedy_takes_the_largest_and_among_equals_the_lowest_id() -> None:
    assert draw(logits(1, 3, 2), order(temperature=0)).token == 1
    assert draw(logits(1, 3, 2, 3), order(temperature=0)).token == 1
    assert draw(logits(-0.0, 0.0, 0.0), order(temperature=0)).token == 0
    assert draw(np.zeros(5000, np.float32), order(temperature=0)).token == 0


def test_greedy_breaks_ties_that_penalties_make() -> None:
    row = logits(1.0, 1.5, 1.0)
    assert draw(row, order((1,), 0, temperature=0, presence_penalty=0.5)).token == 0


@given(st.lists(st.integers(-3, 3), min_size=1, max_size=20), st.integers(0, 2**63), st.floats(0.01, 1.0))
def test_greedy_ignores_seed_and_cuts(values: list[int], seed: int, p: float) -> None:
    row = logits(*values)
    plain = draw(row, order(temperature=0)).token
    assert plain == values.index(max(values))
    assert draw(row, order(temperature=0, seed=seed, top_p=p, top_k=3, min_p=p)).token == plain


# ---- temperature and cuts ----------------------------------------------------------------------------------------


@settings(max_examples=60)
@given(
    row=st.lists(st.integers(-40, 40).map(lambda n: n / 8), min_size=1, max_size=12, unique=True),
    temperature=st.sampled_from([0.3, 1.0, 2.5]),
    top_k=st.sampled_from([0, 0, 1, 2, 5, 100]),
    top_p=st.sampled_from([1.0, 1.0, 0.95, 0.5, 0.07]),
    min_p=st.sampled_from([0.0, 0.0, 0.02, 0.3]),
)
def test_draws_have_the_naive_distribution(
    row: list[float], temperature: float, top_k: int, top_p: float, min_p: float
) -> None:
    asked = order(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    expected = naive(row, asked.params)
    found = shares(logits(*row), asked)
    assert set(found) <= set(expected)
    for token, probability in expected.items():
        assert abs(found.get(token, 0.0) - probability) <= 1.01 / GRID


def test_what_each_cut_keeps() -> None:
    row = np.log(logits(0.5, 0.25, 0.125, 0.125))
    assert set(shares(row, order(top_k=2))) == {0, 1}
    assert set(shares(row, order(top_p=0.5))) == {0}
    assert set(shares(row, order(top_p=0.51))) == {0, 1}
    assert set(shares(row, order(top_p=0.8))) == {0, 1, 2}
    assert set(shares(row, order(min_p=0.4))) == {0, 1}
    assert shares(row, order(top_k=2)) == pytest.approx({0: 2 / 3, 1: 1 / 3}, abs=1 / GRID)


def test_a_cut_that_is_met_exactly() -> None:
    four = logits(1, 1, 1, 1)
    assert set(shares(four, order(top_p=0.5))) == {0, 1}
    assert set(shares(four, order(min_p=1.0))) == {0, 1, 2, 3}


def test_top_p_counts_what_top_k_left() -> None:
    row = np.log(logits(0.4, 0.3, 0.2, 0.1))
    # Of the two likeliest, the first has 4/7 = 0.571…
    assert set(shares(row, order(top_k=2, top_p=0.57))) == {0}
    assert set(shares(row, order(top_k=2, top_p=0.58))) == {0, 1}


def test_ties_at_the_edge_of_top_k_keep_the_lower_ids() -> None:
    assert set(shares(logits(0, 1, 1, 1, 1), order(top_k=2))) == {1, 2}


@pytest.mark.parametrize("cut", [{"top_k": 1}, {"top_p": 1e-9}, {"min_p": 1.0}])
def test_the_likeliest_always_stays(cut: dict[str, Any]) -> None:
    assert set(shares(logits(0.1, 0.3, 0.2), order(**cut))) == {1}


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-10])
def test_a_tiny_temperature_is_nearly_greedy(temperature: float) -> None:
    assert set(shares(logits(3, 30, -1e30, 29), order(temperature=temperature))) == {1}


def test_logits_far_apart_and_huge_do_not_overflow() -> None:
    big = float(np.finfo(np.float32).max)
    assert set(shares(logits(-big, big, 0), order(temperature=100.0))) == {1}
    assert shares(logits(big, big), order(temperature=0.5)) == {0: 0.5, 1: 0.5}


# ---- penalties, bias, bans ---------------------------------------------------------------------------------------


@settings(max_examples=200)
@given(
    row=st.lists(st.floats(-2, 2, width=32), min_size=6, max_size=6),
    history=st.lists(st.integers(0, 5), min_size=1, max_size=12),
    prompt_part=st.floats(0, 1),
    repetition=st.sampled_from([1.0, 1.3, 0.7]),
    presence=st.sampled_from([0.0, 0.5, -2.0]),
    frequency=st.sampled_from([0.0, 0.25, -1.0]),
    bias=st.dictionaries(st.integers(0, 5), st.sampled_from([-100.0, -1.5, 0.5, 100.0]), max_size=3),
)
def test_penalties_and_bias_follow_their_formulas(
    row: list[float], history: list[int], prompt_part: float, repetition: float, presence: float, frequency: float,
    bias: dict[int, float],
) -> None:  # fmt: skip
    prompt_len = round(prompt_part * len(history))
    expected = list(row)
    for token in range(6):
        if token in history:
            expected[token] = row[token] / repetition if row[token] > 0 else row[token] * repetition
        count = history[prompt_len:].count(token)
        expected[token] -= presence * (count > 0) + frequency * count
        expected[token] += bias.get(token, 0.0)
    asked = order(
        tuple(history),
        prompt_len,
        temperature=0,
        repetition_penalty=repetition,
        presence_penalty=presence,
        frequency_penalty=frequency,
        logit_bias=bias,
    )
    found = draw(logits(*row), asked).token
    assert expected[found] >= max(expected) - 1e-4


def test_repetition_counts_the_prompt_and_the_others_do_not() -> None:
    row = logits(2.0, 1.9, 0.0)
    prompt_only = (0, 0)
    assert draw(row, order(prompt_only, 2, temperature=0, repetition_penalty=1.2)).token == 1
    assert draw(row, order(prompt_only, 2, temperature=0, presence_penalty=2.0)).token == 0
    assert draw(row, order(prompt_only, 2, temperature=0, frequency_penalty=2.0)).token == 0
    assert draw(row, order(prompt_only, 1, temperature=0, frequency_penalty=2.0)).token == 1


def test_frequency_counts_and_presence_does_not() -> None:
    row, thrice = logits(2.0, 1.0), (0, 0, 0)
    assert draw(row, order(thrice, 0, temperature=0, frequency_penalty=0.5)).token == 1
    assert draw(row, order(thrice, 0, temperature=0, presence_penalty=0.5)).token == 0


def test_the_logits_given_are_left_as_they_are() -> None:
    row = logits(1, 2, 3)
    draw(row, order(temperature=1, repetition_penalty=2.0, logit_bias={0: 5.0}, banned=(2,), logprobs=2))
    assert row.tolist() == [1, 2, 3]


@pytest.mark.parametrize("temperature", [0.0, 1.0, 100.0])
def test_a_banned_token_is_never_drawn(temperature: float) -> None:
    asked = order(temperature=temperature, banned=(1, 3), logit_bias={1: 100.0})
    found = set(shares(logits(0, 50, 1, 49), asked))
    assert 2 in found
    assert not found & {1, 3}


@pytest.mark.parametrize("number", [0.0, 1 - 2.0**-53])
def test_the_least_and_the_largest_number_draw_no_banned_token(number: float) -> None:
    with mock.patch.object(OPS, "uniform", return_value=number):
        assert draw(logits(1, 1, 1), order(banned=(0, 2))).token == 1
        assert draw(logits(1, 1, 1), order(banned=(0, 2), top_p=0.9)).token == 1


def test_a_bias_forces_or_forbids() -> None:
    row = logits(0, 5, 1)
    assert set(shares(row, order(logit_bias={0: 100.0}))) == {0}
    assert set(shares(row, order(logit_bias={1: -100.0}))) == {0, 2}


# ---- logprobs ----------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(
    row=st.lists(st.integers(-80, 80).map(lambda n: n / 8), min_size=1, max_size=15),
    top=st.integers(0, 20),
    temperature=st.sampled_from([0.0, 0.7, 3.0]),
)
def test_logprobs_are_raw_and_the_chosen_one_is_the_same_float(
    row: list[float], top: int, temperature: float
) -> None:
    asked = order(
        (0,), 1, temperature=temperature, logprobs=top, repetition_penalty=1.7, logit_bias={0: 2.0}, top_k=3
    )
    drawn = draw(logits(*row), asked)
    norm = max(row) + math.log(math.fsum(math.exp(value - max(row)) for value in row))
    assert drawn.logprob == pytest.approx(row[drawn.token] - norm, abs=1e-12)
    assert len(drawn.top) == min(top, len(row))
    assert [t for t, _ in drawn.top] == sorted(range(len(row)), key=lambda t: (-row[t], t))[:top]
    for token, logprob in drawn.top:
        assert logprob == pytest.approx(row[token] - norm, abs=1e-12)
        assert token != drawn.token or logprob == drawn.logprob


def test_logprobs_only_when_asked() -> None:
    assert draw(logits(1, 2), order()).logprob == 0.0
    asked = draw(logits(1, 2), order(temperature=0, logprobs=0))
    assert asked.logprob == pytest.approx(-math.log(1 + math.exp(-1)))
    assert asked.top == ()


def test_all_logprobs_are_a_distribution() -> None:
    row = np.random.default_rng(0).standard_normal(1000).astype(np.float32) * 9
    scored = score(row, 17, 1000)
    assert math.fsum(math.exp(logprob) for _, logprob in scored.top) == pytest.approx(1.0, abs=1e-12)
    assert dict(scored.top)[17] == scored.logprob


# ---- what a draw depends on --------------------------------------------------------------------------------------


def test_the_number_is_a_function_of_seed_sample_and_position_alone() -> None:
    first = uniform(order((1, 2, 3), seed=5, sample=2))
    others = order((9, 8, 7), 0, seed=5, sample=2, temperature=0.2, top_k=4, banned=(3,))
    assert uniform(others) == first
    keys = [
        (seed, sample, length) for seed in (0, 1, 2**63) for sample in (0, 1, 7) for length in (1, 2, 300)
    ]
    numbers = {uniform(order((0,) * length, seed=seed, sample=sample)) for seed, sample, length in keys}
    assert len(numbers) == len(keys)
    assert all(0 <= number < 1 for number in numbers)


def test_the_stream_is_pinned() -> None:
    """Seeds keep their meaning from release to release."""
    keys = ((0, 0, 1), (42, 0, 10), (42, 1, 10))
    numbers = [uniform(order((0,) * length, seed=seed, sample=sample)) for seed, sample, length in keys]
    assert numbers == [0.34218278474233466, 0.5250160661854594, 0.16700809318335985]


@pytest.mark.parametrize("seed", [-1, 2**64 + 3, -(2**70)])
def test_any_integer_is_a_seed(seed: int) -> None:
    assert 0 <= uniform(order(seed=seed)) < 1


def test_draws_follow_the_probabilities() -> None:
    """4,000 seeds at one position and 4,000 positions of one seed; chi-square with 7 degrees of freedom, fixed keys."""
    row = np.random.default_rng(3).standard_normal(8).astype(np.float32)
    expected = np.exp(row.astype(np.float64)) / np.exp(row.astype(np.float64)).sum() * 4000
    by_seed = [order((0, 1), seed=seed) for seed in range(4000)]
    by_position = [order((0,) * length, seed=11) for length in range(1, 4001)]
    by_sample = [order((0, 1), seed=11, sample=sample) for sample in range(4000)]
    for orders in (by_seed, by_position, by_sample):
        counts = np.bincount([draw(row, asked).token for asked in orders], minlength=8)
        assert ((counts - expected) ** 2 / expected).sum() < 24.3  # p = 0.001


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_logits_that_are_not_finite_are_refused(bad: float, temperature: float) -> None:
    with pytest.raises(ValueError, match="not finite"):
        draw(logits(1, bad, 2), order(temperature=temperature))
    with pytest.raises(ValueError, match="not finite"):
        score(logits(1, bad, 2), 0, 1)


class Only:
    """A guide that allows these tokens, and notes what it was shown."""

    def __init__(self, *tokens: int) -> None:
        self.tokens, self.shown = tokens, list[list[int]]()

    def mask(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
        self.shown.append(generated.tolist())
        mask = np.zeros(4, bool)
        mask[list(self.tokens)] = True
        return mask


def test_a_guide_is_shown_what_was_generated_and_its_tokens_alone_share_the_draws() -> None:
    guide = Only(1, 3)
    asked = replace(order((0, 1, 2, 2), prompt_len=2), guide=guide)
    found = shares(logits(5.0, math.log(1), 5.0, math.log(3)), asked)
    assert found == {1: pytest.approx(0.25, abs=2 / GRID), 3: pytest.approx(0.75, abs=2 / GRID)}
    assert guide.shown[0] == [2, 2]


@pytest.mark.parametrize("params", [{"temperature": 0}, {"top_k": 1}, {"top_p": 0.1}, {"min_p": 0.9}])
def test_every_cut_is_made_among_what_the_guide_allows(params: dict[str, Any]) -> None:
    asked = replace(order(**params), guide=Only(1, 3))
    assert shares(logits(9.0, 1.0, 9.0, 4.0), asked) == {3: 1.0}


def test_no_bias_brings_back_what_the_guide_forbids() -> None:
    asked = replace(order(logit_bias={0: 1e9}, repetition_penalty=5.0, temperature=0), guide=Only(1))
    assert draw(logits(9.0, -9.0, 1.0, 1.0), asked).token == 1


def test_bans_give_way_where_the_guide_allows_nothing_else() -> None:
    both = replace(order(banned=(1,), temperature=0), guide=Only(1, 2))
    alone = replace(order(banned=(1,), temperature=0), guide=Only(1))
    row = logits(9.0, 5.0, 1.0, 9.0)
    assert draw(row, both).token == 2
    assert draw(row, alone).token == 1


def test_reported_probabilities_are_those_before_the_guide() -> None:
    row = logits(2.0, 1.0, 0.0, 0.0)
    free = score(row, 1, 2)
    assert draw(row, replace(order(temperature=0, logprobs=2), guide=Only(1))) == free


# ---- rows together -----------------------------------------------------------------------------------------------


class DeadEnd:
    def mask(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:  # noqa: ARG002
        raise DeadEndError("nothing may follow")


def test_rows_drawn_together_are_rows_drawn_alone() -> None:
    rng = np.random.default_rng(5)
    rows = [rng.standard_normal(300).astype(np.float32) for _ in range(9)]
    rows[4][7] = np.nan
    asked = [
        order(seed=1),
        order(seed=1, temperature=0, logprobs=3),
        order(seed=2, top_p=0.7, logprobs=0),
        order(seed=3, temperature=0.4, presence_penalty=1.0, banned=(5,), logprobs=9),
        order(seed=4, logprobs=1),
        replace(order(seed=5), guide=DeadEnd()),
        order(seed=6, banned=(300,)),
        order(seed=7, min_p=0.1),
        order(seed=8, top_k=3),
    ]
    together = SAMPLER.draw(rows, asked)
    for row, one, drawn in zip(rows, asked, together, strict=True):
        if isinstance(drawn, Exception):
            with pytest.raises(type(drawn), match=str(drawn)):
                draw(row, one)
        else:
            assert drawn == draw(row, one)
    assert [type(drawn) for drawn in together[4:7]] == [ValueError, DeadEndError, IndexError]
    assert SAMPLER.score(rows[:4], [1, 2, 3, 4], 2) == [score(rows[i], i + 1, 2) for i in range(4)]
    assert Sampler(ReferenceOps()).draw(rows[:4], asked[:4]) == together[:4]


@pytest.mark.parametrize("name", ["pick", "rank"])
def test_what_the_ops_refuse_for_one_row_is_that_rows_failure(name: str) -> None:
    rows = [logits(1, 3, 2), logits(9, 0, 0), logits(0, 0, 5)]
    asked = [order(temperature=0, logprobs=1)] * 3
    first, _, last = SAMPLER.draw(rows, asked)
    able = getattr(OPS, name)

    def picky(given: list[Floats], *rest: Any) -> Any:
        if any(row[0] == 9 for row in given):
            raise MemoryError("too much")
        return able(given, *rest)

    with mock.patch.object(OPS, name, picky):
        found = SAMPLER.draw(rows, asked)
    assert isinstance(found[1], MemoryError)
    assert [found[0], found[2]] == [first, last]


def test_an_order_that_no_number_can_be_drawn_for_fails_alone() -> None:
    row = logits(1, 3, 2)
    found = SAMPLER.draw([row, row], [replace(order(seed=1), sample=-1), order(seed=1)])
    assert isinstance(found[0], TypeError)
    assert found[1] == draw(row, order(seed=1))


def test_rows_are_ranked_no_deeper_than_each_asks() -> None:
    rows = [np.random.default_rng(seed).standard_normal(300).astype(np.float32) for seed in range(4)]
    asked = [order(temperature=0, logprobs=top) for top in (2, 300, 2, None)]
    with mock.patch.object(OPS, "rank", wraps=OPS.rank) as watched:
        drawn = SAMPLER.draw(rows, asked)
    assert sorted((call.args[1], len(call.args[0])) for call in watched.call_args_list) == [(2, 2), (300, 1)]
    assert drawn == [draw(row, one) for row, one in zip(rows, asked, strict=True)]


def test_penalties_that_overflow_leave_a_choice() -> None:
    row = logits(3e38, 2e38, -3e38)
    asked = order((0, 1, 2), repetition_penalty=0.01, temperature=0)
    assert draw(row, asked).token == 0
    assert draw(row, order((2,), repetition_penalty=100.0)).token in (0, 1)


@given(st.one_of(st.floats(1, 2.0**50), st.floats(1, 1.001)))
def test_the_log_is_as_good_as_any(x: float) -> None:
    assert math.isclose(sampler._log(x), math.log(x), rel_tol=1e-15, abs_tol=1e-16)


def test_the_log_of_one_is_nothing() -> None:
    assert score(logits(3.5), 0, 1) == TokenLogprob(0, 0.0, ((0, 0.0),))
