from __future__ import annotations

import numpy as np
import pytest

from sapwood.errors import UsageError
from sapwood.sim import Trace, TraceRequest
from sapwood.sim.contents import Contents


def request(names: list[int], prompt: int, output: int, known: int, scope: int = 0) -> TraceRequest:
    return TraceRequest(0.0, prompt, output, np.array(names, np.int32), known, 0, scope)


def test_tokens_agree_as_far_as_names_do_and_unnamed_ones_occur_once() -> None:
    requests = [request([3, 5], 7, 4, 8), request([3, 6], 8, 2, 8), request([3], 3, 3, 3)]
    contents = Contents(Trace.of("t", 4, requests))
    first, second, third = (contents.of(index).tolist() for index in range(3))
    assert first[:8] == [12, 13, 14, 15, 20, 21, 22, 23]
    assert second[:8] == [12, 13, 14, 15, 24, 25, 26, 27]
    assert third[:3] == [12, 13, 14]
    assert [len(each) for each in (first, second, third)] == [11, 10, 6]
    unnamed = first[8:] + second[8:] + third[3:]
    assert len(set(unnamed)) == len(unnamed)
    assert min(unnamed) > 27


def test_with_a_unit_of_one_names_are_tokens() -> None:
    contents = Contents(Trace.of("t", 1, [request([9, 2, 9], 2, 1, 3, 1)], ["", "acme"]))
    visit = contents.visit(0)
    assert (visit.tokens.tolist(), visit.prompt.tolist(), visit.output_tokens) == ([9, 2, 9], [9, 2], 1)
    assert visit.namespace.tenant == "acme"


def test_more_tokens_than_there_are_ids_are_told() -> None:
    with pytest.raises(UsageError, match=r"holds 2,560,000,\d+ different tokens; at most 2,147,483,647"):
        Contents(Trace.of("t", 512, [request([4_999_999], 512, 9, 512)]))


def test_what_nobody_reads_is_given_as_one_token_too_long() -> None:
    requests = [request([1], 4, 2**31 - 1, 4), request([], 2**31 - 1, 1, 0), request([2], 4, 6, 4)]
    contents = Contents(Trace.of("t", 4, requests), longest=10)
    assert [len(contents.of(index)) for index in range(3)] == [11, 11, 10]
    assert [contents.visit(index).prompt_tokens for index in range(3)] == [4, 11, 4]
    assert contents.of(0).tolist() == [4, 5, 6, 7, *range(12, 19)]
    assert contents.of(2).tolist() == [8, 9, 10, 11, *range(30, 36)]
