"""best_of: more samples are drawn than given, from one reading of the prompt."""

from __future__ import annotations

import pytest

from engine.rig import Rig, prompt_of
from sapwood.errors import RequestError
from sapwood.types import Delta, SamplingParams


def sampled(n: int, best_of: int | None, **others: object) -> SamplingParams:
    fields = {"max_tokens": 8, "temperature": 1.0, "seed": 3, **others}
    return SamplingParams(n=n, best_of=best_of, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize("page_size", [1, 4])
@pytest.mark.parametrize(("n", "best_of"), [(1, 5), (2, 5), (4, 5), (1, 2)])
@pytest.mark.parametrize("logprobs", [None, 2])
def test_the_n_with_the_highest_mean_logprob_are_given_the_best_first(
    n: int, best_of: int, logprobs: int | None, page_size: int
) -> None:
    rig = Rig(page_size=page_size, chunk=16)
    log = rig.ask(prompt_of(40), sampled(n, best_of, logprobs=logprobs))
    rig.expect_solo(log)
    assert len({sample.tokens for sample in rig.each(log.request)}) > 1, "there must be something to choose"
    assert all(bool(sample.logprobs) == (logprobs is not None) for sample in log.samples.values())
    rig.expect_no_leaks()


def test_the_choice_is_by_mean_and_not_by_sum() -> None:
    """Samples of different lengths: a short one has the higher sum, whatever its tokens."""
    for seed in range(20):
        rig = Rig()
        log = rig.ask(prompt_of(30), sampled(1, 8, seed=seed, max_tokens=20, stop_token_ids=(3, 4, 5, 6, 7)))
        rig.expect_solo(log)
        lengths = [len(sample.tokens) for sample in rig.each(log.request)]
        if len(log.samples[0].tokens) > min(lengths):
            return
    raise AssertionError("in none of the cases was the chosen one longer than another")


def test_usage_counts_the_prompt_once_and_the_tokens_of_all_that_were_drawn() -> None:
    rig = Rig(chunk=64)
    log = rig.ask(prompt_of(50), sampled(2, 6))
    assert log.usage.prompt_tokens == 50
    assert log.usage.completion_tokens == 6 * 8
    assert rig.engine.stats().prompt_tokens == 50
    assert rig.runner.computed_tokens == 50 + 5 + 6 * 7, "the prompt is read once, its last token by each"


def test_nothing_is_given_before_all_are_done() -> None:
    rig = Rig(max_running=2)
    log = rig.add(prompt_of(20), sampled(2, 4))
    while log.finished is None:
        assert not log.samples
        rig.step()
    assert sorted(log.samples) == [0, 1]


@pytest.mark.parametrize("best_of", [None, 3])
def test_as_many_as_are_given_are_told_as_they_come(best_of: int | None) -> None:
    rig = Rig()
    log = rig.add(prompt_of(20), sampled(3, best_of))
    rig.step()
    rig.step()
    assert log.finished is None
    assert log.samples
    rig.run()
    rig.expect_solo(log)


def test_equal_samples_are_given_in_their_order() -> None:
    rig = Rig()
    log = rig.ask(prompt_of(20), sampled(2, 4, temperature=0.0))
    rig.expect_solo(log)
    assert log.samples[0] == log.samples[1]


def test_without_a_token_there_is_nothing_to_rank() -> None:
    log = Rig().ask(prompt_of(20), sampled(2, 4, max_tokens=0))
    assert {index: (s.tokens, s.finish) for index, s in log.samples.items()} == {
        0: ((), "length"),
        1: ((), "length"),
    }


@pytest.mark.parametrize("steps", range(8))
def test_aborted_at_any_step_it_ends_each_given_sample_once_and_leaks_nothing(steps: int) -> None:
    rig = Rig(max_running=3, chunk=16)
    log = rig.add(prompt_of(30), sampled(2, 5, max_tokens=3))
    for _ in range(steps):
        rig.step()
    if log.finished is None:
        events = rig.engine.abort(log.request.id)
        assert [event.sample for event in events if isinstance(event, Delta)] == [0, 1]
        rig.take(events)
    assert log.finished is not None
    assert all(sample.finish is not None for sample in log.samples.values())
    rig.expect_no_leaks()


def test_pressed_for_room_the_best_are_the_same() -> None:
    rig = Rig(pool=70, chunk=16)
    logs = [rig.add(prompt_of(20, salt=salt), sampled(2, 4, max_tokens=30)) for salt in range(3)]
    rig.run()
    assert rig.engine.stats().preemptions > 0
    for log in logs:
        rig.expect_solo(log)
    rig.expect_no_leaks()


@pytest.mark.parametrize(("n", "best_of"), [(2, 1), (1, 0), (1, 129), (1, -1)])
def test_fewer_than_n_or_too_many_are_refused(n: int, best_of: int) -> None:
    with pytest.raises(
        RequestError, match=rf"'best_of' is {best_of}; it must be at least n \({n}\)"
    ) as error:
        sampled(n, best_of)
    assert error.value.param == "best_of"
