"""The text's simulation, run again. The text's own figures are checked on whole draws, small ones are for the rest."""

from __future__ import annotations

import pytest

from sapwood.sim.chat import ChatWorkload, draw_chat, synthetic_chat
from sapwood.sim.reproduce import (
    THE_TEXTS_CHAT,
    Reproduction,
    Row,
    reproduce,
    run_experiment,
    run_seed,
    seeds_like_the_text,
    the_texts_cost,
    worked_example,
)
from sapwood.sim.text_figures import LEFT_OUT, OF_THE_TEXT, Experiment, TextFigure

SMALL = ChatWorkload(conversations=8, system_prompts=2)


@pytest.fixture(scope="module")
def small() -> Reproduction:
    return reproduce((1, 2), SMALL, workers=1)


def test_every_figure_of_the_text_has_ours_beside_it(small: Reproduction) -> None:
    assert [(row.name, row.text, row.unit) for row in small.rows] == [
        (figure.name, figure.text, figure.unit) for figure in OF_THE_TEXT
    ]
    assert all(
        row.difference is not None and row.difference == row.ours - (row.text or 0) for row in small.rows
    )
    assert [row.name for row in small.left_out] == [figure.name for figure in LEFT_OUT]
    assert all(row.text is None and row.difference is None for row in small.left_out)


def test_ours_is_the_mean_of_the_seeds(small: Reproduction) -> None:
    each = [run_seed(SMALL, seed) for seed in (1, 2)]
    for row, figure in zip(small.rows, OF_THE_TEXT, strict=True):
        first, second = (outcomes.figure(figure) for outcomes in each)
        assert row.ours == pytest.approx((first + second) / 2)
        assert row.deviation == pytest.approx(abs(first - second) / 2)


def test_progress_tells_of_every_seed() -> None:
    told: list[str] = []
    reproduce((1, 2), SMALL, workers=1, progress=told.append)
    assert told == ["seeds: 1 of 2", "seeds: 2 of 2"]


def test_the_largest_difference_is_of_hit_rates_alone() -> None:
    rows = (Row("a", 50.0, 48.0, 0, "%"), Row("b", 50.0, 51.0, 0, "%"), Row("c", 70.0, 80.0, 0, "ms"))
    assert Reproduction((0,), (), rows, ()).max_difference == 2.0


def test_a_gain_is_what_another_experiment_has_less() -> None:
    outcomes = run_seed(SMALL, 3)
    with_it, without = Experiment("leaf-first", 10_000), Experiment("listing", 10_000)
    gain = outcomes.figure(TextFigure("gain", None, "points", with_it, minus=without))
    assert gain == outcomes.of[with_it].hit_rate - outcomes.of[without].hit_rate


def test_names_are_told_apart() -> None:
    names = [figure.name for figure in (*OF_THE_TEXT, *LEFT_OUT)]
    assert len(set(names)) == len(names)


def test_seeds_like_the_text_have_its_size_and_are_the_first() -> None:
    seeds = seeds_like_the_text(3)
    for seed in range(seeds[-1] + 1):
        draw = draw_chat(THE_TEXTS_CHAT, seed)
        alike = abs(len(draw) - 1603) <= 32.06 and abs(draw.prompt_tokens.sum() - 3.44e6) <= 68_800
        assert alike == (seed in seeds)


def test_the_worked_example_comes_out() -> None:
    for row in worked_example(the_texts_cost()):
        assert row.difference == pytest.approx(
            0, abs={"TFLOP": 0.005, "×": 0.5, "MB": 0.5}.get(row.unit, 0.05)
        )


def test_nothing_beats_the_best_possible() -> None:
    outcomes = run_seed(ChatWorkload(conversations=60), 5).of
    for tokens in (10_000, 20_000, 50_000):
        best = outcomes[Experiment("optimum", tokens)].hit_rate
        assert outcomes[Experiment("leaf-first", tokens)].hit_rate <= best
        assert outcomes[Experiment("listing", tokens)].hit_rate <= best
        assert best <= outcomes[Experiment()].hit_rate


@pytest.mark.parametrize(
    "figure",
    [
        figure
        for figure in OF_THE_TEXT
        if figure.name in ("no cache, prefill", "unlimited", "fcfs 50k", "fcfs 20k", "fcfs 10k", "lpm 10k")
    ],
    ids=lambda figure: str(figure.name),
)
def test_two_draws_of_the_texts_size_have_its_figures(figure: TextFigure) -> None:
    cost = the_texts_cost()
    block = figure.experiment.block_tokens
    found = [
        run_experiment(figure.experiment, synthetic_chat(ChatWorkload(unit_tokens=block), seed), cost)
        for seed in seeds_like_the_text(2)
    ]
    ours = sum(each.prefill_ms if figure.unit == "ms" else each.hit_rate for each in found) / 2
    assert ours == pytest.approx(figure.text, abs=2.5)
