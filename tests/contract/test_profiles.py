"""Names of times-to-live, and rules that keep no entries."""

from __future__ import annotations

import pytest

from sapwood.contract import (
    ANTHROPIC,
    GEMINI,
    OPENAI,
    OPENAI_BREAKPOINTS,
    Billing,
    implicit_billing,
    seconds_of,
)
from sapwood.errors import RequestError


def test_times_to_live_have_their_providers_names() -> None:
    assert [seconds_of(ANTHROPIC, name, "ttl") for name in ("5m", "1h")] == [300, 3600]
    assert [seconds_of(OPENAI_BREAKPOINTS, name, "ttl") for name in ("30m", "12h")] == [1800, 43_200]
    assert seconds_of(OPENAI, "24h", "prompt_cache_retention") == 86_400
    with pytest.raises(RequestError, match="'ttl' is '2h'; it must be '5m' or '1h'") as caught:
        seconds_of(ANTHROPIC, "2h", "ttl")
    assert caught.value.param == "ttl"


def test_defaults_are_among_the_times_to_live() -> None:
    for profile in (ANTHROPIC, OPENAI_BREAKPOINTS):
        assert profile.default_ttl in [ttl.name for ttl in profile.ttls]


@pytest.mark.parametrize(("reused", "read"), [(1023, 0), (1024, 1024), (1999, 1999)])
def test_implicit_caching_tells_what_was_there_from_a_minimum_on(reused: int, read: int) -> None:
    assert implicit_billing(GEMINI, 2000, reused) == Billing(read, (), 2000 - read)
