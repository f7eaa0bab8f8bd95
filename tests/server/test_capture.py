"""`serve --capture FILE`, from a client's call to the trace that is read from it."""

from __future__ import annotations

import stat
from pathlib import Path

from model import tiny
from sapwood.config import CacheConfig, ModelConfig, SchedulerConfig
from sapwood.engine import LineFile, build_engine
from sapwood.sim import read_trace
from sapwood.sim.readers.capture import read_capture
from sapwood.sim.readers.source import Source
from sapwood.sim.recorded import simulate_again
from server.conftest import serving_built

PROMPT = "once upon a time there was a tree"


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
