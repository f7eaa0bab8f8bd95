"""Hit rates, each as it is defined."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from sapwood.cache import Namespace, PrefixCache
from sapwood.config import CacheConfig
from sapwood.sim.rates import (
    DEFINITIONS,
    TOKEN,
    Definition,
    Rate,
    found_unbounded,
    prompt_names,
    rate,
    unbounded_rates,
)
from sapwood.sim.reading import read_trace
from sapwood.sim.replay import pass_through
from sapwood.sim.trace import Trace, TraceRequest

DATA = Path(__file__).parent / "data"


def trace_of(unit: int, *rows: tuple[int, int, Sequence[int], int]) -> Trace:
    """(prompt tokens, output tokens, names, scope), a second apart."""
    requests = []
    for at, (prompt, output, names, scope) in enumerate(rows):
        known = max(prompt, min(len(names) * unit, prompt + output))
        requests.append(TraceRequest(at, prompt, output, np.array(names, np.int32), known, at, scope))
    return Trace.of("toy", unit, requests, ("", "other"))


TOY = trace_of(
    4,
    (10, 6, (1, 2, 3, 4), 0),  # two whole blocks; the third goes on in the reply
    (14, 0, (1, 2, 3, 5), 0),  # finds the reply's block: 12 of 14 tokens
    (14, 0, (1, 2, 3, 5), 0),  # finds even the unfinished block; the last token is computed in any case
    (8, 0, (1, 2), 0),  # all of it is there
    (8, 0, (1, 2), 1),  # nothing is there in another scope
)


def counted(definition: Definition) -> Rate:
    return rate(definition, TOY, found_unbounded(TOY, replies=definition.replies))


@pytest.mark.parametrize(
    ("definition", "hit", "of"),
    [
        (TOKEN, 0 + 12 + 13 + 7 + 0, 54),
        (Definition(last=True), 0 + 12 + 14 + 8 + 0, 54),
        (Definition(tail=False), 0 + 12 + 12 + 4 + 0, 8 + 12 + 12 + 8 + 8),
        (Definition(replies=False), 0 + 8 + 13 + 7 + 0, 54),
        (Definition("block"), 0 + 3 + 3 + 1 + 0, 3 + 4 + 4 + 2 + 2),
        (Definition("block", last=True), 0 + 3 + 4 + 2 + 0, 3 + 4 + 4 + 2 + 2),
        (Definition("block", tail=False), 0 + 3 + 3 + 1 + 0, 2 + 3 + 3 + 2 + 2),
        (Definition("request"), 12 / 14 + 13 / 14 + 7 / 8, 5),
        (Definition("request", tail=False, last=True), 1 + 1 + 1, 5),
    ],
)  # fmt: skip
def test_counted_by_hand(definition: Definition, hit: float, of: float) -> None:
    one = counted(definition)
    assert one.hit == pytest.approx(hit, rel=1e-12)
    assert one.of == of


def test_a_block_that_the_reply_goes_on_in_is_not_the_prompts() -> None:
    assert prompt_names(TOY).tolist() == [2, 4, 4, 2, 2]


def naive(trace: Trace, replies: bool) -> list[int]:
    """The longest beginning in common with any earlier request of the scope."""
    asked, found = prompt_names(trace), []
    for index, row in enumerate(trace):
        prompt, best = row.names[: asked[index]].tolist(), 0
        for earlier in range(index):
            before = trace[earlier]
            if before.scope != row.scope:
                continue
            names = before.names.tolist() if replies else before.names[: asked[earlier]].tolist()
            common = 0
            while common < min(len(prompt), len(names)) and prompt[common] == names[common]:
                common += 1
            best = max(best, common)
        found.append(best)
    return found


def by_cache(trace: Trace, replies: bool) -> list[int]:
    """The real cache, of endless size."""
    cache = PrefixCache(len(trace.names) + 1, CacheConfig(eviction_policy="lru"))
    asked, found = prompt_names(trace).tolist(), []
    for index, row in enumerate(trace):
        names = row.names if replies else row.names[: asked[index]]
        found.append(pass_through(cache, Namespace(str(row.scope)), names, row.arrival, asked[index]))
    return found


@pytest.mark.parametrize("unit", [1, 4])
@pytest.mark.parametrize("replies", [True, False])
def test_what_is_found_is_the_longest_common_beginning(unit: int, replies: bool) -> None:
    random = np.random.default_rng(unit)
    rows = []
    for _ in range(60):
        names = random.integers(0, 2, random.integers(1, 12)).tolist()
        whole = len(names) * unit
        prompt = int(random.integers(1, whole + 1))
        rows.append((prompt, whole - prompt, names, int(random.integers(0, 2))))
    trace = trace_of(unit, *rows)
    found = found_unbounded(trace, replies=replies).tolist()
    assert found == naive(trace, replies) == by_cache(trace, replies)


def test_what_names_do_not_cover_is_not_reused() -> None:
    """Of a prompt of ten tokens six are known, so two of the second block."""
    rows = [TraceRequest(at, 10, 2, np.array([1, 2], np.int32), 6, at) for at in range(2)]
    trace = Trace.of("half known", 4, rows)
    found = found_unbounded(trace)
    assert found.tolist() == [0, 2]
    assert TOKEN.reused_tokens(trace, found).tolist() == [0, 6]
    assert Definition(tail=False).reused_tokens(trace, found).tolist() == [0, 4]
    assert [rate(Definition("block", last=last), trace, found).hit for last in (False, True)] == [1, 1]


def test_each_definition_has_a_name_and_a_line_of_its_own() -> None:
    assert (
        len({each.name for each in DEFINITIONS})
        == len({each.text for each in DEFINITIONS})
        == len(DEFINITIONS)
        == 24
    )
    assert DEFINITIONS[0] == TOKEN
    assert "\n" not in "".join(each.text for each in DEFINITIONS)
    assert TOKEN.text == (
        "reused tokens / all prompt tokens; replies are cached; a prompt's last token is always computed"
    )


def test_leaving_unfinished_blocks_out_of_what_is_asked_as_well_makes_a_rate_higher_and_says_so() -> None:
    """Two prompts of 6 tokens that share 4, in blocks of 4."""
    trace = trace_of(4, (6, 0, (0, 1), 0), (6, 0, (0, 2), 0))
    whole = Definition(tail=False)
    assert [each.value for each in unbounded_rates(trace, (TOKEN, whole))] == [4 / 12, 4 / 8]
    assert (
        "in whole blocks (unfinished last blocks, nearly always misses, are not asked for either"
        in whole.text
    )


def test_rates_are_told_in_the_order_of_their_definitions_and_lie_within_0_and_1() -> None:
    rates = unbounded_rates(TOY)
    assert [one.definition for one in rates] == list(DEFINITIONS)
    assert all(0 < one.value < 1 for one in rates)


def test_of_nothing_asked_for_nothing_is_hit() -> None:
    short = trace_of(16, (3, 0, (1,), 0))
    assert rate(Definition(tail=False), short, found_unbounded(short)).value == 0.0


@pytest.mark.parametrize(
    ("name", "hit", "of"),
    [("sharegpt-llama-3.1-8b-300", 19_520, 257_239), ("sharegpt-qwen3-32b-300", 20_448, 258_691)],
)
def test_sharegpt_with_a_memory_that_never_forgets(name: str, hit: int, of: int) -> None:
    one = unbounded_rates(read_trace(DATA / f"{name}.hash16.jsonl.gz"))[0]
    assert (one.hit, one.of) == (hit, of)
