"""Statistics, rows, machine facts and the report."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bench.document import shown_command
from bench.errors import BenchError
from bench.machine import describe_machine
from bench.noise import Moment, noise_between
from bench.processes import Launch
from bench.report import number, rows_table, section, write_report
from bench.rows import Goal, Measure, Row, tidy
from bench.stats import Pair, median, percentile, ratios, spread

# ---- statistics ------------------------------------------------------------------------------------------------


def test_median_of_odd_and_even_counts() -> None:
    assert median([3.0, 1.0, 2.0]) == 2.0
    assert median([4.0, 1.0, 2.0, 3.0]) == 2.5
    with pytest.raises(ValueError, match="no values"):
        median([])


def test_percentile_takes_a_value_that_was_measured() -> None:
    values = [float(i) for i in range(1, 21)]
    assert percentile(values, 0.95) == 19.0
    assert percentile(values, 0.5) == 10.0
    assert percentile(values, 0.0) == 1.0
    assert percentile(values, 1.0) == 20.0
    with pytest.raises(ValueError, match="between 0 and 1"):
        percentile(values, 95)


def test_ratios_are_taken_pair_by_pair() -> None:
    # The medians are 2 and 4, yet no pair has their ratio.
    found = ratios([Pair(1.0, 4.0), Pair(2.0, 1.0), Pair(9.0, 9.0)])
    assert found == spread([0.25, 2.0, 1.0])
    assert found is not None
    assert (found.median, found.low, found.high, found.factor) == (1.0, 0.25, 2.0, 8.0)


def test_no_ratio_without_a_peer_or_over_nothing() -> None:
    assert ratios([Pair(1.0, None)]) is None
    assert ratios([Pair(1.0, 2.0), Pair(1.0, 0.0)]) is None
    assert ratios([]) is None


def test_spread_factor() -> None:
    assert spread([0.0, 0.0]).factor == 1.0
    assert spread([0.0, 1.0]).factor == math.inf


# ---- rows and documents ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("goal", "met"),
    [
        (Goal("ratio", "at least", 1.5), True),
        (Goal("ratio", "at least", 2.5), False),
        (Goal("ratio", "at most", 2.0), True),
        (Goal("ours", "at most", 9.0), False),
    ],
)
def test_goals_judge_the_median(goal: Goal, met: bool) -> None:
    row = Row("case", Measure("rate", "tokens/s", "higher", goal), [Pair(10.0, 5.0), Pair(12.0, 6.0)]).json()
    assert row["goal"]["met"] is met
    assert goal.met(ours=1.0, ratio=None) is (None if goal.of == "ratio" else True)


def test_a_row_has_the_fields_of_the_interface() -> None:
    row = Row(
        "cold_prefill", Measure("prefill", "tokens/s", "higher"), [Pair(300.0, 200.0)], "llama.cpp"
    ).json()
    assert (row["scenario"], row["ours"], row["peer"], row["ratio"]) == ("cold_prefill", 300.0, 200.0, 1.5)
    alone = Row("cold_prefill", Measure("prefill", "tokens/s", "higher"), [Pair(300.0, None)]).json()
    assert (alone["ours"], alone["peer"], alone["ratio"], alone["against"]) == (300.0, None, None, None)


def test_ratios_that_differ_are_called_noisy() -> None:
    measure = Measure("rate", "x", "higher")
    assert Row("a", measure, [Pair(1.0, 1.0), Pair(1.2, 1.0)]).json()["notes"] == []
    apart = [Pair(1.0, 1.0), Pair(1.5, 1.0)]
    assert "factor of 1.50" in Row("a", measure, apart).json()["notes"][0]
    assert Row("a", replace(measure, counted=True), apart).json()["notes"] == []


def test_commands_are_shown_without_the_paths_of_this_machine() -> None:
    shown = shown_command(
        ["sapwood", "bench", "--llama-server", "/some/where/llama-server", "--out=/a/b.json", "--quick"]
    )
    assert shown == "sapwood bench --llama-server llama-server --out=b.json --quick"
    assert shown_command(["python", "-m", "bench", "--cases", "a, b"]) == "python -m bench --cases 'a, b'"
    assert Launch("x", "sapwood", ("/usr/bin/python", "-m", "x", "/a/w.gguf")).flags == "-m x w.gguf"


def test_machine_facts_name_no_host() -> None:
    import platform

    facts = describe_machine()
    assert facts["cores"] >= 1
    assert facts["cpu"]
    assert platform.node() not in json.dumps(facts)


def test_noise_from_the_systems_counters(tmp_path: Path) -> None:
    def moment(busy: int, steal: int, server: int) -> Moment:
        (tmp_path / "stat").write_text(f"cpu  {busy} 0 0 {900 - busy - steal} 0 0 0 {steal} 0 0\ncpu0 1\n")
        (tmp_path / "loadavg").write_text("1.25 1.0 1.0 1/100 1\n")
        (tmp_path / "7").mkdir(exist_ok=True)
        (tmp_path / "7" / "stat").write_text(f"7 (a (b) c) S 1 7 7 0 -1 0 0 0 0 0 {server} 0 0 0 20 0")
        return replace(Moment.now([7], tmp_path), own_ticks=0, total_ticks=busy * 2)

    before, after = moment(100, 10, 40), moment(300, 30, 140)
    noise = noise_between(before, after)
    assert (noise.load_1m_before, noise.others_percent, noise.steal_percent) == (1.25, 25.0, 5.0)
    assert noise.notes() == (
        "disturbed: other processes took 25 % of the CPU time",
        "disturbed: the host took 5 % of the CPU time",
    )
    assert noise_between(before, before).notes() == ()


# ---- the report ------------------------------------------------------------------------------------------------


def document(**regime: object) -> dict[str, Any]:
    goal = Goal("ratio", "at least", 2.0)
    row = Row("decode_8", Measure("decode", "tokens/s", "higher", goal), [Pair(150.0, 100.0)], "llama.cpp")
    return {
        "regime": {"suite": "serve", "size": "normal", **regime},
        "machine": {"cpu": "a CPU", "flags": ["avx2", "fma"]},
        "noise": {"load_1m_before": 0.1},
        "commit": "abc",
        "command": "python -m bench serve",
        "rows": [replace(row, regime={"at_once": 8}, notes=["take care"]).json()],
    }


def test_the_report_puts_caveats_first_and_ratios_before_values(tmp_path: Path) -> None:
    results = tmp_path / "results"
    results.mkdir()
    (results / "serve.json").write_text(json.dumps(document()))
    (results / "cache.json").write_text(json.dumps(document()))
    assert write_report(results, tmp_path / "RESULTS.md") == 2
    page = (tmp_path / "RESULTS.md").read_text()
    places = [page.index(word) for word in ("Read this first", "## serve", "## cache", "How to repeat")]
    assert places == sorted(places)
    row = next(line for line in page.splitlines() if line.startswith("| decode_8"))
    cells = [cell.strip() for cell in row.split("|")[1:-1]]
    assert cells[0] == "decode_8 / llama.cpp"
    assert cells[2:] == [
        "**1.50×**", "1.50–1.50", "150", "100", "tokens/s", "ratio ≥ 2×: **missed**"
    ]  # fmt: skip
    assert "- decode_8: at once 8" in page
    assert "- decode_8, decode: take care" in page


def test_the_report_says_when_figures_mean_nothing() -> None:
    assert "mean nothing" in section("serve", document(size="quick"))
    assert "mean nothing" not in section("serve", document())


@pytest.mark.parametrize("text", ["{", "{}", '{"rows": []}'])
def test_the_report_refuses_what_is_no_result(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text)
    with pytest.raises(BenchError, match=r"bad\.json is not a result"):
        write_report(tmp_path, tmp_path / "RESULTS.md")
    assert not (tmp_path / "RESULTS.md").exists()


def test_a_table_has_no_columns_without_content() -> None:
    measure = Measure("time", "µs", "lower")
    alone = rows_table(
        [Row("a", measure, [Pair(1.0, None)]).json(), Row("b", measure, [Pair(2.0, None)]).json()]
    )
    assert alone.splitlines() == [
        "| scenario | measure | ours | unit |",
        "|---|---|---:|---|",
        "| a | time (lower is better) | 1.00 | µs |",
        "| b | time (lower is better) | 2.00 | µs |",
    ]
    paired = rows_table(
        [Row("a", measure, [Pair(1.0, 2.0)], "x").json(), Row("b", measure, [Pair(2.0, None)]).json()]
    )
    assert paired.splitlines()[0] == "| scenario | measure | ratio | range | ours | peer | unit |"
    assert paired.splitlines()[3] == "| b | time (lower is better) | – | – | 2.00 | – | µs |"


def test_a_remark_stands_in_its_row() -> None:
    row = Row("a", Measure("time", "µs", "lower"), [Pair(1.0, None)], remark="with care").json()
    assert rows_table([row]).splitlines()[-1] == "| a | time (lower is better) | 1.00 | µs | with care |"
    del row["remark"]  # as in documents from before there were any
    assert rows_table([row]).splitlines()[-1] == "| a | time (lower is better) | 1.00 | µs |"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (1234.5, "1,234"),
        (99.94, "99.9"),
        (1.5, "1.50"),
        (0.012345, "0.0123"),
        (1e-5, "1.0e-05"),
    ],
)
def test_numbers_have_three_digits(value: float | None, text: str) -> None:
    assert number(value) == text


def test_tidy_keeps_five_digits() -> None:
    assert tidy(123456.0) == 123460.0
    assert tidy(0.000123456) == 0.00012346
