"""The cases in turns, the kernels' helpers and the command line, against servers made of a script."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bench.asking import Server
from bench.cases import Case, all_cases
from bench.command import main
from bench.kernels.attention import Step
from bench.kernels.run import blas_environment
from bench.kernels.timing import Rounds, in_turns
from bench.kernels.weights import Shape, float_copies, packed_copies
from bench.prompts import Prompts
from bench.report import rows_table
from bench.rows import Row
from bench.serve_suite import Sides, run_case, run_cases

from sapwood.model.ops_native import NativeOps

MakeStub = Callable[..., Any]
Serving = Callable[[Any], AbstractAsyncContextManager[Server]]


# ---- cases -----------------------------------------------------------------------------------------------------


async def with_sides(serving: Serving, ours: Any, peer: Any, work: Callable[[Sides], Any]) -> Any:
    async with serving(ours) as a, serving(peer) as b:
        return await work(Sides(a, b))


async def run_on(case: Case, sides: Sides) -> list[Row]:
    return await run_case(case, sides, Prompts(1))


def test_all_cases_run_in_turns_with_equal_prompts(make_stub: MakeStub, serving: Serving) -> None:
    ours, peer = make_stub("ours", "sapwood"), make_stub("peer", "llama.cpp")
    for case in all_cases("quick"):
        ours.log.clear()
        rows = asyncio.run(with_sides(serving, ours, peer, partial(run_on, case)))
        assert [row.measure.name for row in rows] == [measure.name for measure in case.measures]
        assert all(len(row.pairs) == case.pairs and row.against == "peer" for row in rows)
        assert all(row.json()["regime"] for row in rows)
        turns = [name for name, path, _ in ours.log if path != "/flush_cache"]
        changes = sum(a != b for a, b in itertools.pairwise(turns))
        assert changes == 2 * case.pairs - 1  # ours, peer, ours, peer: never both at a time
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


def test_exactness_counts_answers_that_change(make_stub: MakeStub, serving: Serving) -> None:
    [case] = [case for case in all_cases("quick") if case.name == "exactness"]
    ours, peer = make_stub("ours", "sapwood"), make_stub("peer", "llama.cpp", drifts=True)
    rows = asyncio.run(with_sides(serving, ours, peer, partial(run_on, case)))
    texts = rows[0].json()
    assert (texts["ours"], texts["peer"], texts["goal"]["met"]) == (0.0, 6.0, True)


def test_exactness_is_skipped_where_a_server_cannot_forget(make_stub: MakeStub, serving: Serving) -> None:
    [case] = [case for case in all_cases("quick") if case.name == "exactness"]
    ours, peer = make_stub("ours", "sapwood"), make_stub("peer", "openai")
    rows = asyncio.run(with_sides(serving, ours, peer, partial(run_on, case)))
    assert [(row.against, row.json()["peer"]) for row in rows] == [(None, None)] * 2


def test_servers_are_started_once_for_equal_slots(make_stub: MakeStub, serving: Serving) -> None:
    opened: list[int] = []

    class Opened:
        def __init__(self, slots: int) -> None:
            opened.append(slots)
            self._inner = serving(make_stub("ours", "sapwood"))

        async def __aenter__(self) -> Sides:
            return Sides(await self._inner.__aenter__(), None)

        async def __aexit__(self, *error: Any) -> None:
            await self._inner.__aexit__(*error)

    rows = asyncio.run(run_cases(all_cases("quick"), Opened, Prompts(1)))
    assert opened == [1, 8]
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
        (["serve", "--peer", "none", "--cases", "cold_prefil"], "no case is called cold_prefil"),
        (["serve", "--peer", "none", "--pairs", "0"], "--pairs is 0"),
        (["serve", "--llama-server", "/no/program"], "'/no/program' is no program"),
        (["serve", "--against", "nonsense"], "--against: 'nonsense' is not the URL"),
        (["serve", "--ours", "http://x:99999"], "--ours: "),
        (["serve", "--against", "http://x:9", "--llama-server", "y"], "give one"),
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
    assert main(["cache", "--quick"]) == 0
    lines = capsys.readouterr().out.splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert lines[: len(table)] == table
    assert table[2].startswith("| match 512 tokens, 1 edge, radix / classic |")
    assert all(line == "" or line.startswith("- ") for line in lines[len(table) :])  # notes of the rows


def test_a_document_shows_the_command_as_it_was_typed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["cache", "--quick", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == "python -m bench cache --quick --json"
    assert main(["cache", "--quick", "--json"], ["sapwood", "bench", "--quick", "cache", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["command"] == "sapwood bench --quick cache --json"


def test_nothing_is_started_for_a_peer_that_is_not_there(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def start(*_: Any) -> None:
        raise AssertionError("a server is started")

    monkeypatch.setattr("bench.serve_command.running", start)
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
