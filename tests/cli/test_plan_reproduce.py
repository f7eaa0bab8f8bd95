"""The verb, over a reproduction that a test can wait for."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence

import pytest

from sapwood.cli import main, plan_reproduce
from sapwood.sim.reproduce import Reproduction, Row

Out = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    def reproduce(
        seeds: Sequence[int], *, workers: int | None, progress: Callable[[str], None]
    ) -> Reproduction:
        if workers is not None:
            progress(f"{workers} workers")
        progress(f"seeds: 1 of {len(seeds)}")
        return Reproduction(
            tuple(seeds),
            worked=(Row("times faster", 14.0, 13.96, 0.0, "×"),),
            rows=(
                Row("fcfs 10k", 24.8, 23.3, 1.25, "%"),
                Row("unlimited", 94.6, 94.62, 0.3, "%"),
                Row("no cache, prefill", 73.2, 83.2, 5.0, "ms"),
            ),
            left_out=(Row("best possible 10k", None, 56.5, 0.9, "%"),),
        )

    monkeypatch.setattr(plan_reproduce, "reproduce", reproduce)


def test_json_is_all_there_is_on_stdout(capsys: Out) -> None:
    assert main(["plan", "--reproduce", "--json", "--seeds", "2"]) == 0
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["rows"][0] == {
        "name": "fcfs 10k",
        "text": 24.8,
        "ours": 23.3,
        "unit": "%",
        "difference": -1.5,
        "deviation": 1.25,
    }
    assert document["max_difference"] == 1.5
    assert document["left_out"][0]["difference"] is None
    assert document["seeds"] == [0, 23]
    assert {"hit rate", "prefill", "seeds"} <= set(document["definitions"])
    assert err.splitlines()[-1] == "seeds: 1 of 2"


def test_the_table_has_both_figures_and_their_difference(capsys: Out) -> None:
    assert main(["plan", "--reproduce", "--any-seeds", "--seeds", "3"]) == 0
    out = capsys.readouterr().out
    lines = [line.split() for line in out.splitlines()]
    assert ["fcfs", "10k", "24.8", "23.3", "1.2", "-1.5", "%"] in lines
    assert ["unlimited", "94.6", "94.6", "0.3", "0.0", "%"] in lines
    assert ["best", "possible", "10k", "56.5", "0.9", "%"] in lines
    assert ["times", "faster", "14", "14", "0", "×"] in lines
    assert "largest difference of a hit rate is 1.5 points" in out
    assert "0, 1, 2: the first ones" in out
    assert not [line for line in out.splitlines() if line != line.rstrip()]
    assert all(
        len(line) <= 120 for line in out.splitlines() if not line.startswith(("seeds", "best possible:"))
    )


def test_workers_are_as_many_as_asked_for(capsys: Out) -> None:
    assert main(["plan", "--reproduce", "--seeds", "1", "--workers", "3"]) == 0
    assert "3 workers" in capsys.readouterr().err
