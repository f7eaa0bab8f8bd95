"""Several peers in one report: the hardest of each row, the table of all, and the chart."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

from bench.chart import bars, draw
from bench.combine import best_of_peers, hardest, save_by_peer, slug
from bench.report import peers_table, write_report
from bench.rows import Goal, Measure, Row
from bench.stats import Pair

RATE = Measure("prefill", "tokens/s", "higher", Goal("ratio", "at least", 1.2))
WAIT = Measure("ttft_warm", "ms", "lower", Goal("ratio", "at most", 0.5))
CHANGED = Measure("texts_changed", "answers", "lower", Goal("ours", "at most", 0))


def row(
    scenario: str, measure: Measure, ours: float, peer: float | None, against: str | None
) -> dict[str, Any]:
    regime = {"settings_tried": {"a.b": "x 1", "C": "y 2"}}
    return Row(scenario, measure, [Pair(ours, peer)], against, regime).json()


def document() -> dict[str, Any]:
    return {
        "regime": {
            "suite": "serve",
            "peers": {"a.b": {"version": "1", "flags": ["-x"]}, "C": {"version": "2", "flags": []}},
            "failures": ["C, chat: it fell over"],
        },
        "machine": {},
        "noise": {},
        "commit": "abc",
        "command": "python -m bench serve",
        "rows": [
            row("cold_prefill", RATE, 150, 100, "a.b"),
            row("cold_prefill", RATE, 150, 300, "C"),
            row("exact_repeat", WAIT, 10, 40, "a.b"),
            row("exact_repeat", WAIT, 10, 15, "C"),
            row("exactness", CHANGED, 0, 7, "a.b"),
            row("restart", WAIT, 10, None, None),
        ],
    }


def test_a_document_of_several_peers_becomes_one_for_each(tmp_path: Path) -> None:
    save_by_peer(document(), tmp_path / "serve.json")
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "serve-a-b.json",
        "serve-c.json",
        "serve.json",
    ]
    part = json.loads((tmp_path / "serve-a-b.json").read_text())
    assert {row["against"] for row in part["rows"]} == {"a.b"}
    assert list(part["regime"]["peers"]) == ["a.b"]
    assert part["rows"][0]["regime"]["settings_tried"] == {"a.b": "x 1"}
    best = json.loads((tmp_path / "serve.json").read_text())
    assert [(row["scenario"], row["against"]) for row in best["rows"]] == [
        ("cold_prefill", "C"),
        ("exact_repeat", "C"),
        ("exactness", "a.b"),
    ]
    assert best["regime"]["peers"] == {"a.b": "1", "C": "2"}
    assert best["regime"]["failures"] == ["C, chat: it fell over"]


def test_one_peer_alone_stays_one_document(tmp_path: Path) -> None:
    one = document()
    one["rows"] = one["rows"][:1]
    save_by_peer(one, tmp_path / "serve.json")
    assert [file.name for file in tmp_path.iterdir()] == ["serve.json"]
    assert json.loads((tmp_path / "serve.json").read_text()) == one


def test_the_hardest_peer_is_the_one_with_the_worst_ratio_for_us() -> None:
    rows = document()["rows"]
    assert hardest(rows[:2])["against"] == "C"
    assert hardest(rows[2:4])["against"] == "C"
    unmeasured = [row("exactness", CHANGED, 0, None, None), row("exactness", CHANGED, 0, 0, "p")]
    assert hardest(unmeasured)["against"] == "p"
    assert slug("OpenVINO GenAI") == "openvino-genai"


def test_the_report_judges_goals_against_the_best_peer(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    save_by_peer(document(), results / "serve.json")
    assert write_report(results, tmp_path / "RESULTS.md") == 3
    page = (tmp_path / "RESULTS.md").read_text()
    lines = page.splitlines()
    assert "| ours : peer | a.b | C | goal, against the best |" in lines
    assert (
        "| cold_prefill, prefill (higher is better) | 1.50× | **0.500×** | ratio ≥ 1.2×: **missed** |"
        in lines
    )
    assert [line for line in lines if line.startswith("## ")] == [
        "## serve",
        "## serve-a-b",
        "## serve-c",
        "## How to repeat this",
    ]
    assert (tmp_path / "speed.svg").exists()


def test_a_new_document_of_one_peer_changes_the_summary(tmp_path: Path) -> None:
    save_by_peer(document(), tmp_path / "serve.json")
    part = json.loads((tmp_path / "serve-c.json").read_text())
    part |= {"rows": [row("cold_prefill", RATE, 150, 50, "C")], "commit": "def"}
    (tmp_path / "serve-c.json").write_text(json.dumps(part))
    write_report(tmp_path, tmp_path / "RESULTS.md")
    best = json.loads((tmp_path / "serve.json").read_text())
    assert best["rows"][0]["against"] == "a.b"
    assert best["regime"]["measured_at_commits"] == ["abc", "def"]


def test_the_table_has_a_dash_where_a_peer_was_not_measured() -> None:
    parts = [document() | {"rows": [one]} for one in (document()["rows"][0], document()["rows"][3])]
    [_, _, prefill, repeat] = peers_table(parts).splitlines()
    assert "| **1.50×** | – |" in prefill
    assert "| – | **0.667×** |" in repeat


def test_the_chart_shows_how_many_times_as_fast_ours_is() -> None:
    best = best_of_peers([document()])
    shown = bars(best["rows"])
    assert [(bar.label, round(bar.times, 2), bar.peer) for bar in shown] == [
        ("cold prompt, 2,000 tokens", 0.5, "C"),
        ("same prompt, first token", 1.5, "C"),
    ]
    drawing = ElementTree.fromstring(draw(shown))
    bars_drawn = [part for part in drawing.iter() if part.tag.endswith("rect")]
    assert [part.get("class") for part in bars_drawn] == ["worse", "better"]
    widths = [float(part.get("width") or 0) for part in bars_drawn]
    assert abs(widths[1] - 3 * widths[0]) < 0.3
    words = " ".join(drawing.itertext())
    assert "0.5×" in words
    assert "1.5×" in words
