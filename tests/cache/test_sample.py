from __future__ import annotations

import numpy as np
import pytest

from cache.helpers import NS, joined, span, toks
from sapwood.cache import Namespace
from sapwood.cache.sample import StretchSampler

ALL = StretchSampler(4, 1.0)


def test_names_agree_exactly_as_far_as_the_prefixes_do() -> None:
    one = ALL.sample(NS, span(0, 40))
    changed = span(0, 40)
    changed[17] = 99
    other = ALL.sample(NS, changed)
    assert one.names[:4].tolist() == other.names[:4].tolist()
    assert not set(one.names[4:].tolist()) & set(other.names.tolist())


def test_the_same_tokens_further_on_are_another_stretch() -> None:
    names = ALL.sample(NS, toks(1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4)).names
    assert len(set(names.tolist())) == 3


@pytest.mark.parametrize(
    "other",
    [
        Namespace("other"),
        Namespace("model", adapter="a"),
        Namespace("model", tenant="a"),
        Namespace("model", salt="a"),
        Namespace("model", salt=""),
        Namespace("model', None"),
        Namespace("model", salt="\ud800"),
    ],
)
def test_no_name_is_shared_between_namespaces(other: Namespace) -> None:
    tokens = span(0, 400)
    assert not set(ALL.sample(NS, tokens).names.tolist()) & set(ALL.sample(other, tokens).names.tolist())


def test_the_tail_that_fills_no_stretch_is_never_watched() -> None:
    assert ALL.sample(NS, span(0, 3)).names.tolist() == []
    assert ALL.sample(NS, span(0, 11)).names.tolist() == ALL.sample(NS, span(0, 8)).names.tolist()


def test_what_is_watched_does_not_depend_on_what_follows() -> None:
    sampler = StretchSampler(4, 0.3)
    short, long = sampler.sample(NS, span(0, 400)), sampler.sample(NS, joined(span(0, 400), span(7, 700)))
    assert long.places[: len(short.places)].tolist() == short.places.tolist()
    assert long.names[: len(short.names)].tolist() == short.names.tolist()
    assert long.within(100) == len(short.names)


def test_the_share_watched_is_the_rate_and_a_lower_rate_watches_a_part_of_it() -> None:
    tokens = span(0, 40_000)
    tenth, third = (StretchSampler(4, rate).sample(NS, tokens) for rate in (0.1, 0.3))
    # Binomial: 10,000 draws scatter by 0.3 and 0.5 % of the whole.
    assert len(tenth.places) == pytest.approx(1_000, abs=100)
    assert len(third.places) == pytest.approx(3_000, abs=150)
    assert set(tenth.places.tolist()) < set(third.places.tolist())


def test_counting_stops_at_the_stretch_asked_for() -> None:
    sample = StretchSampler(4, 0.5).sample(NS, span(0, 400))
    for count in range(101):
        assert sample.within(count) == int(np.count_nonzero(sample.places < count))
