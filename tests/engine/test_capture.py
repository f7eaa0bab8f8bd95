"""What is written down of a run is enough to do it again, to the token."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engine.rig import Rig, greedy, prompt_of
from sapwood.engine import Capture, EngineLoop, capture
from sapwood.types import Request, Scope, Started, Usage

Line = Mapping[str, Any]


class Kept:
    """The lines as a reader of the file gets them."""

    lost = 0

    def __init__(self) -> None:
        self.lines: list[Line] = []

    def write(self, line: Line) -> None:
        self.lines.append(json.loads(json.dumps(line)))

    def all(self, key: str) -> list[Line]:
        return [line for line in self.lines if key in line]

    @property
    def rows(self) -> list[Line]:
        return sorted(self.all("request"), key=lambda row: row["order"])

    @property
    def clock(self) -> list[tuple[float, float | None]]:
        lines = self.all("steps")
        assert [line["steps"] for line in lines] == [
            sum(len(before["began"]) for before in lines[:i]) for i in range(len(lines))
        ]
        return [pair for line in lines for pair in zip(line["began"], line["ended"], strict=True)]


def new_rig() -> Rig:
    return Rig(512, chunk=48, max_running=3, policy="default", context=1024)


def captured(requests: Iterable[Request], *, flush: bool = False) -> Kept:
    """Several at once, through a real loop."""
    kept, rig = Kept(), new_rig()
    loop = EngineLoop(rig.engine, capture=Capture(kept, {"model": "fake"})).start()
    try:
        with ThreadPoolExecutor(8) as pool:
            for _ in pool.map(lambda one: list(loop.generate_blocking(one)), requests):
                pass
        if flush:
            loop.flush_blocking()
    finally:
        loop.shutdown()
    return kept


def again(kept: Kept) -> tuple[dict[str, Usage], list[str]]:
    """Do what was captured on a fresh engine: what each request reused, and the order in which they began."""
    engine, waiting = new_rig().engine, list(kept.rows)
    usages: dict[str, Usage] = {}
    for step, (began, ended) in enumerate(kept.clock):
        while waiting and waiting[0]["step"] == step:
            row = waiting.pop(0)
            params = greedy(row["max_tokens"], n=row["n"])
            scope = Scope(row["tenant"], row["adapter"], row["salt"])
            engine.add(Request(row["request"], tuple(row["prompt"]), params, scope), row["arrival"])
        scheduled = engine.schedule(began)
        usages |= {each.request_id: each.usage for each in scheduled.events if isinstance(each, Started)}
        assert (scheduled.plan is None) == (ended is None)
        if scheduled.plan is not None and ended is not None:
            engine.apply(engine.run(scheduled.plan), ended)
    assert not waiting
    return usages, list(usages)


def crowd() -> list[Request]:
    """More than fit at once, some alike, so that there is reuse, waiting and eviction."""
    return [
        Request(f"r{i}", prompt_of(60 + 7 * (i % 4), i % 3), greedy(5 + i % 6), Scope(salt=f"s{i % 2}"))
        for i in range(24)
    ]


def test_a_captured_run_done_again_reuses_the_same_tokens_and_begins_in_the_same_order() -> None:
    kept = captured(crowd())
    usages, order = again(kept)
    assert {row["request"]: (row["reused"], row["missed"]) for row in kept.rows} == {
        name: (usage.reused, dict(usage.missed)) for name, usage in usages.items()
    }
    assert sum(row["reused"] for row in kept.rows) > 0
    began = sorted(kept.rows, key=lambda row: order.index(row["request"]))
    steps = [row["started_step"] for row in began]
    assert steps == sorted(steps)


def test_a_row_has_the_request_its_answer_and_its_times() -> None:
    asked = Request("one", prompt_of(20), greedy(6, n=2), priority=0)
    (row,) = captured([asked]).rows
    rig = new_rig()
    assert row["prompt"] == list(asked.prompt)
    assert row["outputs"] == [list(log.tokens) for log in rig.each(asked)]
    assert (row["finish"], row["error"]) == (["length", "length"], None)
    assert (row["max_tokens"], row["n"], row["drawn"]) == (6, 2, 2)
    assert (row["reused"], row["missed"]) == (0, {"never_seen": 19, "last_token": 1})
    assert 0 <= row["arrival"] <= row["started"] <= row["first_token"] <= row["ended"]
    assert (row["order"], row["step"], row["started_step"]) == (0, 0, 0)
    assert row["ended_step"] >= 6


def test_the_first_line_says_what_was_built() -> None:
    first = captured([]).lines[0]
    assert (first["capture"], first["version"], first["model"]) == ("sapwood", 1, "fake")
    assert first["began_at"] > 1.7e9


def test_names_of_tenants_and_salts_are_not_told_and_equal_ones_stay_equal() -> None:
    scopes = [Scope("acme"), Scope("acme"), Scope("beta", salt="acme"), Scope()]
    requests = [Request(f"r{i}", prompt_of(9), greedy(1), scope) for i, scope in enumerate(scopes)]
    kept = captured(requests)
    rows = {row["request"]: row for row in kept.rows}
    assert "acme" not in json.dumps(kept.lines)
    assert "beta" not in json.dumps(kept.lines)
    tenants = [rows[f"r{i}"]["tenant"] for i in range(4)]
    assert tenants[0] == tenants[1] != tenants[2]
    assert tenants[3] == ""
    assert rows["r2"]["salt"] not in ("", tenants[0]), "a tenant and a salt of one name look alike"
    other_run = captured(requests[:1])
    assert other_run.rows[0]["tenant"] != tenants[0], "hashes of two runs must not be comparable"


def test_a_name_that_is_no_text_is_captured_too() -> None:
    asked = Request("one", prompt_of(9), greedy(1), Scope("\udcff", salt="\ud800"))
    (row,) = captured([asked]).rows
    assert row["finish"] == ["length"]
    assert len(row["tenant"]) == len(row["salt"]) == 16


def test_that_tenants_have_quotas_is_written_down() -> None:
    kept = Kept()
    loop = EngineLoop(new_rig().engine, capture=Capture(kept, {})).start()
    loop.limit({"acme": 64, "beta": 32})
    loop.shutdown()
    (line,) = kept.all("limited")
    assert (line["limited"], line["step"], line["after"]) == (2, 0, 0)
    assert sorted(line["quotas"].values()) == [32, 64]
    assert {"acme", "beta"}.isdisjoint(line["quotas"])


def test_a_request_that_is_aborted_is_written_down_too() -> None:
    kept, rig = Kept(), new_rig()
    loop = EngineLoop(rig.engine, capture=Capture(kept, {})).start()
    events = loop.generate_blocking(Request("gone", prompt_of(9), greedy(400)))
    next(events)
    events.close()  # type: ignore[attr-defined]
    list(loop.generate_blocking(Request("next", prompt_of(9), greedy(1))))
    loop.shutdown()
    gone, last = kept.rows
    assert (gone["request"], gone["finish"]) == ("gone", ["abort"])
    assert (last["request"], last["finish"]) == ("next", ["length"])
    assert gone["ended"] >= gone["started"]


def test_what_runs_when_the_loop_ends_is_written_down() -> None:
    kept, rig = Kept(), new_rig()
    loop = EngineLoop(rig.engine, capture=Capture(kept, {})).start()
    events = loop.generate_blocking(Request("cut", prompt_of(9), greedy(400)))
    next(events)
    loop.shutdown()
    assert [row["finish"] for row in kept.rows] == [["abort"]]
    assert len(kept.clock) == kept.rows[0]["ended_step"]
    assert kept.lines[-1] == {"end": len(kept.clock)}


def test_a_flush_is_written_down_between_the_steps_where_it_was() -> None:
    kept = captured(crowd()[:3], flush=True)
    (line,) = kept.all("flush")
    assert line["step"] == len(kept.clock)


def test_long_answers_do_not_keep_the_clock_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "_STEPS_A_LINE", 8)
    kept = captured([Request("long", prompt_of(9), greedy(200, seed=1))])
    assert len(kept.all("steps")) > 1
    assert len(kept.clock) == kept.rows[0]["ended_step"]
