"""Requests drawn from statistics."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from sapwood.errors import UsageError
from sapwood.sim.readers.arrivals import CONTENTS
from sapwood.sim.readers.servegen import gaps, read_servegen
from sapwood.sim.readers.source import Source
from sapwood.sim.reading import read_trace
from sapwood.sim.trace import Trace
from sim.files import text_file

TRACE = "0,0,0,,0,0\n600,2.0,1.5,Gamma,0.44,9.9\n1200,0,0,,0,0\n1800,1.0,2.0,Weibull,0.54,9.9\n"
DATASET = {
    "0": {"input_tokens": "{100: 0.25, 200: 0.75}", "output_tokens": "{0: 0.5, 3: 0.5}"},
    "1800": {"input_tokens": "{7: 1.0}", "output_tokens": "{5: 1.0}"},
    "2400": {},
    "3000": {"input_tokens": "{}", "output_tokens": "{}"},
}


def source(tmp_path: Path, trace: str = TRACE, dataset: object = DATASET, ending: str = "") -> Source:
    text_file(tmp_path / f"small-dataset.json{ending}", json.dumps(dataset, indent=1))
    return Source(text_file(tmp_path / f"small-trace.csv{ending}", trace))


def read(tmp_path: Path, seed: int = 0, seconds: float = 3600.0) -> Trace:
    return read_servegen(source(tmp_path), seed=seed, seconds=seconds)


def test_requests_come_at_the_rate_of_their_time_with_its_lengths(tmp_path: Path) -> None:
    trace = read(tmp_path)
    early, late = trace.arrivals < 600, trace.arrivals >= 1200
    assert (early | late).all()
    assert 1000 < early.sum() < 1400
    assert 450 < late.sum() < 750
    assert set(trace.prompt_tokens[early].tolist()) == {100, 200}
    assert 0.65 < (trace.prompt_tokens[early] == 200).mean() < 0.85
    assert set(trace.output_tokens[early].tolist()) == {0, 3}
    assert set(trace.prompt_tokens[late].tolist()) == {7}
    assert len(set(trace.names.tolist())) == len(trace.names)
    assert any("drawn from statistics, seed 0: 3600 s from second 600" in note for note in trace.notes)


def test_the_seed_decides_and_time_is_bounded(tmp_path: Path) -> None:
    one, again, other = (read(tmp_path, seed) for seed in (1, 1, 2))
    assert one.arrivals.tolist() == again.arrivals.tolist() != other.arrivals.tolist()
    assert read(tmp_path, seconds=60.0).arrivals[-1] < 60


@pytest.mark.parametrize("family", ["Gamma", "Weibull"])
def test_gaps_have_the_stated_mean_and_shape(family: str) -> None:
    drawn = gaps(np.random.default_rng(1), family, 2.0, 4.0, 100_000)
    variation = {"Gamma": 0.5**0.5, "Weibull": 0.5227}[family]
    assert drawn.mean() == pytest.approx(0.25, rel=0.02)
    assert drawn.std() / drawn.mean() == pytest.approx(variation, rel=0.02)


def test_it_is_known_by_its_rows_packed_or_not(tmp_path: Path) -> None:
    assert len(read_trace(source(tmp_path, ending=".gz").path)) > 1000


@pytest.mark.parametrize(
    ("trace", "dataset", "said"),
    [
        ("0,1,1,Gamma,0.5\n", DATASET, "line 1 is"),
        ("0,1,1,Poisson,0.5,1\n", DATASET, "line 1 is"),
        ("0,1,1,Gamma,0,1\n", DATASET, "line 1 is"),
        ("0,1,1,Gamma\r,1,1\n", DATASET, "line 1 is"),
        ("0,0,0,,0,0\n", DATASET, "no 600 seconds"),
        (TRACE, {}, "no histograms"),
        (TRACE, {"0": {"input_tokens": "{}", "output_tokens": "{}"}}, "no histograms"),
        (TRACE, [1], "no histograms"),
    ],
)
def test_what_is_wrong_is_told(trace: str, dataset: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=said):
        read_servegen(source(tmp_path, trace, dataset))


def test_lengths_must_lie_beside_the_trace(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="hint: put ServeGen's"):
        read_servegen(Source(text_file(tmp_path / "small-trace.csv", TRACE)))


def test_what_no_reuse_can_be_read_from_is_assumed(tmp_path: Path) -> None:
    trace = read(tmp_path, seconds=60.0)
    assert trace.assumed == (CONTENTS,)
    assert not any("contents" in note for note in trace.notes)


def test_a_pipe_has_no_lengths_beside_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(TRACE.encode())))
    with pytest.raises(UsageError, match=r"^stdin has the rates alone") as caught:
        read_trace(Path("-"))
    assert caught.value.hint == "give the -trace.csv by its name, with its -dataset.json beside it"
