"""`serve --capture FILE`, from a client's call to the trace that is read from it."""

from __future__ import annotations

import stat
import threading
from pathlib import Path
from typing import Any

import pytest

from model import tiny
from sapwood.config import CacheConfig, ModelConfig, SchedulerConfig
from sapwood.engine import Engine, EngineLoop, LineFile, build_engine
from sapwood.engine.commands import Add
from sapwood.plan import StepPlan, StepResult
from sapwood.server.pins import PATH as PINS
from sapwood.sim import read_trace
from sapwood.sim.readers.capture import read_capture
from sapwood.sim.readers.captured_deeds import Left, PinTried
from sapwood.sim.readers.source import Source
from sapwood.sim.recorded import simulate_again
from server.conftest import serving_built
from server.test_disconnect import send
from waiting import until

PROMPT = "once upon a time there was a tree"


TINY = SchedulerConfig(chunk_tokens=8)


def test_what_a_client_asks_is_there_to_be_replayed(tmp_path: Path) -> None:
    path = tmp_path / "capture.jsonl"
    file = LineFile(path)
    model = ModelConfig(str(tiny.tiny_llama(tmp_path / "little")), kv_memory=2**18, threads=1)
    built = build_engine(model, CacheConfig(page_size=2), SchedulerConfig(chunk_tokens=8), capture=file)
    reused = []
    with serving_built(built) as served:  # type: ignore[arg-type]
        for salts in ({}, {}, {"cache_salt": "secret"}):
            body = {"model": built.facts.model, "prompt": PROMPT, "max_tokens": 3, "temperature": 0, **salts}
            answer = served.http.post("/v1/completions", json=body).json()
            reused.append(answer["usage"]["prompt_tokens_details"]["cached_tokens"])
    file.close()

    (run,) = read_capture(Source(path))
    assert [request.reused for request in run.requests] == reused
    assert reused[1] > reused[0] == reused[2] == 0
    assert run.header.fields["cache"]["page_size"] == 2
    assert run.header.fields["scheduler"]["chunk_tokens"] == 8
    assert run.header.fields["capacity_pages"] == built.facts.capacity_pages
    assert run.gaps == []
    assert run.ended
    assert simulate_again(run).simulated.reused.tolist() == reused
    assert "secret" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600

    trace = read_trace(path)
    assert trace.unit_tokens == 1
    assert trace[0].names[: trace[0].prompt_tokens].tolist() == list(built.tokenizer.encode(PROMPT))
    assert trace.output_tokens.tolist() == [3, 3, 3]
    assert trace.scopes.tolist() == [0, 0, 1]


class Gate:
    """Lets an engine's first steps pass and then one at a time, until it is opened; counts who came and who left."""

    FIRST = 40

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.came = self.left = self._steps = 0
        self._next, self._open = threading.Event(), False
        run, send_in, cancel = Engine.run, EngineLoop._send, EngineLoop._cancel

        def gated(engine: Engine, plan: StepPlan) -> StepResult:
            self._steps += 1
            if self._steps > self.FIRST and not self._open:
                self._next.wait(20)
                self._next.clear()
            return run(engine, plan)

        def sent(loop: EngineLoop, command: Any) -> None:
            send_in(loop, command)
            self.came += isinstance(command, Add)

        def cancelled(loop: EngineLoop, *who: Any) -> None:
            cancel(loop, *who)
            self.left += 1

        patch.setattr(Engine, "run", gated)
        patch.setattr(EngineLoop, "_send", sent)
        patch.setattr(EngineLoop, "_cancel", cancelled)

    def stepped(self) -> bool:
        """Always; one more step may pass, and no second one before it."""
        self._next.set()
        return True

    def open(self) -> None:
        self._open = True
        self._next.set()


def test_clients_that_leave_and_several_samples_are_done_again_by_the_simulator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One leaves in the midst of its answer, one while it waits for a seat; one asks for three samples."""
    path = tmp_path / "capture.jsonl"
    file = LineFile(path)
    model = ModelConfig(str(tiny.tiny_llama(tmp_path / "little")), kv_memory=2**18, threads=1)
    scheduler = SchedulerConfig(chunk_tokens=8, max_running=1)
    built = build_engine(model, CacheConfig(page_size=2), scheduler, capture=file)
    gate = Gate(monkeypatch)
    body = {"model": built.facts.model, "prompt": PROMPT, "temperature": 0, "max_tokens": 4}
    with serving_built(built) as served:  # type: ignore[arg-type]
        long = {**body, "max_tokens": 90, "stream": True, "ignore_eos": True}
        with served.http.stream("POST", "/v1/completions", json=long) as answer:
            lines = answer.iter_lines()
            assert "data:" in next(lines)
            with send(served, {**body, "prompt": PROMPT[3:]}):
                until(lambda: gate.came == 2)
                until(lambda: gate.stepped() and built.loop.stats().waiting == 1)
            until(lambda: gate.left == 1)
            until(lambda: gate.stepped() and built.loop.stats().aborts == 1)
            assert "data:" in next(line for line in lines if line)
        until(lambda: gate.left == 2)
        gate.open()
        until(lambda: built.loop.stats().aborts == 2)
        several = served.http.post("/v1/completions", json={**body, "n": 3, "temperature": 1, "seed": 5})
        assert len(several.json()["choices"]) == 3
        assert served.http.post(PINS, json={"prompt": PROMPT}).status_code == 200
        last = served.http.post("/v1/completions", json=body).json()
    file.close()

    (run,) = read_capture(Source(path))
    again = simulate_again(run)
    told = [(request.aborted, request.started_step is None) for request in run.requests]
    assert told[:3] == [(True, False), (True, True), (False, False)]
    assert 0 < len(run.requests[0].outputs[0]) < 90
    assert [type(deed) for deed in run.deeds] == [Left, Left, PinTried]
    assert again.simulated.reused.tolist() == [request.reused for request in run.requests]
    assert int(again.simulated.reused[-1]) == last["usage"]["prompt_tokens_details"]["cached_tokens"] > 0


def test_lines_that_were_lost_are_counted_in_the_metrics(tmp_path: Path) -> None:
    model = ModelConfig(str(tiny.tiny_llama(tmp_path / "little")), kv_memory=2**18, threads=1)
    file = LineFile(Path("/dev/full"))
    built = build_engine(model, CacheConfig(), TINY, capture=file)
    with serving_built(built) as served:  # type: ignore[arg-type]
        body = {"model": built.facts.model, "prompt": PROMPT, "max_tokens": 1}
        assert served.http.post("/v1/completions", json=body).status_code == 200
        until(lambda: file.lost > 1)
        told = served.http.get("/metrics").text
    file.close()
    assert f'sapwood_capture_lost_total{{model="{built.facts.model}"}} ' in told
    (line,) = (line for line in told.splitlines() if line.startswith("sapwood_capture_lost_total"))
    assert 1 < float(line.split()[-1]) <= file.lost
    (about,) = (line for line in told.splitlines() if line.startswith("# HELP sapwood_capture_lost_total"))
    assert about.endswith("its disk was slow or full, its file was removed, or they were no JSON.")
