"""The cases in turns, the kernels' helpers and the command line, against servers made of a script."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.asking import Abilities, Server
from bench.cases import Case, all_cases
from bench.cases.decode import repetition
from bench.command import main
from bench.entrants import Entrant
from bench.kernels.attention import Step
from bench.kernels.run import blas_environment
from bench.kernels.timing import Rounds, in_turns
from bench.kernels.weights import Shape, float_copies, packed_copies
from bench.prompts import Prompts
from bench.report import rows_table
from bench.rows import Row
from bench.serve_suite import Contest, Sides, run_case, run_contest

from sapwood.model.ops_native import NativeOps

MakeStub = Callable[..., Any]
Serving = Callable[[Any], AbstractAsyncContextManager[Server]]


# ---- cases -----------------------------------------------------------------------------------------------------


async def with_sides(serving: Serving, ours: Any, peers: Sequence[Any], work: Callable[[Sides], Any]) -> Any:
    async with contextlib.AsyncExitStack() as stack:
        first, *others = [await stack.enter_async_context(serving(stub)) for stub in (ours, *peers)]
        return await work(Sides(first, others))


async def run_on(case: Case, sides: Sides) -> list[Row]:
    return (await run_case(case, sides, Prompts(1))).rows


def rows_of(serving: Serving, case: Case, ours: Any, *peers: Any) -> list[Row]:
    rows: list[Row] = asyncio.run(with_sides(serving, ours, peers, partial(run_on, case)))
    return rows


def case_called(name: str) -> Case:
    [case] = [case for case in all_cases("quick") if case.name == name]
    return case


OF_PROCESSES = {"restart": {"ttft", "reused"}, "starved_chat": {"throughput", "ttft_p95"}}
"""What only a server that we started can be asked for."""


def test_all_cases_run_in_turns_with_equal_prompts(make_stub: MakeStub, serving: Serving) -> None:
    ours, peer = make_stub("ours", "sapwood"), make_stub("peer", "llama.cpp")
    for case in all_cases("quick"):
        ours.log.clear()
        rows = rows_of(serving, case, ours, peer)
        untold = OF_PROCESSES.get(case.name, {"peak_memory"})
        assert [row.measure.name for row in rows] == [
            measure.name for measure in case.measures if measure.name not in untold
        ]
        assert all(len(row.pairs) == case.pairs and row.against == "peer" for row in rows)
        assert all(row.json()["regime"] for row in rows)
        turns = [name for name, path, _ in ours.log if path != "/flush_cache"]
        changes = sum(a != b for a, b in itertools.pairwise(turns))
        assert changes == (2 * case.pairs - 1 if rows else 0)  # ours, peer, ours, peer: never both at a time
        asked = {
            side: sorted(
                json.dumps(body.get("prompt", body.get("messages")))
                for name, _, body in ours.log
                if name == side and body
            )
            for side in ("ours", "peer")
        }
        if case.name != "multi_turn":  # replies go back into its prompts, and they may differ
            assert asked["ours"] == asked["peer"]


def test_no_trial_repeats_a_prompt_of_another(make_stub: MakeStub, serving: Serving) -> None:
    for case in all_cases("quick"):
        stub = make_stub("ours", "sapwood")
        seen: list[set[str]] = []
        for trial in range(2):
            stub.log.clear()
            asyncio.run(with_sides(serving, stub, (), partial(_once, case, trial)))
            seen.append({json.dumps(body["prompt"])[:60] for _, _, body in stub.log if "prompt" in body})
        assert not seen[0] & seen[1], case.name


async def _once(case: Case, trial: int, sides: Sides) -> None:
    await case.run(sides.ours, Prompts(1), trial)


def test_each_peer_has_its_rows_against_the_same_values_of_ours(
    make_stub: MakeStub, serving: Serving
) -> None:
    stubs = [make_stub("ours", "sapwood"), make_stub("a", "llama.cpp"), make_stub("b", "openai")]
    rows = rows_of(serving, case_called("cold_prefill"), *stubs)
    assert [row.against for row in rows] == ["a", "b"]
    assert [pair.ours for pair in rows[0].pairs] == [pair.ours for pair in rows[1].pairs]
    turns = [name for name, _, _ in stubs[0].log]
    assert turns == ["ours", "a", "b"] * 2


def test_a_floor_is_asked_in_the_first_pair_alone(make_stub: MakeStub, serving: Serving) -> None:
    ours, floor = make_stub("ours", "sapwood"), make_stub("floor", "openai")

    async def work(sides: Sides) -> list[Row]:
        return await run_on(case_called("cold_prefill"), replace(sides, floors=frozenset({"floor"})))

    [row] = asyncio.run(with_sides(serving, ours, [floor], work))
    assert [name for name, _, _ in ours.log] == ["ours", "floor", "ours"]
    assert len(row.pairs) == 1


def test_samples_are_one_request_where_the_server_can(make_stub: MakeStub, serving: Serving) -> None:
    case = case_called("samples")

    async def go(stub: Any, able: bool) -> None:
        async with serving(stub) as server:
            abilities = replace(server.abilities, samples=able)
            await case.run(replace(server, abilities=abilities), Prompts(1), 0)

    can, cannot = make_stub("a", "openai"), make_stub("b", "openai")
    asyncio.run(go(can, True))
    [(_, _, body)] = can.log
    assert (body["n"], body["temperature"]) == (3, 1.0)
    can.log.clear()
    asyncio.run(go(cannot, False))
    assert sorted(body["seed"] for _, _, body in cannot.log) == [0, 1, 2]


def test_repetition_is_the_share_of_what_came_before() -> None:
    assert repetition(["a b c d e f g h"]) == 0.0
    assert repetition(["a b c d a b c d", "x y"]) == 0.2
    assert repetition([]) == 0.0


def test_servers_that_end_early_are_told_of(make_stub: MakeStub, serving: Serving) -> None:
    async def go() -> list[Row]:
        async with (
            serving(make_stub("ours", "sapwood")) as ours,
            serving(make_stub("peer", "openai", short=True)) as peer,
        ):
            peer = replace(peer, abilities=Abilities(length=(), exact=False))
            return (await run_case(case_called("decode_8"), Sides(ours, [peer]), Prompts(1))).rows

    row, _ = asyncio.run(go())
    assert "peer ended early: 112 of 128 tokens" in row.notes[0]


def test_exactness_counts_answers_that_change(make_stub: MakeStub, serving: Serving) -> None:
    ours, peer = make_stub("ours", "sapwood"), make_stub("peer", "llama.cpp", drifts=True)
    texts = rows_of(serving, case_called("exactness"), ours, peer)[0].json()
    assert (texts["ours"], texts["peer"], texts["goal"]["met"]) == (0.0, 6.0, True)


def test_exactness_is_skipped_where_a_server_cannot_forget(make_stub: MakeStub, serving: Serving) -> None:
    ours, peer = make_stub("ours", "sapwood"), make_stub("peer", "openai")
    rows = rows_of(serving, case_called("exactness"), ours, peer)
    assert [(row.against, row.json()["peer"]) for row in rows] == [(None, None)] * 2


def test_a_contest_alone_has_no_ratios(make_stub: MakeStub, serving: Serving) -> None:
    async def go() -> list[Row]:
        async with serving(make_stub("ours", "sapwood")) as server:
            cases = [(case, case) for case in all_cases("quick")]
            contest = Contest(Entrant("ours", server=server), (), cases, Prompts(1))
            return [row async for result in run_contest(contest) for row in result.rows]

    rows = asyncio.run(go())
    assert {row.scenario for row in rows} == {case.name for case in all_cases("quick")} - set(OF_PROCESSES)
    assert all(row.json()["ratio"] is None for row in rows)


# ---- kernels and cache -----------------------------------------------------------------------------------------


def test_functions_are_timed_in_turns() -> None:
    called: list[str] = []
    functions: Mapping[str, Callable[[], object]] = {
        "a": lambda: called.append("a"),
        "b": lambda: called.append("b"),
    }
    taken = in_turns(functions, Rounds(count=3, seconds=0.0))
    assert {name: len(times) for name, times in taken.items()} == {"a": 3, "b": 3}
    assert called == ["a", "b"] * 4  # once to warm up


def test_blas_gets_its_default_kernels() -> None:
    given = {"OPENBLAS_CORETYPE": "Haswell", "HOME": "h", "PYTHONPATH": "p"}
    wanted = blas_environment(given, 2)
    assert "OPENBLAS_CORETYPE" not in wanted
    assert (wanted["OPENBLAS_NUM_THREADS"], wanted["HOME"], wanted["PYTHONPATH"]) == ("2", "h", "p")
    assert blas_environment(wanted, 2) == wanted


@pytest.mark.parametrize("format", ["f32", "f16", "q8_0", "q4_0", "q4_1"])
def test_random_weights_are_numbers(format: Any) -> None:
    ops, shape = NativeOps(1), Shape(64, 96)
    copies = packed_copies(ops, format, shape, enough=3 * 64 * 96 * 4)
    assert len(copies) >= 3
    out = np.full((2, 64), np.nan, np.float32)
    ops.linear(np.ones((2, 96), np.float32), copies[-1], out)
    assert np.isfinite(out).all()
    assert np.abs(out).max() < 1e5


def test_float_copies_fill_the_memory_asked_for() -> None:
    copies = float_copies(Shape(8, 16), enough=2000)
    assert len(copies) == 4
    assert not np.shares_memory(copies[0], copies[1])


def test_the_work_of_an_attention_step() -> None:
    # Two rows after one cached token: they see 2 and 3 keys.
    assert Step("prefill", 1, 2, 3).operations == 4 * 9 * 64 * 5
    assert Step("decode", 8, 1, 100).kv_bytes == 8 * 100 * 2 * 3 * 64 * 2


# ---- the command line ------------------------------------------------------------------------------------------


def test_cache_suite_prints_one_document(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "new" / "cache.json"
    assert main(["cache", "--quick", "--json", "--out", str(file)]) == 0
    [line] = capsys.readouterr().out.splitlines()
    told = json.loads(line)
    assert {"regime", "machine", "commit", "command", "noise", "rows"} <= set(told)
    assert told == json.loads(file.read_text())
    assert str(tmp_path) not in line
    assert rows_table(told["rows"]).count("\n") >= 6
    assert main(["report", "--results", str(file.parent), "--out", str(tmp_path / "R.md")]) == 0
    assert "evict one page" in (tmp_path / "R.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serve", "--peers", "none", "--cases", "cold_prefil"], "no case is called cold_prefil"),
        (["serve", "--peers", "none", "--pairs", "0"], "--pairs is 0"),
        (["serve", "--llama-server", "/no/program"], "'/no/program' is no program"),
        (["serve", "--against", "nonsense"], "--against: 'nonsense' is not the URL"),
        (["serve", "--ours", "http://x:99999"], "--ours: "),
        (["serve", "--against", "http://x:9", "--llama-server", "y"], "give one"),
        (["serve", "--peers", "lama"], "no peer is called lama; there are llama, vllm"),
        (["serve", "--api-key", "x"], "--api-key is for the server of --against"),
        (["serve", "--alone"], "--alone measures the server of --against"),
        (["serve", "--against", "http://x:9", "--alone", "--ours", "y:1"], "leave --ours out"),
        (["serve", "--threads", "0"], "--threads: 0 is not at least 1"),
        (["cache", "--bogus"], "unrecognized arguments: --bogus"),
        (["cache", "--quick", "--full"], "not allowed with"),
        (["cache", "--out", "."], "a folder"),
    ],
)
def test_wrong_usage_is_status_2(capsys: pytest.CaptureFixture[str], arguments: list[str], said: str) -> None:
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.splitlines()[-1 if "hint" not in captured.err else 0].startswith("bench: ")
    assert said in captured.err


def test_without_json_stdout_has_the_table_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "--quick", "--cases", "operations"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert lines[: len(table)] == table
    assert table[2].startswith("| match 512 tokens, 1 edge, radix / classic |")
    assert all(line == "" or line.startswith("- ") for line in lines[len(table) :])  # notes of the rows


def test_a_document_shows_the_command_as_it_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    given = ["cache", "--quick", "--json", "--cases", "bookkeeping"]
    assert main(given) == 0
    assert json.loads(capsys.readouterr().out)["command"] == f"python -m bench {' '.join(given)}"
    assert main(given, ["sapwood", "bench", "--quick", *given]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == f"sapwood bench --quick {' '.join(given)}"


def test_nothing_is_started_for_a_peer_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: Any) -> None:
        raise AssertionError("a server is started")

    monkeypatch.setattr("bench.processes.Child.start", start)
    assert main(["serve", "--quick", "--against", "http://127.0.0.1:9"]) == 1
    assert "port 9" in capsys.readouterr().err


def test_serve_against_servers_that_run(
    make_stub: MakeStub, serving: Serving, capsys: pytest.CaptureFixture[str]
) -> None:
    async def go() -> int:
        async with serving(make_stub("a", "sapwood")) as ours, serving(make_stub("b", "openai")) as peer:
            urls = [f"http://127.0.0.1:{server.address.port}" for server in (ours, peer)]
            given = [
                "serve",
                "--quick",
                "--json",
                "--ours",
                urls[0],
                "--against",
                f"{urls[1]}/v1",
                "--cases",
                "cold_prefill",
            ]
            return await asyncio.to_thread(main, given)

    assert asyncio.run(go()) == 0
    told = json.loads(capsys.readouterr().out)
    [row] = told["rows"]
    assert (row["scenario"], row["against"], len(row["pairs"])) == ("cold_prefill", "peer", 2)
    assert row["ratio"] > 0
    assert told["regime"]["peer"] == "a running OpenAI-compatible server"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_bench_that_is_ended_takes_its_servers_along(tmp_path: Path, number: signal.Signals) -> None:
    program = tmp_path / "llama-server"
    pid = tmp_path / "pid"
    says = f"import os, time\nopen({str(pid)!r}, 'w').write(str(os.getpid()))\ntime.sleep(60)\n"
    program.write_text(f"#!{sys.executable}\n{says}")
    program.chmod(0o755)
    code = (
        "import asyncio\n"
        "from bench.processes import Launch, running, terminated_as_interrupted\n"
        "async def go():\n"
        f"    async with running(Launch('x', 'openai', ({str(program)!r},))): pass\n"
        "try:\n"
        "    with terminated_as_interrupted(): asyncio.run(go())\n"
        "except KeyboardInterrupt: raise SystemExit(130)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=Path(__file__).parents[2], stderr=subprocess.PIPE
    ) as child:
        while not pid.exists() or not pid.read_text():
            time.sleep(0.02)
        child.send_signal(number)
        assert child.wait(20) == 130
    server = int(pid.read_text())
    with pytest.raises(ProcessLookupError):
        os.kill(server, 0)
