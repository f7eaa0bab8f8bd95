"""Answers within a grammar: every token of every sample obeys, whatever happens to it on the way."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from engine.rig import VOCAB, Rig, greedy, prompt_of
from sapwood.errors import DeadEndError, RequestError
from sapwood.types import Constraint, SamplingParams

EOS = VOCAB - 1
EVEN = Constraint("regex", "even")


class Sums:
    """Allows the third of the vocabulary that the sum of all generated tokens names. Never tokens from 36 on."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def mask(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
        self.asked.append(len(generated))
        return allowed_after(generated.tolist())


def allowed_after(generated: list[int]) -> NDArray[np.bool_]:
    ids = np.arange(VOCAB)
    return np.asarray((ids % 3 == (sum(generated) + len(generated)) % 3) & (ids < 36), np.bool_)


class SumsMaker:
    def __init__(self) -> None:
        self.begun: list[Sums] = []

    def check(self, constraint: Constraint, /) -> None:
        if constraint.text != EVEN.text:
            raise RequestError("no such grammar", param=constraint.param)

    def begin(self, _constraint: Constraint, /) -> Sums:
        self.begun.append(Sums())
        return self.begun[-1]


def guided(count: int, **more: object) -> SamplingParams:
    return SamplingParams(max_tokens=count, seed=3, constraint=EVEN, **more)  # type: ignore[arg-type]


def expect_obedient(tokens: tuple[int, ...]) -> None:
    for n, token in enumerate(tokens):
        assert allowed_after(list(tokens[:n]))[token], f"token {n}"


def answers(pool: int, *, count: int = 60) -> tuple[list[tuple[int, ...]], int]:
    """What five guided requests say in a pool of that size, and how often one was preempted."""
    rig = Rig(pool=pool, chunk=32, guides=SumsMaker())
    logs = [rig.add(prompt_of(20, salt=i), guided(count)) for i in range(5)]
    rig.run()
    rig.expect_no_leaks()
    return [log.samples[0].tokens for log in logs], rig.engine.stats().preemptions


def test_a_preempted_sample_goes_on_as_it_would_have() -> None:
    roomy, undisturbed = answers(4096)
    tight, preempted = answers(100)
    assert (undisturbed, preempted > 0) == (0, True)
    assert tight == roomy
    for tokens in tight:
        assert len(tokens) == 60
        expect_obedient(tokens)


def test_the_first_token_after_a_hit_obeys_and_is_the_cold_one() -> None:
    rig = Rig(guides=SumsMaker())
    cold = rig.add(prompt_of(30), guided(12))
    rig.run()
    warm = rig.add(prompt_of(30), guided(12))
    rig.run()
    assert warm.usage.reused == 29
    assert warm.samples[0].tokens == cold.samples[0].tokens
    expect_obedient(warm.samples[0].tokens)


def test_each_sample_has_a_guide_of_its_own_and_others_have_none() -> None:
    maker = SumsMaker()
    rig = Rig(guides=maker)
    several = rig.add(prompt_of(10), guided(8, n=3))
    free = rig.add(prompt_of(10, salt=1), greedy(8))
    rig.run()
    assert [guide.asked for guide in maker.begun] == [list(range(8))] * 3
    for sample in several.samples.values():
        expect_obedient(sample.tokens)
    rig.expect_solo(free)


def test_the_end_token_ends_a_guided_answer_even_if_it_is_to_be_ignored() -> None:
    class OnlyTheEnd(SumsMaker):
        def begin(self, _constraint: Constraint, /) -> Sums:
            return EndSums()

    class EndSums(Sums):
        def mask(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
            ids = np.arange(VOCAB)
            return np.asarray(ids == (EOS if len(generated) == 4 else 5), np.bool_)

    rig = Rig(eos=(EOS,), guides=OnlyTheEnd())
    log = rig.add(prompt_of(10), guided(30, ignore_eos=True, min_tokens=20))
    rig.run()
    assert log.samples[0].tokens == (5, 5, 5, 5, EOS)
    assert log.samples[0].finish == "stop"


def test_an_unusable_constraint_is_refused_at_the_door() -> None:
    rig = Rig(guides=SumsMaker())
    with pytest.raises(RequestError, match="no such grammar"):
        rig.add(prompt_of(10), SamplingParams(constraint=Constraint("regex", "odd")))
    assert not rig.engine.busy


def test_without_guides_a_constraint_is_refused_rather_than_ignored() -> None:
    with pytest.raises(RequestError, match="grammar"):
        Rig().add(prompt_of(10), guided(3))


def test_a_grammar_that_allows_nothing_more_ends_its_request_alone_and_says_whose_fault_it_was() -> None:
    class DeadEnd(SumsMaker):
        def begin(self, _constraint: Constraint, /) -> Sums:
            return Cornered()

    class Cornered(Sums):
        def mask(self, generated: NDArray[np.int32]) -> NDArray[np.bool_]:
            if len(generated) == 3:
                raise DeadEndError("the grammar allows no token of this vocabulary")
            return allowed_after(generated.tolist())

    rig = Rig(guides=DeadEnd())
    cornered = rig.add(prompt_of(10), guided(30, n=2))
    free = rig.add(prompt_of(10, salt=1), greedy(8))
    rig.run()
    assert cornered.finished is not None
    assert (cornered.finished.dead_end, cornered.finished.refused) == (True, False)
    assert cornered.finished.error == "the grammar allows no token of this vocabulary"
    rig.expect_solo(free)
    assert free.finished is not None
    assert not free.finished.dead_end
    rig.expect_no_leaks()
