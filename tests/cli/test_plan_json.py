"""A plan for tools."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from cli.plans import SIZES, report
from sapwood.cli.plan_json import as_json
from sapwood.sim.goals import Goals


def test_rows_are_as_the_interface_has_them() -> None:
    document = as_json(report())
    assert [row["capacity_tokens"] for row in document["rows"]] == list(SIZES) * 3
    row = document["rows"][4]
    assert (row["policy"], row["weighting"]) == ("default", "token")
    assert (row["ttft_p50_ms"], row["ttft_p95_ms"]) == pytest.approx((4000, 8000))
    assert document["rows"][6]["ttft_p95_ms"] is None
    assert [row["hit_rate"] for row in document["optimum"]][-1] == 0.8
    assert document["definitions"]["hit rate"] == "reused prompt tokens / prompt tokens"
    assert document["plan"] is None


def test_a_plan_has_its_answer_its_what_ifs_and_what_it_tried() -> None:
    plan = as_json(report(Goals(ttft_p95=4.0)))
    answer = plan["plan"]
    assert answer["met"] is True
    assert answer["design"]["replicas"] == 2
    assert answer["design"]["tiers"] == ["hot"]
    assert answer["outcome"]["ttft_p95_ms"] == pytest.approx(4000)
    assert answer["price_per_hour"] == 5.0
    assert len(answer["tried"]) > 4
    assert {each["meets"] for each in answer["tried"]} == {True, False}
    assert all(each["meets"] == (each["outcome"]["ttft_p95_ms"] <= 4000) for each in answer["tried"])
    assert {each["change"] for each in plan["what_ifs"]} >= {"half the memory", "no reuse", "traffic × 2"}
    assert [each["replicas_needed"] for each in plan["sensitivity"]] == [2, 3, 3, 2]


def test_the_answer_in_words_and_what_to_know_first_are_at_the_top() -> None:
    document = as_json(report(Goals(ttft_p95=4.0)))
    assert list(document)[:2] == ["headline", "notes"]
    assert document["headline"] == "2 replicas with 6.55 GB of KV each: TTFT p95 4 s, hit rate 80.0 %"
    assert document["notes"] == document["trace"]["notes"] == ["replies are <not> named"]


def test_what_makes_no_difference_is_not_tried_twice() -> None:
    whole = report(Goals(ttft_p95=4.0))
    assert whole.plan is not None
    row = whole.plan.tried[0]
    alone = replace(row, case=replace(row.case, design=replace(row.design, replicas=1)))
    twin = replace(alone, case=replace(alone.case, design=replace(alone.design, routing="session")))
    other = replace(alone, case=replace(alone.case, design=replace(alone.design, page_size=16)))
    tried = as_json(replace(whole, plan=replace(whole.plan, tried=(alone, twin, other))))["plan"]["tried"]
    assert [each["design"]["page_size"] for each in tried] == [1, 16]


def test_shortfalls_are_named() -> None:
    plan = as_json(report(Goals(hit_rate=0.9)))["plan"]
    assert plan["met"] is False
    assert plan["shortfalls"] == [{"goal": "hit rate", "wanted": 0.9, "got": 0.8}]


def test_what_never_came_is_null() -> None:
    whole = report(Goals(ttft_p95=4.0))
    assert whole.plan is not None
    outcome = replace(whole.plan.answer.outcome, ttft_p95=math.inf, tpot_p50=math.nan)
    answer = replace(whole.plan.answer, outcome=outcome)
    document = as_json(replace(whole, plan=replace(whole.plan, answer=answer)))
    assert document["plan"]["outcome"]["ttft_p95_ms"] is None
    assert json.loads(json.dumps(document, allow_nan=False)) == document
