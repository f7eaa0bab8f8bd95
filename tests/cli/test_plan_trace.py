"""`sapwood plan TRACE` in this process, on a small trace in Mooncake's format."""

from __future__ import annotations

import errno
import io
import json
import os
import shlex
import stat
from pathlib import Path
from typing import Any

import pytest

from sapwood.cli import main
from sapwood.cli.plan_study import definitions_for
from sapwood.cli.plan_trace import _write
from sim.files import jsonl
from sim.test_recorded import captured, crowd

Out = pytest.CaptureFixture[str]


@pytest.fixture
def trace(tmp_path: Path) -> str:
    """Four sessions of four turns that go on from each other, all from the same two blocks."""
    rows = []
    for turn in range(4):
        for session in range(4):
            blocks = [0, 1, *range(100 * (session + 1), 100 * (session + 1) + 3 * (turn + 1))]
            rows.append(
                {
                    "timestamp": 4000 * turn + 300 * session,
                    "input_length": 512 * len(blocks) - 100,
                    "output_length": 4,
                    "hash_ids": blocks,
                }
            )
    path = tmp_path / "small_trace.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def document(out: Out, *arguments: str) -> dict[str, Any]:
    assert main(["plan", *arguments, "--workers", "1", "--json"]) == 0
    found: dict[str, Any] = json.loads(out.readouterr().out)
    return found


def test_the_curve_rises_to_the_ceiling_below_the_optimum(trace: str, capsys: Out) -> None:
    found = document(capsys, trace, "--policy", "lru,default,fifo")
    rates = {(row["policy"], row["capacity_tokens"]): row["hit_rate"] for row in found["rows"]}
    best = {row["capacity_tokens"]: row["hit_rate"] for row in found["optimum"]}
    sizes = sorted(best)
    assert sizes[-1] == found["trace"]["stored_tokens"] == 512 * (2 + 4 * 12)
    for policy in ("lru", "default", "fifo"):
        curve = [rates[policy, size] for size in sizes]
        assert all(rate <= best[size] for rate, size in zip(curve, sizes, strict=True))
        assert curve[-1] == pytest.approx(found["trace"]["ceiling"])
    assert found["trace"]["requests"] == 16
    assert {"hit rate", "optimum", "knee", "TTFT", "times"} <= set(found["definitions"])
    assert "empty cache" in found["definitions"]["hit rate"]


def test_times_are_simulated_where_a_replica_has_the_room(trace: str, capsys: Out) -> None:
    found = document(capsys, trace, "--capacity", "12k,40k", "--policy", "default,lru")
    timed = {
        (row["policy"], row["capacity_tokens"]) for row in found["rows"] if row["ttft_p95_ms"] is not None
    }
    assert timed == {("default", 12_000 // 512 * 512), ("default", 40_000 // 512 * 512)}
    assert found["timed"]["requests"] == 16
    none = document(capsys, trace, "--capacity", "8k", "--timed", "0")
    assert none["timed"] is None
    assert none["rows"][0]["ttft_p95_ms"] is None
    whole = document(capsys, trace, "--capacity", "8k", "--policy", "default,lru", "--full", "--timed", "10")
    assert all(row["ttft_p95_ms"] > 0 for row in whole["rows"])
    assert whole["timed"]["requests"] == 10
    assert {each["change"] for each in whole["what_ifs"]} >= {"half the memory", "no reuse"}


def test_goals_become_a_plan(trace: str, capsys: Out) -> None:
    arguments = ("--ttft-p95", "1s", "--hit-rate", "40%", "--price", "2", "--policy", "default")
    found = document(
        capsys, trace, *arguments, "--budget", "8", "--routing", "prefix", "--schedule-policy", "fcfs"
    )
    plan = found["plan"]
    assert plan["met"] is True
    assert plan["outcome"]["ttft_p95_ms"] <= 1000
    assert plan["outcome"]["hit_rate"] >= 0.4
    assert plan["price_per_hour"] == 2 * plan["design"]["replicas"] <= 8
    assert (plan["design"]["eviction_policy"], plan["design"]["schedule_policy"]) == ("default", "fcfs")
    assert found["goals"]["price_per_hour"] == 8
    assert len(found["sensitivity"]) == 4


def test_goals_out_of_reach_end_with_the_nearest(trace: str, capsys: Out) -> None:
    found = document(capsys, trace, "--hit-rate", "0.99", "--replicas", "1", "--policy", "lru")
    assert found["plan"]["met"] is False
    assert [each["goal"] for each in found["plan"]["shortfalls"]] == ["hit rate"]


SLOW = ("--peak", "10", "--policy", "default")
"""A replica that falls behind."""


def test_what_there_is_comes_first_and_is_said_early(trace: str, capsys: Out) -> None:
    assert main(["plan", trace, "--workers", "1", *SLOW, "--replicas", "2"]) == 0
    captured = capsys.readouterr()
    [early] = [line for line in captured.err.splitlines() if "TTFT p95" in line or "p95" in line]
    assert early.startswith("2 replicas with 55.9 GB of KV each fall behind, about ")
    assert " ".join(captured.out.split()).startswith(f"{early} sure TTFT p95 between ")
    found = document(capsys, trace, *SLOW, "--replicas", "2")
    basis = found["basis"]
    assert basis["design"]["replicas"] == 2
    assert basis["outcome"]["load"] > 1
    assert basis["replicas_for_load"] == int(2 * basis["outcome"]["load"]) + 1
    assert f"about {basis['replicas_for_load']} replicas would keep up" in early
    assert basis["outcome"]["ttft_p95_low_ms"] <= basis["outcome"]["ttft_p95_ms"]


def test_the_row_that_the_replicas_have_is_the_one_that_was_timed(trace: str, capsys: Out) -> None:
    """A replica has room for 8,192 tokens, two for 16,384, and 25,600 can be reused."""
    room = str(2 * 134_515_008 + 8192 * 23_040) + "B"
    small = (
        "--model-shape",
        "smollm2-135m",
        "--memory",
        room,
        "--memory-utilization",
        "1",
        "--policy",
        "lru",
    )
    found = document(capsys, trace, *small, "--replicas", "2")
    [row] = [row for row in found["rows"] if row["capacity_tokens"] == 16_384]
    assert row["ttft_p95_ms"] == found["basis"]["outcome"]["ttft_p95_ms"]
    assert main(["plan", trace, *small, "--replicas", "2", "--workers", "1"]) == 0
    assert "← all that 2 replicas have" in capsys.readouterr().out


def test_an_overloaded_budget_is_not_met_and_memory_is_divided_among_enough(trace: str, capsys: Out) -> None:
    money = document(capsys, trace, *SLOW, "--budget", "2", "--price", "2")
    assert money["plan"]["met"] is False
    assert [each["goal"] for each in money["plan"]["shortfalls"]] == ["load"]
    assert not [each for each in money["what_ifs"] if each["meets"] and each["outcome"]["load"] >= 1]
    assert main(["plan", trace, *SLOW, "--budget", "2", "--price", "2", "--workers", "1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("Nothing within the budget keeps up. Nearest, 1 replica with ")
    assert "falls behind" in out[out.index("What if") :]
    memory = document(capsys, trace, *SLOW, "--budget", "64GB", "--no-what-ifs")
    assert memory["plan"]["met"] is True
    assert memory["plan"]["outcome"]["load"] < 1
    assert memory["plan"]["design"]["replicas"] > 1


def test_unmet_goals_can_be_an_exit_status(trace: str, capsys: Out) -> None:
    quick = ("--policy", "lru", "--replicas", "1", "--no-what-ifs", "--workers", "1", "--check")
    assert main(["plan", trace, *quick, "--hit-rate", "0.99"]) == 1
    assert capsys.readouterr().out.startswith("No plan meets the goals")
    assert main(["plan", trace, *quick, "--hit-rate", "0.01"]) == 0


def test_what_ifs_can_be_left_out(trace: str, capsys: Out) -> None:
    found = document(
        capsys, trace, "--tpot-p95", "1s", "--ttft-p50", "9s", "--ttft-p99", "9", "--no-what-ifs"
    )
    assert found["plan"]["met"] is True
    assert (found["goals"]["tpot_p95"], found["goals"]["ttft_p50"], found["goals"]["ttft_p99"]) == (1, 9, 9)
    assert found["what_ifs"] == found["sensitivity"] == []


def test_a_plan_may_be_for_more_users_than_the_trace_has(trace: str, capsys: Out) -> None:
    one, two = (document(capsys, trace, "--policy", "lru", *more) for more in ((), ("--traffic", "2")))
    assert (one["trace"]["requests"], two["trace"]["requests"]) == (16, 32)
    assert two["basis"]["outcome"]["load"] > 1.3 * one["basis"]["outcome"]["load"]
    assert [note for note in two["trace"]["notes"] if note.startswith("all of this is for 2 times the users")]


def test_the_text_is_on_stdout_and_talk_on_stderr(trace: str, capsys: Out) -> None:
    assert main(["plan", trace, "--workers", "1", "--capacity", "4k,16k,64k"]) == 0
    captured = capsys.readouterr()
    assert "Hit rate in percent by memory" in captured.out
    assert "small" in captured.out
    assert "reading" in captured.err
    assert "replaying" in captured.err
    assert "reading" not in captured.out


def test_a_page_is_written_and_told_of(trace: str, tmp_path: Path, capsys: Out) -> None:
    page = tmp_path / "plan.html"
    assert main(["plan", trace, "--workers", "1", "--capacity", "4k,16k,64k", "--html", str(page)]) == 0
    assert f"wrote {page}" in capsys.readouterr().err
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


QUICK = ("--workers", "1", "--timed", "0", "--policy", "lru", "--capacity", "4k,16k,64k")


@pytest.mark.parametrize("before", [None, "an older page"])
@pytest.mark.parametrize(
    ("wrong", "status", "said"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 2, "cannot write PAGE: No space left on device"),
        (KeyboardInterrupt(), 130, "interrupted"),
    ],
)
def test_a_page_that_cannot_be_written_costs_no_report_and_no_older_page(
    wrong: BaseException,
    status: int,
    said: str,
    before: str | None,
    trace: str,
    tmp_path: Path,
    capsys: Out,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = tmp_path / "plan.html"
    if before is not None:
        page.write_text(before)

    def broken(path: Path, text: str, **_: Any) -> int:
        path.write_bytes(text[:100].encode())
        raise wrong

    there = sorted(tmp_path.iterdir())
    monkeypatch.setattr(Path, "write_text", broken)
    assert main(["plan", trace, *QUICK, "--html", str(page)]) == status
    captured = capsys.readouterr()
    assert "Hit rate in percent by memory" in captured.out
    assert captured.err.endswith(f"sapwood: {said.replace('PAGE', str(page))}\n")
    assert sorted(tmp_path.iterdir()) == there
    assert before is None or page.read_text() == before


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("wrong", [BrokenPipeError(), OSError(errno.ENOSPC, "No space left on device")])
def test_a_page_is_written_though_stdout_takes_nothing(
    wrong: OSError, form: tuple[str, ...], trace: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Gone(io.StringIO):
        def write(self, _: str) -> int:
            raise wrong

    page = tmp_path / "plan.html"
    monkeypatch.setattr("sys.stdout", Gone())
    assert main(["plan", trace, *QUICK, *form, "--html", str(page)]) == 1
    assert page.read_text(encoding="utf-8").endswith("</html>\n")


def test_a_page_takes_the_place_of_a_file_and_goes_through_a_pipe(tmp_path: Path) -> None:
    page, link, pipe = (tmp_path / name for name in ("page.html", "link.html", "pipe"))
    _write(page, "first")
    page.chmod(0o640)
    link.symlink_to(page)
    _write(link, "second")
    assert link.is_symlink()
    assert page.read_text() == "second"
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    _write(pipe, "third")
    assert os.read(reader, 100) == b"third"
    os.close(reader)
    assert pipe.is_fifo()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["SECRET"], "cannot read SECRET: Permission denied"),
        (["TRACE", "--cost", "SECRET"], "cannot read SECRET: Permission denied"),
        (["TRACE", "--model-shape", "SECRET"], "cannot read SECRET: Permission denied"),
        (["TRACE", "--html", "SECRET"], "--html: SECRET cannot be written: there is no folder"),
    ],
)
def test_a_folder_that_one_may_not_look_into_is_told(
    arguments: list[str],
    said: str,
    trace: str,
    tmp_path: Path,
    capsys: Out,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    secret = str(tmp_path / "secret" / "file")
    look = os.stat

    def denied(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if "secret" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return look(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", denied)
    given = [{"TRACE": trace, "SECRET": secret}.get(each, each) for each in arguments]
    assert main(["plan", *given]) == 2
    assert f"sapwood: {said.replace('SECRET', secret)}" in capsys.readouterr().err


def test_part_of_a_trace(trace: str, capsys: Out) -> None:
    first = document(capsys, trace, "--capacity", "8k", "--timed", "0", "--limit", "6")
    assert first["trace"]["requests"] == 6
    early = document(capsys, trace, "--capacity", "8k", "--timed", "0", "--duration", "4s")
    assert early["trace"]["requests"] == 5


def test_another_replica_has_other_room_and_times(trace: str, capsys: Out) -> None:
    small = document(capsys, trace, "--capacity", "40k", "--model-shape", "smollm2-135m", "--hardware", "l4")
    large = document(capsys, trace, "--capacity", "40k", "--model-shape", "smollm2-135m", "--peak", "1000")
    assert small["machine"]["kv_bytes"] == large["machine"]["kv_bytes"] == 2 * 30 * 3 * 64 * 2
    assert large["machine"]["hardware"] == "h100 with 1000 TFLOP/s"
    assert small["rows"][0]["ttft_p50_ms"] > large["rows"][0]["ttft_p50_ms"]


def test_measured_times_come_with_what_was_assumed_of_the_machine(
    trace: str, tmp_path: Path, capsys: Out
) -> None:
    captured(tmp_path / "run.json", crowd())
    cost = ("--cost", str(tmp_path / "run.json"), "--capacity", "20k", "--policy", "lru")

    def notes(*arguments: str) -> list[str]:
        found = document(capsys, trace, *cost, *arguments)
        assert found["machine"]["cost"].startswith("fitted to run.json: ")
        return [note for note in found["trace"]["notes"] if "measured" in note]

    (note,) = notes()
    assert note.endswith("give --model-shape and --hardware as they were where it was measured")
    (note,) = notes("--memory", "80GB")
    assert note.endswith("give --model-shape as they were where it was measured")
    assert notes("--hardware", "h100", "--model-shape", "llama-3-8b") == []
    assert main(["plan", trace, *cost, "--workers", "1"]) == 0
    assert "fitting" in capsys.readouterr().err


def test_what_a_trace_leaves_open_is_by_seed_or_in_a_row(tmp_path: Path, capsys: Out) -> None:
    request = {"t": 0, "type": "n", "model": "m", "in": 64, "out": 1, "hash_ids": [1]}
    row = {"id": "t", "block_size": 64, "requests": [request]}
    path = str(jsonl(tmp_path / "agents.jsonl", [row, row, row]))
    seconds = [
        document(capsys, path, "--timed", "0", *arguments)["trace"]["seconds"]
        for arguments in ((), ("--seed", "0"), ("--seed", "1"), ("--in-a-row",))
    ]
    assert seconds[0] == seconds[1] != seconds[2] > 0
    assert seconds[3] == 0


@pytest.mark.parametrize("budget", ["8", "3GB"])
def test_a_budget_alone_buys_memory_that_holds_the_requests(budget: str, trace: str, capsys: Out) -> None:
    found = document(capsys, trace, "--budget", budget, "--price", "2", "--policy", "default")
    plan = found["plan"]
    assert plan["met"] is True
    assert plan["outcome"]["refused"] == 0
    assert plan["outcome"]["hit_rate"] > 0.3
    assert plan["price_per_hour"] <= 8 or budget != "8"
    assert plan["design"]["replicas"] * plan["design"]["capacity_bytes"] <= 3e9 or budget != "3GB"


@pytest.mark.parametrize("timed", ["all", "5"])
def test_what_is_refused_of_the_whole_trace_is_told_everywhere(trace: str, timed: str, capsys: Out) -> None:
    """Prompts have 5, 8, 11 and 14 blocks of 512 tokens, four each."""
    arguments = (trace, "--capacity", "3k,4k,6k", "--policy", "default", "--timed", timed)
    found = document(capsys, *arguments)
    assert [row["refused"] for row in found["rows"]] == [12, 12, 4]
    assert "replica" in found["definitions"]["refused"]
    plan = document(capsys, *arguments, "--hit-rate", "1%")
    assert plan["plan"]["met"] is True
    assert plan["plan"]["design"]["capacity_tokens"] == 6000
    assert (plan["plan"]["outcome"]["refused"], plan["plan"]["outcome"]["refused_by_all"]) == (4, 4)
    more, fewer = (each["outcome"] for each in plan["sensitivity"][1::-1])
    assert 0 < fewer["requests"] < 16 < more["requests"]
    assert all(each["meets"] for each in plan["sensitivity"])
    [twice] = [each["outcome"] for each in plan["what_ifs"] if each["change"] == "traffic × 2"]
    assert (twice["requests"], twice["refused"]) == (32, 8)
    refused = {each["change"]: each["outcome"]["refused"] for each in plan["what_ifs"]}
    assert (refused["half the memory"], refused["twice the memory"]) == (12, 0)
    assert main(["plan", *arguments, "--hit-rate", "1%", "--workers", "1"]) == 0
    text = capsys.readouterr().out
    assert "4 of 16 requests refused" in text
    assert text.count("  refused") >= 2


def test_the_context_of_the_model_counts(trace: str, tmp_path: Path, capsys: Out) -> None:
    config = {
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_attention_heads": 9,
        "num_hidden_layers": 30,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "tie_word_embeddings": True,
    }
    shape = tmp_path / "small" / "config.json"
    shape.parent.mkdir()
    shape.write_text(json.dumps({**config, "max_position_embeddings": 4096}))
    arguments = (trace, "--model-shape", str(shape), "--policy", "lru")
    found = document(capsys, *arguments, "--hit-rate", "10%")
    note = "8 of 16 requests are longer than the context of small, 4,096 tokens with their replies"
    assert any(each.startswith(note) for each in found["trace"]["notes"])
    assert found["plan"]["outcome"]["refused"] == 8
    assert found["plan"]["met"] is True
    assert found["rows"][-1]["hit_rate"] == pytest.approx(found["trace"]["ceiling"])
    assert 0.1 < found["trace"]["ceiling"] < 0.3
    shape.write_text(json.dumps({**config, "max_position_embeddings": 512}))
    assert main(["plan", *arguments]) == 2
    assert "longer than the context of small, 512 tokens" in capsys.readouterr().err


def test_sizes_are_held_against_the_hardware(trace: str, capsys: Out) -> None:
    """A replica has room for 8,192 tokens."""
    room = str(2 * 134_515_008 + 8192 * 23_040) + "B"
    all_of_it = ("--memory", room, "--memory-utilization", "1")
    small = (trace, "--model-shape", "smollm2-135m", *all_of_it, "--policy", "lru", "--price", "3")
    found = document(capsys, *small, "--capacity", "8192,16384,16896")
    assert [row["held"] for row in found["rows"]] == [True, False, False]
    span = found["trace"]["seconds"]
    costs = [row["cost_per_million_prompt_tokens"] for row in found["rows"]]
    one = 3 * span / 3600 / found["trace"]["prompt_tokens"] * 1e6
    assert costs == pytest.approx([one, 2 * one, 3 * one])
    two = document(capsys, *small, "--capacity", "8192,16384,16896", "--replicas", "2")
    assert [row["held"] for row in two["rows"]] == [True, True, False]
    plan = document(capsys, *small, "--hit-rate", "10%", "--replicas", "1")
    held = {each["change"]: each["held"] for each in plan["what_ifs"]}
    assert (held["half the memory"], held["twice the memory"]) == (True, False)
    assert main(["plan", *small, "--capacity", "8k,16k,17k", "--workers", "1"]) == 0
    assert "from here on more than a replica has" in capsys.readouterr().out


def test_what_is_kept_back_is_told_and_does_not_hold_kv(trace: str, capsys: Out) -> None:
    small = (trace, "--model-shape", "smollm2-135m", "--memory", "1GB", "--capacity", "8k", "--timed", "0")
    found = document(capsys, *small)
    assert found["machine"]["most_tokens"] == (900_000_000 - 2 * 134_515_008) // 23_040
    note = "0.1 of the 1 GB of a replica are kept back for activations and the runtime (--memory-utilization 0.9)"
    assert note in found["trace"]["notes"]
    whole = document(capsys, *small, "--memory-utilization", "1")
    assert whole["machine"]["most_tokens"] == (1_000_000_000 - 2 * 134_515_008) // 23_040
    assert not [note for note in whole["trace"]["notes"] if "kept back" in note]


def test_a_replica_may_span_devices(trace: str, tmp_path: Path, capsys: Out) -> None:
    """Two hold more than twice what one does, as the weights lie there once, in half the time at twice the price."""
    one = ("--model-shape", "smollm2-135m", "--memory", "600MB", "--policy", "lru", "--price", "3")
    sizes = ("--capacity", "9k,20k,60k")
    alone, two = (document(capsys, trace, *one, *sizes, *more) for more in ((), ("--devices", "2")))
    weights, kv = 2 * 134_515_008, 23_040
    assert [each["machine"]["most_tokens"] for each in (alone, two)] == [
        (540_000_000 - weights) // kv,
        (1_080_000_000 - weights) // kv,
    ]
    assert (two["machine"]["hardware"], two["machine"]["devices"]) == ("2 × h100 with 0.6 GB", 2)
    assert (alone["machine"]["price_per_hour"], two["machine"]["price_per_hour"]) == (3, 6)
    assert [row["held"] for row in alone["rows"]] == [True, False, False]
    assert [row["held"] for row in two["rows"]] == [True, True, False]
    assert two["rows"][0]["ttft_p50_ms"] == pytest.approx(alone["rows"][0]["ttft_p50_ms"] / 2)
    assert two["rows"][0]["cost_per_million_prompt_tokens"] == pytest.approx(
        2 * alone["rows"][0]["cost_per_million_prompt_tokens"]
    )
    [note] = [note for note in two["trace"]["notes"] if "spans" in note]
    assert note.endswith("no network between them is modelled, so times are at their best")
    many = document(capsys, trace, *one, "--capacity", "4k", "--timed", "0", "--devices", "4")["trace"][
        "notes"
    ]
    assert any(note.startswith("smollm2-135m has 3 KV heads") for note in many)
    captured(tmp_path / "run.json", crowd())
    cost = ("--cost", str(tmp_path / "run.json"), "--devices", "2", "--capacity", "4k", "--timed", "0")
    [note] = [note for note in document(capsys, trace, *one, *cost)["trace"]["notes"] if "spans" in note]
    assert note.endswith("times are those that were measured, on as many devices or not")


def test_devices_count_in_limits_prices_and_refusals_of_a_plan(trace: str, capsys: Out) -> None:
    """Prompts have up to 14 blocks of 512 tokens: a device has room for 5,000 tokens, two have it for 21,680."""
    memory = str(2 * 134_515_008 + 5000 * 23_040) + "B"
    one = ("--model-shape", "smollm2-135m", "--memory", memory, "--memory-utilization", "1", "--price", "3")
    goals = ("--hit-rate", "10%", "--budget", "6", "--policy", "lru", "--routing", "prefix")
    alone, two = (document(capsys, trace, *one, *goals, *more) for more in ((), ("--devices", "2")))
    assert [each["plan"]["outcome"]["refused_by_all"] for each in (alone, two)] == [8, 0]
    assert [note for note in alone["trace"]["notes"] if "what a replica holds, 5,000 tokens" in note]
    assert alone["plan"]["design"]["capacity_tokens"] <= 5000 < two["plan"]["design"]["capacity_tokens"]
    assert (two["plan"]["met"], two["plan"]["design"]["replicas"], two["plan"]["price_per_hour"]) == (
        True,
        1,
        6,
    )
    dear = {each["change"]: each["meets"] for each in two["what_ifs"]}
    assert (dear["as planned"], dear["one replica more"]) == (True, False)
    text = ("plan", trace, *one, *goals, "--devices", "2", "--workers", "1")
    assert main(list(text)) == 0
    assert capsys.readouterr().out.startswith("1 replica of 2 devices with ")


def test_the_command_can_be_typed_again(trace: str, tmp_path: Path, capsys: Out) -> None:
    spaced = tmp_path / "a trace.jsonl"
    spaced.write_bytes(Path(trace).read_bytes())
    found = document(capsys, str(spaced), "--capacity", "8k", "--timed", "0")
    assert shlex.split(found["command"])[:3] == ["sapwood", "plan", str(spaced)]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "TRACE is missing\n\nhint: sapwood plan TRACE"),
        (["t", "--seeds", "3"], "--seeds goes with --reproduce"),
        (["--reproduce", "--html", "x"], "--html goes without --reproduce"),
        (["--reproduce", "--seed", "3"], "--seed goes without --reproduce"),
        (["t", "--cost", "no/such"], "times cannot come from no/such: there is no such file"),
        (["t", "--capacity", "12z"], "--capacity is '12z'; it must be tokens"),
        (["t", "--policy", "lru,lri"], "did you mean lru?"),
        (["t", "--hit-rate", "80"], "--hit-rate is '80'; it must be between 0 and 1"),
        (["t", "--routing", "prefx"], "did you mean prefix?"),
        (["t", "--budget", "5x"], "--budget is '5x'"),
        (["t", "--budget", "100k"], "of what? It must be money per hour"),
        (["t", "--capacity", "64G"], "hint: if you mean bytes, write 64GB"),
        (["t", "--hardware", "tpu"], "no hardware is known as 'tpu'"),
        (["t", "--model-shape", "foo"], "no model's shape is known as 'foo'"),
        (["t", "--replicas", "0"], "--replicas is 0; it must be between 1 and 4096"),
        (["t", "--html", "no/such/place.html"], "there is no folder no/such"),
        (["t", "--html", "."], "--html: . is a folder"),
        (["no/such.jsonl"], "cannot read no/such.jsonl"),
        (["t", "--budget", "20"], "a budget of money needs the price of a device\n\nhint: give --price"),
        (["t", "--output-tokens", "x"], "--output-tokens is 'x'; it must be a whole number"),
        (
            ["TRACE", "--capacity", "10M", "--hit-rate", "0.5"],
            "--capacity: 10,000,000 tokens are more than the 426,784 that a replica of h100 has\n\n"
            "hint: in a plan --capacity is the memory of each replica",
        ),
        (["TRACE", "--ttft-p95", "5s", "--timed", "0"], "goals need simulations"),
        (["TRACE", "--ttft-p95", "0s"], "the goal for TTFT p95 is 0 s"),
        (["TRACE", "--check"], "--check needs goals\n\nhint: --ttft-p95 5s"),
        (["--reproduce", "--check"], "--check goes without --reproduce"),
        (["t", "--check", "--cost", "no/such"], "--check needs goals"),
        (["t", "--budget", "20", "--cost", "no/such"], "a budget of money needs the price of a device"),
        (["t", "--model-shape", "llama-3-70b", "--cost", "no/such"], "take 141 GB; h100 has 80 GB"),
        (["t", "--weights", "8"], "--weights is '8': of what?"),
        (["t", "--traffic", "0"], "--traffic is 0; it must be between 0.01 and 1000"),
        (
            ["t", "--model-shape", "llama-3-70b"],
            "take 141 GB; h100 has 80 GB, of which weights and KV may take 72",
        ),
        (
            ["t", "--tokenizer", "nosuch"],
            "there is no tokenizer 'nosuch'\n\nhint: give `bytes`, a tokenizer.json",
        ),
    ],
)
def test_wrong_usage_is_2_and_says_what_is_right(
    arguments: list[str], said: str, trace: str, capsys: Out
) -> None:
    given = [trace if each == "TRACE" else each for each in arguments]
    assert main(["plan", *given]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert said in captured.err


def test_ctrl_c_ends_it_with_130(trace: str, monkeypatch: pytest.MonkeyPatch, capsys: Out) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("sapwood.cli.plan_study.curves", interrupted)
    assert main(["plan", trace]) == 130
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("sapwood: interrupted\n")
    assert "\n1 replica with 55.9 GB of KV: TTFT p50 " in captured.err, (
        "what is known before the curves is said"
    )


def test_a_log_of_usage_alone_is_planned_with_what_is_assumed_on_top(tmp_path: Path, capsys: Out) -> None:
    rows = [{"ts": 1795946400 + at, "prompt_tokens": 600, "completion_tokens": 80} for at in range(8)]
    arguments = ("--capacity", "8k", "--timed", "0", "--policy", "lru")
    found = document(capsys, str(jsonl(tmp_path / "usage.jsonl", rows)), *arguments)
    assert (found["trace"]["prompt_tokens"], found["trace"]["output_tokens"]) == (4800, 640)
    assert found["trace"]["assumed"][0].startswith("arrivals and lengths only")


def test_answers_that_nobody_knows_are_as_long_as_is_said(tmp_path: Path, capsys: Out) -> None:
    rows: list[dict[str, Any]] = [{"prompt": "p" * 400, "max_tokens": 50}, {"prompt": "q" * 400}]
    path, arguments = str(jsonl(tmp_path / "bare.jsonl", rows)), ("--capacity", "8k", "--timed", "0")
    told = [
        document(capsys, path, *arguments, "--policy", "lru", *more)["trace"]
        for more in ((), ("--output-tokens", "70"))
    ]
    assert [each["output_tokens"] for each in told] == [50 + 256, 50 + 70]
    assert [each["prompt_tokens"] for each in told] == [200, 200]
    assert told[0]["assumed"][0].startswith("token counts are guessed, 4 bytes a token")
    assert told[0]["assumed"][1].startswith(
        "2 answers are of unknown length and taken as 256 tokens each, 1 of them"
    )


@pytest.mark.parametrize("unit", [1, 512])
def test_rates_are_told_that_differ_for_blocks_of_that_size(unit: int) -> None:
    names = [definition.name for definition in definitions_for(unit)]
    assert names[:2] == ["token", "token, prompts only"]
    assert ("token, whole blocks" in names) == ("block" in names) == (unit > 1)


def test_a_model_takes_what_its_weights_and_keys_and_values_are_stored_in(trace: str, capsys: Out) -> None:
    quick = ("--capacity", "4k", "--timed", "0", "--model-shape", "qwen3-32b", "--memory-utilization", "1")
    plain = document(capsys, trace, *quick)["machine"]
    packed = document(capsys, trace, *quick, "--weights", "fp8", "--kv-dtype", "fp8")["machine"]
    assert packed["kv_bytes"] == plain["kv_bytes"] / 2 == 131_072
    assert plain["most_tokens"] == (80 * 10**9 - 2 * 32_762_123_264) // 262_144
    assert packed["most_tokens"] == pytest.approx((80e9 - 34.3e9) / 131_072, rel=2e-3)
